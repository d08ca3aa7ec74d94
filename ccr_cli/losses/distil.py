"""Losses that draw a student's text vectors to a teacher's.

Each loss is a mean over the pairs of a batch, weighted by the probability that the two texts match. The teacher's
vectors are unit vectors and get no gradient.

Shape suffixes: B pairs, D embedding.
"""

import torch
from torch import Tensor

from ccr_cli.losses.masks import eye_BB, masked_log_softmax_BK, weighted_mean, weights_B
from ccr_cli.losses.precision import check_positive, check_shapes, full_precision


@full_precision
def mse(student_BD: Tensor, teacher_BD: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """Mean squared error per dimension, of vectors of any norm (Reimers and Gurevych, EMNLP 2020; M-CLIP)."""
    check_shapes(student_BD, teacher_BD, 2)
    loss_B = (student_BD - teacher_BD.detach()).square().mean(dim=1)
    return weighted_mean(loss_B, weights_B(weight_B, loss_B))


@full_precision
def cosine(student_BD: Tensor, teacher_BD: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """One minus the cosine."""
    check_shapes(student_BD, teacher_BD, 2)
    loss_B = 1 - torch.cosine_similarity(student_BD, teacher_BD.detach(), dim=1)
    return weighted_mean(loss_B, weights_B(weight_B, loss_B))


@full_precision
def relational(
    student_BD: Tensor, teacher_BD: Tensor, temperature: float = 0.07, weight_B: Tensor | None = None
) -> Tensor:
    """KL(p || q) of each text's softmax over the teacher's vectors in the batch: p the teacher's, q the student's.

    A pair of weight 0 is not a candidate either. The student's vectors are unit vectors.
    """
    check_positive("temperature", temperature)
    check_shapes(student_BD, teacher_BD, 2)
    teacher_BD = teacher_BD.detach()
    weight_B = weights_B(weight_B, student_BD)
    mask_BB = (weight_B > 0)[None, :] | eye_BB(len(weight_B), weight_B.device)
    log_p_BB, log_q_BB = (
        masked_log_softmax_BK(x_BD @ teacher_BD.T / temperature, mask_BB) for x_BD in (teacher_BD, student_BD)
    )
    difference_BB = torch.where(mask_BB, log_p_BB - log_q_BB, 0)
    return weighted_mean((log_p_BB.exp() * difference_BB).sum(dim=1), weight_B)
