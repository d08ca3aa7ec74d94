"""Which entries of an in-batch matrix take part in a loss, and how rows are weighted and added up.

Two captions of one item can meet in a batch. The entry between them is neither a positive nor a negative and must never
win an argmax. The diagonal, a row's own pair, always takes part.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ccr_cli.losses.precision import check_shapes

Reduction = Literal["sum", "mean"]


def negatives_BB(row_item_B: Tensor, col_item_B: Tensor) -> Tensor:
    """Mask of possible negatives and of the diagonal: False where two different pairs are of one item.

    Items are compared by the id that the data set *gives*: comparing true ids under synthetic noise would leak the
    answer.
    """
    check_shapes(row_item_B, col_item_B, 1)
    return (row_item_B[:, None] != col_item_B[None, :]) | eye_BB(len(row_item_B), row_item_B.device)


def eye_BB(size: int, device: torch.device) -> Tensor:
    """Boolean identity matrix."""
    return torch.eye(size, dtype=torch.bool, device=device)


def full_mask_BB(sim_BB: Tensor, mask_BB: Tensor | None) -> Tensor:
    """The mask of an in-batch matrix with its diagonal set; all True if there is no mask.

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
    """Takes pairs of weight exactly 0 out of the mask, as rows and as columns (their diagonals stay)."""
    takes_part_B = weight_B > 0
    pair_BB = takes_part_B[:, None] & takes_part_B[None, :]
    return (mask_BB & pair_BB) | eye_BB(len(mask_BB), mask_BB.device)


def weights_B(weight_B: Tensor | None, like_B: Tensor) -> Tensor:
    """The weights, or ones, in the dtype of another tensor, without gradient."""
    if weight_B is not None and weight_B.shape != like_B.shape[:1]:
        raise ValueError(f"weights of shape {tuple(weight_B.shape)} for a batch of {len(like_B)}")
    return like_B.new_ones(len(like_B)) if weight_B is None else weight_B.detach().to(like_B)


def taking_part(sim_BB: Tensor, mask_BB: Tensor | None, weight_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask without pairs of weight 0, and the weights."""
    weight_B = weights_B(weight_B, sim_BB)
    return without_zero_weights_BB(full_mask_BB(sim_BB, mask_BB), weight_B), weight_B


def kept_rows_B(mask_BB: Tensor) -> Tensor:
    """Rows with at least one entry besides the diagonal; for columns, pass the transposed mask."""
    return mask_BB.sum(dim=1) > 1


def kept_B(value_B: Tensor, mask_BB: Tensor) -> Tensor:
    """The values of the rows that `kept_rows_B` keeps, 0 for the others."""
    return torch.where(kept_rows_B(mask_BB), value_B, torch.zeros_like(value_B))


def both_directions(loss: Callable[..., Tensor], *matrices_BB: Tensor) -> Tensor:
    """The loss of the rows plus that of the columns."""
    return loss(*matrices_BB) + loss(*(x_BB.T for x_BB in matrices_BB))


def masked_log_softmax_BK(logits_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """Log-softmax over the unmasked entries of each row; masked entries hold -inf, and pass no gradient."""
    return torch.log_softmax(logits_BK.masked_fill(~mask_BK, -torch.inf), dim=1)


def weighted_mean(value_B: Tensor, weight_B: Tensor) -> Tensor:
    """Weighted mean over the rows of positive weight; 0, with a graph and zero gradient, if there is none."""
    weight_B = weight_B.to(value_B.dtype)
    total = weight_B.sum()
    weighted_B = torch.where(weight_B > 0, value_B * weight_B, torch.zeros_like(value_B))
    return weighted_B.sum() / torch.where(total > 0, total, torch.ones_like(total))


def reduced(value_B: Tensor, weight_B: Tensor, reduction: Reduction) -> Tensor:
    """The weighted mean, or the weighted sum."""
    return weighted_mean(value_B, weight_B) if reduction == "mean" else (value_B * weight_B).sum()
