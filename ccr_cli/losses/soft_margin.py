"""Robust alignment of DisNCL: a hinge whose margin follows the similarity, and soft targets.

Dang et al., "Disentangled Noisy Correspondence Learning", eq. (3) to (6). Shapes: B pairs in the batch (rows visual
items, columns texts).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ccr_cli.losses.masks import (
    full_mask_BB,
    kept_rows_B,
    masked_log_softmax_BK,
    weighted_mean,
    without_zero_weights_BB,
)
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.losses.triplet import triplet


def soft_margin(sim_B: Tensor, margin: float = 0.2, base: float = 10.0) -> Tensor:
    """(base^h - 1) / (base - 1) margin for each pair, the margin of DisNCL eq. (3); base is its m.

    The equation prints similarities where it needs values in [0, 1] (with a cosine below 0 the margin would be
    negative): h = (1 + sim) / 2. No gradient flows into it, as in the works that it is taken from (NCR), where it
    depends on a label.

    Args:
        sim_B: cosines of the pairs, shape (B,).
        margin: the margin at cosine 1; at cosine -1 it is 0.
        base: > 0, not 1.

    Returns:
        Shape (B,), in float32 or better.

    Raises:
        ValueError: a base that is not positive, or 1.
    """
    if not base > 0 or base == 1:
        raise ValueError(f"base {base} is not positive, or is 1")
    with no_autocast(sim_B):
        h_B = (1 + at_least_float32(sim_B.detach())) / 2
        return (base**h_B - 1) / (base - 1) * margin


def align(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    margin: float = 0.2,
    base: float | None = 10.0,
    reduction: Literal["sum", "mean"] = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_align, DisNCL eq. (3): the triplet loss with the soft margin of each pair.

    Args:
        sim_BB: cosines, shape (B, B), positives on the diagonal.
        mask_BB: entries that take part, shape (B, B), or None.
        margin: the largest margin.
        base: m of the soft margin; None is the constant margin of the warm-up.
        reduction: ``sum`` over the clean rows as printed, or ``mean``, in each direction; directions are added.
        weight_B: probability that the pair matches, shape (B,); 0 takes it out, as a negative of others too.

    Returns:
        The loss, a scalar in float32 or better; 0 with a graph if no pair has a negative.

    Raises:
        ValueError: an impossible base, unknown reduction, or shapes that do not fit.
    """
    bound = margin if base is None else soft_margin(sim_BB.diagonal(), margin, base)
    return triplet(sim_BB, mask_BB, margin=bound, reduction=reduction, weight_B=weight_B)


def soft_alignment(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_share: float = 0.5,
    reduction: Literal["sum", "mean"] = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_soft, DisNCL eq. (4) to (6): cross-entropy to beta_3 one-hot + (1 - beta_3) p of the other direction.

    Eq. (4) as printed sets *rows* of noisy pairs to 0, which changes nothing, since eq. (6) leaves these rows out;
    here noisy *columns* are taken out of the softmax. The targets are constants (bootstrapping): no gradient flows
    into them. Both distributions of a row live on the same candidates.

    Args:
        sim_BB: cosines, shape (B, B), positives on the diagonal.
        mask_BB: entries that take part, shape (B, B), or None.
        temperature: tau, > 0.
        hard_share: beta_3, the share of the one-hot target.
        reduction: ``sum`` over the clean rows as printed, or ``mean``, in each direction; directions are added.
        weight_B: probability that the pair matches, shape (B,); 0 takes it out, as row and as column.

    Returns:
        The loss, a scalar in float32 or better; 0 with a graph if no row has a candidate beside its own.

    Raises:
        ValueError: temperature not positive, unknown reduction, or shapes that do not fit.
    """
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"unknown reduction {reduction!r}: want 'sum' or 'mean'")
    with no_autocast(sim_BB):
        sim_BB = at_least_float32(sim_BB)
        mask_BB = full_mask_BB(sim_BB, mask_BB)
        weight_B = sim_BB.new_ones(len(sim_BB)) if weight_B is None else weight_B.to(sim_BB)
        mask_BB = without_zero_weights_BB(mask_BB & mask_BB.T, weight_B)
        forth_BB = masked_log_softmax_BK(sim_BB / temperature, mask_BB)
        back_BB = masked_log_softmax_BK(sim_BB.T / temperature, mask_BB)
        loss_B = _cross_entropy_B(forth_BB, back_BB, mask_BB, hard_share)
        loss_B = loss_B + _cross_entropy_B(back_BB, forth_BB, mask_BB, hard_share)
        weight_B = torch.where(kept_rows_B(mask_BB), weight_B, torch.zeros_like(weight_B))
        return weighted_mean(loss_B, weight_B) if reduction == "mean" else (loss_B * weight_B).sum()


def _cross_entropy_B(log_p_BB: Tensor, log_other_BB: Tensor, mask_BB: Tensor, hard_share: float) -> Tensor:
    """-sum_j y_j log p_j of each row with y = beta_3 e_i + (1 - beta_3) p_other, over the unmasked entries."""
    target_BB = soft_targets(log_other_BB, hard_share)
    return -(target_BB * log_p_BB.masked_fill(~mask_BB, 0.0)).sum(dim=1)


def soft_targets(log_other_BB: Tensor, hard_share: float) -> Tensor:
    """Y of DisNCL eq. (6), constants: beta_3 one-hot + (1 - beta_3) p.

    Args:
        log_other_BB: log p of the other direction, shape (B, B), rows and columns pairs.
        hard_share: beta_3.
    """
    one_hot_BB = torch.eye(len(log_other_BB), dtype=log_other_BB.dtype, device=log_other_BB.device)
    return hard_share * one_hot_BB + (1 - hard_share) * log_other_BB.detach().exp()
