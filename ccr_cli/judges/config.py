"""What a judge may read besides the training pairs: options of every method, and of `ccr diagnose --set`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgeConfig:
    """Witnesses that are files or models; each is read only by a judge that declares it (`Judge.reads`)."""

    dictionary: str = ""
    """Bilingual dictionary for `lexical` and `fusion`: a file of CC-CEDICT, FreeDict or Apertium (.dix), or two
    columns."""
    parallel: str = ""
    """Human translations of other captions, from which `lexical` and `fusion` learn words instead of from the judged
    translations: two tab-separated columns of sentences, or TMX."""
    sentence_encoder: str = ""
    """Multilingual sentence encoder of transformers for `margin`, `fusion` and `osa`, by folder or name."""
    scores: str = ""
    """File of quality scores for `scores` and `fusion`: by caption id, or one per line."""
