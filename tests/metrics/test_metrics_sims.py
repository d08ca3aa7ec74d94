"""Similarities by blocks: what is asked for block by block is the matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.metrics.ranks import Positives, blocks, dot_sim, fused, matrix_sim, minmax, rank_queries

ALL = slice(0, 9), slice(0, 7)


def matrices() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    one, two = (torch.randn(9, 7, dtype=torch.float64, generator=generator) for _ in range(2))
    return one, two * 3.0 + 5.0


def test_blocks_cover_everything_once() -> None:
    assert [list(range(b.start, b.stop)) for b in blocks(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(blocks(0, 3)) == []


def test_dot_product() -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (9, 7))
    part = dot_sim(a, b)(slice(2, 5), slice(3, 7))
    np.testing.assert_allclose(part, (a.numpy() @ b.numpy().T)[2:5, 3:7], rtol=1e-12)


def test_fusion_raw_and_minmax() -> None:
    one, two = matrices()
    raw = fused(matrix_sim(one), matrix_sim(two), 0.8)
    np.testing.assert_allclose(raw(*ALL), 0.8 * one.numpy() + 0.2 * two.numpy(), rtol=1e-12)
    scaled = [(m.numpy() - m.numpy().min()) / (m.numpy().max() - m.numpy().min()) for m in (one, two)]
    first, second = (minmax(matrix_sim(m), 9, 7, block=4) for m in (one, two))
    both = fused(first, second, 0.8)
    np.testing.assert_allclose(both(*ALL), 0.8 * scaled[0] + 0.2 * scaled[1], rtol=1e-12)


def test_fusion_ends_are_one_similarity_bit_for_bit() -> None:
    one, two = matrices()
    assert torch.equal(fused(matrix_sim(one), matrix_sim(two), 1.0)(*ALL), one)
    assert torch.equal(fused(matrix_sim(one), matrix_sim(two), 0.0)(*ALL), two)
    with pytest.raises(ValueError, match=r"1\.2"):
        fused(matrix_sim(one), matrix_sim(two), 1.2)


def test_minmax_of_a_constant_and_of_what_is_not_finite() -> None:
    assert minmax(matrix_sim(torch.full((9, 7), 3.0)), 9, 7)(*ALL).abs().max() == 0.0
    scaled = minmax(matrix_sim(torch.tensor([[1.5, -2.5], [5.5, -0.5]])), 2, 2, block=1)
    assert scaled(slice(0, 2), slice(0, 2)).tolist() == [[0.5, 0.0], [1.0, 0.25]]
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="1 x 2"):
            minmax(matrix_sim(torch.tensor([[0.0, bad]])), 1, 2)
    with pytest.raises(ValueError, match="0 x 2"):
        minmax(matrix_sim(torch.zeros(0, 2)), 0, 2)


def test_a_fused_similarity_can_be_ranked() -> None:
    one, two = matrices()
    sim = fused(matrix_sim(one), matrix_sim(two), 0.6)
    ranks = rank_queries(sim, 9, 7, Positives.from_lists([[i % 7] for i in range(9)]), block=4)
    full = (0.6 * one + 0.4 * two).numpy()
    expected = [1 + int((full[i] > full[i, i % 7]).sum()) for i in range(9)]
    assert ranks.rank().tolist() == expected
