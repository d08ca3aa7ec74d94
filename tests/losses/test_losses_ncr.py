"""NCR's losses: worked values, and an independent float64 computation, forward and gradient."""

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask, every_case

from ccr_cli.losses.ncr import hinges_B, label_margin, mean_hinge, predicted_labels


def matrix(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_worked_values() -> None:
    sim = matrix([0.5, 0.4], [0.6, 0.3])
    assert hinges_B(sim, torch.ones(2, 2, dtype=torch.bool), 0.2).tolist() == pytest.approx([0.2, 0.4])
    assert float(mean_hinge(sim)) == pytest.approx(0.6)
    assert predicted_labels(sim).tolist() == pytest.approx([1.0, 0.0])
    assert predicted_labels(matrix([0.9, 0.3], [0.4, 0.8])).tolist() == [1.0, 1.0]
    assert label_margin(matrix([0.0, 0.5, 1.0])).tolist() == [pytest.approx([0.0, 0.0480506, 0.2])]


def hinges(sim: Array, mask: Mask, margin: float, weight: Array | None = None) -> Array:
    """By loops over explicit candidates."""
    out = np.zeros(len(sim))
    for i in range(len(sim)):
        row, column = losscases.kept(mask, i, weight), losscases.kept(mask.T, i, weight)
        if weight is not None and weight[i] == 0:
            row = column = [i]
        out[i] = sum(max(0.0, margin + sim[i, j] - sim[i, i]) for j in row if j != i) / len(row)
        out[i] += sum(max(0.0, margin + sim[j, i] - sim[i, i]) for j in column if j != i) / len(column)
    return out


@every_case
def test_the_loss_of_the_warm_up(size: int, kind: str, mask_kind: str) -> None:
    (sim,), mask, weight = losscases.make(size, kind, mask_kind)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return mean_hinge(x, torch.from_numpy(mask), 0.3, torch.from_numpy(weight))

    def oracle(x: Array) -> float:
        return float((weight * hinges(x, mask, 0.3, weight)).sum())

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim), rel=1e-10, abs=1e-12)
    if kind == "random":  # the others lie on corners
        losscases.check_slope(oracle, sim, gradient, h=1e-7)
    assert float(loss(torch.from_numpy(sim).float())) == pytest.approx(value, rel=1e-5, abs=1e-5)


@every_case
def test_labels_are_what_is_left_of_the_margin_relative_to_the_best(size: int, kind: str, mask_kind: str) -> None:
    (sim,), mask, _ = losscases.make(size, kind, mask_kind)
    left = np.clip(0.2 - hinges(sim, mask, 0.2) / 2, 0, 0.2)
    best = np.sort(left)[::-1][: size // 10 + 1].mean()
    expected = np.clip(left / best, 0, 1) if best else left
    labels_B = predicted_labels(torch.from_numpy(sim).requires_grad_(), torch.from_numpy(mask))
    assert labels_B.numpy() == pytest.approx(expected, abs=1e-12) and not labels_B.requires_grad
    margins = label_margin(labels_B, 0.3, 7.0).numpy()
    assert margins == pytest.approx(0.3 * (7.0**expected - 1) / 6, abs=1e-12)


def test_where_no_pair_is_ahead_all_labels_are_0() -> None:
    assert predicted_labels(matrix([0.0, 1.0], [1.0, 0.0])).tolist() == [0.0, 0.0]
    assert predicted_labels(torch.zeros(0, 0)).tolist() == [] and predicted_labels(torch.zeros(1, 1)).tolist() == [1.0]
    assert mean_hinge(torch.zeros(1, 1, requires_grad=True)).item() == 0.0


@pytest.mark.parametrize("base", [0.0, -1.0, 1.0])
def test_a_margin_without_steepness_is_refused(base: float) -> None:
    with pytest.raises(ValueError, match=str(base)):
        label_margin(torch.ones(2), base=base)
