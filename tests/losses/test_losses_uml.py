"""Facts about UML's evidential loss: published definitions, measured numbers, labels, schedule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.judges import argmax
from ccr_cli.losses import evidential


def test_opinion_by_hand() -> None:
    opinion = evidential.dirichlet(torch.tensor([[3.0, 1.0, 100.0]]), torch.tensor([[True, True, False]]))
    assert opinion.belief_BK[0].tolist() == pytest.approx([0.5, 1 / 6, 0])
    assert opinion.uncertainty_B.item() == pytest.approx(1 / 3)


def test_belief_and_uncertainty_sum_to_one() -> None:
    torch.manual_seed(0)
    mask = torch.rand(20, 30) < 0.7
    opinion = evidential.dirichlet(evidential.evidence(torch.rand(20, 30, dtype=torch.float64)), mask)
    total = opinion.belief_BK.sum(dim=1) + opinion.uncertainty_B
    torch.testing.assert_close(total, torch.ones(20, dtype=torch.float64))


@pytest.mark.parametrize(
    ("diagonal", "form", "mse", "uncertainty", "slope"),
    [
        # measured in a survey of both readings of eq. (1): K = 128, off-diagonals N(0.05, 0.1), tau 0.1,
        # both directions added, mean over the batch
        (0.0, "paper", 1.285, 0.390, 10.0),
        (0.2, "paper", 0.632, 0.388, 1.85),
        (0.5, "paper", 0.613, 0.388, 0.005),
        (0.8, "paper", 0.613, 0.388, 1e-5),
        (0.0, "scaled", 1.285, 0.277, None),
        (0.2, "scaled", 0.257, 0.273, None),
        (0.5, "scaled", 0.017, 0.227, None),
        (0.8, "scaled", 0.001, 0.104, None),
    ],
)
def test_the_measured_table_of_the_two_readings(
    diagonal: float, form: evidential.EvidenceForm, mse: float, uncertainty: float, slope: float | None
) -> None:
    rng = np.random.default_rng(1)
    mses, uncertainties = [], []
    for _ in range(20):
        sim = torch.tensor(rng.normal(0.05, 0.1, (128, 128)))
        sim.fill_diagonal_(diagonal)
        e = evidential.evidence(sim, 0.1, form)
        mses.append(evidential.dual_direction_loss(e, torch.ones(128), phi=0.0).mean().item())
        uncertainties.append(evidential.dirichlet(e).uncertainty_B.mean().item())
    assert np.mean(mses) == pytest.approx(mse, rel=0.01, abs=6e-4)
    assert np.mean(uncertainties) == pytest.approx(uncertainty, abs=2e-3)
    if slope is not None:
        at = torch.tensor(diagonal, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(evidential.evidence(at, 0.1, form), at)
        assert got.item() == pytest.approx(slope, rel=0.25)


@pytest.mark.parametrize(("count", "expected"), [(2, 0.075), (512, 0.178)])
def test_argument_of_the_logarithm(count: int, expected: float) -> None:
    # measured with the printed evidence, trained pairs (0.5): the argument of the second log of eq. (8)
    sim = torch.tensor(np.random.default_rng(0).normal(0.05, 0.1, (200, count)))
    sim[:, 0] = 0.5
    alpha = evidential.evidence(sim, 0.1, "paper") + 1
    log_det = evidential.fisher_log_det(alpha, torch.ones_like(alpha, dtype=torch.bool))
    argument = torch.exp(log_det - torch.special.polygamma(1, alpha).log().sum(dim=1)).mean().item()
    assert argument == pytest.approx(expected, abs=0.004)


def test_saturation_in_half_precision_makes_ties_of_the_printed_form() -> None:
    # exp(tanh(s / 0.1)) in float16 is constant for s >= 0.46; the loss therefore always works in float32
    sim = torch.tensor([0.46, 0.6, 1.0], dtype=torch.float16)
    assert len(set(torch.exp(torch.tanh(sim / 0.1)).tolist())) == 1
    assert evidential.evidence(sim, 0.1, "paper").dtype == torch.float32


def test_noisy_row_has_little_left_to_lose_under_the_printed_target() -> None:
    # measured: I-MSE about 0.61 with Y = 1 and about 0.010 with Y = 0
    rng = np.random.default_rng(1)
    sim = torch.tensor(rng.normal(0.05, 0.1, (128, 128)))
    sim.fill_diagonal_(0.5)
    e = evidential.evidence(sim, 0.1, "paper")
    zero = evidential.dual_direction_loss(e, torch.zeros(128), phi=0.0, noisy_target="zero").mean().item()
    assert zero == pytest.approx(0.010, abs=0.002)


def test_share_of_clean_labels_before_training() -> None:
    # measured: with similarities of standard deviation 0.05, 4 % of rows satisfy eq. (4) at no gap between
    # matching and other pairs, 22 % at a gap of 0.05, 97 % at 0.2 (K = 128; from the similarities themselves)
    rng = np.random.default_rng(0)
    for gap, share, tolerance in ((0.0, 0.04, 0.01), (0.05, 0.22, 0.02), (0.2, 0.97, 0.02)):
        clean = []
        for _ in range(20):
            sim = torch.tensor(rng.normal(0.0, 0.05, (128, 128))) + gap * torch.eye(128)
            clean.append(argmax.clean_probability(sim).mean().item())
        assert np.mean(clean) == pytest.approx(share, abs=tolerance)


def test_weighted_rows_scale_and_zero_targets_differ() -> None:
    torch.manual_seed(0)
    e = evidential.evidence(torch.randn(5, 5, dtype=torch.float64) / 5)
    full = evidential.dual_direction_loss(e, torch.ones(5))
    torch.testing.assert_close(evidential.dual_direction_loss(e, torch.full((5,), 0.25)), full / 4)
    torch.testing.assert_close(evidential.dual_direction_loss(e, torch.ones(5), noisy_target="zero"), full)
    assert evidential.dual_direction_loss(e, torch.zeros(5), noisy_target="zero").ne(0).all()


def test_view_schedule() -> None:
    # (gamma, lambda) = (0.2, 4): the floor is reached at t = 8 of 40; VATEX (0.25, 3): at t = 10
    assert evidential.view_weight(1, 40) == pytest.approx(0.9)
    assert evidential.view_weight(7, 40) == pytest.approx(0.3)
    assert evidential.view_weight(8, 40) == evidential.view_weight(40, 40) == 0.2
    assert evidential.view_weight(9, 40, gamma=0.25, decay=3) > 0.25
    assert evidential.view_weight(10, 40, gamma=0.25, decay=3) == 0.25
    with pytest.raises(ValueError, match="epoch 0"):
        evidential.view_weight(0, 40)


def test_uncertainty_over_a_fixed_candidate_set_still_tells_queries_apart_in_a_large_gallery() -> None:
    torch.manual_seed(0)
    sim = torch.randn(2, 20_000) * 0.1
    sim[0, 0] = 0.6  # the first query has a match, the second has none
    matched, unmatched = evidential.query_uncertainty(sim, candidates=None).tolist()
    assert matched / unmatched > 0.97
    matched, unmatched = evidential.query_uncertainty(sim).tolist()
    assert matched / unmatched < 0.9
    few, whole = sim[:, :50], evidential.query_uncertainty(sim[:, :50], candidates=None)
    torch.testing.assert_close(evidential.query_uncertainty(few, candidates=128), whole)


def test_unknown_options_are_refused() -> None:
    sim = torch.rand(3, 3)
    with pytest.raises(ValueError, match="'linear'"):
        evidential.evidence(sim, 0.1, "linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tau 0\.0"):
        evidential.evidence(sim, 0.0)
    with pytest.raises(ValueError, match="'drop'"):
        evidential.dual_direction_loss(sim, torch.ones(3), noisy_target="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(2,\).* 3$"):
        evidential.dual_direction_loss(sim, torch.ones(2))
