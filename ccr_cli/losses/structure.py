"""Agreement of two geometrical structures: the loss of GSC within a batch.

Zhao et al., "Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning", CVPR 2024, arXiv
2405.16996, as in its code.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import kept_B, masked_log_softmax_BK, taking_part, weighted_mean
from ccr_cli.losses.precision import check_positive, full_precision


@full_precision
def closeness(cosine_BB: Tensor, temperature: float = 0.07) -> Tensor:
    """Matrix A (B, B): sigmoid of cosine / temperature between the vectors of one side of the batch."""
    check_positive("temperature", temperature)
    return torch.sigmoid(cosine_BB / temperature)


@full_precision
def structure(one_BB: Tensor, two_BB: Tensor, mask_BB: Tensor | None = None, weight_B: Tensor | None = None) -> Tensor:
    """L_IM: mean of -log softmax_j r_ij at j = i, with r_ij = sum_k y_k^2 A_ik A'_jk, weighted by y; in one direction.

    `one_BB` is A of the pictures, `two_BB` A' of the texts, `weight_B` y, without gradient. The mask takes rivals j of
    the same item out of the softmax, but they stay in the sum over k: they are part of a picture's structure too.
    """
    mask_BB, weight_B = taking_part(one_BB, mask_BB, weight_B)
    r_BB = (one_BB * weight_B) @ (two_BB * weight_B).T
    loss_B = -masked_log_softmax_BK(r_BB, mask_BB).diagonal()
    return weighted_mean(loss_B, kept_B(weight_B, mask_BB))
