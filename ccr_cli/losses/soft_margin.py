"""Robust alignment of DisNCL: a hinge whose margin follows the similarity, and soft targets.

Dang et al., "Disentangled Noisy Correspondence Learning", eq. (3) to (6). Similarities are cosines.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccr_cli.losses.masks import (
    Reduction,
    full_mask_BB,
    kept_B,
    masked_log_softmax_BK,
    reduced,
    weights_B,
    without_zero_weights_BB,
)
from ccr_cli.losses.precision import check_choice, check_positive, full_precision
from ccr_cli.losses.triplet import triplet


@full_precision
def soft_margin(sim_B: Tensor, margin: float = 0.2, base: float = 10.0) -> Tensor:
    """(base^h - 1) / (base - 1) margin for each pair, the margin of DisNCL eq. (3); base is its m.

    The equation prints similarities where it needs values in [0, 1] (with a cosine below 0 the margin would be
    negative): h = (1 + sim) / 2. No gradient flows into it, as in the works that it is taken from (NCR), where it
    depends on a label.

    Args:
        sim_B: cosines of the pairs.
        margin: the margin at cosine 1; at cosine -1 it is 0.
        base: > 0, not 1.
    """
    check_positive("base", base)
    if base == 1:
        raise ValueError(f"base {base} has no soft margin")
    h_B = (1 + sim_B.detach()) / 2
    return (base**h_B - 1) / (base - 1) * margin


def align(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    margin: float = 0.2,
    base: float | None = 10.0,
    reduction: Reduction = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_align, DisNCL eq. (3): the triplet loss with the soft margin of each pair.

    Args:
        sim_BB: cosines.
        mask_BB: entries that take part.
        margin: the largest margin.
        base: m of the soft margin; None is the constant margin of the warm-up.
        reduction: ``sum`` over the clean rows as printed, or ``mean``, in each direction; directions are added.
        weight_B: probability that the pair matches.
    """
    bound = margin if base is None else soft_margin(sim_BB.diagonal(), margin, base)
    return triplet(sim_BB, mask_BB, margin=bound, reduction=reduction, weight_B=weight_B)


@full_precision
def soft_alignment(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_share: float = 0.5,
    reduction: Reduction = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_soft, DisNCL eq. (4) to (6): cross-entropy to beta_3 one-hot + (1 - beta_3) p of the other direction.

    Eq. (4) as printed sets *rows* of noisy pairs to 0, which changes nothing, since eq. (6) leaves these rows out;
    here noisy *columns* are taken out of the softmax. The targets are constants (bootstrapping): no gradient flows
    into them. Both distributions of a row live on the same candidates.

    Args:
        sim_BB: cosines.
        mask_BB: entries that take part.
        temperature: tau.
        hard_share: beta_3, the share of the one-hot target.
        reduction: ``sum`` over the clean rows as printed, or ``mean``, in each direction; directions are added.
        weight_B: probability that the pair matches.
    """
    check_positive("temperature", temperature)
    check_choice("reduction", reduction, Reduction)
    mask_BB, weight_B = full_mask_BB(sim_BB, mask_BB), weights_B(weight_B, sim_BB)
    mask_BB = without_zero_weights_BB(mask_BB & mask_BB.T, weight_B)
    forth_BB = masked_log_softmax_BK(sim_BB / temperature, mask_BB)
    back_BB = masked_log_softmax_BK(sim_BB.T / temperature, mask_BB)

    def cross_entropy_B(log_p_BB: Tensor, log_other_BB: Tensor) -> Tensor:
        return -(soft_targets(log_other_BB, hard_share) * log_p_BB.masked_fill(~mask_BB, 0.0)).sum(dim=1)

    loss_B = cross_entropy_B(forth_BB, back_BB) + cross_entropy_B(back_BB, forth_BB)
    return reduced(loss_B, kept_B(weight_B, mask_BB), reduction)


def soft_targets(log_other_BB: Tensor, hard_share: float) -> Tensor:
    """Y of DisNCL eq. (6), constants: beta_3 one-hot + (1 - beta_3) p, from log p of the other direction."""
    one_hot_BB = torch.eye(len(log_other_BB), dtype=log_other_BB.dtype, device=log_other_BB.device)
    return hard_share * one_hot_BB + (1 - hard_share) * log_other_BB.detach().exp()
