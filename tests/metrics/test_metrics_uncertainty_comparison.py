"""Gaps between uncertainties: resampled queries written out one by one, and hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ccr_cli.metrics.calibration import risk_coverage
from ccr_cli.metrics.uncertainty_comparison import Doubt, gaps


def problem(seed: int, n_items: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two uncertainties of few values (ties), ranks, and items of one to four queries in no order."""
    rng = np.random.default_rng(seed)
    item = rng.permutation(np.repeat(np.arange(n_items) * 7, rng.integers(1, 5, n_items)))
    rank = rng.integers(1, 4, len(item)).astype(float)
    return np.round(rng.random(len(item)) + 0.4 * (rank > 1), 1), np.round(rng.random(len(item)), 1), rank, item


def written_out(u: np.ndarray, rank: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """AUROC and AURC of a list in which every query stands as often as it was drawn."""
    u, rank = np.repeat(u, weight), np.repeat(rank, weight)
    aurc = risk_coverage(u, rank).aurc
    assert aurc is not None
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
    np.testing.assert_allclose(Doubt(u, rank).figures(weight), expected, rtol=1e-12)


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
    with pytest.raises(ValueError, match="no query"):
        gaps([], {"b": []}, [], [])
