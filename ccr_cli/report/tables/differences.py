"""Differences between methods on the same seeds and queries, and how much of what noise costs a method recovers.

Shape legend: S seeds, R resamples of the seeds, Q queries.
"""

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.bootstrap import DIRECTIONS, RankedGallery, RankedQueries, ends
from ccr_cli.metrics.paired import interval_of_difference
from ccr_cli.metrics.ranks import FloatArray
from ccr_cli.report.tables.comparable import BASELINE, ORACLE, REPLICATE, counterpart

EXACT_SEEDS = 5
"""Up to this many seeds every resample is enumerated; beyond, `RESAMPLES` are drawn."""
RESAMPLES = 4000
Rankings = Mapping[tuple[str, str], Callable[[], pd.DataFrame]]
"""By run and signature, the rank of every query of a result."""
NEEDED = ("direction", "query_id", "item_id", "fold", "rank", "average_precision")
"""Columns that a ranking needs to be paired."""
TOLERANCE = 0.01
"""How far a difference computed from ranks may be from the reported one."""


def galleries(ranks: pd.DataFrame) -> tuple[list[RankedGallery], list[list[str]]]:
    """The queries of each fold of one result, with columns `NEEDED`, in the order of their ids, and these ids."""
    folds, ids = [], []
    for _, fold in ranks.sort_values(["fold", "direction", "query_id"]).groupby("fold", sort=True):
        _, code_Q = np.unique(fold["item_id"].to_numpy(dtype=str), return_inverse=True)
        sides = []
        for direction in DIRECTIONS:
            here_Q = (fold["direction"] == direction).to_numpy()
            rows = fold[here_Q]
            sides.append(RankedQueries(code_Q[here_Q], rows["rank"].to_numpy(), rows["average_precision"].to_numpy()))
        folds.append(RankedGallery(*sides))
        ids.append([f"{d}:{q}" for d, q in zip(fold["direction"], fold["query_id"], strict=True)])
    return folds, ids


