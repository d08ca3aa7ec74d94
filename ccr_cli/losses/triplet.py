"""Triplet ranking loss with the hardest in-batch negative, in both directions.

The papers' baseline (NRCCR "Basic Model"; UML Table 4, row 0). Shapes: B pairs (rows visual items, columns
texts).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ccr_cli.losses.masks import full_mask_BB, kept_rows_B, weighted_mean, without_zero_weights_BB
from ccr_cli.losses.precision import at_least_float32, no_autocast


def triplet(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    margin: float | Tensor = 0.2,
    reduction: Literal["sum", "mean"] = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """[margin + hardest negative - positive]_+ over rows plus the same over columns.

    Equally hard negatives share the gradient. The reduction is taken per direction and the directions are
    added; ``sum`` is what NRCCR's reference code does.

    Args:
        sim_BB: similarities, shape (B, B), positives on the diagonal.
        mask_BB: entries that take part, shape (B, B), or None.
        margin: of the hinge, in units of similarity; one for all, or one for each pair, shape (B,).
        reduction: ``sum``, or ``mean`` over the rows (columns) that have a negative.
        weight_B: weight of each pair, >= 0, shape (B,): the weighted sum, or the weighted mean. A pair of
            weight exactly 0 is left out as a negative of other pairs too.

    Returns:
        The loss, a scalar in float32 or better; 0 with a graph if no pair has a negative.

    Raises:
        ValueError: unknown reduction, or shapes that do not fit.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"unknown reduction {reduction!r}: want 'sum' or 'mean'")
    with no_autocast(sim_BB):
        sim_BB = at_least_float32(sim_BB)
        if not len(sim_BB):
            return sim_BB.sum()
        mask_BB = full_mask_BB(sim_BB, mask_BB)
        if weight_B is None:
            weight_B = sim_BB.new_ones(len(sim_BB))
        weight_B = weight_B.to(sim_BB)
        mask_BB = without_zero_weights_BB(mask_BB, weight_B)
        return _one_direction(sim_BB, mask_BB, margin, reduction, weight_B) + _one_direction(
            sim_BB.T, mask_BB.T, margin, reduction, weight_B
        )


def _one_direction(sim_BB: Tensor, mask_BB: Tensor, margin: float | Tensor, reduction: str, weight_B: Tensor) -> Tensor:
    """Hinge of the rows' hardest negatives, reduced."""
    kept_B = kept_rows_B(mask_BB)
    negative_BB = mask_BB & ~torch.eye(len(mask_BB), dtype=torch.bool, device=mask_BB.device)
    hardest_B = sim_BB.masked_fill(~negative_BB, -torch.inf).amax(dim=1)
    hardest_B = torch.where(kept_B, hardest_B, torch.zeros_like(hardest_B))
    cost_B = torch.relu(margin + hardest_B - sim_BB.diagonal())
    row_weight_B = torch.where(kept_B, weight_B, torch.zeros_like(weight_B))
    if reduction == "mean":
        return weighted_mean(cost_B, row_weight_B)
    return (cost_B * row_weight_B).sum()
