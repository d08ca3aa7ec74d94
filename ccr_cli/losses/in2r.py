"""Cross-entropy in both directions between prediction and target: the loss of IN2R, and of L2RM's warm-up.

IN2R, ICML 2026, arXiv 2606.04061; L2RM, CVPR 2024, arXiv 2403.05105; both as in their codes. The reverse cross-entropy
is that of Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", ICCV 2019.

Shape suffixes: B pairs of a batch, C some rows of it, K candidates.
"""

from torch import Tensor

from ccr_cli.losses.masks import both_directions, eye_BB, kept_B, masked_log_softmax_BK, taking_part, weighted_mean
from ccr_cli.losses.precision import check_positive, full_precision

LEAST = 1e-7
"""Least target in a logarithm."""


@full_precision
def symmetric_cross_entropy(
    sim_BB: Tensor, temperature: float = 0.05, mask_BB: Tensor | None = None, weight_B: Tensor | None = None
) -> Tensor:
    """SCE: `to_target_C` with the pair itself as target; the mean of rows and columns, each a weighted mean."""
    mask_BB, weight_B = taking_part(sim_BB, mask_BB, weight_B)
    target_BB = eye_BB(len(sim_BB), sim_BB.device).to(sim_BB.dtype)

    def rows(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
        loss_B = to_target_C(sim_BB, target_BB, mask_BB, temperature)
        return weighted_mean(loss_B, kept_B(weight_B, mask_BB))

    return both_directions(rows, sim_BB, mask_BB) / 2


@full_precision
def to_target_C(sim_CK: Tensor, target_CK: Tensor, mask_CK: Tensor, temperature: float = 0.05) -> Tensor:
    """-sum_k y log q - sum_k q log y of each row, with q the softmax of the similarities over the unmasked entries.

    The target y is 0 where the mask is False; below `LEAST` its logarithm is that of `LEAST`.
    """
    check_positive("temperature", temperature)
    log_q_CK = masked_log_softmax_BK(sim_CK / temperature, mask_CK)
    forth_C = (target_CK * log_q_CK.masked_fill(~mask_CK, 0.0)).sum(dim=1)
    back_C = (log_q_CK.exp() * target_CK.clamp(min=LEAST).log()).sum(dim=1)
    return -(forth_C + back_C)


@full_precision
def soft_target_CK(sim_CK: Tensor, mask_CK: Tensor, temperature: float = 0.05) -> Tensor:
    """Share of each candidate in the softmax of a prototype's similarities."""
    return masked_log_softmax_BK(sim_CK / temperature, mask_CK).exp()
