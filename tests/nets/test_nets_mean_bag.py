"""MeanBag against torch's EmbeddingBag, bit for bit, and against sums written out in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ccr_cli.nets.mean_bag import MeanBag

ROWS, DIM = 50, 16


def texts(*sizes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Ids of texts of so many ids each, many of them equal, and the texts' offsets."""
    id_N = torch.randint(0, ROWS // 2, (sum(sizes),), generator=torch.Generator().manual_seed(seed))
    return id_N, torch.tensor([0, *sizes]).cumsum(0)


def bag(dtype: torch.dtype = torch.float32, sparse: bool = True) -> MeanBag:
    """A table, the same at every call."""
    torch.manual_seed(3)
    return MeanBag(ROWS, DIM, sparse=sparse).to(dtype)


def gradient(table: nn.EmbeddingBag, id_N: Tensor, offsets_B1: Tensor, goal_BD: Tensor) -> Tensor:
    """The gradient of a weighted sum of the means; of a sparse one, coalesced."""
    table.zero_grad()
    (table(id_N, offsets_B1) * goal_BD.to(table.weight.dtype)).sum().backward()
    grad = table.weight.grad
    assert grad is not None
    return grad.coalesce() if grad.is_sparse else grad


def test_values_and_gradient_are_those_of_torch_bit_for_bit() -> None:
    ours = bag()
    theirs = nn.EmbeddingBag(ROWS, DIM, mode="mean", include_last_offset=True, sparse=True)
    theirs.load_state_dict(ours.state_dict())
    id_N, offsets_B1 = texts(*range(1, 80))
    goal_BD = torch.randn(79, DIM, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours(id_N, offsets_B1), theirs(id_N, offsets_B1))
    mine, other = (gradient(table, id_N, offsets_B1, goal_BD) for table in (ours, theirs))
    assert torch.equal(mine.indices(), other.indices())
    assert torch.equal(mine.values(), other.values())


@pytest.mark.parametrize("sizes", [(4, 7, 1), (3, 0, 5, 0), (0, 0)], ids=["texts", "empty ones among them", "no ids"])
def test_the_gradient_of_a_row_is_the_share_of_each_text_that_names_it(sizes: tuple[int, ...]) -> None:
    table, (id_N, offsets_B1) = bag(torch.float64), texts(*sizes)
    goal_BD = torch.randn(len(sizes), DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted_RD, start = torch.zeros(ROWS, DIM, dtype=torch.float64), 0
    for goal_D, size in zip(goal_BD, sizes, strict=True):
        for row in id_N[start : start + size].tolist():
            wanted_RD[row] += goal_D / size
        start += size
    grad = gradient(table, id_N, offsets_B1, goal_BD)
    torch.testing.assert_close(grad.to_dense(), wanted_RD, rtol=1e-12, atol=1e-14)
    assert grad.indices()[0].tolist() == sorted(set(id_N.tolist()))


def test_what_comes_out_of_backward_names_every_row_once() -> None:
    table, (id_N, offsets_B1) = bag(), texts(30, 30)
    table(id_N, offsets_B1).sum().backward()
    assert table.weight.grad is not None
    assert len(table.weight.grad._values()) == len(set(id_N.tolist())) < len(id_N)


def test_gradients_of_two_calls_add_up() -> None:
    table, first, second = bag(torch.float64), texts(5, 9), texts(2, 4, seed=1)
    goal_BD = torch.randn(2, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    apart = [gradient(table, *each, goal_BD).to_dense() for each in (first, second)]
    table.zero_grad()
    torch.stack([(table(*each) * goal_BD).sum() for each in (first, second)]).sum().backward()  # type: ignore[no-untyped-call]
    assert table.weight.grad is not None
    torch.testing.assert_close(table.weight.grad.to_dense(), apart[0] + apart[1], rtol=1e-12, atol=1e-14)


def test_a_dense_table_has_the_same_gradient() -> None:
    id_N, offsets_B1 = texts(6, 2, 3)
    goal_BD = torch.randn(3, DIM, generator=torch.Generator().manual_seed(1))
    dense, sparse = (gradient(bag(sparse=kind), id_N, offsets_B1, goal_BD) for kind in (False, True))
    assert not dense.is_sparse
    torch.testing.assert_close(dense, sparse.to_dense())
