"""Ranking by scores from a file (CometKiwi, MetricX, bicleaner-ai).

Without the scores of known wrong translations, scores tell which pair is better but not how many are wrong. So the
probability keeps only the order: ½ plus half of the share of pairs that do not score higher. No pair is called noisy;
``--share`` decides how many are.
"""

import numpy as np
from scipy.stats import rankdata

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings


def clean_probability(score_N: FloatArray) -> FloatArray:
    """½ plus half of the share of known scores that are not higher; 1 where the score is unknown (NaN)."""
    known_N = ~np.isnan(score_N)
    p_N = np.ones(len(score_N))
    p_N[known_N] = (1 + rankdata(score_N[known_N], "max") / max(1, known_N.sum())) / 2
    return p_N


class ScoresJudge(Judge):
    """Judges the translations by scores from a file."""

    speaks = "start"
    reads = frozenset({"scores"})

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Trusts V-S; the probabilities of the other sides follow the order of the scores."""
        p_N = clean_probability(readings.file_scores())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = ScoresJudge()
