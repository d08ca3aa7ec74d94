"""RowAdam against torch's SparseAdam, bit for bit, and against Adam in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ccr_cli.nets.row_adam import RowAdam

Trained = tuple[nn.EmbeddingBag, dict[str, Any]]


def train(make: type[torch.optim.Optimizer], steps: int, start: Trained | None = None, seed: int = 0) -> Trained:
    """Some steps on random bags, repeated ids among them; returns the table and the state of the optimiser."""
    torch.manual_seed(7)
    bag = nn.EmbeddingBag(500, 16, mode="mean", sparse=True)
    optimizer = make(bag.parameters(), lr=0.05)  # type: ignore[call-arg]
    if start:
        bag.load_state_dict(start[0].state_dict())
        optimizer.load_state_dict(copy.deepcopy(start[1]))
    dice = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        id_N = torch.randint(0, 300, (400,), generator=dice)
        goal_BD = torch.randn(40, 16, generator=dice)
        optimizer.zero_grad()
        (bag(id_N, torch.arange(0, 400, 10)) * goal_BD).sum().backward()
        optimizer.step()
    return bag, optimizer.state_dict()


def test_the_bits_are_those_of_torch() -> None:
    ours, theirs = train(RowAdam, 30), train(torch.optim.SparseAdam, 30)
    assert torch.equal(ours[0].weight, theirs[0].weight)
    for key in ("step", "exp_avg", "exp_avg_sq"):
        mine, other = ours[1]["state"][0][key], theirs[1]["state"][0][key]
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other)), key
    assert not torch.equal(ours[0].weight[:300], train(RowAdam, 0)[0].weight[:300])


@pytest.mark.parametrize("first", [RowAdam, torch.optim.SparseAdam])
def test_either_goes_on_where_the_other_stopped(first: type[torch.optim.Optimizer]) -> None:
    begun = train(first, 5)
    ours, theirs = train(RowAdam, 5, begun, 1), train(torch.optim.SparseAdam, 5, begun, 1)
    assert torch.equal(ours[0].weight, theirs[0].weight)


def test_rows_that_are_not_touched_stay() -> None:
    before, after = train(RowAdam, 0)[0].weight, train(RowAdam, 8)[0].weight
    assert torch.equal(before[300:], after[300:])


def test_a_step_is_that_of_adam() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64))
    optimizer = RowAdam([weight], lr=0.1)
    parts_ND = torch.tensor([[0.5, 1.0], [0.5, -3.0]], dtype=torch.float64)
    (nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True) * parts_ND).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    grad = torch.tensor([1.0, -2.0], dtype=torch.float64)  # summed over the row's two entries
    wanted = torch.tensor([3.0, 0.5], dtype=torch.float64) - 0.1 * grad / (grad.abs() + 1e-8 / (1 - 0.999) ** 0.5)
    torch.testing.assert_close(weight.detach()[1], wanted, rtol=1e-9, atol=0)
    assert weight.detach()[0].tolist() == [1.0, -2.0]
