"""Two kinds of queries told apart, against resamples written out one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ccr_cli.metrics.separation import apart


def test_figures_are_those_of_resampled_items() -> None:
    rng = np.random.default_rng(4)
    known_item, unknown_item = rng.integers(0, 9, 25), rng.integers(5, 14, 30)
    known = {name: rng.integers(0, 8, 25) / 4 for name in ("own", "plain")}
    unknown = {name: rng.integers(1, 9, 30) / 4 for name in ("own", "plain")}
    found = apart(known, unknown, known_item, unknown_item, seed=2, samples=150)
    items = np.unique([*known_item, *unknown_item])
    drawn = np.random.default_rng(2).integers(0, len(items), (150, len(items)))
    area: dict[str, list[float]] = {"own": [], "plain": []}
    rise: dict[str, list[float]] = {"own": [], "plain": []}
    for row in drawn:
        at = [
            np.concatenate([np.flatnonzero(own == item) for item in items[row]]) for own in (known_item, unknown_item)
        ]
        for name in area:
            low, high = known[name][at[0]], unknown[name][at[1]]
            area[name].append(roc_auc_score([0] * len(low) + [1] * len(high), [*low, *high]))
            rise[name].append(float(high.mean() - low.mean()))
    for name in area:
        truth = [0] * 25 + [1] * 30
        assert found[name]["auroc"] == pytest.approx(roc_auc_score(truth, [*known[name], *unknown[name]]), rel=1e-12)
        assert found[name]["interval"] == pytest.approx(np.percentile(area[name], [2.5, 97.5]), rel=1e-12)
        assert found[name]["means"] == pytest.approx([known[name].mean(), unknown[name].mean()], rel=1e-12)
        assert found[name]["rise"] == pytest.approx(np.percentile(rise[name], [2.5, 97.5]), rel=1e-12)
    gap = np.subtract(area["own"], area["plain"])
    assert found["plain"]["gap"] == pytest.approx(np.percentile(gap, [2.5, 97.5]), rel=1e-9)
    assert "gap" not in found["own"]


def test_an_item_in_both_kinds_is_drawn_with_both() -> None:
    """Every query scores one more among the unknown, whichever items are drawn."""
    score = np.random.default_rng(0).normal(0, 5, 40)
    items = [f"item {n}" for n in range(40)]
    paired = apart({"u": score}, {"u": score + 1}, items, items)["u"]
    assert paired["rise"] == pytest.approx([1.0, 1.0])
    loose = apart({"u": score}, {"u": score + 1}, items, [f"other {n}" for n in range(40)])["u"]
    assert loose["rise"][0] < 0 < 1 < loose["rise"][1] and paired["auroc"] == loose["auroc"]


def test_scores_without_difference_and_perfect_ones() -> None:
    items = np.arange(30)
    found = apart({"best": items, "blind": items * 0.0}, {"best": items + 30, "blind": items * 0.0}, items, items)
    assert (found["best"]["auroc"], found["best"]["interval"]) == (1.0, [1.0, 1.0])
    assert (found["blind"]["auroc"], found["blind"]["gap"]) == (0.5, [0.5, 0.5])
    with pytest.raises(ValueError, match="two kinds"):
        apart({"u": [1.0]}, {"u": []}, [0], [])


def test_a_draw_that_lacks_a_kind_says_nothing() -> None:
    assert np.random.default_rng(0).integers(0, 2, (1, 2)).tolist() == [[1, 1]]
    found = apart({"u": [1.0]}, {"u": [2.0]}, ["a"], ["b"], samples=1, seed=0)["u"]
    assert (found["auroc"], found["interval"], found["rise"]) == (1.0, None, None)
