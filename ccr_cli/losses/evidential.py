"""Evidential learning with Fisher information: the dual-view uncertainty-aware loss of UML.

Liu et al., "UML: uncertainty-aware and mutual learning for noise-robust cross-lingual cross-modal retrieval",
Sci China Inf Sci 69(3):132107, 2026, eq. (1) to (11); the Fisher-weighted loss is that of Deng et al., ICML
2023. The log-determinant is computed in float64.

Shapes: Q queries, V visual items.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ccr_cli.losses.masks import both_directions, full_mask_BB, kept_B
from ccr_cli.losses.precision import check_choice, check_positive, full_precision

EvidenceForm = Literal["scaled", "paper"]
NoisyTarget = Literal["weight", "zero"]
LEAST_TAU = 0.0125
"""Smallest tau: float32 can sum exp(1 / tau) = 6e34 over thousands of candidates; below 0.0113 it cannot hold one."""
_SHIFT = 8  # the recurrence moves the argument above this, where the series below has converged
# Bernoulli numbers B_2, B_4, ...: psi1(x) ~ 1/x + 1/(2 x^2) + sum_k B_2k / x^(2k+1)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_LARGE = 1000.0  # above it, 1/psi1(x) - x + 1/2 is taken from its expansion in 1/x


class Opinion(NamedTuple):
    """Dirichlet distribution over the candidates of each row, read as an opinion, UML eq. (2), (3).

    Its concentrations are e + 1, their sum over the unmasked entries is D.
    """

    belief_BK: Tensor
    """Belief masses e / D; 0 at masked entries."""
    uncertainty_B: Tensor
    """u = K / D with K the number of unmasked entries; belief and uncertainty sum to 1."""


@full_precision
def evidence(sim: Tensor, tau: float = 0.1, form: EvidenceForm = "scaled") -> Tensor:
    """Evidence > 0 of every pair from its cosine (any shape), UML eq. (1).

    ``paper`` is the equation as printed, exp(tanh(sim / tau)): it lies in [1/e, e], is flat above a
    similarity of three tau and does not train. ``scaled``, exp(tanh(sim) / tau), is the form of the authors'
    earlier work and the default.
    """
    check_positive("tau", tau)
    check_choice("evidence", form, EvidenceForm)
    return torch.exp(torch.tanh(sim) / tau if form == "scaled" else torch.tanh(sim / tau))


@full_precision
def dirichlet(evidence_BK: Tensor, mask_BK: Tensor | None = None) -> Opinion:
    """The opinion of each row from evidence >= 0, UML eq. (2)."""
    if mask_BK is None:
        mask_BK = torch.ones_like(evidence_BK, dtype=torch.bool)
    evidence_BK = evidence_BK.masked_fill(~mask_BK, 0.0)
    count_B = mask_BK.sum(dim=1).to(evidence_BK.dtype)
    strength_B = evidence_BK.sum(dim=1) + count_B
    return Opinion(evidence_BK / strength_B[:, None], count_B / strength_B)


def query_uncertainty(
    sim_QV: Tensor, evidence_of: Callable[[Tensor], Tensor] = evidence, candidates: int | None = 2
) -> Tensor:
    """Uncertainty u = K / D of queries (Q,), in (0, 1], from their similarities to a gallery.

    The paper does not say what K is at test time. Over a whole large gallery (``candidates`` None) one match hardly
    moves u, which then measures the gallery and not the query. Over the most similar ``candidates`` u tells queries
    apart, and the fewer, the better (benchmarks/results/query_uncertainty.json). Both depend on the gallery's size: the
    more items, the more similar the best of them.
    """
    if candidates is not None and candidates < sim_QV.shape[1]:
        sim_QV = sim_QV.topk(candidates, dim=1).values
    return dirichlet(evidence_of(sim_QV)).uncertainty_B


def squared_error_BK(alpha_BK: Tensor, target_BK: Tensor, mask_BK: Tensor | None = None) -> Tensor:
    """Expected squared error under a Dirichlet distribution: (Y_j - p_j)^2 + p_j (1 - p_j) / (D + 1), p = alpha / D.

    Masked entries do not count in D; their own values are meaningless.
    """
    counted_BK = alpha_BK if mask_BK is None else alpha_BK.masked_fill(~mask_BK, 0.0)
    strength_B1 = counted_BK.sum(dim=1, keepdim=True)
    p_BK = alpha_BK / strength_B1
    return (target_BK - p_BK).square() + p_BK * (1 - p_BK) / (strength_B1 + 1)


@full_precision
def fisher_log_det(alpha_BK: Tensor, mask_BK: Tensor) -> Tensor:
    """Log-determinant of the Fisher information of each row, UML eq. (8).

    sum_j log psi1(alpha_j) + log(1 - sum_j psi1(D) / psi1(alpha_j)) over the unmasked entries, alpha >= 1. As printed,
    the second logarithm loses all precision to cancellation where evidence is strong. With r(x) = 1/psi1(x) - x + 1/2
    its argument is exactly psi1(D) ((K - 1)/2 + r(D) - sum_j r(alpha_j)), and since 0 < r <= 0.108 for arguments
    from 1 on, that is positive for every K >= 2. It is computed in this form, in float64.

    Returns:
        One value per row, shape (B,); 0 for rows with fewer than two entries, whose log-determinant is -inf.
    """
    dtype = alpha_BK.dtype
    alpha_BK = alpha_BK.double().masked_fill(~mask_BK, 1.0)
    count_B = mask_BK.sum(dim=1)
    strength_B = alpha_BK.masked_fill(~mask_BK, 0.0).sum(dim=1).clamp(min=1.0)
    psi1_BK, psi1_B = trigamma(alpha_BK), trigamma(strength_B)
    remainder_B = reciprocal_trigamma_remainder(alpha_BK, psi1_BK).masked_fill(~mask_BK, 0.0).sum(dim=1)
    margin_B = (count_B - 1) / 2 + reciprocal_trigamma_remainder(strength_B, psi1_B) - remainder_B
    margin_B = torch.where(count_B > 1, margin_B, torch.ones_like(margin_B))
    value_B = psi1_BK.log().masked_fill(~mask_BK, 0.0).sum(dim=1) + psi1_B.log() + margin_B.log()
    return kept_B(value_B, mask_BK).to(dtype)


@full_precision
def dual_direction_loss(
    evidence_BB: Tensor,
    label_B: Tensor,
    mask_BB: Tensor | None = None,
    *,
    phi: float = 0.01,
    noisy_target: NoisyTarget = "weight",
) -> Tensor:
    """L_u of one view for each pair: L_e of its row plus L_e of its column, UML eq. (6), (9), (10).

    L_e = I-MSE - phi * log-determinant; I-MSE, eq. (7), is the squared error to the target row Y times psi1(alpha_j),
    summed over unmasked j. A direction in which the pair has no other candidate adds 0; ``masks.kept_rows_B`` gives the
    rows that count in a mean. See ``labelled_B`` for `label_B` and `noisy_target`; the paper uses ``zero``.
    """

    def loss_B(alpha_BB: Tensor, target_BB: Tensor, mask_BB: Tensor) -> Tensor:
        term_BB = squared_error_BK(alpha_BB, target_BB, mask_BB) * trigamma(alpha_BB)
        mse_B = term_BB.masked_fill(~mask_BB, 0.0).sum(dim=1)
        return mse_B - phi * fisher_log_det(alpha_BB, mask_BB) if phi else mse_B

    return labelled_B(loss_B, evidence_BB + 1, label_B, mask_BB, noisy_target)


def labelled_B(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    matrix_BB: Tensor,
    label_B: Tensor,
    mask_BB: Tensor | None,
    noisy_target: NoisyTarget,
) -> Tensor:
    """Applies a loss of rows in both directions: one value per pair, to which a row with only its diagonal left adds 0.

    Args:
        loss: computes the loss (B,) of the rows of a matrix, from the matrix, the targets Y and the mask.
        matrix_BB: evidence, or concentrations.
        label_B: hard label or probability that the pair matches; no gradient flows into it.
        mask_BB: entries that take part.
        noisy_target: ``zero``: Y_ij = l_i [i = j], which drags all evidence of a noisy row down. ``weight`` keeps the
            one-hot target and multiplies the pair's whole loss by l_i.
    """
    check_choice("noisy_target", noisy_target, NoisyTarget)
    mask_BB, label_B = full_mask_BB(matrix_BB, mask_BB), label_B.detach().to(matrix_BB)
    if label_B.shape != matrix_BB.shape[:1]:
        raise ValueError(f"{tuple(label_B.shape)} labels for a batch of {len(matrix_BB)}")
    target_BB = torch.diag(label_B if noisy_target == "zero" else torch.ones_like(label_B))
    loss_B = both_directions(lambda x_BB, m_BB: kept_B(loss(x_BB, target_BB, m_BB), m_BB), matrix_BB, mask_BB)
    return loss_B * label_B if noisy_target == "weight" else loss_B


def view_weight(epoch: int, epochs: int, *, gamma: float = 0.2, decay: float = 4.0) -> float:
    """sigma(t) = max(gamma, 1 - decay t / E), the weight of the visual-English view, UML eq. (11).

    The paper counts t from 1; its lambda is ``decay``. L_u = sigma L_vs + (1 - sigma) L_vt.
    """
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch {epoch} is not in 1..{epochs}")
    return max(gamma, 1.0 - decay * epoch / epochs)


def trigamma(x: Tensor) -> Tensor:
    """psi1(x), the second derivative of log Gamma, for x >= 1.

    ``torch.special.polygamma(1, x)`` gives the same values, but its gradient is a Hurwitz zeta function that
    costs 25 times as much as the forward pass on a CPU. Here: psi1(x) = psi1(x + 8) + sum_{i<8} 1/(x + i)^2
    and the asymptotic series (Abramowitz and Stegun 6.4.6, 6.4.12), differentiated by autograd. Relative
    error in float64 below 1e-13.
    """
    total = torch.zeros_like(x)
    for i in range(_SHIFT):
        total = total + (x + i).square().reciprocal()
    inverse = (x + _SHIFT).reciprocal()
    square = inverse.square()
    series = torch.full_like(x, _BERNOULLI[-1])
    for number in reversed(_BERNOULLI[:-1]):
        series = series * square + number
    return total + inverse * (1 + inverse * (0.5 + inverse * series))


def reciprocal_trigamma_remainder(x: Tensor, trigamma_x: Tensor) -> Tensor:
    """r(x) = 1/psi1(x) - (x - 1/2) for x >= 1: positive, decreasing, at most 6/pi^2 - 1/2 = 0.108.

    Large arguments lose r to cancellation, so there it is taken from r(x) = 1/(12 x) + 1/(24 x^2) - 1/(720
    x^3) + O(x^-4), which follows from inverting the asymptotic series of psi1.
    """
    direct = torch.where(x < _LARGE, trigamma_x, torch.ones_like(x)).reciprocal() - x + 0.5
    inverse = x.clamp(min=_LARGE).reciprocal()
    expansion = inverse * (1 / 12 + inverse * (1 / 24 - inverse / 720))
    return torch.where(x < _LARGE, direct, expansion)
