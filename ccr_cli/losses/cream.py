"""Cross-entropy with soft targets, which give part of a doubtful pair's target to its rivals: the loss of CREAM.

Ma et al., "Cross-modal Retrieval with Noisy Correspondence via Consistency Refining and Mining", IEEE TIP 2024, as in
its code.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import both_directions, eye_BB, full_mask_BB, masked_log_softmax_BK
from ccr_cli.losses.precision import check_positive, full_precision


@torch.no_grad()
@full_precision
def consistency_B(sim_BB: Tensor, mask_BB: Tensor | None = None, temperature: float = 0.07) -> Tensor:
    """Softmax probability of each pair, the mean of its row and its column (o, shape (B,)); without gradient."""
    check_positive("temperature", temperature)
    mask_BB = full_mask_BB(sim_BB, mask_BB)

    def share(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
        return masked_log_softmax_BK(sim_BB / temperature, mask_BB).diagonal().exp()

    return both_directions(share, sim_BB, mask_BB) / 2


@full_precision
def mined(
    sim_BB: Tensor, label_B: Tensor, mask_BB: Tensor | None = None, temperature: float = 0.07, least: float = 0.0
) -> Tensor:
    """Cross-entropy with soft targets, summed over rows and columns.

    On the diagonal the target is the pair's label y. The rivals divide 1 - y in proportion to their similarities, with
    negative ones counted as 0; shares below `least` are then set to 0. Targets are constants here; in the authors' code
    gradient also flows into them.
    """
    check_positive("temperature", temperature)
    mask_BB, label_B = full_mask_BB(sim_BB, mask_BB), label_B.detach().to(sim_BB)
    negative_BB = mask_BB & ~eye_BB(len(mask_BB), mask_BB.device)

    def rows(sim_BB: Tensor, mask_BB: Tensor, negative_BB: Tensor) -> Tensor:
        similar_BB = sim_BB.detach().clamp(min=0) * negative_BB
        share_BB = (1 - label_B)[:, None] * similar_BB / (similar_BB.sum(dim=1, keepdim=True) + 1e-6)
        target_BB = torch.where(share_BB < least, 0.0, share_BB) + label_B.diag()
        log_q_BB = masked_log_softmax_BK(sim_BB / temperature, mask_BB)
        return -(target_BB * log_q_BB.masked_fill(~mask_BB, 0.0)).sum()

    return both_directions(rows, sim_BB, mask_BB, negative_BB)
