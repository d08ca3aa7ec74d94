"""Self-distillation of translated captions from a teacher, and a language discriminator: the losses of NRCCR.

Wang et al., "Cross-Lingual Cross-Modal Retrieval with Noise-Robust Learning" (NRCCR), ACM MM 2022. The teacher is
the cross-attention of English over translated tokens (``nets.attention``). It is detached in both losses: the paper
does not say so, and its code detaches it in one; a teacher that can move towards its student teaches less.
"""

from typing import Literal

from torch import Tensor
from torch.nn.functional import smooth_l1_loss, softplus

from ccr_cli.losses.masks import both_directions, kept_B, taking_part, weighted_mean, weights_B
from ccr_cli.losses.mutual import kullback_leibler_B
from ccr_cli.losses.precision import check_choice, check_positive, check_shapes, full_precision

Distance = Literal["l1", "smooth"]
SMOOTH_BETA = 4.0
"""Where the code's smooth L1 turns from a parabola to a line; unit vectors never get there."""


@full_precision
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
    temperature; 0.07 is its code's. The code detaches only the teacher's text, so gradient reaches the pictures through
    the targets; here all of q is detached. Rows are visual items, columns teacher embeddings or translated captions.
    """
    check_positive("temperature", temperature)
    check_shapes(teacher_BB, student_BB, 2)
    mask_BB, weight_B = taking_part(student_BB, mask_BB, weight_B)

    def divergence(q_BB: Tensor, p_BB: Tensor, mask_BB: Tensor) -> Tensor:
        return weighted_mean(kullback_leibler_B(q_BB, p_BB, mask_BB), kept_B(weight_B, mask_BB))

    return both_directions(divergence, teacher_BB.detach() / temperature, student_BB / temperature, mask_BB) / 2


@full_precision
def feature_distillation(
    teacher_BD: Tensor, student_BD: Tensor, *, distance: Distance = "l1", weight_B: Tensor | None = None
) -> Tensor:
    """L_feat = ||h - t||_1, NRCCR eq. (9): a sum over D, a mean over the batch.

    ``smooth`` is what the code does: smooth L1 with beta = 4 and a mean over D too. Between unit vectors that is
    ||h - t||^2 / (8 D), some hundred times smaller. The student's embeddings are those of the translated captions.
    """
    check_choice("distance", distance, Distance)
    check_shapes(teacher_BD, student_BD, 2)
    if distance == "l1":
        cost_B = (teacher_BD.detach() - student_BD).abs().sum(dim=1)
    else:
        cost_B = smooth_l1_loss(student_BD, teacher_BD.detach(), beta=SMOOTH_BETA, reduction="none").mean(dim=1)
    return weighted_mean(cost_B, weights_B(weight_B, student_BD))


@full_precision
def language_cross_entropy(source_logit_B: Tensor, target_logit_B: Tensor) -> Tensor:
    """L_adv = -mean [log F(source) + log(1 - F(target))], NRCCR eq. (11) with its sign turned; 0 for an empty batch.

    As printed, eq. (11) is the discriminator's log-likelihood, and the minus before it in eq. (12) makes all that
    is trained, even the encoder, help the discriminator. Here it is the discriminator's cross-entropy: the
    discriminator minimises it, the encoder maximises it (``nets.heads``). 2 log 2 is chance. F's logits
    are those of "this is the source language", for the captions in each language.
    """
    check_shapes(source_logit_B, target_logit_B, 1)
    cost_B = softplus(-source_logit_B) + softplus(target_logit_B)
    return cost_B.sum() / max(len(cost_B), 1)
