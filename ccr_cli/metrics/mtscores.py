"""BLEU and chrF, by sacrebleu: of translations against human references, and of round trips.

Papineni et al. 2002; Popovic 2015 (chrF: character 1- to 6-grams, beta 2) and 2017 (chrF++: words and pairs of words
too); Post 2018 (signatures). A score is comparable with another if their signatures agree, and their references are
the same.

Shape legend: N sentences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RESAMPLES = 1000
"""Of the sentences, for the interval; with sacrebleu's own seed, which the signature has."""
_WITHOUT_SPACES = frozenset({"zh", "yue", "ja", "th", "lo", "km", "my"})
_TOKENIZERS = {
    "zh": "zh",
    "yue": "zh",
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    **dict.fromkeys(["th", "lo", "km", "my"], "char"),
}
_DIGITS = 4


def tokenizer(lang: str) -> tuple[str, str]:
    """The tokeniser that BLEU takes for a language, of those that need no network.

    `zh` cuts Chinese into characters; `ja-mecab` and `ko-mecab` know words, and need a package each, without which
    it is characters; `13a` is that of WMT.

    Returns:
        sacrebleu's name of it, and a note where it is not the usual one, else "".
    """
    from sacrebleu.metrics.bleu import BLEU

    code = lang.lower().replace("_", "-").partition("-")[0]
    wanted = _TOKENIZERS.get(code, "13a")
    try:
        BLEU(tokenize=wanted)
    except RuntimeError:  # what sacrebleu raises if the tokeniser's package is not installed
        return "char", f"BLEU of characters, since {wanted} is not installed: pip install 'sacrebleu[{code}]'"
    return wanted, ""


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lang: str
) -> tuple[dict[str, dict[str, Any]], str]:
    """BLEU, chrF2 and, in languages that put spaces between words, chrF2++ of a corpus.

    Args:
        hypotheses: (N,) translations; "" where there is none.
        references: (N,) at least one for each; not everywhere equally many.
        lang: Of both, BCP 47.

    Returns:
        By sacrebleu's name of the metric: `score`, `interval` (95 % bootstrap over sentences; None for one sentence)
        and `signature`; and a note on the tokeniser, or "".

    Raises:
        ValueError: If there is no sentence, or one has no reference.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not hypotheses or len(hypotheses) != len(references) or not all(references):
        raise ValueError("every translation needs a reference, and there must be one")
    cut, note = tokenizer(lang)
    metrics: list[Any] = [_lean(BLEU)(tokenize=cut, force=True), _lean(CHRF)()]
    if lang.lower().replace("_", "-").partition("-")[0] not in _WITHOUT_SPACES:
        metrics.append(_lean(CHRF)(word_order=2))
    most = max(map(len, references))
    streams = [[each[i] if i < len(each) else None for each in references] for i in range(most)]
    scores = {}
    for metric in metrics:
        found = metric.corpus_score(list(hypotheses), streams, n_bootstrap=RESAMPLES)
        told = json.loads(found.format(width=_DIGITS, is_json=True, signature=str(metric.get_signature())))
        mean, half = told.get("confidence_mean"), told.get("confidence_var")
        alone = mean is None or len(hypotheses) == 1
        interval = None if alone else [round(max(mean - half, 0.0), _DIGITS), round(min(mean + half, 100.0), _DIGITS)]
        scores[str(told["name"])] = {"score": told["score"], "interval": interval, "signature": told["signature"]}
    return scores, note


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
    """ChrF2 of each sentence, 0..100; of several references the one that is nearest counts.

    Args:
        hypotheses: (N,) "" scores 0.
        references: (N,) of each.
    """
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return np.array([metric.sentence_score(text, list(own)).score for text, own in pairs], dtype=np.float64)


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """ChrF2 of a corpus with one reference each, and sacrebleu's signature."""
    from sacrebleu.metrics.chrf import CHRF

    metric = _lean(CHRF)()
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score), str(metric.get_signature())


def _lean(metric: Any) -> Any:
    """A metric of sacrebleu that does not hold the n-grams of all references at once: 20 KB of each sentence."""

    class Lean(metric):  # type: ignore[misc]
        def _cache_references(self, references: Sequence[Sequence[str | None]]) -> Iterator[Any]:
            counts = {sum(text is not None for text in texts) for texts in zip(*references, strict=True)}
            self.num_refs = counts.pop() if len(counts) == 1 else -1
            return (self._reference(texts) for texts in zip(*references, strict=True))

        def _reference(self, texts: Sequence[str | None]) -> Any:
            return self._extract_reference_info([self._preprocess_segment(text) for text in texts if text is not None])

    return Lean


def round_trip_chrf(sources: Sequence[str], round_trips: Sequence[str]) -> tuple[FloatArray, float, str]:
    """ChrF2 of round trips with the source as reference, by sentence and over the corpus.

    Case counts, white space does not.

    Returns:
        (N,) sentence chrF2 and the corpus chrF2, both 0..100, and sacrebleu's signature.

    Raises:
        ValueError: If there is no sentence, or the lengths differ.
    """
    if not sources or len(sources) != len(round_trips):
        raise ValueError("chrF needs at least one sentence, and as many round trips as sources")
    each = sentence_chrf(round_trips, [[source] for source in sources])
    return each, *corpus_chrf(round_trips, sources)
