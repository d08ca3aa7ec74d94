"""Masks, weights and the rule for rows without negatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.losses import masks
from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.triplet import triplet


def test_entries_of_one_item_are_left_out() -> None:
    item = torch.tensor([7, 8, 7])
    assert masks.negatives_BB(item, item).tolist() == [
        [True, True, False],
        [True, True, True],
        [False, True, True],
    ]


def test_the_diagonal_takes_part_even_if_the_mask_forgets_it() -> None:
    mask = masks.full_mask_BB(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    assert mask.tolist() == [[True, False], [False, True]]
    assert masks.kept_rows_B(mask).tolist() == [False, False]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_weight_zero_is_the_batch_without_the_pair(reduction: str) -> None:
    torch.manual_seed(0)
    sim = torch.randn(6, 6, dtype=torch.float64)
    keep = torch.tensor([0, 2, 3, 5])
    weight = torch.zeros(6).index_fill(0, keep, 1.0)
    small = sim[keep][:, keep]
    assert infonce(sim, 0.07, None, weight).item() == pytest.approx(infonce(small).item(), rel=1e-12)
    if reduction == "sum":
        one, two = triplet(sim, weight_B=weight), triplet(small)
    else:
        one, two = triplet(sim, reduction="mean", weight_B=weight), triplet(small, reduction="mean")
    assert one.item() == pytest.approx(two.item(), rel=1e-12)


def test_a_row_left_with_its_diagonal_does_not_dilute_the_mean() -> None:
    torch.manual_seed(0)
    sim = torch.randn(4, 4, dtype=torch.float64)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[3], mask[:, 3] = False, False
    assert infonce(sim, 0.1, mask).item() == pytest.approx(infonce(sim[:3, :3], 0.1).item(), rel=1e-12)


def test_the_scale_of_weights_does_not_matter_for_means() -> None:
    sim, weight = torch.randn(5, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    one, two = infonce(sim, 0.1, None, weight), infonce(sim, 0.1, None, 9 * weight)
    assert one.item() == pytest.approx(two.item())


@pytest.mark.parametrize(
    ("sim", "mask"),
    [
        (torch.zeros(2, 3), None),
        (torch.zeros(2, 2), torch.ones(2, 2)),
        (torch.zeros(2, 2), torch.ones(3, 3, dtype=torch.bool)),
    ],
)
def test_wrong_shapes_are_refused(sim: torch.Tensor, mask: torch.Tensor | None) -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\)|float32|\(3, 3\)"):
        infonce(sim, 0.07, mask)
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        masks.negatives_BB(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"\(3,\) .*2$"):
        infonce(torch.zeros(2, 2), weight_B=torch.ones(3))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature 0\.0"):
        infonce(torch.zeros(2, 2), 0.0)
    with pytest.raises(ValueError, match="'median'"):
        triplet(torch.zeros(2, 2), reduction="median")  # type: ignore[arg-type]


def test_triplet_by_hand() -> None:
    # row 0: 0.2 + 0.5 - 0.6 = 0.1; row 1: 0.2 + 0.3 - 0.1 = 0.4
    # column 0: 0.2 + 0.3 - 0.6 < 0; column 1: 0.2 + 0.5 - 0.1 = 0.6
    sim = torch.tensor([[0.6, 0.5], [0.3, 0.1]], dtype=torch.float64)
    assert triplet(sim).item() == pytest.approx(0.1 + 0.4 + 0.6)
    assert triplet(sim, reduction="mean").item() == pytest.approx((0.1 + 0.4 + 0.6) / 2)


def test_equally_hard_negatives_share_the_gradient() -> None:
    sim = torch.full((3, 3), 0.5, dtype=torch.float64, requires_grad=True)
    loss = triplet(sim)
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(6 * 0.2)
    assert sim.grad is not None
    assert sim.grad.tolist() == [[-2, 1, 1], [1, -2, 1], [1, 1, -2]]


@pytest.mark.parametrize(("start", "right"), [(0.5, True), (2.0, True), (2.0, False), (4.0, True)])
def test_a_learned_temperature_gets_its_gradient(start: float, right: bool) -> None:
    rng = np.random.default_rng(0)
    sim, weight = rng.normal(0.0, 0.2, (5, 5)) + (0.4 if right else -0.4) * np.eye(5), rng.uniform(0.1, 1.0, 5)

    def oracle(scale: float) -> float:
        logits = sim * np.exp(scale)
        rows = sum(np.log(np.exp(x).sum(1)) - x.diagonal() for x in (logits, logits.T)) / 2
        return float(weight @ rows / weight.sum())

    scale = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    value = infonce(torch.tensor(sim), torch.exp(-scale), weight_B=torch.tensor(weight))
    torch.autograd.backward(value)
    assert value.item() == pytest.approx(oracle(start), rel=1e-12)
    near, far = ((oracle(start + h) - oracle(start - h)) for h in (1e-4, 2e-4))
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx((8 * near - far) / 12e-4, rel=1e-6)
    assert (scale.grad.item() < 0) == (right and start < 4)  # sharper is better where the pairs are right, to a point
