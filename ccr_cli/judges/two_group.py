"""Local false-discovery rate against the known null of shuffled pairs (Efron).

The scores of the given pairs are a mixture f = pi0 f_wrong + (1 - pi0) f_right. The null density f0 of a pair
that does not match is *known*: shuffle the pairs. If f_wrong were f0, Storey's estimate from below the null's
median would give pi0 = 2 P(score < median of f0).

But mismatched pairs that were *trained on* score higher than shuffled ones: the model has begun to memorise
them (0.4 to 0.5 standard deviations of f0 after three epochs, 0.8 to 0.9 after six, at nearly unchanged
width, in a simulation; the estimate above then finds 0.26 and 0.15 of a true 0.4). No choice of quantile
mends that, lower ones suffer more. So f_wrong is taken as an exponential tilt of the null, f_wrong(x) = f0(x)
exp(theta x) / c, which for a Gaussian null is a shift by theta s^2, and theta is fitted below the null's
median, where clean pairs are rare: there f is proportional to f_wrong and its slope against f0 is theta,
whatever pi0 and f_right are. With f_wrong known, pi0 is the smallest ratio of the two distribution functions
over a grid of lower quantiles (every one is an upper bound); in that simulation it comes out as 0.41 and 0.42
to 0.46.
Where nothing is wrong, the left flank is the tail of the clean pairs, steeper than any tilt allowed, and the
lowest quantiles give a pi0 near 0. The limits: mismatches memorised beyond the bounds below (1.5 standard
deviations and more) look like right pairs and are not found, and where the model cannot yet tell right pairs
from shuffled ones (AUROC 0.8) a pi0 of up to 0.3 is reported where nothing is wrong.

Shapes: N given pairs, M pairs of the null, G points of the grid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from ccr_cli.judges.base import FloatArray, Scope, all_equal, epoch_scores

SCOPE: Scope = "epoch"

_BINS_PER_BANDWIDTH, _MIN_BINS, _MAX_BINS = 8, 256, 65_536
_QUANTILES = (0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.01)
_MIN_EXPECTED = 50.0  # scores that a quantile must expect under pi0 = 1 before its count is believed
_PRIOR = 0.5  # width of the shift's prior, in standard deviations of the null: matters for few scores only
_MAX_SHIFT = 1.0  # in standard deviations of the null
_MAX_SHARE_OF_LEAD = 0.4  # of the lead of the given pairs' upper quartile over the null's mean


class Fit(NamedTuple):
    """What the judge found out before it judged."""

    pi0: float
    """Share of mismatched pairs."""
    shift: float
    """How far trained-on mismatches lie above shuffled pairs, in standard deviations of the null."""
    weight_M: FloatArray
    """Weights that turn the sorted null sample into a sample of trained-on mismatches; they sum to 1."""


def clean_probability(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> FloatArray:
    """1 - pi0 f_wrong / f at every score, made monotone by isotonic regression; no threshold is involved.

    Args:
        score_N: similarity of every given pair, shape (N,).
        null_M: similarities of shuffled pairs, shape (M,), ideally M of the size of N.

    Returns:
        Shape (N,), in [0, 1]; 1 for all where the null sample or the scores hold no information.

    Raises:
        ValueError: a score that is not finite, or more than one dimension.
    """
    score_N, null_M = epoch_scores(score_N, "score_N"), np.sort(epoch_scores(null_M, "null_M"))
    if len(score_N) == 0 or len(null_M) < 2 or all_equal(null_M):
        return np.ones(len(score_N))
    ordered_N = np.sort(score_N)  # sums do not depend on the order of the pairs
    found = fit(ordered_N, null_M)
    if found.pi0 == 0:
        return np.ones(len(score_N))
    bandwidth = _bandwidth(null_M, min(len(score_N), len(null_M)))
    low = min(ordered_N[0], null_M[0]) - 4 * bandwidth
    high = max(ordered_N[-1], null_M[-1]) + 4 * bandwidth
    bins = int(np.clip(_BINS_PER_BANDWIDTH * (high - low) / bandwidth, _MIN_BINS, _MAX_BINS))
    edges = np.linspace(low, high, bins + 1)
    width = bandwidth / float(edges[1] - edges[0])
    f_G = _smooth(np.histogram(ordered_N, edges)[0] / len(ordered_N), width)
    f_G = np.maximum(f_G, 1e-12)
    wrong_G = _smooth(np.histogram(null_M, edges, weights=found.weight_M)[0], width)
    right_G = isotonic_regression(1 - found.pi0 * wrong_G / f_G, weights=f_G, increasing=True).x
    right_N = np.interp(score_N, (edges[1:] + edges[:-1]) / 2, right_G)
    return np.asarray(np.clip(right_N, 0.0, 1.0), dtype=np.float64)


def fit(score_N: npt.ArrayLike, null_M: npt.ArrayLike) -> Fit:
    """The share of mismatches and how far training has moved them.

    Args:
        score_N: similarity of every given pair, shape (N,), N > 0.
        null_M: similarities of shuffled pairs, shape (M,), not all equal.

    Returns:
        The fit; ``weight_M`` belongs to the sorted null sample.
    """
    score_N, null_M = np.sort(epoch_scores(score_N, "score_N")), np.sort(epoch_scores(null_M, "null_M"))
    mean, deviation = float(null_M.mean()), float(null_M.std())
    x_N, x_M = (score_N - mean) / deviation, (null_M - mean) / deviation
    lead = float(np.quantile(x_N, 0.75))
    most = min(_MAX_SHIFT, max(0.0, _MAX_SHARE_OF_LEAD * lead))
    shift = _fit_tilt(x_N, x_M, most)
    weight_M = np.exp(shift * x_M)
    weight_M /= weight_M.sum()
    return Fit(_share_of_wrong(x_N, x_M, weight_M), shift, weight_M)


def _fit_tilt(x_N: FloatArray, x_M: FloatArray, most: float) -> float:
    """Posterior mode of theta in [0, most] from the scores below the null's median.

    Given that a score lies below, its likelihood is that of the tilted, truncated null sample: the mode is
    where the tilted mean equals the scores' mean, but for the pull of a half-normal prior. The slope falls in
    theta.
    """
    median = float(np.median(x_M))
    below_N, below_M = x_N[x_N < median], x_M[x_M < median]
    if len(below_N) == 0 or len(below_M) == 0:
        return 0.0

    def slope(theta: float) -> float:
        weight = np.exp(theta * (below_M - median))
        tilted = float((weight * below_M).sum() / weight.sum())
        return float(len(below_N) * (below_N.mean() - tilted) - theta / _PRIOR**2)

    low, high = 0.0, most
    if slope(low) <= 0:
        return low
    if slope(high) >= 0:
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def _share_of_wrong(x_N: FloatArray, x_M: FloatArray, weight_M: FloatArray) -> float:
    """pi0: the least ratio of given to mismatched pairs below a quantile of the latter, plus its error."""
    cumulative_M = np.cumsum(weight_M)
    least = 1.0
    for quantile in _QUANTILES:
        if quantile < 0.5 and quantile * min(len(x_N), len(x_M)) < _MIN_EXPECTED:
            break
        at = min(int(np.searchsorted(cumulative_M, quantile)), len(x_M) - 1)
        mass = float(weight_M[x_M < x_M[at]].sum())  # ties and small samples: the mass that really lies below
        count = float(np.searchsorted(x_N, x_M[at], side="left"))
        if mass > 0:
            least = min(least, (count + np.sqrt(count) * (quantile < 0.5)) / (mass * len(x_N)))
    return max(0.0, least)


def _bandwidth(null_M: FloatArray, count: int) -> float:
    """Silverman's rule on the null sample, for the smaller of the two samples."""
    quartiles = np.quantile(null_M, [0.25, 0.75])
    spread = min(float(null_M.std()), float(quartiles[1] - quartiles[0]) / 1.349) or float(null_M.std())
    return float(0.9 * spread * count**-0.2)


def _smooth(mass_G: FloatArray, width: float) -> FloatArray:
    """Histogram convolved with a Gaussian of the given width in bins; both ends hold no mass."""
    reach = max(1, int(np.ceil(4 * width)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    whole = np.convolve(mass_G, kernel / kernel.sum())
    return np.asarray(whole[reach : reach + len(mass_G)], dtype=np.float64)
