"""Hinges over all negatives, predicted labels, and the margins that follow from labels: the losses of NCR.

Huang et al., "Learning with Noisy Correspondence for Cross-modal Matching", NeurIPS 2021, as in its code.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import eye_BB, full_mask_BB, taking_part
from ccr_cli.losses.precision import check_positive, full_precision


@full_precision
def mean_hinge(
    sim_BB: Tensor, mask_BB: Tensor | None = None, margin: float = 0.2, weight_B: Tensor | None = None
) -> Tensor:
    """Loss of the warm-up: the weighted sum over the pairs of `hinges_B`."""
    mask_BB, weight_B = taking_part(sim_BB, mask_BB, weight_B)
    return (hinges_B(sim_BB, mask_BB, margin) * weight_B).sum()


def hinges_B(sim_BB: Tensor, mask_BB: Tensor, margin: float) -> Tensor:
    """Mean of [margin + negative - positive]_+ over a pair's row, plus that over its column.

    The diagonal counts as a hinge of 0, as in the code.
    """
    positive_B = sim_BB.diagonal()
    negative_BB = mask_BB & ~eye_BB(len(mask_BB), mask_BB.device)
    row_BB, column_BB = (torch.relu(margin + sim_BB - x) * negative_BB for x in (positive_B[:, None], positive_B))
    return row_BB.sum(dim=1) / mask_BB.sum(dim=1) + column_BB.sum(dim=0) / mask_BB.sum(dim=0)


@full_precision
def label_margin(label_B: Tensor, margin: float = 0.2, base: float = 10.0) -> Tensor:
    """Margin of each pair from its label in [0, 1]: (base^y - 1) / (base - 1) times the margin."""
    check_positive("base", base)
    if base == 1:
        raise ValueError(f"base {base} has no soft margin")
    return (base**label_B - 1) / (base - 1) * margin


@torch.no_grad()
@full_precision
def predicted_labels(sim_BB: Tensor, mask_BB: Tensor | None = None, margin: float = 0.2) -> Tensor:
    """Predicts a label in [0, 1] for each pair of a batch from a model's similarities; without gradient.

    A pair's label is the margin minus half of `hinges_B`, at least 0, divided by the mean of the B // 10 + 1 largest
    of these values, at most 1. All labels are 0 if no pair has any margin left.
    """
    check_positive("margin", margin)
    mask_BB = full_mask_BB(sim_BB, mask_BB)
    left_B = (margin - hinges_B(sim_BB, mask_BB, margin) / 2).clamp(0, margin)
    if not len(left_B):
        return left_B
    best = left_B.topk(len(left_B) // 10 + 1).values.mean()
    return (left_B / torch.where(best > 0, best, torch.ones_like(best))).clamp(0, 1)


def among(member_B: Tensor, sim_BB: Tensor, mask_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Similarities and mask (C, C) of some pairs of a batch, so that only these are each other's rivals."""
    return sim_BB[member_B][:, member_B], mask_BB[member_B][:, member_B]
