"""Which of picture, source caption and translation is the odd one out.

A triplet (V, S, T) has three similarities, and what is wrong shows in a pattern of them: a wrong translation fails
V-T and S-T, a wrong picture V-S and V-T, a wrong source caption V-S and S-T. So the triplets are a mixture of five
hypotheses: nothing is wrong, T, V or S is, or all are. Each side has one density where it matches and one where it
does not; a hypothesis is the product of three of them. The shares of the hypotheses and the densities are fitted
together by expectation maximisation, the densities of what does not match held near the shuffled triplets, as in
``two_group``. The shares say what kind of noise there is, and nobody has to choose a side to look at.

Read as opinions over one frame this is Dempster's rule with all mass on single hypotheses, where it is Bayes': the
three similarities count as independent given what is wrong. That exactly one side of a triangle fails is no
hypothesis, so opinions that contradict each other are resolved instead of averaged. Ours; no paper has it.

Shapes: N given triplets, M shuffled ones, H the five hypotheses; sides are V-S, V-T, S-T, in this order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion, Readings, rising_interval
from ccr_cli.judges.two_group import LEAST_LEAD, LEAST_WIDTH, MAX_SHARE_OF_LEAD, WIDTH

HYPOTHESES = ("none", "translation", "visual", "source", "all")
"""What is wrong."""
_FAILS_H3 = np.array(
    [[False, False, False], [False, True, True], [True, True, False], [True, False, True], [True, True, True]]
)
_TETHER = 0.1
"""What the shuffled triplets are worth in the place and width of a mismatched side, as a share of the given ones. With
less, the lower tail of what matches is taken for mismatches where nothing is wrong: 4 % of clean Flickr8k-CN at 0.0002,
0.6 % at 0.1, which is as good or better at 40 % noise of either kind."""
_ROUNDS, _TOLERANCE, _TINY = 500, 1e-6, 1e-12
_ROUNDING = 1e-5
"""What cosines of float32 may differ by for no reason."""


class Fit(NamedTuple):
    """What the judge found out; scores in standard deviations of the shuffled triplets, from their mean."""

    share_H: FloatArray
    """Share of each hypothesis."""
    right_3: FloatArray
    """Mean of each side where it matches."""
    right_width_3: FloatArray
    wrong_3: FloatArray
    """The same where it does not."""
    wrong_width_3: FloatArray


def clean_probability(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> FloatArray:
    """Probability that each side of each triplet matches.

    Args:
        score_N3: Similarities V-S, V-T, S-T of the given triplets, shape (N, 3).
        null_M3: The same of shuffled triplets, shape (M, 3).

    Returns:
        Shape (N, 3), in [0, 1]; 1 for all where the shuffled triplets hold no information.

    Raises:
        ValueError: A score that is not finite, or another shape.
    """
    return sides(weigh(score_N3, null_M3))


def sides(p_NH: FloatArray) -> FloatArray:
    """Probability that V-S, V-T and S-T match, (N, 3), from that of the hypotheses."""
    return np.asarray(p_NH @ ~_FAILS_H3, dtype=np.float64).clip(0, 1)


def weigh(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> FloatArray:
    """Probability of each hypothesis for each triplet, shape (N, H).

    Args, Raises: those of `clean_probability`. Where the shuffled triplets hold no information nothing is wrong.
    """
    score_N3, null_M3 = _checked(score_N3, "score_N3"), _checked(null_M3, "null_M3")
    if not len(score_N3) or _says_nothing(null_M3):
        return np.tile(np.eye(len(HYPOTHESES))[0], (len(score_N3), 1))
    z_N3 = (score_N3 - null_M3.mean(0)) / null_M3.std(0)
    return _posterior(fit(score_N3, null_M3), z_N3)


def fit(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> Fit:
    """The shares of the hypotheses, and where matching and mismatched sides lie.

    Args:
        score_N3: Similarities of the given triplets, shape (N, 3), N > 0.
        null_M3: The same of shuffled triplets, shape (M, 3), not all equal.
    """
    score_N3, null_M3 = _checked(score_N3, "score_N3"), _checked(null_M3, "null_M3")
    x_N3 = (score_N3 - null_M3.mean(0)) / null_M3.std(0)
    x_N3 = x_N3[np.lexsort(x_N3.T)]  # sums do not depend on the order of the triplets
    start_H = np.array([0.7, 0.1, 0.1, 0.05, 0.05])
    lead_3 = np.maximum(np.quantile(x_N3, 0.75, axis=0), LEAST_LEAD)
    now = Fit(start_H, lead_3, np.maximum(0.3, x_N3.std(0) / 2), np.zeros(3), np.ones(3))
    for _ in range(_ROUNDS):
        before, now = now, _step(now, x_N3)
        if max(float(np.abs(a - b).max()) for a, b in zip(before, now, strict=True)) < _TOLERANCE:
            break
    return now


def _step(now: Fit, x_N3: FloatArray) -> Fit:
    """One round of expectation maximisation, the mismatched sides tethered to the shuffled ones."""
    p_NH = _posterior(now, x_N3)
    wrong_N3 = p_NH @ _FAILS_H3
    right_N3 = 1 - wrong_N3
    total_3 = right_N3.sum(0)
    some_3, safe_3 = total_3 >= 1, np.maximum(total_3, 1)
    lead_3 = np.where(some_3, np.maximum(LEAST_LEAD, (right_N3 * x_N3).sum(0) / safe_3), now.right_3)
    spread_3 = np.sqrt((right_N3 * (x_N3 - lead_3) ** 2).sum(0) / safe_3)
    right_width_3 = np.where(some_3, np.maximum(LEAST_WIDTH, spread_3), now.right_width_3)
    null = _TETHER * len(x_N3)
    weight_3 = wrong_N3.sum(0) + null
    wrong_3 = np.clip((wrong_N3 * x_N3).sum(0) / weight_3, 0, MAX_SHARE_OF_LEAD * lead_3)
    wrong_width_3 = np.sqrt(((wrong_N3 * (x_N3 - wrong_3) ** 2).sum(0) + null) / weight_3)
    return Fit(p_NH.mean(0), lead_3, right_width_3, wrong_3, np.clip(wrong_width_3, *WIDTH))


def _posterior(found: Fit, x_N3: FloatArray) -> FloatArray:
    """Probability of each hypothesis, (N, H); beyond the turning point of its log-odds a score is held there."""
    sides = zip(found.wrong_3, found.wrong_width_3, found.right_3, found.right_width_3, strict=True)
    low_3, high_3 = np.array([rising_interval((a, b), (c, d)) for a, b, c, d in sides]).T
    x_N3 = np.clip(x_N3, low_3, high_3)
    right_N3 = -0.5 * ((x_N3 - found.right_3) / found.right_width_3) ** 2 - np.log(found.right_width_3)
    wrong_N3 = -0.5 * ((x_N3 - found.wrong_3) / found.wrong_width_3) ** 2 - np.log(found.wrong_width_3)
    log_NH = wrong_N3 @ _FAILS_H3.T + right_N3 @ ~_FAILS_H3.T + np.log(np.maximum(found.share_H, _TINY))
    p_NH = np.exp(log_NH - log_NH.max(1, keepdims=True))
    return np.asarray(p_NH / p_NH.sum(1, keepdims=True), dtype=np.float64)


def _checked(values: npt.ArrayLike, name: str) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"{name}: want three columns, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: {np.count_nonzero(~np.isfinite(array))} of {array.size} scores are not finite")
    return array


def _says_nothing(null_M3: FloatArray) -> bool:
    return len(null_M3) < 2 or bool((np.ptp(null_M3, axis=0) <= _ROUNDING).any())


class TriangleJudge(Judge):
    """Judges all three sides of the triplets at once."""

    mixture = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges the triplets alone, then again with the believed captions of an item added to its picture."""
        alone = Belief(*clean_probability(*readings.leads()).T)
        p_NH = weigh(*readings.leads(alone))
        return Opinion(Belief(*sides(p_NH).T), dict(zip(HYPOTHESES[1:], p_NH.mean(0)[1:].tolist(), strict=True)))


JUDGE = TriangleJudge()
