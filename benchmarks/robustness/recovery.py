"""Differences and matched recovery, with intervals over seeds and items.

Seeds and items are crossed: every seed searches the same items. So both are resampled, independently of each other
(Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007); with one seed only items are. How often they hold
the truth: `benchmarks/coverage.py`.

Shape suffixes: S seeds, I items, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 95.0


@dataclass(frozen=True)
class Estimate:
    """A figure with the ends of its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Recovery:
    """What a judge wins of what the oracle wins, both for the same method."""

    gap: Estimate
    """What the oracle wins."""
    ratio: Estimate | None
    """1 is the oracle, 0 no judge; None where the gap is not above 0 in every resample: a ratio then means little."""


def difference(method_SI: Array, base_SI: Array) -> Estimate:
    """Mean SumR of a method minus that of another, on the same seeds and items."""
    gain_SI = _paired(method_SI, base_SI)
    return _estimate(gain_SI.mean(), _resampled(gain_SI)[0])


def recovery(judged_SI: Array, without_SI: Array, oracle_SI: Array) -> Recovery:
    """Matched recovery: (with its judge - without a judge) / (with the oracle - without), a ratio of means.

    Args:
        judged_SI: What each item adds to the method's SumR, which is the mean over items, by seed.
        without_SI: The same of the method without a judge.
        oracle_SI: The same of the method with the oracle as its judge.

    Raises:
        ValueError: If the three are not of the same seeds and items.
    """
    gain_SI, gap_SI = _paired(judged_SI, without_SI), _paired(oracle_SI, without_SI)
    gain_R, gap_R = _resampled(gain_SI, gap_SI)
    gap = _estimate(gap_SI.mean(), gap_R)
    if gap_R.min() <= 0:
        return Recovery(gap, None)
    return Recovery(gap, _estimate(gain_SI.mean() / gap_SI.mean(), gain_R / gap_R))


def _paired(method_SI: Array, base_SI: Array) -> Array:
    if method_SI.shape != base_SI.shape or method_SI.ndim != 2:
        raise ValueError(f"{method_SI.shape} and {base_SI.shape} are not the same seeds and items")
    out: Array = method_SI - base_SI
    return out


def _resampled(*values_SI: Array) -> list[Array]:
    """Means over seeds and items, both drawn with replacement, the same ones for all arguments."""
    share_RS, share_RI = _shares(*values_SI[0].shape)
    return [np.einsum("rs,si,ri->r", share_RS, each_SI, share_RI, optimize=True) for each_SI in values_SI]


@cache
def _shares(seeds: int, items: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    share_RS, share_RI = (rng.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in (seeds, items))
    return share_RS, share_RI


def _estimate(value: float, value_R: Array) -> Estimate:
    low, high = np.percentile(value_R, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return Estimate(float(value), float(low), float(high))
