"""Ranks summarised: R@K, median and mean rank, mAP, MRR, SumR.

Shape legend: Q queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ccr_cli.metrics.ranks import Ranks

KS = (1, 5, 10)


def summarise(ranks: Ranks, *, tie: str = "mid") -> dict[str, float]:
    """The usual figures of one direction.

    A query counts as found at K if the rank of its best positive is at most K; under the middle rank a
    query whose answer ties with one competitor (rank 1.5) is not found at 1. So a model with all similarities
    equal has R@K = 0 for every K below half of the gallery, neither 100 nor a matter of memory order.

    Returns:
        `R@K` in percent (share of queries with a right answer among the first K), `MedR`, `MeanR` (ranks from
        1), `mAP` and `MRR` in percent, `queries` that counted, and `dropped`, those without a positive. Without a
        query the figures are nan.
    """
    valid = ranks.valid
    rank_Q, ap_Q = ranks.rank(tie)[valid], ranks.ap(tie)[valid]

    def mean(value_Q: NDArray[np.float64] | NDArray[np.bool_]) -> float:
        return float(np.mean(value_Q)) if len(value_Q) else float("nan")

    out = {f"R@{k}": 100.0 * mean(rank_Q <= k) for k in KS}
    out["MedR"] = float(np.median(rank_Q)) if len(rank_Q) else float("nan")
    out |= {"MeanR": mean(rank_Q), "mAP": 100.0 * mean(ap_Q), "MRR": 100.0 * mean(1.0 / rank_Q)}
    return out | {"queries": len(rank_Q), "dropped": int((~valid).sum())}


def precision_recall(folds: Sequence[Ranks]) -> list[float]:
    """The precision of one direction at the recalls 0, 0.1, ... 1, in percent: mean over queries, then over folds.

    The ranks are made with a `curve`; queries without a positive are left out.
    """
    means = [each.precision[each.valid].mean(axis=0) for each in folds if each.valid.any()]
    return [100.0 * float(value) for value in np.mean(means, axis=0)] if len(means) == len(folds) else []


def mean_of_folds(folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of one direction over folds: the mean of each, every fold counting the same; counts are sums."""
    counts = ("queries", "dropped")
    return {
        key: sum(fold[key] for fold in folds) if key in counts else float(np.mean([fold[key] for fold in folds]))
        for key in folds[0]
    }


def sum_recall(t2v: Mapping[str, float], v2t: Mapping[str, float]) -> float:
    """SumR: the sum of R@1, R@5 and R@10 of both directions in percent, at most 600.

    >>> sum_recall({"R@1": 10.0, "R@5": 20.0, "R@10": 30.0}, {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0})
    66.0
    """
    return sum(direction[f"R@{k}"] for direction in (t2v, v2t) for k in KS)
