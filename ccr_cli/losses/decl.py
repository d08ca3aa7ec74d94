"""Evidential regression of in-batch matching, and a hinge that becomes harder during training: the losses of DECL.

Qin et al., "Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval", ACM MM 2022, doi
10.1145/3503161.3547922. Evidence is ``evidential.evidence`` in its form ``scaled``, exp(tanh(s) / tau).

Shapes: B pairs in the batch (rows visual items, columns texts).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ccr_cli.losses.masks import eye_BB, full_mask_BB, kept_rows_B
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.losses.trust import kl_to_uniform


def evidential_mse(
    evidence_BB: Tensor,
    label_B: Tensor,
    mask_BB: Tensor | None = None,
    *,
    kl_weight: float = 0.1,
    noisy_target: Literal["weight", "zero"] = "weight",
) -> Tensor:
    """Expected squared error under each pair's two Dirichlet distributions, and their KL to the uniform one.

    For a row, and likewise for a column: sum_j (Y_j - p_j)^2 + p_j (1 - p_j) / (S + 1), with p = alpha / S, plus
    kl_weight times the KL of alpha~ = e (1 - Y) + 1, which drives evidence for what does not match to zero.

    Args:
        evidence_BB: evidence >= 0, shape (B, B).
        label_B: hard label or probability that the pair matches, shape (B,); no gradient flows into it.
        mask_BB: entries that take part, shape (B, B), or None.
        kl_weight: constant, as in the authors' code; 0 leaves the KL out.
        noisy_target: ``zero`` is the paper's: the pair's own target Y_ii is its label, so that a noisy row has
            no match. ``weight`` keeps the target 1 and multiplies the pair's loss by the label.

    Returns:
        One value a pair, shape (B,), in float32 or better; a direction in which the pair has no other candidate
        adds 0.

    Raises:
        ValueError: unknown ``noisy_target``, or shapes that do not fit.
    """
    if noisy_target not in ("weight", "zero"):
        raise ValueError(f"unknown noisy_target {noisy_target!r}: want 'weight' or 'zero'")
    with no_autocast(evidence_BB):
        evidence_BB = at_least_float32(evidence_BB)
        mask_BB = full_mask_BB(evidence_BB, mask_BB)
        label_B = label_B.detach().to(evidence_BB)
        if label_B.shape != evidence_BB.shape[:1]:
            raise ValueError(f"{tuple(label_B.shape)} labels for a batch of {len(evidence_BB)}")
        target_BB = torch.diag(label_B if noisy_target == "zero" else torch.ones_like(label_B))
        loss_B = _regression_B(evidence_BB, target_BB, mask_BB, kl_weight)
        loss_B = loss_B + _regression_B(evidence_BB.T, target_BB, mask_BB.T, kl_weight)
        return loss_B * label_B if noisy_target == "weight" else loss_B


def _regression_B(evidence_BB: Tensor, target_BB: Tensor, mask_BB: Tensor, kl_weight: float) -> Tensor:
    """One direction of ``evidential_mse``; 0 for rows left with their diagonal."""
    alpha_BB = evidence_BB + 1
    strength_B1 = alpha_BB.masked_fill(~mask_BB, 0.0).sum(dim=1, keepdim=True)
    p_BB = alpha_BB / strength_B1
    term_BB = (target_BB - p_BB).square() + p_BB * (1 - p_BB) / (strength_B1 + 1)
    loss_B = term_BB.masked_fill(~mask_BB, 0.0).sum(dim=1)
    if kl_weight:
        loss_B = loss_B + kl_weight * kl_to_uniform(evidence_BB * (1 - target_BB) + 1, mask_BB)
    return torch.where(kept_rows_B(mask_BB), loss_B, torch.zeros_like(loss_B))


def hard_negatives(step: int, *, first: int = 128, least: int = 5, rate: float = 0.025) -> int:
    """How many of the hardest negatives the dynamic hinge takes: it falls from ``first`` to ``least``.

    Args:
        step: optimiser steps taken so far, the present one included.
        first: the batch size.
        least: the lower bound, the paper's mu.
        rate: fewer by this a step, the paper's eta.
    """
    return max(int(first - rate * step), least)


def dynamic_hinge(sim_BB: Tensor, count: int, mask_BB: Tensor | None = None, *, margin: float = 0.2) -> Tensor:
    """Mean of each pair's ``count`` largest hinge costs, in its row plus in its column.

    With many negatives easy ones speak too, and a mismatched pair does less harm; with few it is nearly the
    hinge of the hardest. In the authors' code a row always has ``count`` negatives; here a row with fewer, where
    captions of its own item are masked, takes the mean of those that it has.

    Args:
        sim_BB: similarities, shape (B, B), positives on the diagonal.
        count: number of negatives, >= 1.
        mask_BB: entries that take part, shape (B, B), or None.
        margin: of the hinge, in units of similarity.

    Returns:
        One value a pair, shape (B,), in float32 or better; a direction without negatives adds 0.

    Raises:
        ValueError: a count of 0 negatives, or shapes that do not fit.
    """
    if count < 1:
        raise ValueError(f"{count} hardest negatives: want at least 1")
    with no_autocast(sim_BB):
        sim_BB = at_least_float32(sim_BB)
        mask_BB = full_mask_BB(sim_BB, mask_BB)
        return _hinge_B(sim_BB, count, mask_BB, margin) + _hinge_B(sim_BB.T, count, mask_BB.T, margin)


def _hinge_B(sim_BB: Tensor, count: int, mask_BB: Tensor, margin: float) -> Tensor:
    """One direction of ``dynamic_hinge``."""
    rivals_BB = mask_BB & ~eye_BB(len(mask_BB), mask_BB.device)
    cost_BB = torch.relu(margin + sim_BB - sim_BB.diagonal()[:, None]).masked_fill(~rivals_BB, 0.0)
    taken_B = rivals_BB.sum(dim=1).clamp(min=1, max=count)
    return cost_BB.topk(min(count, len(cost_BB)), dim=1).values.sum(dim=1) / taken_B
