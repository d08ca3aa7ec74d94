"""Gaps between uncertainties: resampled queries written out one by one, and hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ccr_cli.metrics.calibration import risk_coverage
from ccr_cli.metrics.uncertainty_comparison import SortedUncertainty, gaps, separation


def problem(seed: int, n_items: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two uncertainties of few values (ties), ranks, and items of one to four queries in no order."""
    rng = np.random.default_rng(seed)
    item = rng.permutation(np.repeat(np.arange(n_items) * 7, rng.integers(1, 5, n_items)))
    rank = rng.integers(1, 4, len(item)).astype(float)
    return np.round(rng.random(len(item)) + 0.4 * (rank > 1), 1), np.round(rng.random(len(item)), 1), rank, item


def written_out(u: np.ndarray, rank: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """AUROC and AURC of a list in which every query stands as often as it was drawn."""
    u, rank = np.repeat(u, weight), np.repeat(rank, weight)
    aurc = float(risk_coverage(u, rank).mean())
    failed = rank > 1
    return (float(roc_auc_score(failed, u)) if 0 < failed.sum() < len(failed) else float("nan")), aurc


@pytest.mark.parametrize("seed", range(4))
def test_weights_are_repetitions(seed: int) -> None:
    u, _, rank, _ = problem(seed)
    weight = np.random.default_rng(seed + 100).integers(0, 4, (30, len(u)))
    weight[0] = 1
    weight[1] = rank == 1  # nothing fails
    weight[2] = 0
    weight[2, 3] = 2
    expected = [written_out(u, rank, w) for w in weight]
    np.testing.assert_allclose(SortedUncertainty(u, rank).figures(weight), expected, rtol=1e-12)


@pytest.mark.slow
def test_the_interval_is_that_of_resampled_items() -> None:
    u, other, rank, item = problem(9)
    found = gaps(u, {"other": other, "same": u}, rank, item, seed=3, samples=200)
    rng = np.random.default_rng(3)
    items = np.unique(item)
    drawn = rng.integers(0, len(items), (200, len(items)))
    values = []
    for row in drawn:
        weight = np.array([(items[row] == i).sum() for i in item])
        values.append(np.subtract(written_out(u, rank, weight), written_out(other, rank, weight)))
    low, high = np.percentile(values, [2.5, 97.5], axis=0)
    assert found["other"]["auroc"] == pytest.approx([low[0], high[0]])
    assert found["other"]["aurc"] == pytest.approx([low[1], high[1]])
    assert found["same"] == {"auroc": [0.0, 0.0], "aurc": [0.0, 0.0]}


def test_one_that_knows_beats_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    rank = rng.integers(1, 3, 300).astype(float)
    found = gaps(rank, {"blind": np.zeros(300)}, rank, np.arange(300))["blind"]
    assert found["auroc"] == pytest.approx([0.5, 0.5])
    assert found["aurc"] is not None and found["aurc"][1] < 0


def test_without_a_failure_there_is_no_auroc() -> None:
    assert gaps([0.1, 0.2], {"b": [0.2, 0.1]}, [1, 1], [0, 1])["b"] == {"auroc": None, "aurc": [0.0, 0.0]}
    with pytest.raises(ValueError, match=r"^0\b"):
        gaps([], {"b": []}, [], [])


def test_figures_are_those_of_resampled_items() -> None:
    rng = np.random.default_rng(4)
    known_item, unknown_item = rng.integers(0, 9, 25), rng.integers(5, 14, 30)
    known = {name: rng.integers(0, 8, 25) / 4 for name in ("own", "plain")}
    unknown = {name: rng.integers(1, 9, 30) / 4 for name in ("own", "plain")}
    found = separation(known, unknown, known_item, unknown_item, seed=2, samples=150)
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
    paired = separation({"u": score}, {"u": score + 1}, items, items)["u"]
    assert paired["rise"] == pytest.approx([1.0, 1.0])
    loose = separation({"u": score}, {"u": score + 1}, items, [f"other {n}" for n in range(40)])["u"]
    assert loose["rise"][0] < 0 < 1 < loose["rise"][1] and paired["auroc"] == loose["auroc"]


def test_scores_without_difference_and_perfect_ones() -> None:
    items = np.arange(30)
    found = separation({"best": items, "blind": items * 0.0}, {"best": items + 30, "blind": items * 0.0}, items, items)
    assert (found["best"]["auroc"], found["best"]["interval"]) == (1.0, [1.0, 1.0])
    assert (found["blind"]["auroc"], found["blind"]["gap"]) == (0.5, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"^1\b.*\b0\b"):
        separation({"u": [1.0]}, {"u": []}, [0], [])


def test_a_draw_that_lacks_a_kind_says_nothing() -> None:
    assert np.random.default_rng(0).integers(0, 2, (1, 2)).tolist() == [[1, 1]]
    found = separation({"u": [1.0]}, {"u": [2.0]}, ["a"], ["b"], samples=1, seed=0)["u"]
    assert (found["auroc"], found["interval"], found["rise"]) == (1.0, None, None)
