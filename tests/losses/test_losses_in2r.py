"""IN2R's cross-entropy: the worked values, and an independent float64 computation, forward and gradient."""

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask, every_case

from ccr_cli.losses.in2r import LEAST, soft_target_CK, symmetric_cross_entropy, to_target_C


def test_worked_values() -> None:
    assert float(symmetric_cross_entropy(torch.zeros(2, 2, dtype=torch.float64))) == pytest.approx(8.752195, abs=1e-6)
    one = torch.ones(1, 2, dtype=torch.bool)
    sim, target = torch.tensor([[0.05, 0.0]], dtype=torch.float64), torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    q = np.exp([1, 0]) / (np.e + 1)
    expected = -(0.25 * np.log(q[0]) + 0.75 * np.log(q[1])) - (q[0] * np.log(0.25) + q[1] * np.log(0.75))
    assert to_target_C(sim, target, one).tolist() == pytest.approx([expected])
    assert soft_target_CK(sim, one).tolist() == [pytest.approx(q.tolist())]


def softmax(x: Array) -> Array:
    return np.asarray(np.exp(x - x.max()) / np.exp(x - x.max()).sum())


def oracle(sim: Array, mask: Mask, weight: Array) -> float:
    """By loops over explicit candidates, as the NCE and the share of the others."""
    total = 0.0
    for x, allowed in ((sim, mask), (sim.T, mask.T)):
        cost, mass = 0.0, 0.0
        for i in np.flatnonzero(weight > 0).tolist():
            keep = losscases.kept(allowed, i, weight)
            if len(keep) > 1:
                logit = x[i, keep] / 0.1
                own = keep.index(i)
                log_q = logit[own] - logit.max() - np.log(np.exp(logit - logit.max()).sum())
                others = np.delete(softmax(logit), own).sum()
                cost += weight[i] * (-log_q - np.log(LEAST) * others)
                mass += weight[i]
        total += cost / mass / 2 if mass else 0.0
    return total


@every_case
def test_symmetric_cross_entropy(size: int, kind: str, mask_kind: str) -> None:
    (sim,), mask, weight = losscases.make(size, kind, mask_kind)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return symmetric_cross_entropy(x, 0.1, torch.from_numpy(mask), torch.from_numpy(weight))

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim, mask, weight), rel=1e-10, abs=1e-12)
    losscases.check_slope(lambda x: oracle(x, mask, weight), sim, gradient)
    losscases.check_float32(loss, sim, (1e-4, 1e-4), (1e-3, 1e-4))


@every_case
def test_soft_targets(size: int, kind: str, mask_kind: str) -> None:
    (sim, other), mask, _ = losscases.make(size, kind, mask_kind, count=2)
    allowed = torch.from_numpy(mask)

    def rows(x: Array, other: Array = other) -> float:
        total = 0.0
        for i in range(size):
            keep = losscases.kept(mask, i)
            q, y = softmax(x[i, keep] / 0.1), softmax(other[i, keep] / 0.1)
            total -= (y * np.log(q)).sum() + (q * np.log(np.maximum(y, LEAST))).sum()
        return float(total)

    target_BB = soft_target_CK(torch.from_numpy(other), allowed, 0.1)
    value, gradient = losscases.derivative(lambda x: to_target_C(x, target_BB, allowed, 0.1).sum(), sim)
    assert value == pytest.approx(rows(sim), rel=1e-10, abs=1e-12)
    losscases.check_slope(rows, sim, gradient)

    def moved(x: torch.Tensor) -> torch.Tensor:
        return to_target_C(torch.from_numpy(sim), soft_target_CK(x, allowed, 0.1), allowed, 0.1).sum()

    _, gradient = losscases.derivative(moved, other)
    losscases.check_slope(lambda x: rows(sim, x), other, gradient)
    assert not target_BB[~allowed].any() and torch.allclose(target_BB.sum(dim=1), torch.ones(size).double())
