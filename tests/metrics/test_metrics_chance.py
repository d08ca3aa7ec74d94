"""The chance level against an enumeration of all rankings."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from ccr_cli.metrics import chance
from ccr_cli.metrics.ranks import KS


def counted(positives: int, size: int, k: int) -> float:
    """The share of all orders in which one of the first entries is among the first k, in percent."""
    orders = list(permutations(range(size)))
    return 100 * sum(min(order[:k]) < positives for order in orders) / len(orders)


@pytest.mark.parametrize(("positives", "size"), [(1, 6), (2, 6), (5, 6), (1, 1), (0, 3)])
def test_recall_is_the_mean_over_all_orders(positives: int, size: int) -> None:
    for k in KS:
        assert chance.recall(np.array([float(positives)]), size, k) == pytest.approx(counted(positives, size, k))


def ranked(captions: dict[str, int], fold: int = 0) -> pd.DataFrame:
    """The queries of items with so many captions each."""
    texts = [(item, "t2v") for item, number in captions.items() for _ in range(number)]
    rows = [*texts, *((item, "v2t") for item, number in captions.items() if number)]
    return pd.DataFrame(rows, columns=["item_id", "direction"]).assign(fold=fold)


def test_sum_r_counts_the_captions_of_each_item_and_items_without_any() -> None:
    queries = ranked({"a": 1, "b": 1, "c": 2})
    for pos, v2t, sizes in (("any", (1, 1, 2), (5, 4)), ("single", (1, 1, 1), (5, 3)), ("caption", (1, 1, 1), (5, 4))):
        if pos == "single":
            queries = pd.concat([ranked({"a": 1, "b": 1, "c": 1}), ranked({"c": 1}).query("direction == 't2v'")])
        wanted = sum(counted(1, sizes[0], k) + np.mean([counted(m, sizes[1], k) for m in v2t]) for k in KS)
        assert chance.sum_r({"v2t": {"dropped": 2}}, queries, pos) == pytest.approx(wanted), pos


def test_sum_r_is_the_mean_of_folds_and_has_no_meaning_by_category() -> None:
    small, large = ranked({"a": 1, "b": 1}), ranked({"c": 1, "d": 1, "e": 1}, fold=1)
    one, other = (chance.sum_r({}, fold, "any") or 0 for fold in (small, large))
    assert chance.sum_r({}, pd.concat([small, large]), "any") == pytest.approx((one + other) / 2)
    assert chance.sum_r({}, small, "label") is None and chance.sum_r({}, small.iloc[:0], "any") is None
