"""Which entries of an in-batch similarity matrix take part in a loss.

Two captions of one item can meet in a batch. The entry between them is neither a positive nor a negative and
must never win an argmax. All losses of this package take ``mask_BB`` (True: the entry takes part) or None
(all entries take part); the diagonal, a row's own pair, always takes part. A row left with its diagonal alone
says nothing and is dropped.

Shapes: B pairs in the batch (rows visual items, columns texts), K candidates of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def negatives_BB(row_item_B: Tensor, col_item_B: Tensor) -> Tensor:
    """Mask of the entries that may act as negatives, and of the diagonal.

    Items are compared by the id under which the data set *gives* them: comparing true ids under synthetic
    noise would leak the answer.

    Args:
        row_item_B: item of each row, shape (B,), any dtype that compares.
        col_item_B: item of each column, shape (B,).

    Returns:
        Boolean mask, shape (B, B): False off the diagonal where row and column are of one item.

    Raises:
        ValueError: the shapes differ or are not one-dimensional.
    """
    if row_item_B.ndim != 1 or row_item_B.shape != col_item_B.shape:
        shapes = f"{tuple(row_item_B.shape)} and {tuple(col_item_B.shape)}"
        raise ValueError(f"items of shape {shapes}: want (B,) twice")
    differs_BB = row_item_B[:, None] != col_item_B[None, :]
    return differs_BB | eye_BB(len(row_item_B), row_item_B.device)


def eye_BB(size: int, device: torch.device) -> Tensor:
    """Boolean identity matrix, shape (B, B)."""
    return torch.eye(size, dtype=torch.bool, device=device)


def full_mask_BB(sim_BB: Tensor, mask_BB: Tensor | None) -> Tensor:
    """The mask, or all entries where there is none; the diagonal is switched on in either case.

    Args:
        sim_BB: any square matrix of the batch, shape (B, B).
        mask_BB: boolean mask, shape (B, B), or None.

    Returns:
        Boolean mask, shape (B, B).

    Raises:
        ValueError: the matrix is not square, or the mask is not a boolean of its shape.
    """
    if sim_BB.ndim != 2 or sim_BB.shape[0] != sim_BB.shape[1]:
        raise ValueError(f"an in-batch matrix is square, not of shape {tuple(sim_BB.shape)}")
    if mask_BB is None:
        return torch.ones_like(sim_BB, dtype=torch.bool)
    if mask_BB.shape != sim_BB.shape or mask_BB.dtype != torch.bool:
        got = f"{mask_BB.dtype} {tuple(mask_BB.shape)}"
        raise ValueError(f"want a boolean mask of shape {tuple(sim_BB.shape)}, got {got}")
    return mask_BB | eye_BB(len(sim_BB), sim_BB.device)


def without_zero_weights_BB(mask_BB: Tensor, weight_B: Tensor) -> Tensor:
    """Take pairs of weight exactly 0 out of the mask, as rows and as columns (their diagonals stay).

    Such a pair is then neither positive nor negative: the loss is that of the batch without it.
    """
    takes_part_B = weight_B > 0
    pair_BB = takes_part_B[:, None] & takes_part_B[None, :]
    return (mask_BB & pair_BB) | eye_BB(len(mask_BB), mask_BB.device)


def kept_rows_B(mask_BB: Tensor) -> Tensor:
    """Rows with at least one entry beside their diagonal, shape (B,); columns: of the transposed mask."""
    return mask_BB.sum(dim=1) > 1


def masked_log_softmax_BK(logits_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """Log-softmax over the unmasked entries of each row; masked entries hold -inf, and pass no gradient."""
    return torch.log_softmax(logits_BK.masked_fill(~mask_BK, -torch.inf), dim=1)


def weighted_mean(value_B: Tensor, weight_B: Tensor) -> Tensor:
    """Weighted mean over the rows of positive weight; 0, with a graph and zero gradient, if there is none."""
    weight_B = weight_B.to(value_B.dtype)
    total = weight_B.sum()
    weighted_B = torch.where(weight_B > 0, value_B * weight_B, torch.zeros_like(value_B))
    return weighted_B.sum() / torch.where(total > 0, total, torch.ones_like(total))
