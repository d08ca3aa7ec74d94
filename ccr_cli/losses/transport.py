"""Partial optimal transport within a batch, and the loss that draws similarities to a plan: the rematching of L2RM.

Han et al., "Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval", CVPR 2024, arXiv 2403.05105, as in
its code.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import both_directions, masked_log_softmax_BK, weighted_mean
from ccr_cli.losses.precision import check_positive, full_precision

LEAST = 1e-10
"""Least entry of a plan before its rows become targets."""
_ROUNDS, _BETWEEN = 100, 20
"""Most checks of a plan, and iterations between them."""


@torch.no_grad()
@full_precision
def partial_plan_BB(
    cost_BB: Tensor, allowed_BB: Tensor, mass: float = 0.1, regularization: float = 0.07, tolerance: float = 1e-6
) -> Tensor:
    """The plan pi that minimises <pi, C> less the regularised entropy, with the given mass; float64, a constant.

    Rows and columns hold at most 1/B, and only `allowed_BB` takes mass; if that cannot hold all of it, it holds less.
    As in the code a row and a column more take what is not moved; what goes from one to the other costs max C. They are
    solved by Sinkhorn's iteration. The code gives both a cost of 100 max C, which changes no plan.

    Args:
        cost_BB: Cost of each match, from 0 to 2.
        allowed_BB: Where mass may go.
        mass: How much is moved, in [0, 1].
        regularization: Weight of the entropy; below 0.005 the plan is none in float64.
        tolerance: Most that all rows together may miss.
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
        if not bool(found.isfinite().all()):  # more mass than is allowed
            break
        plan_BB = found[:size, :size]
        if (found.sum(dim=1) - share).abs().sum() < tolerance:
            break
    return plan_BB * (1 / size / plan_BB.sum(dim=1, keepdim=True).clamp(min=1 / size))


@full_precision
def rematch(sim_BB: Tensor, plan_BB: Tensor, mask_BB: Tensor, temperature: float = 0.05) -> Tensor:
    """Half of (rows plus columns) of KL(pi || q) + KL(q || pi), q the softmax of similarities, pi the plan's rows.

    A mean over the rows, each weighted by its mass: a row without any has no target. The code counts all alike.
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
