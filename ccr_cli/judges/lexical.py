"""Word alignment between caption and translation; no model.

IBM model 1 aligns the words, learned from the training pairs themselves (`metrics/lexical.py`). Captions paired with
translations of other captions are learned too, so that they are memorised as wrong pairs are, and their scores show
where those of wrong pairs lie. So, unlike ``two_group``, it needs no tether.

Shapes: N training pairs, M pairs of the null.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings, epoch_scores

_TIE = 1e-6
"""Weight of the scores' order, which separates equal probabilities."""


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> FloatArray:
    """1 - pi0 f_wrong / f, the local false-discovery rate (Efron et al., JASA 2001), which falls as scores rise.

    Isotonic regression of "is a null pair" on the scores of both samples gives f_wrong / f; twice the share of pairs
    below the median of the null is pi0 (Storey, 2002). Equal probabilities differ by at most 0.000001, in the order of
    the scores. 1 for all without a null sample.
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
        """Trusts V-S; the other sides get the probability from the words."""
        p_N = clean_probability(*readings.coverage())
        return Opinion(Belief(np.ones(len(readings)), p_N, p_N))


JUDGE = LexicalJudge()
