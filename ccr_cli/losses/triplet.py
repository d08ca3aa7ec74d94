"""Triplet ranking loss with the hardest in-batch negative, in both directions.

The papers' baseline (NRCCR "Basic Model"; UML Table 4, row 0).
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import Reduction, both_directions, eye_BB, kept_B, reduced, taking_part
from ccr_cli.losses.precision import check_choice, full_precision


@full_precision
def triplet(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    margin: float | Tensor = 0.2,
    reduction: Reduction = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """[margin + hardest negative - positive]_+ over rows plus the same over columns.

    Equally hard negatives share the gradient. The reduction is a weighted ``sum``, as in NRCCR's reference code, or a
    weighted ``mean`` over the rows (columns) that have a negative; directions are added. The margin, in units of
    similarity, is one number or a tensor with one for each pair (B,).
    """
    check_choice("reduction", reduction, Reduction)
    if not len(sim_BB):
        return sim_BB.sum()
    mask_BB, weight_B = taking_part(sim_BB, mask_BB, weight_B)

    def hinge(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
        negative_BB = mask_BB & ~eye_BB(len(mask_BB), mask_BB.device)
        hardest_B = kept_B(sim_BB.masked_fill(~negative_BB, -torch.inf).amax(dim=1), mask_BB)
        return reduced(torch.relu(margin + hardest_B - sim_BB.diagonal()), kept_B(weight_B, mask_BB), reduction)

    return both_directions(hinge, sim_BB, mask_BB)
