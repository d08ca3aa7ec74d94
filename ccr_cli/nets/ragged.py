"""Ragged rows (the tokens of texts, the frames of videos) as padded blocks, and back to one vector each.

Shape suffixes: B texts or items, N rows of all of them, L longest, D dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def pad_rows(rows_N: Tensor, offsets_B1: Tensor, fill: float = 0) -> tuple[Tensor, Tensor]:
    """Pads ragged rows on the right.

    Args:
        rows_N: The rows of all, one after the other: ids (N,) or vectors (N, D).
        offsets_B1: int64, B + 1 values from 0 to N; b has the rows from offsets[b] to offsets[b + 1].
        fill: What the padding holds.

    Returns:
        The block (B, L) or (B, L, D), and a bool mask (B, L) that is true where a row is.
    """
    lengths_B = offsets_B1.diff()
    width = int(lengths_B.max()) if len(lengths_B) else 0
    columns_L = torch.arange(width, device=lengths_B.device)
    mask_BL = columns_L < lengths_B.unsqueeze(1)
    block = rows_N.new_full((*mask_BL.shape, *rows_N.shape[1:]), fill)
    block[mask_BL] = rows_N  # both run text by text
    return block, mask_BL


def masked_mean(x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Mean (B, D) over the rows that exist; 0 where there is none."""
    weight_BL1 = mask_BL.unsqueeze(-1).to(x_BLD.dtype)
    return (x_BLD * weight_BL1).sum(1) / weight_BL1.sum(1).clamp(min=1)


def mean_rows(rows_ND: Tensor, offsets_B1: Tensor) -> Tensor:
    """Mean (B, D) of ragged rows, one at least each, added up in their order on every device."""
    if len(rows_ND) == len(offsets_B1) - 1:
        return rows_ND
    row_N = torch.arange(len(rows_ND), device=offsets_B1.device)
    return embedding_bag(row_N, rows_ND, offsets_B1, mode="mean", include_last_offset=True)
