"""The SumR that a random ranking is expected to reach.

Shape legend: Q queries.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.metrics.ranks import KS, FloatArray


def recall(positives_Q: FloatArray, gallery: float, k: int) -> float:
    """The expected R@K in percent if every order of the gallery is equally likely.

    A query with m positives among n entries misses them all with the probability C(n - m, K) / C(n, K).

    >>> recall(np.array([1.0, 2.0]), 4, 1)
    37.5
    """
    drawn = np.arange(min(k, int(gallery)))
    miss_Q = np.clip(1 - positives_Q[:, None] / (gallery - drawn), 0, 1).prod(axis=1)
    return 100 * float(1 - miss_Q.mean())


def even_sum_r(queries: float, items: int) -> float:
    """The SumR of a random ranking if all items have the same number of queries.

    >>> round(even_sum_r(24, 12)), round(even_sum_r(1, 1))
    (252, 600)
    """
    captions = [recall(np.array([queries / items]), queries, k) for k in KS]
    return sum([recall(np.ones(1), items, k) for k in KS]) + sum(captions)


def sum_r(result: Mapping[str, Any], queries: pd.DataFrame, pos: str) -> float | None:
    """The SumR that a random ranking is expected to have; a mean over folds.

    Args:
        result: An entry of `metrics.json`.
        queries: Its queries, with direction, item_id and fold: every query of one direction is a gallery entry of the
            other.
        pos: What counts as a positive, as in its signature.

    Returns:
        The expectation; None for categories as positives, where SumR is not the figure to read, and without queries.
    """
    if pos == "label" or queries.empty:
        return None
    folds = queries["fold"].nunique()
    unsearched = ((result.get("v2t") or {}).get("dropped") or 0) / folds  # items of the gallery without captions
    totals = []
    for _, fold in queries.groupby("fold"):
        item_of = {direction: fold.loc[fold["direction"] == direction, "item_id"] for direction in ("t2v", "v2t")}
        total = 0.0
        for direction, other in (("t2v", "v2t"), ("v2t", "t2v")):
            entries = item_of["v2t"] if pos == "single" else item_of[other]
            counts = item_of[direction].map(entries.value_counts()).fillna(0)
            one = pos in ("single", "caption")
            positives_Q = np.ones(len(counts)) if one else np.asarray(counts, dtype=np.float64)
            size = len(entries) + (unsearched if direction == "t2v" else 0)
            total += sum([recall(positives_Q, size, k) for k in KS]) if len(counts) else 0.0
        totals.append(total)
    return float(np.mean(totals))
