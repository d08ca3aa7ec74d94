"""What a judge may read besides the training pairs: options of every method, and of `ccr diagnose --set`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgeConfig:
    """Witnesses that are files or models; each is read only by a judge that declares it (`Judge.reads`)."""

    dictionary: str = ""
    """A bilingual dictionary for `lexical` and `fusion`: a file of CC-CEDICT, FreeDict or Apertium (.dix), or one with
    two columns."""
    parallel: str = ""
    """Human translations of other captions for `lexical` and `fusion`, instead of the words of the translations
    themselves: sentences in two columns with a tab between, or TMX."""
    sentence_encoder: str = ""
    """A multilingual sentence encoder of transformers for `margin` and `fusion`, by folder or name."""
    scores: str = ""
    """A file of scores from elsewhere for `scores` and `fusion`: by caption id, or one per line."""
