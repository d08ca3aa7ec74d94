"""Multi-view self-distillation: a teacher's embeddings guide those of the translated captions.

Wang et al., "Cross-Lingual Cross-Modal Retrieval with Noise-Robust Learning" (NRCCR), ACM MM 2022. The teacher is
the cross-attention of English over translated tokens (``nets.attention``). It is detached in both views: the paper
does not say so, and its code detaches it in one of them; a teacher that may move towards its student teaches less.

Shapes: B triplets (rows visual items, columns texts), D embedding.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from ccr_cli.losses.masks import full_mask_BB, kept_rows_B, weighted_mean, without_zero_weights_BB
from ccr_cli.losses.mutual import kullback_leibler_B
from ccr_cli.losses.precision import at_least_float32, no_autocast

SMOOTH_BETA = 4.0
"""Where the code's smooth L1 turns from a parabola to a line; unit vectors never get there."""


def similarity_distillation(
    teacher_BB: Tensor,
    student_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.07,
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_sim = 1/2 [KL(q_t2v || p_t2v) + KL(q_v2t || p_v2t)], NRCCR eq. (7), (8), each a mean over the batch.

    q are the softmax-normalised similarities of the teacher, p those of the student. The paper gives no
    temperature; 0.07 is its code's. The code detaches the teacher's text alone, so that pictures move through the
    targets; here all of q is detached.

    Args:
        teacher_BB: visual items against the teacher's embeddings, shape (B, B).
        student_BB: visual items against translated captions, shape (B, B).
        mask_BB: entries that take part, shape (B, B), or None.
        temperature: of both softmaxes.
        weight_B: weight of each pair, >= 0, shape (B,): a weighted mean. A pair of weight exactly 0 is no
            candidate of other pairs either.

    Returns:
        The loss, a scalar in float32 or better; 0 with a graph if no pair has a rival.

    Raises:
        ValueError: temperature not positive, or shapes that do not fit.
    """
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    if teacher_BB.shape != student_BB.shape:
        raise ValueError(f"matrices of shape {tuple(teacher_BB.shape)} and {tuple(student_BB.shape)} of one batch")
    with no_autocast(student_BB):
        q_BB = at_least_float32(teacher_BB).detach() / temperature
        p_BB = at_least_float32(student_BB) / temperature
        weight_B = _weights(p_BB, weight_B)
        mask_BB = without_zero_weights_BB(full_mask_BB(p_BB, mask_BB), weight_B)
        v2t = weighted_mean(kullback_leibler_B(q_BB, p_BB, mask_BB), weight_B * kept_rows_B(mask_BB))
        t2v = weighted_mean(kullback_leibler_B(q_BB.T, p_BB.T, mask_BB.T), weight_B * kept_rows_B(mask_BB.T))
        return (v2t + t2v) / 2


def feature_distillation(
    teacher_BD: Tensor,
    student_BD: Tensor,
    *,
    distance: Literal["l1", "smooth"] = "l1",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_feat = ||h - t||_1, NRCCR eq. (9): a sum over D, a mean over the batch.

    ``smooth`` is what the code does: smooth L1 with beta = 4 and a mean over D too. Between unit vectors that is
    ||h - t||^2 / 8 over D, some hundred times smaller.

    Args:
        teacher_BD: the teacher's embeddings, shape (B, D).
        student_BD: those of the translated captions, shape (B, D).
        distance: ``l1`` or ``smooth``.
        weight_B: weight of each pair, >= 0, shape (B,): a weighted mean.

    Returns:
        The loss, a scalar in float32 or better.

    Raises:
        ValueError: unknown distance, or shapes that do not fit.
    """
    if distance not in ("l1", "smooth"):
        raise ValueError(f"unknown distance {distance!r}: want 'l1' or 'smooth'")
    if teacher_BD.ndim != 2 or teacher_BD.shape != student_BD.shape:
        raise ValueError(f"embeddings of shape {tuple(teacher_BD.shape)} and {tuple(student_BD.shape)} of one batch")
    with no_autocast(student_BD):
        h_BD, t_BD = at_least_float32(teacher_BD).detach(), at_least_float32(student_BD)
        if distance == "l1":
            cost_B = (h_BD - t_BD).abs().sum(dim=1)
        else:
            cost_B = smooth_l1_loss(t_BD, h_BD, beta=SMOOTH_BETA, reduction="none").mean(dim=1)
        return weighted_mean(cost_B, _weights(t_BD, weight_B))


def _weights(like: Tensor, weight_B: Tensor | None) -> Tensor:
    """Weights in the dtype of a loss, ones where there are none."""
    return like.new_ones(len(like)) if weight_B is None else weight_B.to(like)
