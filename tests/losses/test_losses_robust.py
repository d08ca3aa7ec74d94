"""Half precision, batches of one, empty masks, ties: finite values and gradients everywhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import polygamma

from ccr_cli.losses import contrastive, decl, evidential, masks, mutual, triplet, trust

Loss = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def dual(sim: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    label = torch.linspace(0, 1, len(sim))
    return evidential.dual_direction_loss(evidential.evidence(sim), label, mask).sum()


LOSSES: dict[str, Loss] = {
    "triplet": lambda s, m: triplet.triplet(s, m),
    "triplet-mean": lambda s, m: triplet.triplet(s, m, reduction="mean"),
    "infonce": lambda s, m: contrastive.infonce(s, 0.07, m),
    "infonce-weights": lambda s, m: contrastive.infonce(s, 0.07, m, torch.linspace(0, 1, len(s))),
    "infonce-no-weight": lambda s, m: contrastive.infonce(s, 0.07, m, torch.zeros(len(s))),
    "dual": dual,
    "consistency": lambda s, m: mutual.consistency(s, s.T, m).sum(),
    "disentanglement": lambda s, m: -mutual.disentanglement(s.T, s, m).sum(),
    "mse": lambda s, m: decl.evidential_mse(evidential.evidence(s), torch.linspace(0, 1, len(s)), m).sum(),
    "hinge": lambda s, m: decl.dynamic_hinge(s, 3, m).sum(),
    "trust": lambda s, m: trust.uncertainty_aware_loss(trust.evidence(s), m, kl_weight=1),
    "trust-relu": lambda s, m: trust.uncertainty_aware_loss(trust.evidence(s, form="relu"), m, kl_weight=1),
    "trust-softplus": lambda s, m: trust.uncertainty_aware_loss(trust.evidence(s, form="softplus"), m, kl_weight=1),
    "trust-no-weight": lambda s, m: trust.uncertainty_aware_loss(
        trust.evidence(s), m, torch.zeros(len(s)), kl_weight=1
    ),
    "trust-consistency": lambda s, m: trust.consistency(trust.evidence(s.T), trust.evidence(s), m),
}


def embed(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(size)
    left, right = torch.nn.functional.normalize(torch.randn(2, size, 8), dim=2)
    return left.clone().requires_grad_(), right


@pytest.mark.parametrize("size", [1, 2, 128])
@pytest.mark.parametrize("name", LOSSES)
def test_finite_under_bfloat16_autocast(name: str, size: int) -> None:
    left, right = embed(size)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sim = left @ right.T
        assert sim.dtype == torch.bfloat16
        loss = LOSSES[name](sim, None)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    torch.autograd.backward(loss)
    assert left.grad is not None
    assert torch.isfinite(left.grad).all()


@pytest.mark.parametrize("case", ["one", "masked", "empty"])
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_to_compare_gives_zero(name: str, case: str) -> None:
    size = {"one": 1, "masked": 3, "empty": 0}[case]
    sim = torch.rand(size, size)
    sim.requires_grad_()
    loss = LOSSES[name](sim, torch.eye(len(sim), dtype=torch.bool))
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert sim.grad is not None
    assert not sim.grad.any()


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_equal_similarities_are_finite(name: str, value: float) -> None:
    sim = torch.full((16, 16), value, requires_grad=True)
    loss = LOSSES[name](sim, None)
    torch.autograd.backward(loss)
    assert torch.isfinite(loss)
    assert sim.grad is not None
    assert torch.isfinite(sim.grad).all()


def test_trigamma_equals_scipy() -> None:
    x = torch.logspace(0, 8, 500, dtype=torch.float64, requires_grad=True)
    y = evidential.trigamma(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    at = x.detach().numpy()
    np.testing.assert_allclose(y.detach().numpy(), polygamma(1, at), rtol=1e-13)
    np.testing.assert_allclose(slope.numpy(), polygamma(2, at), rtol=1e-13)


def test_the_two_branches_of_the_remainder_meet() -> None:
    x = torch.tensor([990.0, 999.999, 1000.0, 1000.001, 1010.0], dtype=torch.float64)
    direct = 1 / evidential.trigamma(x) - x + 0.5
    got = evidential.reciprocal_trigamma_remainder(x, evidential.trigamma(x))
    np.testing.assert_allclose(got.numpy(), direct.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 8, 512])
@pytest.mark.parametrize("tau", [1.0, 0.1, 0.02, 0.01])
def test_log_determinant_is_finite_for_any_strength(count: int, tau: float) -> None:
    # evidence up to exp(76): the difference as printed has no digits left
    sim = torch.rand(count, count, dtype=torch.float64, requires_grad=True)
    alpha = evidential.evidence(sim, tau) + 1
    value = evidential.fisher_log_det(alpha, torch.ones(count, count, dtype=torch.bool))
    torch.autograd.backward(value.sum())
    assert torch.isfinite(value).all()
    assert sim.grad is not None
    assert torch.isfinite(sim.grad).all()


def test_masked_entries_get_no_gradient() -> None:
    item = torch.tensor([0, 1, 0, 2])
    mask = masks.negatives_BB(item, item)
    one_sided = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
    for loss, mask_BB in product(LOSSES.values(), (mask, one_sided)):
        sim = torch.rand(len(mask_BB), len(mask_BB), requires_grad=True)
        torch.autograd.backward(loss(sim, mask_BB))
        assert sim.grad is not None
        assert not sim.grad[~mask_BB].any()


def test_similarity_of_the_intact_view_gets_no_gradient_by_default() -> None:
    seen, other = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    torch.autograd.backward(mutual.disentanglement(seen, other).sum())
    assert seen.grad is None
    assert other.grad is not None
    torch.autograd.backward(mutual.disentanglement(seen, other, detach_observation=False).sum())
    assert seen.grad is not None


def test_divergences_of_equal_matrices_vanish_and_consistency_is_symmetric_and_bounded() -> None:
    torch.manual_seed(0)
    one, two = torch.randn(2, 9, 9, dtype=torch.float64)
    assert mutual.consistency(one, one).abs().max() < 1e-15
    assert mutual.disentanglement(one, one).abs().max() < 1e-15
    torch.testing.assert_close(mutual.consistency(one, two), mutual.consistency(two, one))
    assert mutual.consistency(50 * one, 50 * two).max() <= np.log(2) + 1e-12
