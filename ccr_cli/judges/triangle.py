"""Which of picture, source caption and translation does not match the other two.

A triplet (V, S, T) has three similarities, and an error shows as a pattern of them: a wrong translation fails V-T and
S-T, a wrong picture V-S and V-T, a wrong source caption V-S and S-T. So the triplets are a mixture of five hypotheses:
nothing is wrong, T, V or S is wrong, or all are. Each side has a density for matches and one for mismatches, and a
hypothesis is the product of three of them. Expectation maximisation fits the shares of the hypotheses and the densities
together, with the densities of mismatched sides tethered to the shuffled triplets, as in ``two_group``. The shares show
the kind of noise, and nobody has to choose a side.

In terms of belief functions this is Dempster's rule with all mass on single hypotheses, which is Bayes' rule: the three
similarities count as independent under a hypothesis. No hypothesis has exactly one failing side, so contradicting
opinions are resolved instead of averaged. The method is our own, not from a paper.

Shapes: N triplets, M shuffled ones, H the five hypotheses; sides are V-S, V-T, S-T, in this order.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ccr_cli.judges.base import ROUNDING, Belief, FloatArray, Judge, Opinion, Readings, epoch_scores, rising_interval
from ccr_cli.judges.two_group import LEAST_LEAD, LEAST_WIDTH, MAX_SHARE_OF_LEAD, WIDTH

HYPOTHESES = ("none", "translation", "visual", "source", "all")
"""What is wrong in a triplet."""
_FAILS_H3 = np.array(
    [[False, False, False], [False, True, True], [True, True, False], [True, False, True], [True, True, True]]
)
_TETHER = 0.1
"""Weight of the shuffled triplets in the mean and width of a mismatched side, as a fraction of the triplets. With less,
the lower tail of clean pairs counts as mismatched: 4 % of clean Flickr8k-CN at 0.0002, but 0.6 % at 0.1, which is as
good or better at 40 % noise of either kind."""
_ROUNDS, _TOLERANCE, _TINY = 500, 1e-6, 1e-12


class Triangle(NamedTuple):
    """The fitted mixture; scores are standardised by mean and standard deviation of the shuffled triplets."""

    share_H: FloatArray
    """Share of each hypothesis."""
    right_3: FloatArray
    """Mean of each side where it matches."""
    right_width_3: FloatArray
    wrong_3: FloatArray
    """Mean of each side where it does not match."""
    wrong_width_3: FloatArray


def clean_probability(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> FloatArray:
    """Probability that each side of each triplet matches (N, 3); 1 for all if the shuffled ones are uninformative.

    Scores are the similarities V-S, V-T, S-T of the triplets and of shuffled ones; ValueError if they are not finite.
    """
    return sides(weigh(score_N3, null_M3))


def sides(p_NH: FloatArray) -> FloatArray:
    """Probability that V-S, V-T and S-T match, (N, 3), from that of the hypotheses."""
    return np.asarray(p_NH @ ~_FAILS_H3, dtype=np.float64).clip(0, 1)


def weigh(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> FloatArray:
    """Probability of each hypothesis for each triplet, shape (N, H), from the scores of `clean_probability`."""
    score_N3, null_M3 = epoch_scores(score_N3, "score_N3", (3,)), epoch_scores(null_M3, "null_M3", (3,))
    if not len(score_N3) or len(null_M3) < 2 or (np.ptp(null_M3, axis=0) <= ROUNDING).any():
        return np.tile(np.eye(len(HYPOTHESES))[0], (len(score_N3), 1))
    z_N3 = (score_N3 - null_M3.mean(0)) / null_M3.std(0)
    return _posterior(fit(score_N3, null_M3), z_N3)


def fit(score_N3: npt.ArrayLike, null_M3: npt.ArrayLike) -> Triangle:
    """Fits the mixture to N > 0 triplets and shuffled ones that are not all equal."""
    score_N3, null_M3 = epoch_scores(score_N3, "score_N3", (3,)), epoch_scores(null_M3, "null_M3", (3,))
    x_N3 = (score_N3 - null_M3.mean(0)) / null_M3.std(0)
    x_N3 = x_N3[np.lexsort(x_N3.T)]  # sums do not depend on the order of the triplets
    start_H = np.array([0.7, 0.1, 0.1, 0.05, 0.05])
    lead_3 = np.maximum(np.quantile(x_N3, 0.75, axis=0), LEAST_LEAD)
    now = Triangle(start_H, lead_3, np.maximum(0.3, x_N3.std(0) / 2), np.zeros(3), np.ones(3))
    for _ in range(_ROUNDS):
        before, now = now, _step(now, x_N3)
        if max(float(np.abs(a - b).max()) for a, b in zip(before, now, strict=True)) < _TOLERANCE:
            break
    return now


def _step(now: Triangle, x_N3: FloatArray) -> Triangle:
    """One round of expectation maximisation, the mismatched sides tethered to the shuffled ones."""
    p_NH = _posterior(now, x_N3)
    wrong_N3 = p_NH @ _FAILS_H3
    right_N3 = 1 - wrong_N3
    total_3 = right_N3.sum(0)
    some_3, safe_3 = total_3 >= 1, np.maximum(total_3, 1)
    lead_3 = np.where(some_3, np.maximum(LEAST_LEAD, (right_N3 * x_N3).sum(0) / safe_3), now.right_3)
    spread_3 = np.sqrt(np.maximum(0, (right_N3 * (x_N3 - lead_3) ** 2).sum(0)) / safe_3)  # below 0 by rounding
    right_width_3 = np.where(some_3, np.maximum(LEAST_WIDTH, spread_3), now.right_width_3)
    null = _TETHER * len(x_N3)
    weight_3 = wrong_N3.sum(0) + null
    wrong_3 = np.clip((wrong_N3 * x_N3).sum(0) / weight_3, 0, MAX_SHARE_OF_LEAD * lead_3)
    wrong_width_3 = np.sqrt(((wrong_N3 * (x_N3 - wrong_3) ** 2).sum(0) + null) / weight_3)
    return Triangle(p_NH.mean(0), lead_3, right_width_3, wrong_3, np.clip(wrong_width_3, *WIDTH))


def _posterior(mixture: Triangle, x_N3: FloatArray) -> FloatArray:
    """Probability of each hypothesis, (N, H); a score beyond the turning point of the log-odds is clamped to it."""
    sides = zip(mixture.wrong_3, mixture.wrong_width_3, mixture.right_3, mixture.right_width_3, strict=True)
    low_3, high_3 = np.array([rising_interval((a, b), (c, d)) for a, b, c, d in sides]).T
    x_N3 = np.clip(x_N3, low_3, high_3)
    right_N3 = -0.5 * ((x_N3 - mixture.right_3) / mixture.right_width_3) ** 2 - np.log(mixture.right_width_3)
    wrong_N3 = -0.5 * ((x_N3 - mixture.wrong_3) / mixture.wrong_width_3) ** 2 - np.log(mixture.wrong_width_3)
    log_NH = wrong_N3 @ _FAILS_H3.T + right_N3 @ ~_FAILS_H3.T + np.log(np.maximum(mixture.share_H, _TINY))
    p_NH = np.exp(log_NH - log_NH.max(1, keepdims=True))
    return np.asarray(p_NH / p_NH.sum(1, keepdims=True), dtype=np.float64)


class TriangleJudge(Judge):
    """Judges all three sides of the triplets at once."""

    mixture = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges each triplet alone, then again with the believed other captions of its item added to its picture."""
        alone = Belief(*clean_probability(*readings.leads()).T)
        p_NH = weigh(*readings.leads(alone))
        return Opinion(Belief(*sides(p_NH).T), dict(zip(HYPOTHESES[1:], p_NH.mean(0)[1:].tolist(), strict=True)))


JUDGE = TriangleJudge()
