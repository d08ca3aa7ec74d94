"""Similarity above that of shuffled pairs, by a frozen model, before training.

"One-step Noisy Label Mitigation" (arXiv 2410.01944): x = s - beta, w = x^2 (1 - x) for x > 0, else 0. beta is the mean
similarity of shuffled pairs; the paper feeds the model random inputs instead. The result is w / (4/27), w as a share
of its maximum, held at 1 for x >= 2/3, where w would fall again. It is a weight, not a posterior: a pair at x = 0.2
gets 0.22, and ratios matter, not levels.

V-T and V-S are read with the run's model before its first step, which must be aligned already (`head=identity` or
`residual`); S-T with the sentence encoder that ``sentence_encoder`` names, or else with that model too. The authors'
code differs: it divides 100 x by the batch's largest, and its w = x^2 (1 - x^2) gives the best pair of a batch 0.
"""

import numpy as np
import numpy.typing as npt

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings, all_equal, believe, epoch_scores

PEAK = 2 / 3
"""The x at which w is largest, 4/27."""


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> FloatArray:
    """Relative weights w / (4/27) of cosine similarities (N,), given those of shuffled pairs (M,).

    1 for all if the scores are all equal, or there are no shuffled pairs.
    """
    score_N, null_M = epoch_scores(score_N, "score_N"), np.sort(epoch_scores(null_M, "null_M"))
    if len(score_N) == 0 or len(null_M) == 0 or all_equal(score_N):
        return np.ones(len(score_N))
    x_N = np.clip(score_N - null_M.mean(), 0.0, PEAK)
    return np.asarray(np.minimum(x_N**2 * (1 - x_N) * (27 / 4), 1.0), dtype=np.float64)


class OsaJudge(Judge):
    """Judges by the model that a run starts from."""

    speaks = "first"
    takes_side = True
    reads = frozenset({"sentence_encoder"})

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges all pairs at once; V-S and V-T together (for `both`) by the mean of their similarities."""

        def probability(name: str) -> FloatArray:
            read = readings.sentence_similarities() if name == "ST" else None
            if read is None:
                sides = ("VS", "VT") if name == "both" else (name,)
                own, null = readings.similarities(), readings.null()
                read = tuple(np.mean([sims[one] for one in sides], axis=0) for sims in (own, null))
            return clean_probability(*read)

        p: Belief[FloatArray] = believe(side, probability, np.ones(len(readings)))
        return Opinion(p)


JUDGE = OsaJudge()
