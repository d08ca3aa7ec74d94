"""How much of what noise costs a method wins back, and paired differences between methods.

Shape legend: S seeds, R resamples of the seeds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccr_cli.report.compare import BASELINE, ORACLE

FloatArray = NDArray[np.float64]

EXACT_SEEDS = 5
"""Up to so many seeds every resample is enumerated; beyond, `RESAMPLES` are drawn."""
RESAMPLES = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Recovery:
    """Share of the gap between baseline and oracle that a method closes; 1 is the oracle, 0 the baseline."""

    value: float | None
    """None where the oracle is not above the baseline, so that there is nothing to recover."""
    low: float | None
    """Lower end of the 95 % bootstrap interval over seeds; None with one seed or an unbounded interval."""
    high: float | None
    seeds: int
    difference: float
    """Mean SumR of the method minus the baseline's, on the same seeds."""
    difference_sd: float | None
    """Standard deviation of the paired differences; None with one seed."""


def paired(frame: pd.DataFrame, labels: list[str], noise: float, figure: str = "SumR") -> pd.DataFrame:
    """One column a method, one row a seed; only seeds that every one of the methods has.

    Args:
        frame: Rows of one view.
        labels: The methods.
        noise: The noise ratio.
        figure: Which column.
    """
    rows = frame[(frame["noise"] == noise) & frame["label"].isin(labels)]
    table = rows.pivot_table(index="seed", columns="label", values=figure, aggfunc="mean")
    return table.reindex(columns=list(dict.fromkeys(labels))).dropna()


def difference(frame: pd.DataFrame, label: str, noise: float, against: str = BASELINE) -> Recovery | None:
    """Only the paired difference in SumR, where no oracle was run or there is no noise; None without a pair."""
    table = paired(frame, [label, against], noise)
    if label == against or table.empty:
        return None
    delta_S = table[label].to_numpy(float) - table[against].to_numpy(float)
    return Recovery(None, None, None, len(delta_S), float(delta_S.mean()), _sd(delta_S))


def recovery(
    frame: pd.DataFrame, label: str, noise: float, *, baseline: str = BASELINE, oracle: str = ORACLE
) -> Recovery | None:
    """(SumR_method - SumR_baseline) / (SumR_oracle - SumR_baseline), the ratio of means over paired seeds.

    The interval is the percentile bootstrap over seeds, enumerated for few of them. Where a resample's denominator
    is not positive the ratio is unbounded, and so is the interval: then there is none.

    Args:
        frame: Rows of one view.
        label: The method.
        noise: The noise ratio; at 0 the ratio is undefined and only the difference is given.
        baseline: The method that knows nothing of noise.
        oracle: The method that knows all.

    Returns:
        The recovery, or None where no seed has both the method and the baseline.
    """
    plain = difference(frame, label, noise, baseline)
    if plain is None or noise == 0:
        return plain
    table = paired(frame, [label, baseline, oracle], noise)
    if table.empty:
        return plain
    gain_S = table[label].to_numpy(float) - table[baseline].to_numpy(float)
    gap_S = table[oracle].to_numpy(float) - table[baseline].to_numpy(float)
    value = float(gain_S.mean() / gap_S.mean()) if gap_S.mean() > 0 else None
    low, high = _interval(gain_S, gap_S) if value is not None else (None, None)
    return Recovery(value, low, high, len(gain_S), float(gain_S.mean()), _sd(gain_S))


def _interval(gain_S: FloatArray, gap_S: FloatArray) -> tuple[float | None, float | None]:
    n = len(gain_S)
    if n < 2:
        return None, None
    if n <= EXACT_SEEDS:
        draw_RS = np.array(list(itertools.product(range(n), repeat=n)))
    else:
        draw_RS = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    gap_R = gap_S[draw_RS].mean(axis=1)
    if (gap_R <= 0).any():
        return None, None
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(gain_S[draw_RS].mean(axis=1) / gap_R, [tail, 100 - tail])
    return float(low), float(high)


def _sd(value_S: FloatArray) -> float | None:
    return float(value_S.std(ddof=1)) if len(value_S) > 1 else None
