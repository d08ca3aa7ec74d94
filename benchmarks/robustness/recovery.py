"""How much of the cost of noise a method wins back, with an interval over seeds and items.

Shape suffixes: S seeds, I items, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 95.0


@dataclass(frozen=True)
class Estimate:
    """A figure with the ends of its bootstrap interval; none where a resample leaves it undefined."""

    value: float
    low: float | None
    high: float | None


def difference(method_SI: Array, base_SI: Array) -> Estimate:
    """Mean SumR of a method minus that of another, on the same seeds and items."""
    gain_SI = _paired(method_SI, base_SI)
    gain_R = _resampled(gain_SI)[0]
    return Estimate(float(gain_SI.mean()), *_ends(gain_R))


def recovery(method_SI: Array, base_SI: Array, oracle_SI: Array) -> Estimate | None:
    """(SumR_method - SumR_base) / (SumR_oracle - SumR_base), the ratio of means over paired seeds.

    Args:
        method_SI: What each item adds to the method's SumR, which is the mean over items, by seed.
        base_SI: The same of the method that knows nothing of noise.
        oracle_SI: The same of the one that knows everything.

    Returns:
        1 is the oracle, 0 the base. None where the oracle is not above the base.
    """
    gain_SI, gap_SI = _paired(method_SI, base_SI), _paired(oracle_SI, base_SI)
    if gap_SI.mean() <= 0:
        return None
    gain_R, gap_R = _resampled(gain_SI, gap_SI)
    value = float(gain_SI.mean() / gap_SI.mean())
    return Estimate(value, *(_ends(gain_R / gap_R) if (gap_R > 0).all() else (None, None)))


def _paired(method_SI: Array, base_SI: Array) -> Array:
    if method_SI.shape != base_SI.shape or method_SI.ndim != 2:
        raise ValueError(f"{method_SI.shape} and {base_SI.shape} are not the same seeds and items")
    out: Array = method_SI - base_SI
    return out


def _resampled(*values_SI: Array) -> list[Array]:
    """Means over seeds and items, both drawn with replacement, the same ones for all arguments."""
    rng = np.random.default_rng(0)
    seeds, items = values_SI[0].shape
    share_RS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    share_RI = rng.multinomial(items, np.full(items, 1 / items), RESAMPLES) / items
    return [np.einsum("rs,si,ri->r", share_RS, each_SI, share_RI, optimize=True) for each_SI in values_SI]


def _ends(value_R: Array) -> tuple[float, float]:
    low, high = np.percentile(value_R, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)