def intervals_overlap(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> bool:
    """Whether the intervals of two sides, each the mean of its rows, overlap: for queries that cannot be paired.

    The sides are rows of results frames; False, too, where a row has no interval of that figure.
    """
    if not all({"low", "high", "figure"} <= set(side) for side in (first, second)):
        return False
    ends = [side.loc[side["figure"] == figure, ["low", "high"]].mean(skipna=False) for side in (first, second)]
    return bool(ends[0]["low"] <= ends[1]["high"] and ends[1]["low"] <= ends[0]["high"])


class QueryRanks:
    """The ranks of runs, query by query, for intervals of differences; each result is read once."""

    def __init__(self, rankings: Rankings | None = None) -> None:
        """Args: where the ranks are; without any nothing can be paired."""
        self._rankings = rankings or {}
        self._of = cache(self._read)

    def interval(
        self, first: pd.DataFrame, second: pd.DataFrame, figure: str, difference: float
    ) -> tuple[float, float] | None:
        """The 95% interval of a difference, both sides weighted by the same resamples of the items.

        The sides are rows of results frames, the reference first; several runs of a side count as their mean. None
        where ranks are unknown, queries differ, or the ranks do not give the reported difference, second minus first.
        """
        keys = [sorted(set(zip(side["run_id"], side["signature"], strict=True))) for side in (first, second)]
        read = [[self._of(*key) for key in side] for side in keys]
        systems = [[result[0] for result in side if result] for side in read]
        queries = [result[1] for side in read for result in side if result]
        if not all(systems) or len(queries) < sum(map(len, read)) or any(ids != queries[0] for ids in queries):
            return None
        estimate = interval_of_difference(systems[0], systems[1], figure)
        return (estimate.low, estimate.high) if abs(estimate.estimate - difference) < TOLERANCE else None

    def _read(self, run_id: str, signature: str) -> tuple[list[RankedGallery], list[list[str]]] | None:
        load = self._rankings.get((run_id, signature), pd.DataFrame)
        with suppress(ArtifactError):  # written by an older ccr
            ranks = load()
            return galleries(ranks) if set(NEEDED) <= set(ranks) and len(ranks) else None
        return None


@dataclass(frozen=True)
class Recovery:
    """The gain of a method over a baseline, and its share of the gap to the oracle: 1 is the oracle, 0 the baseline."""

    against: str
    """The baseline."""
    difference: float
    """Mean figure of the method minus the baseline's, on the same seeds."""
    difference_sd: float | None
    """Standard deviation of the paired differences; None with one pair."""
    seeds: int
    """Number of pairs behind the difference."""
    value: float | None = None
    """Share recovered; None without noise, without an oracle, or where the oracle is not above the baseline."""
    low: float | None = None
    """Lower end of the 95% bootstrap interval over seeds; None with one seed or an unbounded interval."""
    high: float | None = None
    value_seeds: int = 0
    """Number of pairs behind the share: seeds that the oracle has too."""
    interval: tuple[float, float] | None = None
    """The difference's paired 95% interval over items; None where ranks are unknown."""
    overlap: bool = False
    """For one pair without that interval: the 95% intervals over items of the two results overlap."""

    @property
    def holds_zero(self) -> bool:
        """The difference's interval is known and holds 0."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]

    @property
    def within(self) -> bool:
        """The difference is within its standard deviation over seeds."""
        return self.difference_sd is not None and abs(self.difference) <= self.difference_sd

    @property
    def level(self) -> bool:
        """The difference is close to 0, or within its standard deviation and not supported by its interval."""
        sure = self.interval is not None and not self.holds_zero
        return abs(self.difference) < 0.05 or (self.within and not sure)

    @property
    def may_be_chance(self) -> bool:
        """The results do not distinguish the two methods."""
        return self.level or self.within or self.holds_zero or self.overlap


def same_seeds(frame: pd.DataFrame, labels: list[str], noise: float, figure: str) -> pd.DataFrame:
    """One column a method, one row for each seed of training and of the mismatch that all of the methods have."""
    rows = frame[(frame["noise"] == noise) & frame["label"].isin(labels)]
    table = rows.pivot_table(index=list(REPLICATE), columns="label", values=figure, aggfunc="mean")
    return table.reindex(columns=list(dict.fromkeys(labels))).dropna()


def recovery(
    frame: pd.DataFrame,
    label: str,
    noise: float,
    *,
    figure: str = "SumR",
    against: str | None = None,
    ranks: QueryRanks | None = None,
) -> Recovery | None:
    """(method - baseline) / (oracle - baseline) in a figure, the ratio of means over paired seeds.

    The interval is the percentile bootstrap over seeds, enumerated for few of them. Where a resample's denominator
    is not positive the ratio is unbounded, and there is no interval. The difference is over all seeds that method and
    baseline share, the ratio over those that the oracle has too.

    Args:
        frame: Rows of one view.
        label: The method.
        noise: The noise ratio; at 0 the ratio is undefined and only the difference is given.
        figure: Which column, `SumR` or `mAP`.
        against: The label to compare with; by default what `results.counterpart` finds for infonce.
        ranks: The ranks of the runs, if the difference is to have an interval.

    Returns:
        The recovery, or None where there is no single baseline, or no seed that both have.
    """
    against, ceiling = against or counterpart(frame, label, BASELINE), counterpart(frame, label, ORACLE)
    if against is None or label == against:
        return None
    pairs = same_seeds(frame, [label, against], noise, figure)
    if pairs.empty:
        return None
    delta_S = (pairs[label] - pairs[against]).to_numpy(float)
    difference, n = float(delta_S.mean()), len(delta_S)
    rows = frame[(frame["noise"] == noise) & frame["label"].isin(pairs.columns)]
    rows = rows[pd.MultiIndex.from_frame(rows[list(REPLICATE)]).isin(pairs.index)]
    first, second = (rows[rows["label"] == name] for name in (against, label))
    interval = ranks.interval(first, second, figure, difference) if ranks else None
    overlap = interval is None and n == 1 and intervals_overlap(first, second, figure)
    sd = float(delta_S.std(ddof=1)) if n > 1 else None
    plain = Recovery(against, difference, sd, n, interval=interval, overlap=overlap)
    if noise == 0 or ceiling is None or label == ceiling:
        return plain
    table = same_seeds(frame, [label, against, ceiling], noise, figure)
    gain_S = (table[label] - table[against]).to_numpy(float)
    gap_S = (table[ceiling] - table[against]).to_numpy(float)
    if table.empty or gap_S.mean() <= 0:
        return plain
    low, high = _ratio_interval(gain_S, gap_S)
    return replace(plain, value=float(gain_S.mean() / gap_S.mean()), low=low, high=high, value_seeds=len(gain_S))


def _ratio_interval(gain_S: FloatArray, gap_S: FloatArray) -> tuple[float | None, float | None]:
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
    low, high = ends((gain_S[draw_RS].mean(axis=1) / gap_R)[:, None])
    return float(low[0]), float(high[0])
