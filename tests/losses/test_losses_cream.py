"""CREAM's loss: the worked values, and an independent float64 computation, forward and gradient."""

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask, every_case

from ccr_cli.losses.cream import consistency_B, mined

SIM = torch.tensor([[0.9, 0.3], [0.4, 0.8]], dtype=torch.float64)


def test_worked_values() -> None:
    label = torch.tensor([0.7, 0.5], dtype=torch.float64)
    assert consistency_B(SIM).tolist() == pytest.approx([0.999510, 0.997961], abs=1e-6)
    assert float(mined(SIM, label)) / 2 == pytest.approx(5.573960, abs=1e-4)  # the code adds 1e-6 to the rivals' sum
    assert float(mined(SIM, label, least=0.55)) / 2 == pytest.approx(0.001364, abs=1e-6)


def log_softmax(x: Array) -> Array:
    return np.asarray(x - x.max() - np.log(np.exp(x - x.max()).sum()))


def targets(sim: Array, label: Array, mask: Mask, least: float) -> Array:
    """What every entry weighs, by loops over explicit candidates."""
    out = np.zeros_like(sim)
    for i in range(len(sim)):
        rivals = [j for j in losscases.kept(mask, i) if j != i]
        total = sum(max(sim[i, j], 0) for j in rivals) + 1e-6
        for j in rivals:
            share = (1 - label[i]) * max(sim[i, j], 0) / total
            out[i, j] = share if share >= least else 0
        out[i, i] = label[i]
    return out


@pytest.mark.parametrize("least", [0.0, 0.04])
@every_case
def test_the_loss(size: int, kind: str, mask_kind: str, least: float) -> None:
    (sim,), mask, label = losscases.make(size, kind, mask_kind)
    weights = [targets(x, label, allowed, least) for x, allowed in ((sim, mask), (sim.T, mask.T))]

    def oracle(x: Array) -> float:
        cost = 0.0
        for sims, allowed, weight in zip((x, x.T), (mask, mask.T), weights, strict=True):
            for i in range(size):
                keep = losscases.kept(allowed, i)
                cost -= float((weight[i, keep] * log_softmax(sims[i, keep] / 0.1)).sum())
        return cost

    def loss(x: torch.Tensor) -> torch.Tensor:
        return mined(x, torch.from_numpy(label), torch.from_numpy(mask), 0.1, least)

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim), rel=1e-10, abs=1e-12)
    losscases.check_slope(oracle, sim, gradient)
    if not least:  # a share at the border falls to either side
        losscases.check_float32(loss, sim, (1e-4, 1e-4), (1e-3, 1e-4))


@every_case
def test_consistency(size: int, kind: str, mask_kind: str) -> None:
    (sim,), mask, _ = losscases.make(size, kind, mask_kind)
    expected = np.zeros(size)
    for x, allowed in ((sim, mask), (sim.T, mask.T)):
        for i in range(size):
            keep = losscases.kept(allowed, i)
            expected[i] += np.exp(log_softmax(x[i, keep] / 0.07)[keep.index(i)]) / 2
    found = consistency_B(torch.from_numpy(sim).requires_grad_(), torch.from_numpy(mask))
    assert found.numpy() == pytest.approx(expected, abs=1e-12) and not found.requires_grad


def test_few_pairs_and_rivals_that_are_unlike() -> None:
    for size in (0, 1):
        sim = torch.zeros(size, size, requires_grad=True)
        value = mined(sim, torch.zeros(size))
        value.backward()  # type: ignore[no-untyped-call]
        assert value.item() == 0 and sim.grad is not None and consistency_B(sim).tolist() == [1.0] * size
    apart = torch.tensor([[0.5, -0.2], [-0.4, 0.5]], requires_grad=True)
    assert mined(apart, torch.zeros(2)).item() == 0, "no share of a rival below 0"
