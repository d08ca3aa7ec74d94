"""Ranks summarised: R@K, median and mean rank, mAP, MRR, SumR, and how far chance alone would move them.

Shape legend: Q queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccr_cli.metrics.ranks import Ranks

KS = (1, 5, 10)

Statistic = Callable[[Ranks], float]


def summarise(ranks: Ranks, *, tie: str = "mid", ks: Sequence[int] = KS) -> dict[str, float]:
    """The usual figures of one direction.

    A query counts as found at K if the rank of its best positive is at most K; under the middle rank a
    query whose answer ties with one competitor (rank 1.5) is not found at 1. So a model with all similarities
    equal has R@K = 0 for every K below half of the gallery, neither 100 nor a matter of memory order.

    Args:
        ranks: Of one direction; queries without a positive are left out and counted as `dropped`.
        tie: `mid`, `optimistic` or `pessimistic`.
        ks: The K of R@K.

    Returns:
        `R@K` in percent (share of queries with a right answer among the first K), `MedR`, `MeanR` (ranks from
        1), `mAP` and `MRR` in percent, `queries` that counted, and `dropped`. Without a query the figures are
        nan.
    """
    valid = ranks.valid
    rank_Q, ap_Q = ranks.rank(tie)[valid], ranks.ap(tie)[valid]
    nothing = len(rank_Q) == 0

    def over(function: Callable[[NDArray[np.float64]], np.floating], value_Q: NDArray[np.float64]) -> float:
        return float("nan") if nothing else float(function(value_Q))

    out = {f"R@{k}": 100.0 * over(np.mean, (rank_Q <= k).astype(np.float64)) for k in ks}
    out["MedR"] = over(np.median, rank_Q)
    out["MeanR"] = over(np.mean, rank_Q)
    out["mAP"] = 100.0 * over(np.mean, ap_Q)
    out["MRR"] = 100.0 * over(np.mean, 1.0 / rank_Q)
    out["queries"] = len(rank_Q)
    out["dropped"] = ranks.dropped
    return out


def mean_of_folds(folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of one direction over folds: the mean of each, every fold counting the same; counts are sums.

    Args:
        folds: What `summarise` says of each fold.
    """
    counts = ("queries", "dropped")
    return {
        key: sum(fold[key] for fold in folds) if key in counts else float(np.mean([fold[key] for fold in folds]))
        for key in folds[0]
    }


def sum_recall(t2v: Mapping[str, float], v2t: Mapping[str, float], ks: Sequence[int] = KS) -> float:
    """SumR: the sum of R@1, R@5 and R@10 of both directions in percent, at most 600.

    >>> sum_recall({"R@1": 10.0, "R@5": 20.0, "R@10": 30.0}, {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0})
    66.0
    """
    return sum(direction[f"R@{k}"] for direction in (t2v, v2t) for k in ks)


@dataclass(frozen=True)
class Interval:
    """A percentile bootstrap interval."""

    estimate: float
    """the statistic of the queries as they are"""
    low: float
    """lower end"""
    high: float
    """upper end"""
    level: float
    """share of resamples between the ends"""
    samples: int
    """number of resamples"""


def bootstrap_interval(
    ranks: Ranks | Sequence[Ranks],
    statistic: str | Callable[..., float],
    seed: int,
    *,
    samples: int = 1000,
    level: float = 0.95,
    tie: str | None = None,
    groups: Sequence[NDArray[np.int64]] | NDArray[np.int64] | None = None,
) -> Interval:
    """How far a figure would move if other queries of the same kind had been asked (percentile bootstrap).

    It says nothing about training: seeds do.

    Args:
        ranks: Of one direction, or several that are resampled together (for SumR: `(t2v, v2t)`).
        statistic: A key of `summarise`, or a function of as many `Ranks` as are given.
        seed: Of the resampling.
        samples: Number of resamples.
        level: Share of the resamples inside the interval.
        tie: Tie rule for a named statistic, by default `mid`; a function knows its own.
        groups: The item of each query, (Q,), or one such array for each of several directions; then whole
            items are drawn, with all their queries. Captions of one picture are not independent: without
            groups the interval is too narrow. Several directions need them, to draw the same items in each.

    Raises:
        ValueError: If nothing can be resampled, groups are missing or do not fit, or a function is given a tie rule.
    """
    parts = [ranks] if isinstance(ranks, Ranks) else list(ranks)
    if groups is None:
        if len(parts) > 1:
            raise ValueError("several directions can be resampled together only by groups: give each query's item")
        keys = [np.arange(len(parts[0]), dtype=np.int64)]
    elif isinstance(groups, np.ndarray):
        keys = [groups]
    else:
        keys = list(groups)
    if [len(part) for part in parts] != [len(key) for key in keys]:
        raise ValueError("groups must name one item for each query of each direction")
    if samples < 1 or not 0.0 < level < 1.0:
        raise ValueError("a bootstrap needs at least one sample and a level between 0 and 1")
    if tie is not None and not isinstance(statistic, str):
        raise ValueError("a tie rule is for a named statistic: a function reads the ranks by itself")
    compute = _named(statistic, tie or "mid") if isinstance(statistic, str) else statistic

    return interval_of_means([(parts, keys)], compute, seed, samples=samples, level=level)


