"""Evidential regression of in-batch matching, and a hinge that becomes harder during training: the losses of DECL.

Qin et al., "Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval", ACM MM 2022, doi
10.1145/3503161.3547922. Evidence is ``evidential.evidence`` in its form ``scaled``, exp(tanh(s) / tau). Both losses
return one value per pair, shape (B,); a direction in which the pair has no other candidate adds 0.
"""

import torch
from torch import Tensor

from ccr_cli.losses.evidential import NoisyTarget, labelled_B, squared_error_BK
from ccr_cli.losses.masks import both_directions, eye_BB, full_mask_BB
from ccr_cli.losses.precision import full_precision
from ccr_cli.losses.trust import kl_to_uniform


@full_precision
def evidential_mse(
    evidence_BB: Tensor,
    label_B: Tensor,
    mask_BB: Tensor | None = None,
    *,
    kl_weight: float = 0.1,
    noisy_target: NoisyTarget = "weight",
) -> Tensor:
    """Expected squared error under each pair's two Dirichlet distributions, and their KL to the uniform one.

    For a row, and likewise for a column: sum_j (Y_j - p_j)^2 + p_j (1 - p_j) / (S + 1), with p = alpha / S, plus
    kl_weight, constant as in the authors' code, times the KL of alpha~ = e (1 - Y) + 1, which drives the evidence
    of non-matching candidates to zero. See ``labelled_B`` for `label_B` and `noisy_target`; the paper uses ``zero``.
    """

    def regression_B(evidence_BB: Tensor, target_BB: Tensor, mask_BB: Tensor) -> Tensor:
        term_BB = squared_error_BK(evidence_BB + 1, target_BB, mask_BB)
        loss_B = term_BB.masked_fill(~mask_BB, 0.0).sum(dim=1)
        if kl_weight:
            loss_B = loss_B + kl_weight * kl_to_uniform(evidence_BB * (1 - target_BB) + 1, mask_BB)
        return loss_B

    return labelled_B(regression_B, evidence_BB, label_B, mask_BB, noisy_target)


def hard_negatives(step: int, *, first: int = 128, least: int = 5, rate: float = 0.025) -> int:
    """Number of hardest negatives in the dynamic hinge at a step (counted from 1).

    It falls from the batch size, ``first``, to ``least`` (the paper's mu), by ``rate`` per step (its eta).
    """
    return max(int(first - rate * step), least)


@full_precision
def dynamic_hinge(sim_BB: Tensor, count: int, mask_BB: Tensor | None = None, *, margin: float = 0.2) -> Tensor:
    """Mean of each pair's ``count`` >= 1 largest hinge costs in its row, plus the same for its column.

    With many negatives the easy ones count too, and a mismatched pair does less harm; with few it is close to the
    hardest-negative hinge. In the authors' code a row always has ``count`` negatives; here a row can have fewer,
    because captions of its own item are masked, and the mean is taken over those that remain.
    """
    if count < 1:
        raise ValueError(f"{count} hardest negatives: want at least 1")

    def hinge_B(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
        rivals_BB = mask_BB & ~eye_BB(len(mask_BB), mask_BB.device)
        cost_BB = torch.relu(margin + sim_BB - sim_BB.diagonal()[:, None]).masked_fill(~rivals_BB, 0.0)
        taken_B = rivals_BB.sum(dim=1).clamp(min=1, max=count)
        return cost_BB.topk(min(count, len(cost_BB)), dim=1).values.sum(dim=1) / taken_B

    return both_directions(hinge_B, sim_BB, full_mask_BB(sim_BB, mask_BB))
