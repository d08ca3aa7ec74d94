"""BLEU and chrF, by sacrebleu: of translations against human references, and of round trips.

Papineni et al. 2002; Popovic 2015 (chrF: character 1- to 6-grams, beta 2) and 2017 (chrF++: words and pairs of words
too); Post 2018 (signatures). Two scores are comparable if their signatures and references are the same.

Shape legend: N sentences.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ccr_cli.metrics.detection import FloatArray
from ccr_cli.metrics.scripts import base_language, has_spaces

RESAMPLES = 1000
"""Resamples of the sentences for the interval."""
_SEED = 12345
"""sacrebleu's default."""
_BLOCK = 8192
_DRAWN = 2**20
"""Sentences that are drawn at once."""
_TOKENIZERS = {
    **{"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"},
    **dict.fromkeys(["th", "lo", "km", "my"], "char"),
}
_DIGITS = 4


def tokenizer(lang: str) -> tuple[str, str]:
    """The BLEU tokeniser for a language, of those that need no network, and a note if it is not the usual one.

    `zh` splits Chinese into characters; `ja-mecab` and `ko-mecab` split into words and need a package each, without
    which the text is split into characters; `13a` is WMT's.
    """
    from sacrebleu.metrics.bleu import BLEU

    code = base_language(lang)
    tokenizer = _TOKENIZERS.get(code, "13a")
    try:
        BLEU(tokenize=tokenizer)
    except RuntimeError:  # what sacrebleu raises if the tokeniser's package is not installed
        return "char", f"BLEU of characters, since {tokenizer} is not installed: pip install 'sacrebleu[{code}]'"
    return tokenizer, ""


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], lang: str
) -> tuple[dict[str, dict[str, Any]], str]:
    """BLEU, chrF2 and, in languages that put spaces between words, chrF2++ of translations (N,).

    A missing translation is "". Each has at least one reference; their number may vary.

    Returns:
        By sacrebleu's name of the metric: `score`, `interval` (95 % bootstrap over sentences; None for one sentence)
            and `signature`; and a note on the tokeniser, or "".
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not hypotheses or len(hypotheses) != len(references) or not all(references):
        count = f"{len(hypotheses)} translations, {sum(map(bool, references))} with a reference"
        raise ValueError(f"{count}: each needs one, and there is at least one")
    cut, note = tokenizer(lang)
    metrics: list[Any] = [BLEU(tokenize=cut, force=True), CHRF()]
    if has_spaces(lang):
        metrics.append(CHRF(word_order=2))
    most = max(map(len, references))
    streams = [[each[i] if i < len(each) else None for each in references] for i in range(most)]
    scores = {}
    for metric in metrics:
        stats_NS = _statistics(metric, hypotheses, streams)
        found, interval = _score(metric, stats_NS.sum(0)), _interval(metric, stats_NS) if len(stats_NS) > 1 else None
        metric.n_bootstrap, metric.seed = RESAMPLES, str(_SEED)
        scores[str(found.name)] = {
            "score": round(float(found.score), _DIGITS),
            "interval": interval,
            "signature": str(metric.get_signature()),
        }
    return scores, note


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
    """ChrF2 of each sentence (N,), 0 to 100; "" scores 0, and of several references the best one counts."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return np.array([metric.sentence_score(text, list(own)).score for text, own in pairs], dtype=np.float64)


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """ChrF2 of a corpus with one reference each, and sacrebleu's signature."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    found = _score(metric, _statistics(metric, hypotheses, [references]).sum(0))
    return float(found.score), str(metric.get_signature())


def _statistics(metric: Any, hypotheses: Sequence[str], streams: Sequence[Sequence[str | None]]) -> FloatArray:
    """The statistics (N, S) that a sacrebleu metric counts in each sentence, and sums over a corpus.

    They are made in blocks: sacrebleu would hold the n-grams of all references at once, 20 KB per sentence.
    """
    parts = []
    for first in range(0, len(hypotheses), _BLOCK):
        here = slice(first, first + _BLOCK)
        parts.append(metric._extract_corpus_statistics(hypotheses[here], [stream[here] for stream in streams]))
    counts = {sum(text is not None for text in texts) for texts in zip(*streams, strict=True)}
    metric.num_refs = counts.pop() if len(counts) == 1 else -1  # of all sentences, as the signature has it
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])


def _score(metric: Any, totals_S: FloatArray) -> Any:
    return metric._compute_score_from_stats(totals_S.astype(np.int64).tolist())


def _interval(metric: Any, stats_NS: FloatArray) -> list[float]:
    """The 95 % bootstrap interval of sacrebleu."""
    from sacrebleu.significance import estimate_ci

    totals_RS = np.concatenate([times_BN @ stats_NS for times_BN in _draws(len(stats_NS))])
    mean, half = estimate_ci(np.array([_score(metric, totals_S).score for totals_S in totals_RS]))
    return [round(max(float(mean - half), 0.0), _DIGITS), round(min(float(mean + half), 100.0), _DIGITS)]


def _draws(size: int) -> Iterator[FloatArray]:
    """How often each draw takes each sentence (B, N), in blocks: all draws of 29,000 sentences take 232 MB."""
    dice, at_once = np.random.default_rng(_SEED), max(1, _DRAWN // size)
    for first in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - first)
        taken_BN = dice.integers(0, size, (rows, size)) + size * np.arange(rows)[:, None]
        yield np.bincount(taken_BN.ravel(), minlength=rows * size).reshape(rows, size).astype(np.float64)