def interval_of_means(
    folds: Sequence[tuple[Sequence[Ranks], Sequence[NDArray[np.int64]]]],
    statistic: Callable[..., float],
    seed: int,
    *,
    samples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """The same for the mean of a figure over folds: items are drawn inside their fold, so all folds keep their size.

    Args:
        folds: Of each fold the ranks of one or several directions, and for each direction the item of each query.
        statistic: A function of as many `Ranks` as there are directions.
        seed: Of the resampling.
        samples: Number of resamples.
        level: Share of the resamples inside the interval.

    Raises:
        ValueError: If a fold has nothing to resample.
    """
    rng = np.random.default_rng(seed)
    drawn = [_resampled(parts, keys, statistic, rng, samples) for parts, keys in folds]
    values = np.mean([value for _, value in drawn], axis=0)
    tail = 50.0 * (1.0 - level)
    # a resample in which one direction has no query at all says nothing
    low, high = np.nanpercentile(values, [tail, 100.0 - tail])
    return Interval(float(np.mean([estimate for estimate, _ in drawn])), float(low), float(high), level, samples)


def _resampled(
    parts: Sequence[Ranks],
    keys: Sequence[NDArray[np.int64]],
    compute: Callable[..., float],
    rng: np.random.Generator,
    samples: int,
) -> tuple[float, NDArray[np.float64]]:
    """The figure of the queries as they are, and that of each resample of their items."""
    keys = [key[part.valid] for key, part in zip(keys, parts, strict=True)]
    parts = [part.take(part.valid) for part in parts]
    _, codes = np.unique(np.concatenate(keys), return_inverse=True)
    n_groups = int(codes.max(initial=-1)) + 1
    if n_groups == 0:
        raise ValueError("there is no query with a positive to resample")
    members = [_Members(code, n_groups) for code in np.split(codes, np.cumsum([len(k) for k in keys])[:-1])]

    values = np.empty(samples)
    for i in range(samples):
        drawn = rng.integers(0, n_groups, n_groups)
        values[i] = compute(*(part.take(member.of(drawn)) for part, member in zip(parts, members, strict=True)))
    return float(compute(*parts)), values


def _named(name: str, tie: str) -> Statistic:
    """The statistic of that name; R@K for any K, and the cheap way to compute only that one."""
    head, _, k = name.partition("@")
    if head == "R" and k.isdigit() and int(k) > 0:
        return lambda ranks: _mean(ranks.rank(tie) <= int(k)) * 100.0
    known: dict[str, Statistic] = {
        "MedR": lambda ranks: float(np.median(ranks.rank(tie))) if len(ranks) else float("nan"),
        "MeanR": lambda ranks: _mean(ranks.rank(tie)),
        "mAP": lambda ranks: _mean(ranks.ap(tie)) * 100.0,
        "MRR": lambda ranks: _mean(1.0 / ranks.rank(tie)) * 100.0,
    }
    if name not in known:
        raise ValueError(f"unknown statistic {name!r}; known are R@K, {', '.join(known)}")
    return known[name]


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


class _Members:
    """Which queries belong to which group, for drawing groups with replacement."""

    def __init__(self, code_Q: NDArray[np.intp], n_groups: int) -> None:
        self.order = np.argsort(code_Q, kind="stable")
        self.sizes = np.bincount(code_Q, minlength=n_groups)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def of(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """The queries of the drawn groups, as often as their group was drawn."""
        sizes = self.sizes[drawn]
        inside = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found: NDArray[np.int64] = self.order[np.repeat(self.starts[drawn], sizes) + inside]
        return found
