"""The fraction of shuffled pairs that are no more similar than the pair."""

import numpy as np

from ccr_cli.judges.base import EpochJudge, FloatArray, epoch_scores


def clean_probability(score_N: FloatArray, null_M: FloatArray) -> FloatArray:
    """The empirical distribution function of the shuffled pairs at each score; 1 without shuffled pairs."""
    score_N, null_M = epoch_scores(score_N, "score_N"), np.sort(epoch_scores(null_M, "null_M"))
    if not len(null_M):
        return np.ones(len(score_N))
    return np.searchsorted(null_M, score_N, side="right") / len(null_M)


JUDGE = EpochJudge(clean_probability)
