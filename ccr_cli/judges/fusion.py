"""All witnesses as one: words, dictionary, encoder, scores, a trained model.

Each witness ranks the pairs; its ranks become normal scores, which are added, each weighted by its correlation with the
sum of all: a witness counts as far as the others bear it out. Where one is missing the others decide. Shuffled pairs
get their scores by their place among the given ones, and the probability is that of ``lexical``, as is the order where
nothing but the translations themselves is there.

Shapes: N training pairs, M pairs of the null, W witnesses.
"""

from collections.abc import Iterable

import numpy as np
from scipy.special import ndtri

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings
from ccr_cli.judges.lexical import clean_probability as clean_probability


def normal_scores(score_N: FloatArray, among_N: FloatArray) -> FloatArray:
    """The normal quantile of each score's middle rank among others; NaN stays NaN.

    What is below or above all of them is put half a rank beyond.
    """
    known = np.sort(among_N[~np.isnan(among_N)])
    rank_N = (np.searchsorted(known, score_N) + np.searchsorted(known, score_N, "right")) / 2
    share_N = np.clip(rank_N, 0.25, len(known) - 0.25) / max(1, len(known))
    return np.where(np.isnan(score_N), np.nan, ndtri(share_N))


def fused(witnesses: Iterable[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Fuses the scores of witnesses, of given (N) and of shuffled pairs (M); NaN where one has none, 0 without any."""
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
        """Believes V-S, and the other sides as far as the witnesses do."""
        p_N = clean_probability(*fused(readings.witness_scores().values()))
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = FusionJudge()
