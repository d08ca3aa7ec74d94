"""Partial optimal transport within a batch, and the loss that draws similarities to a plan: the rematching of L2RM.

Han et al., "Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval", CVPR 2024, arXiv 2403.05105, as in
its code.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import both_directions, masked_log_softmax_BK, weighted_mean
from ccr_cli.losses.precision import check_positive, full_precision

LEAST = 1e-10
"""Smallest entry of a plan when its rows become targets; smaller ones are raised to it."""
_ROUNDS, _BETWEEN = 100, 20
"""Maximum number of convergence checks, and the iterations between two checks."""


@torch.no_grad()
@full_precision
def partial_plan_BB(
    cost_BB: Tensor, allowed_BB: Tensor, mass: float = 0.1, regularization: float = 0.07, tolerance: float = 1e-6
) -> Tensor:
    """Plan pi of a given mass that minimises <pi, C> minus the weighted entropy; float64, without gradient.

    Rows and columns hold at most 1/B, and only entries in `allowed_BB` take mass; if they cannot hold all of it, the
    plan has less. As in the code, an extra row and column absorb the mass that is not moved; their common entry costs
    max C, their others 0 (the code adds 100 max C to both, which changes no plan). Solved by Sinkhorn iteration.

    Args:
        cost_BB: Cost of each match, from 0 to 2.
        allowed_BB: Where mass may go.
        mass: Total mass of the plan, in [0, 1].
        regularization: Weight of the entropy; below 0.005 float64 cannot hold the computation.
        tolerance: Iteration stops once the rows' absolute errors in mass sum to less than this.
    """
    check_positive("regularization", regularization)
    size, cost_BB = len(cost_BB), cost_BB.double()
    plan_BB = torch.zeros_like(cost_BB)
    if not bool(allowed_BB.any()):
        return plan_BB
    kernel = torch.ones(size + 1, size + 1, dtype=torch.float64, device=cost_BB.device)
    kernel[:size, :size] = (-cost_BB / regularization).exp() * allowed_BB
    kernel[size, size] = (-cost_BB.max() / regularization).exp()
    share = torch.full_like(kernel[0], 1 / size)
    share[size] = 1 - mass
    row, column = torch.ones_like(share), torch.ones_like(share)
    for _ in range(_ROUNDS):
        for _ in range(_BETWEEN):
            row = share / (kernel @ column)
            column = share / (kernel.T @ row)
        found = row[:, None] * kernel * column
        if not bool(found.isfinite().all()):  # more mass than fits
            break
        plan_BB = found[:size, :size]
        if (found.sum(dim=1) - share).abs().sum() < tolerance:
            break
    return plan_BB * (1 / size / plan_BB.sum(dim=1, keepdim=True).clamp(min=1 / size))


@full_precision
def rematch(sim_BB: Tensor, plan_BB: Tensor, mask_BB: Tensor, temperature: float = 0.05) -> Tensor:
    """Half of (rows plus columns) of KL(pi || q) + KL(q || pi), q the softmax of similarities, pi the plan's rows.

    A mean over the rows weighted by their mass, as a row without mass has no target; in the code all rows count alike.
    """
    check_positive("temperature", temperature)

    def rows(sim_BB: Tensor, plan_BB: Tensor, mask_BB: Tensor) -> Tensor:
        target_BB = plan_BB.clamp(min=LEAST).to(sim_BB) * mask_BB
        target_BB = target_BB / target_BB.sum(dim=1, keepdim=True)
        log_q_BB = masked_log_softmax_BK(sim_BB / temperature, mask_BB)
        ratio_BB = torch.where(mask_BB, log_q_BB - target_BB.log(), torch.zeros_like(log_q_BB))
        loss_B = ((log_q_BB.exp() - target_BB) * ratio_BB).sum(dim=1)
        return weighted_mean(loss_B, plan_BB.sum(dim=1))

    return both_directions(rows, sim_BB, plan_BB, mask_BB) / 2
