"""Adaptive mutual learning of UML: consistency of clean pairs, disentanglement of noisy ones.

Liu et al., "UML: uncertainty-aware and mutual learning for noise-robust cross-lingual cross-modal retrieval",
Sci China Inf Sci 69(3):132107, 2026. The paper's q are softmax-normalised similarities; it states neither
their temperature (default here: its tau, 0.1) nor the base of the logarithm (here: e). Every function applies one mask
to both distributions that it compares, so they cover the same candidates, and returns one value per triplet, (B,).

Shapes: sim_VS, sim_VT have visual rows and text columns; sim_ST has English rows and translated columns.
"""

import math

import torch
from torch import Tensor

from ccr_cli.losses.masks import both_directions, full_mask_BB, masked_log_softmax_BK
from ccr_cli.losses.precision import check_positive, check_shapes, full_precision


@full_precision
def consistency(sim_VT: Tensor, sim_VS: Tensor, mask_BB: Tensor | None = None, *, temperature: float = 0.1) -> Tensor:
    """L_c of each triplet: 1/2 [JS(q_v2t || q_v2s) + JS(q_t2v || q_s2v)], UML eq. (14).

    JS(p || q) = 1/2 KL(p || m) + 1/2 KL(q || m) with m = (p + q)/2, natural logarithm: between 0 and log 2. Both sides
    have a gradient: the views learn from each other.
    """
    check_positive("temperature", temperature)
    check_shapes(sim_VT, sim_VS, 2)
    one, two = sim_VT / temperature, sim_VS / temperature
    return both_directions(_jensen_shannon_B, one, two, full_mask_BB(one, mask_BB)) / 2


@full_precision
def disentanglement(
    sim_VS: Tensor,
    sim_ST: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.1,
    detach_observation: bool = True,
) -> Tensor:
    """L_n of each triplet: 1/2 [KL(q_v2s || q_s2t) + KL(q_s2v || q_t2s)], UML eq. (18).

    It enters the total loss with a minus sign, eq. (19), which drives the S-T distributions of a noisy triplet
    away from its V-S distributions. The observation q_v2s, q_s2v is detached by default, as in the variational
    self-distillation that the paper cites: otherwise the minus sign would also push the intact pair of picture
    and English caption apart.
    """
    check_positive("temperature", temperature)
    check_shapes(sim_VS, sim_ST, 2)
    anchor, other = sim_VS / temperature, sim_ST / temperature
    anchor = anchor.detach() if detach_observation else anchor
    return both_directions(kullback_leibler_B, anchor, other, full_mask_BB(anchor, mask_BB)) / 2


def _log_probabilities(logits_BB: Tensor, mask_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and probabilities, both 0 at masked entries."""
    log_BB = masked_log_softmax_BK(logits_BB, mask_BB)
    return log_BB.masked_fill(~mask_BB, 0.0), log_BB.exp()


def kullback_leibler_B(p_logits_BB: Tensor, q_logits_BB: Tensor, mask_BB: Tensor) -> Tensor:
    """KL(p || q) of each row over the unmasked entries."""
    log_p_BB, p_BB = _log_probabilities(p_logits_BB, mask_BB)
    log_q_BB, _ = _log_probabilities(q_logits_BB, mask_BB)
    return (p_BB * (log_p_BB - log_q_BB)).sum(dim=1)


def _jensen_shannon_B(p_logits_BB: Tensor, q_logits_BB: Tensor, mask_BB: Tensor) -> Tensor:
    """JS(p || q) of each row over the unmasked entries."""
    log_p_BB, p_BB = _log_probabilities(p_logits_BB, mask_BB)
    log_q_BB, q_BB = _log_probabilities(q_logits_BB, mask_BB)
    log_m_BB = torch.logaddexp(log_p_BB, log_q_BB) - math.log(2.0)
    return (p_BB * (log_p_BB - log_m_BB) + q_BB * (log_q_BB - log_m_BB)).sum(dim=1) / 2
