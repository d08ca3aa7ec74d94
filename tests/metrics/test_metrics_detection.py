"""Detection of mismatched pairs against scikit-learn, by hand, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from ccr_cli.metrics.detection import auroc, average_precision, belief_calibration, detection


@pytest.mark.parametrize("decimals", [1, 2, 12])
@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_agrees_with_scikit_learn(decimals: int, share: float) -> None:
    rng = np.random.default_rng(int(share * 100) + decimals)
    noisy = rng.random(500) < share
    p_clean = np.round(np.clip(rng.normal(0.6 - 0.3 * noisy, 0.25), 0, 1), decimals)
    found = detection(p_clean, noisy, 0.35)
    called = p_clean < 0.35
    assert found["auroc"] == pytest.approx(roc_auc_score(noisy, -p_clean), rel=1e-12)
    assert found["average_precision"] == pytest.approx(average_precision_score(noisy, -p_clean), rel=1e-12)
    assert found["precision"] == pytest.approx(precision_score(noisy, called))
    assert found["recall"] == pytest.approx(recall_score(noisy, called))
    assert found["f1"] == pytest.approx(f1_score(noisy, called))
    assert found["false_alarms"] == pytest.approx(called[~noisy].mean())
    assert found["accuracy"] == pytest.approx((called == noisy).mean())
    assert (found["pairs"], found["noisy"]) == (500, int(noisy.sum()))


def test_by_hand() -> None:
    # called noisy: 0.1 and 0.3; truly noisy: 0.1 and 0.8
    found = detection([0.1, 0.3, 0.7, 0.8, 0.9], [True, False, False, True, False], 0.5)
    assert (found["called"], found["found"], found["noisy"]) == (2, 1, 2)
    assert (found["precision"], found["recall"], found["f1"]) == (0.5, 0.5, 0.5)
    assert found["false_alarms"] == pytest.approx(1 / 3)
    assert found["auroc"] == pytest.approx(4 / 6)  # 0.1 beats three intact ones, 0.8 beats one, of six
    assert found["average_precision"] == pytest.approx((1 / 1 + 2 / 4) / 2)


def test_a_judge_that_says_nothing_is_at_chance() -> None:
    noisy = np.arange(10) < 4
    found = detection(np.ones(10), noisy, 0.5)
    assert (found["auroc"], found["average_precision"]) == (0.5, pytest.approx(0.4))
    assert (found["recall"], found["false_alarms"], found["f1"], found["precision"]) == (0.0, 0.0, 0.0, None)


def test_an_empty_class_is_none_not_nan() -> None:
    clean = detection([0.9, 0.2], [False, False], 0.5)
    assert clean["false_alarms"] == 0.5 and clean["precision"] == 0.0
    assert [clean[key] for key in ("auroc", "average_precision", "recall", "f1")] == [None] * 4
    noisy = detection([0.9, 0.2], [True, True], 0.5)
    assert noisy["recall"] == 0.5 and noisy["average_precision"] == 1.0
    assert [noisy[key] for key in ("auroc", "false_alarms")] == [None] * 2
    assert detection([], [], 0.5)["accuracy"] is None


def test_only_the_order_matters_to_the_areas() -> None:
    rng = np.random.default_rng(1)
    score, truth = rng.normal(size=99), rng.random(99) < 0.3
    assert auroc(np.exp(score), truth) == auroc(score, truth)
    assert average_precision(np.exp(score), truth) == average_precision(score, truth)
    assert auroc(-score, truth) == pytest.approx(1.0 - (auroc(score, truth) or 0.0))


def test_nan_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2"):
        detection([float("nan"), 0.5], [True, False], 0.5)
    with pytest.raises(ValueError, match=r"\(1,\).*\(2,\)"):
        auroc([0.5], [True, False])


def test_called_by_another_rule_than_a_threshold() -> None:
    found = detection([0.9, 0.2, 0.2, 0.8], [True, True, False, False], [True, False, True, False])
    assert (found["threshold"], found["precision"], found["recall"], found["f1"]) == (None, 0.5, 0.5, 0.5)
    assert found["auroc"] == roc_auc_score([1, 1, 0, 0], [-0.9, -0.2, -0.2, -0.8]), "of the probability all the same"


def test_calibration_by_hand() -> None:
    # bins [0, 0.5) and [0.5, 1]: 0.1 and 0.3, of which one is intact; 0.5 and 1.0, both intact
    found = belief_calibration([0.1, 0.3, 0.5, 1.0], [True, False, False, False], bins=2)
    assert found["bins"] == [
        {"p_clean": pytest.approx(0.2), "clean": 0.5, "pairs": 2},
        {"p_clean": 0.75, "clean": 1.0, "pairs": 2},
    ]
    assert found["ece"] == pytest.approx((2 * 0.3 + 2 * 0.25) / 4)
    assert found["brier"] == pytest.approx((0.1**2 + 0.7**2 + 0.5**2 + 0) / 4)
    assert found["brier_constant"] == pytest.approx(0.75 * 0.25)


def test_calibration_of_honest_and_of_overconfident_probabilities() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    noisy = rng.random(20_000) >= p
    honest, sure = belief_calibration(p, noisy), belief_calibration((p > 0.5).astype(float), noisy)
    assert honest["brier"] == pytest.approx(brier_score_loss(~noisy, p))
    assert honest["ece"] < 0.02 and sure["ece"] == pytest.approx(0.25, abs=0.02), "a quarter of the calls are wrong"
    assert honest["brier"] < honest["brier_constant"] == pytest.approx(0.25, abs=0.01)
    assert belief_calibration([], [])["ece"] is None
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        belief_calibration([1.1], [True])
