"""GSC's loss of structures: the worked values, and an independent float64 computation, forward and gradient."""

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask

from ccr_cli.losses.structure import closeness, structure


def symmetric(a: float, b: float, c: float) -> torch.Tensor:
    """A matrix of ones on the diagonal and a (12), b (13), c (23) off it."""
    return torch.tensor([[1, a, b], [a, 1, c], [b, c, 1]], dtype=torch.float64)


def test_the_worked_values() -> None:
    one, two = symmetric(0.6, 0.2, 0.3), symmetric(0.5, 0.1, 0.9)
    assert float(structure(one, two)) == pytest.approx(0.902129, abs=1e-6)
    y = torch.tensor([1, 1, 0.2], dtype=torch.float64)
    # the code divides the weighted sum by 3, a weighted mean by the weights' sum
    assert float(structure(one, two, weight_B=y) * y.sum() / 3) == pytest.approx(0.668787, abs=1e-6)
    cosine = torch.tensor([[1.0, 0.0], [-0.14, 0.07]], dtype=torch.float64)
    expected = 1 / (1 + np.exp(-cosine.numpy() / 0.07))
    assert closeness(cosine).numpy() == pytest.approx(expected, abs=1e-12)


def oracle(one: Array, two: Array, mask: Mask, weight: Array) -> float:
    """L_IM by loops over explicit candidates."""
    cost, mass = 0.0, 0.0
    for i in np.flatnonzero(weight > 0).tolist():
        keep = losscases.kept(mask, i, weight)
        if len(keep) > 1:
            r = np.array([sum(weight[k] ** 2 * one[i, k] * two[j, k] for k in range(len(one))) for j in keep])
            cost += weight[i] * (np.log(np.exp(r - r.max()).sum()) + r.max() - r[keep.index(i)])
            mass += weight[i]
    return cost / mass if mass else 0.0


@pytest.mark.parametrize(
    ("size", "kind", "mask_kind"),
    [(size, kind, mask) for size in (2, 3, 16) for kind in losscases.KINDS for mask in losscases.MASKS],
)
def test_value_and_gradient(size: int, kind: str, mask_kind: str) -> None:
    (one, two), mask, weight = losscases.make(size, kind, mask_kind, count=2)
    one, two = (1 / (1 + np.exp(-x / 0.07)) for x in (one, two))
    mask_BB, weight_B = torch.from_numpy(mask), torch.from_numpy(weight)
    value, grad_one = losscases.derivative(lambda x: structure(x, torch.tensor(two), mask_BB, weight_B), one)
    assert value == pytest.approx(oracle(one, two, mask, weight), rel=1e-10, abs=1e-12)
    _, grad_two = losscases.derivative(lambda x: structure(torch.tensor(one), x, mask_BB, weight_B), two)
    rng = np.random.default_rng(0)
    for grad, number in ((grad_one, 0), (grad_two, 1)):
        step = rng.normal(size=one.shape) * 1e-5
        ahead, behind = (
            oracle(one + sign * step * (number == 0), two + sign * step * (number == 1), mask, weight)
            for sign in (1, -1)
        )
        assert float((grad * step).sum()) == pytest.approx((ahead - behind) / 2, rel=1e-5, abs=1e-11)
    single = [torch.from_numpy(x).float() for x in (one, two)]
    assert float(structure(single[0], single[1], mask_BB, weight_B)) == pytest.approx(value, rel=1e-4, abs=1e-5)


def test_where_nothing_competes_the_loss_is_zero() -> None:
    one = torch.rand(4, 4, requires_grad=True)
    for mask_BB, weight_B in ((torch.eye(4, dtype=torch.bool), None), (None, torch.zeros(4))):
        loss = structure(one, torch.rand(4, 4), mask_BB, weight_B)
        assert loss.item() == 0.0
        (grad,) = torch.autograd.grad(loss, one)
        assert not grad.any()
    assert float(structure(torch.rand(1, 1), torch.rand(1, 1))) == 0.0
