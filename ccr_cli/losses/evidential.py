"""Evidential learning with Fisher information: the dual-view uncertainty-aware loss of UML.

Liu et al., "UML: uncertainty-aware and mutual learning for noise-robust cross-lingual cross-modal retrieval",
Sci China Inf Sci 69(3):132107, 2026, eq. (1) to (11); the Fisher-weighted loss is that of Deng et al., ICML
2023. Everything is computed in float32 or better whatever the autocast dtype, the log-determinant in float64.

Shapes: B pairs in the batch (rows visual items, columns texts), K candidates of a row, Q queries, V visual
items.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ccr_cli.losses.masks import full_mask_BB, kept_rows_B
from ccr_cli.losses.precision import at_least_float32, no_autocast, reciprocal_trigamma_remainder, trigamma

EvidenceForm = Literal["scaled", "paper"]
LEAST_TAU = 0.0125
"""exp(1 / tau) is then 6e34, which float32 can add up over thousands of candidates; below 0.0113 it cannot hold one."""


class Opinion(NamedTuple):
    """Dirichlet distribution over the candidates of each row, read as an opinion, UML eq. (2), (3)."""

    alpha_BK: Tensor
    """Concentrations e + 1, shape (B, K); 1 at masked entries."""
    strength_B: Tensor
    """D, the sum of the unmasked concentrations, shape (B,)."""
    belief_BK: Tensor
    """Belief masses e / D, shape (B, K); 0 at masked entries."""
    uncertainty_B: Tensor
    """u = K / D with K the number of unmasked entries, shape (B,); belief and uncertainty sum to 1."""


def evidence(sim: Tensor, tau: float = 0.1, form: EvidenceForm = "scaled") -> Tensor:
    """Evidence of every pair, UML eq. (1).

    ``paper`` is the equation as printed, exp(tanh(sim / tau)): it lies in [1/e, e], is flat above a
    similarity of three tau and does not train. ``scaled``, exp(tanh(sim) / tau), is the form of the authors'
    earlier work and the default.

    Args:
        sim: cosine similarities, any shape.
        tau: scale, > 0.
        form: ``scaled`` or ``paper``.

    Returns:
        Evidence > 0, same shape, float32 or better.

    Raises:
        ValueError: unknown form, or tau not positive.
    """
    if not tau > 0:
        raise ValueError(f"tau {tau} is not positive")
    with no_autocast(sim):
        sim = at_least_float32(sim)
        if form == "scaled":
            return torch.exp(torch.tanh(sim) / tau)
        if form == "paper":
            return torch.exp(torch.tanh(sim / tau))
    raise ValueError(f"unknown evidence {form!r}: want 'scaled' or 'paper'")


def dirichlet(evidence_BK: Tensor, mask_BK: Tensor | None = None) -> Opinion:
    """Concentrations, strength, belief and uncertainty of each row, UML eq. (2).

    Args:
        evidence_BK: evidence >= 0, shape (B, K), square or not.
        mask_BK: entries that take part, shape (B, K), or None.

    Returns:
        The opinion of each row.
    """
    with no_autocast(evidence_BK):
        evidence_BK = at_least_float32(evidence_BK)
        if mask_BK is None:
            mask_BK = torch.ones_like(evidence_BK, dtype=torch.bool)
        evidence_BK = evidence_BK.masked_fill(~mask_BK, 0.0)
        count_B = mask_BK.sum(dim=1).to(evidence_BK.dtype)
        strength_B = evidence_BK.sum(dim=1) + count_B
        return Opinion(evidence_BK + 1, strength_B, evidence_BK / strength_B[:, None], count_B / strength_B)


def query_uncertainty(
    sim_QV: Tensor, tau: float = 0.1, form: EvidenceForm = "scaled", candidates: int | None = 2
) -> Tensor:
    """Uncertainty u = K / D of queries against a gallery.

    The paper does not say what K is at test time. Over a whole large gallery one match hardly moves u, which
    then measures the gallery and not the query; over the most similar ``candidates`` it tells queries apart,
    the better the fewer they are (benchmarks/results/query_uncertainty.json).
    Neither is free of the gallery's size: more items make the best of them more similar.

    Args:
        sim_QV: similarities of queries (rows) to the gallery, shape (Q, V).
        tau: as in ``evidence``.
        form: as in ``evidence``.
        candidates: number of most similar items that count, or None for the whole gallery.

    Returns:
        Uncertainty in (0, 1], shape (Q,).
    """
    if candidates is not None and candidates < sim_QV.shape[1]:
        sim_QV = sim_QV.topk(candidates, dim=1).values
    return dirichlet(evidence(sim_QV, tau, form)).uncertainty_B


def fisher_mse(alpha_BK: Tensor, target_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """I-MSE of each row, UML eq. (7).

    sum_j ((Y_j - p_j)^2 + p_j (1 - p_j) / (D + 1)) psi1(alpha_j) with p = alpha / D, over the unmasked
    entries.

    Args:
        alpha_BK: concentrations >= 1, shape (B, K).
        target_BK: the rows Y, shape (B, K).
        mask_BK: entries that take part, shape (B, K).

    Returns:
        One value a row, shape (B,), in float32 or better.
    """
    with no_autocast(alpha_BK):
        alpha_BK = at_least_float32(alpha_BK)
        strength_B1 = alpha_BK.masked_fill(~mask_BK, 0.0).sum(dim=1, keepdim=True)
        p_BK = alpha_BK / strength_B1
        term_BK = (target_BK - p_BK).square() + p_BK * (1 - p_BK) / (strength_B1 + 1)
        return (term_BK * trigamma(alpha_BK)).masked_fill(~mask_BK, 0.0).sum(dim=1)


def fisher_log_det(alpha_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """Log-determinant of the Fisher information of each row, UML eq. (8).

    sum_j log psi1(alpha_j) + log(1 - sum_j psi1(D) / psi1(alpha_j)) over the unmasked entries. As printed,
    the second logarithm cancels to nothing where evidence is strong. With r(x) = 1/psi1(x) - x + 1/2 its
    argument is exactly psi1(D) ((K - 1)/2 + r(D) - sum_j r(alpha_j)), and since 0 < r <= 0.108 for arguments
    from 1 on, that is positive for every K >= 2. It is computed in this form, in float64.

    Args:
        alpha_BK: concentrations >= 1, shape (B, K).
        mask_BK: entries that take part, shape (B, K).

    Returns:
        One value a row, shape (B,), in float32 or better; 0 for rows with fewer than two entries, where it is
        -inf.
    """
    with no_autocast(alpha_BK):
        dtype = at_least_float32(alpha_BK).dtype
        alpha_BK = alpha_BK.double().masked_fill(~mask_BK, 1.0)
        count_B = mask_BK.sum(dim=1)
        kept_B = count_B > 1
        strength_B = alpha_BK.masked_fill(~mask_BK, 0.0).sum(dim=1).clamp(min=1.0)
        psi1_BK, psi1_B = trigamma(alpha_BK), trigamma(strength_B)
        remainder_B = reciprocal_trigamma_remainder(alpha_BK, psi1_BK).masked_fill(~mask_BK, 0.0).sum(dim=1)
        margin_B = (count_B - 1) / 2 + reciprocal_trigamma_remainder(strength_B, psi1_B) - remainder_B
        margin_B = torch.where(kept_B, margin_B, torch.ones_like(margin_B))
        value_B = psi1_BK.log().masked_fill(~mask_BK, 0.0).sum(dim=1) + psi1_B.log() + margin_B.log()
        return torch.where(kept_B, value_B, torch.zeros_like(value_B)).to(dtype)


def dual_direction_loss(
    evidence_BB: Tensor,
    label_B: Tensor,
    mask_BB: Tensor | None = None,
    *,
    phi: float = 0.01,
    noisy_target: Literal["weight", "zero"] = "weight",
) -> Tensor:
    """L_u of one view for each pair: L_e of its row plus L_e of its column, UML eq. (6), (9), (10).

    L_e = I-MSE - phi * log-determinant. ``zero`` is the paper's target, Y_ij = l_i [i = j], which drags all
    evidence of a noisy row down; ``weight`` keeps the one-hot target and multiplies the pair's whole loss by
    l_i.

    Args:
        evidence_BB: evidence of the view, shape (B, B).
        label_B: hard label or probability that the pair is clean, shape (B,); no gradient flows into it.
        mask_BB: entries that take part, shape (B, B), or None.
        phi: weight of the log-determinant; 0 leaves it out.
        noisy_target: ``weight`` or ``zero``.

    Returns:
        One value a pair, shape (B,), in float32 or better; a direction in which the pair has no other
        candidate adds 0. ``masks.kept_rows_B`` names the rows that count in a mean.

    Raises:
        ValueError: unknown ``noisy_target``, or shapes that do not fit.
    """
    if noisy_target not in ("weight", "zero"):
        raise ValueError(f"unknown noisy_target {noisy_target!r}: want 'weight' or 'zero'")
    with no_autocast(evidence_BB):
        alpha_BB = at_least_float32(evidence_BB) + 1
        mask_BB = full_mask_BB(alpha_BB, mask_BB)
        label_B = label_B.detach().to(alpha_BB)
        if label_B.shape != alpha_BB.shape[:1]:
            raise ValueError(f"{tuple(label_B.shape)} labels for a batch of {len(alpha_BB)}")
        target_BB = torch.diag(label_B if noisy_target == "zero" else torch.ones_like(label_B))
        loss_B = _one_direction_B(alpha_BB, target_BB, mask_BB, phi)
        loss_B = loss_B + _one_direction_B(alpha_BB.T, target_BB, mask_BB.T, phi)
        return loss_B * label_B if noisy_target == "weight" else loss_B


def _one_direction_B(alpha_BB: Tensor, target_BB: Tensor, mask_BB: Tensor, phi: float) -> Tensor:
    """L_e of each row, UML eq. (6); 0 for rows left with their diagonal."""
    loss_B = fisher_mse(alpha_BB, target_BB, mask_BB)
    if phi:
        loss_B = loss_B - phi * fisher_log_det(alpha_BB, mask_BB)
    return torch.where(kept_rows_B(mask_BB), loss_B, torch.zeros_like(loss_B))


def view_weight(epoch: int, epochs: int, *, gamma: float = 0.2, decay: float = 4.0) -> float:
    """sigma(t) = max(gamma, 1 - decay t / E), the weight of the visual-English view, UML eq. (11).

    The paper counts t from 1; its lambda is ``decay``. L_u = sigma L_vs + (1 - sigma) L_vt.

    Raises:
        ValueError: an epoch outside 1..epochs.
    """
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch {epoch} is not in 1..{epochs}")
    return max(gamma, 1.0 - decay * epoch / epochs)
