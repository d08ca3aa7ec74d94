"""Padding ragged rows and reversing gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.data.frames import Frames
from ccr_cli.nets.heads import reverse_gradient
from ccr_cli.nets.ragged import masked_mean, mean_rows, pad_rows


def test_rows_are_padded_on_the_right_and_averaged_without_padding() -> None:
    rows_ND = torch.arange(12.0).reshape(6, 2)
    x_BLD, mask_BL = pad_rows(rows_ND, torch.tensor([0, 1, 4, 6]), fill=9)
    assert mask_BL.tolist() == [[True, False, False], [True, True, True], [True, True, False]]
    assert x_BLD[0].tolist() == [[0, 1], [9, 9], [9, 9]] and x_BLD[1].tolist() == rows_ND[1:4].tolist()
    torch.testing.assert_close(masked_mean(x_BLD, mask_BL)[2], rows_ND[4:].mean(0))
    ids_BL, _ = pad_rows(torch.tensor([4, 5, 6]), torch.tensor([0, 2, 3]), fill=1)
    assert ids_BL.tolist() == [[4, 5], [6, 1]] and ids_BL.dtype == torch.int64


def test_nothing_is_padded_to_nothing() -> None:
    x_BLD, mask_BL = pad_rows(torch.zeros(0, 3), torch.tensor([0]))
    assert x_BLD.shape == (0, 0, 3) and mask_BL.shape == (0, 0)


def test_frames_are_gathered_and_averaged_like_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, 4, generator=generator) for n in (3, 1, 2, 5)]
    frames = Frames(torch.cat(parts), torch.tensor([0, 3, 4, 6, 11]))
    chosen = frames.select(torch.tensor([2, 0, 2]))
    assert len(chosen) == 3 and chosen.dim == 4
    torch.testing.assert_close(chosen.rows_ND, torch.cat([parts[2], parts[0], parts[2]]))
    means_VD = mean_rows(chosen.rows_ND, chosen.offsets_V1)
    torch.testing.assert_close(means_VD, torch.stack([parts[i].mean(0) for i in (2, 0, 2)]))


@pytest.mark.parametrize("lengths", [(3, 1, 2, 5), (1, 1, 1, 1)])
def test_items_of_a_larger_table_are_read_when_they_are_selected(lengths: tuple[int, ...]) -> None:
    parts = [torch.randn(n, 4) for n in lengths]
    whole = Frames(torch.cat(parts), torch.tensor([0, *np.cumsum(lengths)]))
    some = whole.only(torch.tensor([3, 0, 2]))
    assert len(some) == 3 and some.rows_ND is whole.rows_ND
    again = some.only(torch.tensor([2, 1]))
    for found, wanted in ((some, [3, 0, 2]), (again, [2, 0])):
        moved = found.to("cpu")
        torch.testing.assert_close(moved.rows_ND, torch.cat([parts[v] for v in wanted]))
        assert moved.offsets_V1.tolist() == [0, *np.cumsum([lengths[v] for v in wanted])]
    one = some.select(torch.tensor([1, 1]))
    torch.testing.assert_close(one.rows_ND, torch.cat([parts[0], parts[0]]))


def test_items_of_one_row_are_their_own_mean() -> None:
    features_VD = torch.randn(5, 3)
    frames = Frames.single(features_VD)
    assert mean_rows(frames.rows_ND, frames.offsets_V1) is features_VD
    torch.testing.assert_close(frames.select(torch.tensor([4, 1])).rows_ND, features_VD[[4, 1]])


def test_reversal_changes_the_gradient_alone() -> None:
    x = torch.randn(4, requires_grad=True)
    out = reverse_gradient(x)
    assert torch.equal(out, x)
    (out * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and x.grad.tolist() == [-1.0, -2.0, -3.0, -4.0]
