"""Risk and coverage, failure AUROC and reliability: by hand, by brute force, and for uninformative input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ccr_cli.metrics.calibration import calibration, reliability, risk_coverage


def test_by_hand() -> None:
    # by rising uncertainty: hit, hit, miss, hit
    np.testing.assert_allclose(risk_coverage([0.1, 0.9, 0.4, 0.5], [1, 1, 1, 7]), [0, 0, 1 / 3, 1 / 4])
    found = calibration([0.1, 0.9, 0.4, 0.5], [1, 1, 1, 7])
    assert found["curve"] == {"coverage": [0.25, 0.5, 0.75, 1.0], "risk": pytest.approx([0, 0, 1 / 3, 1 / 4])}
    assert found["aurc"] == pytest.approx((1 / 3 + 1 / 4) / 4)
    assert list(found["risk"].values()) == pytest.approx([0.0, 0.0, 1 / 3, 1 / 4, 1 / 4])


def test_ties_are_the_mean_over_all_orders() -> None:
    uncertainty, rank = np.array([0.2, 0.2, 0.2, 0.5, 0.5]), np.array([1, 2, 9, 1, 4.5])
    curves = []
    for order in itertools.permutations(range(5)):  # every order that keeps the certain ones first
        if all(uncertainty[a] <= uncertainty[b] for a, b in itertools.pairwise(order)):
            curves.append(np.cumsum(rank[list(order)] > 1) / np.arange(1, 6))
    np.testing.assert_allclose(risk_coverage(uncertainty, rank), np.mean(curves, axis=0))


def test_a_constant_uncertainty_is_flat_and_at_chance() -> None:
    rank = np.array([1, 1, 1, 2, 30, 1, 5, 1, 1, 1])
    found = calibration(np.full(10, 0.3), rank)
    np.testing.assert_allclose(risk_coverage(np.full(10, 0.3), rank), 0.3)
    assert found["auroc"] == 0.5
    assert found["aurc"] == pytest.approx(found["aurc_random"]) == pytest.approx(0.3)
    assert found["aurc_best"] < 0.3


def test_a_perfect_uncertainty_reaches_the_best_area() -> None:
    rank = np.array([1, 1, 3, 2, 1])
    found = calibration(rank.astype(float), rank)
    assert found["auroc"] == 1.0
    assert found["aurc"] == pytest.approx(found["aurc_best"]) == pytest.approx((1 / 4 + 2 / 5) / 5)
    assert found["risk"] == {"20%": 0.0, "40%": 0.0, "60%": 0.0, "80%": 0.25, "100%": 0.4}


def test_auroc_agrees_with_scikit_learn_and_queries_without_rank_are_left_out() -> None:
    rng = np.random.default_rng(0)
    rank = rng.integers(1, 4, size=200).astype(float)
    uncertainty = np.round(rng.random(200) + 0.3 * (rank > 1), 1)
    expected = roc_auc_score(rank > 1, uncertainty)
    rank_with, uncertainty_with = np.append(rank, np.nan), np.append(uncertainty, np.nan)
    found = calibration(uncertainty_with, rank_with)
    assert found["auroc"] == pytest.approx(expected) and found["queries"] == 200


def test_a_middle_rank_above_one_is_a_failure() -> None:
    assert calibration([0.5], [1.5])["risk"]["100%"] == 1.0


def test_all_hits_and_no_queries() -> None:
    assert calibration([0.1, 0.2], [1, 1])["auroc"] is None
    empty = calibration([], [])
    assert empty["aurc"] is None and empty["auroc"] is None and empty["risk"]["20%"] is None
    assert reliability([], []).ece is None


def test_reliability_by_hand() -> None:
    # twice confidences of 0.9 (hit, miss) and 0.2 (miss, miss)
    found = reliability([0.1, 0.1, 0.8, 0.8], [1, 2, 2, 2])
    np.testing.assert_allclose(found.confidence, [0.2, 0.9])
    np.testing.assert_allclose(found.accuracy, [0.0, 0.5])
    assert found.count.tolist() == [2, 2]
    assert found.ece == pytest.approx((0.2 + 0.4) / 2)


def test_reliability_bins_by_mass_hold_about_equally_many_and_keep_ties_together() -> None:
    rng = np.random.default_rng(1)
    narrow = 0.15 + 0.04 * rng.random(1000)
    found = reliability(narrow, np.ones(1000))
    assert found.count.tolist() == [100] * 10
    assert found.ece == pytest.approx(narrow.mean())
    assert reliability(np.full(50, 0.3), np.ones(50)).count.tolist() == [50]
    assert reliability(np.array([0.0, 1.0]), [1, 2]).ece == 0.0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of 1"):
        risk_coverage([float("nan")], [1])
    with pytest.raises(ValueError, match=r"\(1,\).*\(2,\)"):
        calibration([0.1], [1, 2])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        reliability([1.5], [1])
