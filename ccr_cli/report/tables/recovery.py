"""How much of what noise costs a method wins back, and paired differences between methods.

Shape legend: S seeds, R resamples of the seeds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccr_cli.report.tables.paired_interval import Answers, overlap
from ccr_cli.report.tables.results import BASELINE, ORACLE, REPLICATE, counterpart

FloatArray = NDArray[np.float64]

EXACT_SEEDS = 5
"""Up to so many seeds every resample is enumerated; beyond, `RESAMPLES` are drawn."""
RESAMPLES = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Recovery:
    """What a method gains on a baseline, and the share of the gap to the oracle: 1 is the oracle, 0 the baseline."""

    against: str
    """The baseline."""
    difference: float
    """Mean figure of the method minus the baseline's, on the same seeds."""
    difference_sd: float | None
    """Standard deviation of the paired differences; None with one pair."""
    seeds: int
    """Pairs behind the difference."""
    value: float | None = None
    """Share recovered; None without noise, without an oracle, or where it is not above the baseline."""
    low: float | None = None
    """Lower end of the 95% bootstrap interval over seeds; None with one seed or an unbounded interval."""
    high: float | None = None
    value_seeds: int = 0
    """Pairs behind the share: those that the oracle has too."""
    interval: tuple[float, float] | None = None
    """The difference's 95% interval over items, paired; None where ranks are not known."""
    overlap: bool = False
    """Of one pair without that: the 95% intervals over items that the two results hold overlap."""

    @property
    def holds_zero(self) -> bool:
        """The difference's interval is known, and holds 0."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]

    @property
    def within(self) -> bool:
        """The difference is within its standard deviation over seeds."""
        return self.difference_sd is not None and abs(self.difference) <= self.difference_sd

    @property
    def level(self) -> bool:
        """Next to no difference, or one within its standard deviation over seeds that its interval does not support."""
        sure = self.interval is not None and not self.holds_zero
        return abs(self.difference) < 0.05 or (self.within and not sure)

    @property
    def open(self) -> bool:
        """What the results hold does not tell the two apart."""
        return self.level or self.within or self.holds_zero or self.overlap


def paired(frame: pd.DataFrame, labels: list[str], noise: float, figure: str) -> pd.DataFrame:
    """One column a method, one row for each seed of training and of the mismatch that all of the methods have.

    Args:
        frame: Rows of one view.
        labels: The methods.
        noise: The noise ratio.
        figure: Which column.
    """
    rows = frame[(frame["noise"] == noise) & frame["label"].isin(labels)]
    table = rows.pivot_table(index=list(REPLICATE), columns="label", values=figure, aggfunc="mean")
    return table.reindex(columns=list(dict.fromkeys(labels))).dropna()


def recovery(
    frame: pd.DataFrame,
    label: str,
    noise: float,
    *,
    figure: str = "SumR",
    baseline: str = BASELINE,
    oracle: str = ORACLE,
    against: str | None = None,
    answers: Answers | None = None,
) -> Recovery | None:
    """(method - baseline) / (oracle - baseline) in a figure, the ratio of means over paired seeds.

    The interval is the percentile bootstrap over seeds, enumerated for few of them. Where a resample's denominator
    is not positive the ratio is unbounded, and so is the interval: then there is none. The difference stands on all
    seeds that method and baseline share, the ratio on those that the oracle has too.

    Args:
        frame: Rows of one view.
        label: The method.
        noise: The noise ratio; at 0 the ratio is undefined and only the difference is given.
        figure: Which column, `SumR` or `mAP`.
        baseline: The method that knows nothing of noise; of several variants, `compare.counterpart` says which.
        oracle: The method that knows all, likewise.
        against: The label that it is held against; by default what `compare.counterpart` finds of the baseline.
        answers: What runs answered, if the difference is to have an interval.

    Returns:
        The recovery, or None where there is no one baseline, or no seed that both have.
    """
    against, ceiling = against or counterpart(frame, label, baseline), counterpart(frame, label, oracle)
    if against is None or label == against:
        return None
    both = paired(frame, [label, against], noise, figure)
    if both.empty:
        return None
    delta_S = (both[label] - both[against]).to_numpy(float)
    difference, n = float(delta_S.mean()), len(delta_S)
    rows = _rows(frame, both, noise)
    first, second = (rows[rows["label"] == each] for each in (against, label))
    interval = answers.interval(first, second, figure, difference) if answers else None
    meet = interval is None and n == 1 and overlap(first, second, figure)
    plain = Recovery(against, difference, _sd(delta_S), n, interval=interval, overlap=meet)
    if noise == 0 or ceiling is None or label == ceiling:
        return plain
    table = paired(frame, [label, against, ceiling], noise, figure)
    if table.empty:
        return plain
    gain_S = (table[label] - table[against]).to_numpy(float)
    gap_S = (table[ceiling] - table[against]).to_numpy(float)
    if gap_S.mean() <= 0:
        return plain
    low, high = _interval(gain_S, gap_S)
    return replace(plain, value=float(gain_S.mean() / gap_S.mean()), low=low, high=high, value_seeds=len(gain_S))


def _rows(frame: pd.DataFrame, pairs: pd.DataFrame, noise: float) -> pd.DataFrame:
    """The results behind pairs of methods and seeds."""
    rows = frame[(frame["noise"] == noise) & frame["label"].isin(pairs.columns)]
    return rows[pd.MultiIndex.from_frame(rows[list(REPLICATE)]).isin(pairs.index)]


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
