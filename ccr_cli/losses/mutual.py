"""Adaptive mutual learning of UML: consistency of clean pairs, disentanglement of noisy ones.

Liu et al., "UML: uncertainty-aware and mutual learning for noise-robust cross-lingual cross-modal retrieval",
Sci China Inf Sci 69(3):132107, 2026. The q of the paper are softmax-normalised similarities; it gives no
temperature (default here: its tau, 0.1) and no base of the logarithm (here: e). Row i of the result belongs
to triplet i. Every function takes one mask for both distributions that it compares, so that both live on the
same candidates.

Shapes: B triplets; sim_VS, sim_VT rows visual items, columns texts; sim_ST rows English, columns translated
captions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ccr_cli.losses.masks import full_mask_BB, masked_log_softmax_BK
from ccr_cli.losses.precision import at_least_float32, no_autocast


def consistency(sim_VT: Tensor, sim_VS: Tensor, mask_BB: Tensor | None = None, *, temperature: float = 0.1) -> Tensor:
    """L_c of each triplet: 1/2 [JS(q_v2t || q_v2s) + JS(q_t2v || q_s2v)], UML eq. (14).

    JS(p || q) = 1/2 KL(p || m) + 1/2 KL(q || m) with m = (p + q)/2, natural logarithm: between 0 and log 2.

    Args:
        sim_VT: visual against translated captions, shape (B, B).
        sim_VS: visual against English captions, shape (B, B).
        mask_BB: entries that take part, shape (B, B), or None.
        temperature: of the softmax.

    Returns:
        One value a triplet, shape (B,), in float32 or better. Both sides have a gradient: the views learn
        from each other.

    Raises:
        ValueError: temperature not positive, or shapes that do not fit.
    """
    _check(sim_VT, sim_VS, temperature)
    with no_autocast(sim_VT):
        one, two = at_least_float32(sim_VT) / temperature, at_least_float32(sim_VS) / temperature
        mask_BB = full_mask_BB(one, mask_BB)
        return (_jensen_shannon_B(one, two, mask_BB) + _jensen_shannon_B(one.T, two.T, mask_BB.T)) / 2


def disentanglement(
    sim_VS: Tensor,
    sim_ST: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.1,
    detach_observation: bool = True,
) -> Tensor:
    """L_n of each triplet: 1/2 [KL(q_v2s || q_s2t) + KL(q_s2v || q_t2s)], UML eq. (18).

    It enters the total loss with a minus sign, eq. (19): the translated caption of a noisy triplet is driven
    away from what the English one sees. The observation q_v2s, q_s2v is detached by default, as in the
    variational self-distillation that the paper cites: otherwise the minus sign pushes the intact pair of
    picture and English apart too.

    Args:
        sim_VS: visual against English captions, shape (B, B).
        sim_ST: English (rows) against translated captions (columns), shape (B, B).
        mask_BB: entries that take part, shape (B, B), or None.
        temperature: of the softmax.
        detach_observation: no gradient into ``sim_VS``.

    Returns:
        One value a triplet, shape (B,), in float32 or better.

    Raises:
        ValueError: temperature not positive, or shapes that do not fit.
    """
    _check(sim_VS, sim_ST, temperature)
    with no_autocast(sim_VS):
        anchor, other = at_least_float32(sim_VS) / temperature, at_least_float32(sim_ST) / temperature
        if detach_observation:
            anchor = anchor.detach()
        mask_BB = full_mask_BB(anchor, mask_BB)
        rows_B = kullback_leibler_B(anchor, other, mask_BB)
        return (rows_B + kullback_leibler_B(anchor.T, other.T, mask_BB.T)) / 2


def _check(one_BB: Tensor, two_BB: Tensor, temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    if one_BB.shape != two_BB.shape:
        raise ValueError(f"matrices of shape {tuple(one_BB.shape)} and {tuple(two_BB.shape)} of one batch")


def _log_probabilities(logits_BB: Tensor, mask_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities with 0 in place of the masked -inf, and probabilities with 0 there."""
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
