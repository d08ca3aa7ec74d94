"""Two beta distributions fitted to ranking losses; the lower is clean (L2RM).

Han et al., "Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval", CVPR 2024, arXiv 2403.05105, as in
its code: the losses of ``hinge``, scaled to [0, 1]. The code calls a library for the fit; here each step of expectation
maximisation matches moments, as Arazo et al., "Unsupervised Label Noise Modeling and Loss Correction", ICML 2019.
(Maximum likelihood would fit a narrow distribution to the losses near 0, and another to all the rest.)
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from scipy.stats import beta

from ccr_cli.judges.base import FloatArray, all_equal, epoch_scores
from ccr_cli.judges.hinge import LossJudge, hinges

EDGE = 1e-3
"""Scaled losses are held this far from 0 and 1, where densities can be infinite."""
_LEAST_VARIANCE, _LEAST_SHARE, _TINY, _ROUNDS, _TOLERANCE = 1e-6, 1e-6, 1e-12, 200, 1e-6


class Beta(NamedTuple):
    """A beta distribution."""

    a: float
    b: float

    @classmethod
    def of(cls, x_N: FloatArray, weight_N: FloatArray) -> "Beta":
        """Fits a beta distribution to the mean and the variance of weighted values."""
        total = max(float(weight_N.sum()), _TINY)
        mean = float(np.clip((weight_N * x_N).sum() / total, EDGE, 1 - EDGE))
        variance = max(float((weight_N * (x_N - mean) ** 2).sum() / total), _LEAST_VARIANCE)
        strength = max(mean * (1 - mean) / variance - 1, _TINY)
        return cls(mean * strength, (1 - mean) * strength)

    @property
    def mean(self) -> float:
        """Its mean."""
        return self.a / (self.a + self.b)

    def log_density(self, x_N: FloatArray) -> FloatArray:
        """Logarithm of its density."""
        return np.asarray(beta.logpdf(x_N, self.a, self.b), dtype=np.float64)


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike | None = None) -> FloatArray:
    """Posterior probability of the component with the lower mean loss; scores are negated losses.

    The fit starts with the scaled loss as the probability of being noisy, without randomness. Beyond the turning point
    of the log-odds a higher score would give a lower probability, so the probability is held at its value there. 1 for
    all with fewer than two distinct scores. The null sample is not used.
    """
    score_N = epoch_scores(score_N, "score_N")
    if len(score_N) < 2 or all_equal(score_N):
        return np.ones(len(score_N))
    order_N = np.argsort(score_N, kind="stable")  # sums do not depend on the order of the pairs
    x_N = ((score_N.max() - score_N) / np.ptp(score_N)).clip(EDGE, 1 - EDGE)
    clean, noisy, log_odds = fit(x_N[order_N])
    rise, fall = clean.a - noisy.a, clean.b - noisy.b  # the slope of the log-odds is rise / x - fall / (1 - x)
    if rise * fall > 0:
        turn = rise / (rise + fall)
        x_N = x_N.clip(min=turn) if rise > 0 else x_N.clip(max=turn)
    return np.asarray(expit(log_odds + clean.log_density(x_N) - noisy.log_density(x_N)), dtype=np.float64)


def fit(x_N: FloatArray) -> tuple[Beta, Beta, float]:
    """Fits the component with the lower mean and the other one; also returns the log ratio of their shares."""
    noisy_N = x_N
    for _ in range(_ROUNDS):
        share = float(np.clip(noisy_N.mean(), _LEAST_SHARE, 1 - _LEAST_SHARE))
        low, high = Beta.of(x_N, 1 - noisy_N), Beta.of(x_N, noisy_N)
        log_odds = float(np.log(1 - share) - np.log(share))
        before_N, noisy_N = noisy_N, expit(high.log_density(x_N) - low.log_density(x_N) - log_odds)
        if np.abs(noisy_N - before_N).max() < _TOLERANCE:
            break
    return (low, high, log_odds) if low.mean <= high.mean else (high, low, -log_odds)


JUDGE = LossJudge(hinges, clean_probability)
