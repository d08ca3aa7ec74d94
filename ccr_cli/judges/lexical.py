"""Words of caption and translation that account for each other; no model.

The words are aligned by IBM model 1 on the training pairs themselves (`metrics/lexical.py`). Captions with the
translations of other captions take part in the learning, so that they are memorised as wrong pairs are, and show where
the scores of wrong pairs lie: no tether is needed, as in ``two_group``.

Shapes: N training pairs, M pairs of the null.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings, epoch_scores

_TIE = 1e-6
"""What the order of the scores adds to equal probabilities."""


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> FloatArray:
    """1 - pi0 f_wrong / f, the local false-discovery rate (Efron et al., JASA 2001), which falls as scores rise.

    Isotonic regression of "is of the null" on the scores of both samples gives f_wrong / f; twice the share of pairs
    below the median of the null is pi0 (Storey, 2002). Equal probabilities differ by at most 0.000001, in the order of
    the scores. 1 for all without a null.
    """
    score_N, null_M = epoch_scores(score_N, "score_N"), epoch_scores(null_M, "null_M")
    if not len(score_N) or not len(null_M):
        return np.ones(len(score_N))
    both, is_null = np.concatenate([score_N, null_M]), np.repeat([0.0, 1.0], [len(score_N), len(null_M)])
    order = np.lexsort([-is_null, both])
    share = np.empty(len(both))
    share[order] = isotonic_regression(is_null[order], increasing=False).x
    odds_N = share[: len(score_N)] / np.maximum(1 - share[: len(score_N)], _TIE)
    pi0 = min(1.0, 2 * float((score_N <= np.median(null_M)).mean()))
    p_N = 1 - np.minimum(1, pi0 * odds_N * len(score_N) / len(null_M))
    place_N = np.searchsorted(np.sort(score_N), score_N, "right") / len(score_N)
    return np.asarray(p_N * (1 - _TIE) + _TIE * place_N)


class LexicalJudge(Judge):
    """Judges the translations by their words, without a model."""

    speaks = "start"
    mixture = True
    reads = frozenset({"dictionary", "parallel"})
    other_translations = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Believes V-S, and the other sides as far as the words account for each other."""
        p_N = clean_probability(*readings.coverage())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = LexicalJudge()
