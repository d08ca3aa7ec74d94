"""All witnesses combined: words, dictionary, encoder, scores, a trained model.

Each witness ranks the pairs; the ranks become normal scores, which are added, weighted by each witness's correlation
with the sum of all: a witness counts as far as the others confirm it. Where one has no score, the others decide.
Shuffled pairs are scored by their rank among the given ones. The probability is that of ``lexical``, and so is the
order if the translations themselves are the only witness.

Shapes: N training pairs, M pairs of the null, W witnesses.
"""

from collections.abc import Iterable

import numpy as np
from scipy.special import ndtri

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings
from ccr_cli.judges.lexical import clean_probability as clean_probability


def normal_scores(score_N: FloatArray, among_N: FloatArray) -> FloatArray:
    """The normal quantile of each score's middle rank among others; NaN stays NaN.

    Scores below or above all the others are placed a quarter of a rank beyond them.
    """
    known = np.sort(among_N[~np.isnan(among_N)])
    rank_N = (np.searchsorted(known, score_N) + np.searchsorted(known, score_N, "right")) / 2
    share_N = np.clip(rank_N, 0.25, len(known) - 0.25) / max(1, len(known))
    return np.where(np.isnan(score_N), np.nan, ndtri(share_N))


def fused(witnesses: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Combines the witnesses' scores of given (N) and shuffled pairs (M); NaN is no score; pairs without any get 0."""
    pairs = [(normal_scores(given_N, given_N), normal_scores(null_M, given_N)) for given_N, null_M in witnesses]
    given_NW, null_MW = (np.stack(side, axis=1) for side in zip(*pairs, strict=True))
    filled_NW = np.nan_to_num(given_NW)
    width_W = np.sqrt((filled_NW**2).mean(axis=0)).clip(min=1e-12)
    correlation_WW = (filled_NW.T @ filled_NW) / len(filled_NW) / np.outer(width_W, width_W)
    weight_W = correlation_WW.sum(axis=1).clip(min=0)

    def added(score_RW: FloatArray) -> FloatArray:
        used_RW = ~np.isnan(score_RW) * weight_W
        variance_R = ((used_RW @ correlation_WW) * used_RW).sum(axis=1)
        return np.asarray((np.nan_to_num(score_RW) * used_RW).sum(axis=1) / np.sqrt(variance_R.clip(min=1e-12)))

    return added(given_NW), added(null_MW)


class FusionJudge(Judge):
    """Judges the translations by all witnesses."""

    speaks = "start"
    mixture = True
    other_translations = True
    reads = frozenset({"dictionary", "parallel", "sentence_encoder", "scores"})

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Trusts V-S; the other sides get the probability from the witnesses."""
        p_N = clean_probability(*fused(readings.witness_scores().values()))
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = FusionJudge()
