"""The order of scores from a file (CometKiwi, MetricX, bicleaner-ai).

Scores without those of wrong translations beside them tell which pair is better, not how many are wrong. So P is the
order alone: half of the share of pairs that do not score higher, and ½. Nothing is called noisy; ``--share`` decides
how many are.
"""

import numpy as np
from scipy.stats import rankdata

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings


def clean_probability(score_N: FloatArray) -> FloatArray:
    """½ + ½ of the share of known scores that are not higher; 1 where a score is not known (NaN)."""
    known_N = ~np.isnan(score_N)
    p_N = np.ones(len(score_N))
    p_N[known_N] = (1 + rankdata(score_N[known_N], "max") / max(1, known_N.sum())) / 2
    return p_N


class ScoresJudge(Judge):
    """Judges the translations by scores from a file."""

    speaks = "start"
    reads = frozenset({"scores"})

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Believes V-S, and the other sides in the order of the scores."""
        p_N = clean_probability(readings.file_scores())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = ScoresJudge()
