"""Queries with their ranks, and their figures the slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.metrics.bootstrap import RankedQueries

Array = npt.NDArray[np.float64]


def ranked(item_Q: Any, rank_Q: Any, ap_Q: Any = None) -> RankedQueries:
    rank = np.asarray(rank_Q, dtype=float)
    return RankedQueries(np.asarray(item_Q, dtype=np.int64), rank, 1 / rank if ap_Q is None else np.asarray(ap_Q))


def problem(seed: int, n_items: int) -> tuple[RankedQueries, RankedQueries]:
    """Items with none to four captions in no order; ranks in halves, so that many tie."""
    rng = np.random.default_rng(seed)
    item_T = rng.permutation(np.repeat(np.arange(n_items) * 7, rng.integers(0, 5, n_items)))
    some_V = np.unique(item_T)[1:]  # one item asks nothing itself

    def ranks(n: int) -> Array:
        return np.round(2 * np.exp(rng.normal(1.5, 1.0, n))) / 2 + 1

    t2v, v2t = ranks(len(item_T)), ranks(len(some_V))
    return ranked(item_T, t2v, rng.random(len(t2v))), ranked(some_V, v2t, rng.random(len(v2t)))


def slow(sides: list[RankedQueries]) -> Array:
    """Every figure, in the order of `FIGURES`."""
    out: list[float] = []
    for side in sides:
        r, n = side.rank_Q, len(side.rank_Q)
        out += [100 * sum(x <= k for x in r) / n for k in (1, 5, 10)]
        out += [sum(r) / n, 100 * sum(side.ap_Q) / n, 100 * sum(1 / x for x in r) / n, float(np.median(r))]
    return np.array([*out, *[sum(out[:3]) + sum(out[7:10])], (out[4] + out[11]) / 2])
