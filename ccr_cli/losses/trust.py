"""Evidential learning of the matching probability, and consistent opinions of two models: the losses of TCL.

Qin et al., "Trustworthy Visual-Textual Retrieval", IEEE TIP 2025, doi 10.1109/TIP.2025.3587575. Every function
works on the rows of a matrix, a query each; for textual queries it takes the transposed one.

Evidence of exp(s / tau) reaches 5e8 at tau = 0.05, where the terms of eq. (9) as printed are of the order 1e12
and cancel to one of 1e3. It is computed in float64 in a form in which nothing cancels.

Shapes: B pairs in the batch, K candidates of a row.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ccr_cli.losses.evidential import dirichlet
from ccr_cli.losses.masks import (
    eye_BB,
    full_mask_BB,
    kept_rows_B,
    weighted_mean,
    without_zero_weights_BB,
)
from ccr_cli.losses.precision import at_least_float32, no_autocast

Form = Literal["exp", "relu", "softplus"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_SERIES_FROM = 16.0  # above it, the series of `_entropy_term` has converged to float64
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)  # B_2, B_4, ...


def evidence(sim: Tensor, tau: float = 0.05, form: Form = "exp") -> Tensor:
    """Evidence of every pair, TCL eq. (3): g(sim / tau) with g exp, ReLU or softplus.

    Args:
        sim: cosine similarities, any shape. The authors' code puts a tanh before exp where similarities are not
            bounded; cosines are.
        tau: temperature, > 0; the paper advises 0.03 to 0.07.
        form: g.

    Returns:
        Evidence >= 0, same shape, float32 or better.

    Raises:
        ValueError: unknown form, or tau not positive.
    """
    if not tau > 0:
        raise ValueError(f"tau {tau} is not positive")
    with no_autocast(sim):
        scaled = at_least_float32(sim) / tau
        if form == "exp":
            return scaled.exp()
        if form == "relu":
            return scaled.relu()
        if form == "softplus":
            return torch.nn.functional.softplus(scaled)
    raise ValueError(f"unknown evidence {form!r}: want 'exp', 'relu' or 'softplus'")


def risk(evidence_BB: Tensor, mask_BB: Tensor | None = None) -> Tensor:
    """Expected cross-entropy of each query under its Dirichlet distribution, TCL eq. (7).

    psi(S_i) - psi(alpha_ii), with S_i the sum of the unmasked concentrations alpha = e + 1.

    Args:
        evidence_BB: evidence >= 0, shape (B, B), the matching pairs on the diagonal.
        mask_BB: entries that take part, shape (B, B), or None.

    Returns:
        One value a row, shape (B,), in float32 or better; 0 for a row left with its diagonal.

    Raises:
        ValueError: shapes that do not fit.
    """
    with no_autocast(evidence_BB):
        mask_BB = full_mask_BB(evidence_BB, mask_BB)
        alpha_BB = evidence_BB.double() + 1
        strength_B = alpha_BB.masked_fill(~mask_BB, 0.0).sum(dim=1)
        value_B = torch.digamma(strength_B) - torch.digamma(alpha_BB.diagonal())
        return value_B.to(at_least_float32(evidence_BB).dtype)


def kl_to_uniform(alpha_BK: Tensor, mask_BK: Tensor | None = None) -> Tensor:
    """KL(D(p | alpha) || D(p | 1, ..., 1)) of each row, TCL eq. (9).

    With h = log(2 pi) / 2 and t(x) = (x - 1) psi(x) - log Gamma(x) - x + h, which grows as -log(x) / 2, the
    printed sum equals (K - 1)(psi(S) - h) - t(S) + sum_j t(alpha_j) - log Gamma(K), K and S being number and sum
    of the unmasked concentrations.

    Args:
        alpha_BK: concentrations >= 1, shape (B, K).
        mask_BK: entries that take part, shape (B, K), at least one a row, or None.

    Returns:
        One value a row, shape (B,), in float32 or better.
    """
    with no_autocast(alpha_BK):
        dtype = at_least_float32(alpha_BK).dtype
        alpha_BK = alpha_BK.double()
        if mask_BK is None:
            mask_BK = torch.ones_like(alpha_BK, dtype=torch.bool)
        count_B = mask_BK.sum(dim=1).double()
        strength_B = alpha_BK.masked_fill(~mask_BK, 0.0).sum(dim=1)
        terms_B = _entropy_term(alpha_BK).masked_fill(~mask_BK, 0.0).sum(dim=1)
        value_B = (count_B - 1) * (torch.digamma(strength_B) - _HALF_LOG_2PI) - _entropy_term(strength_B)
        return (value_B + terms_B - torch.lgamma(count_B)).to(dtype)


def uncertainty_aware_loss(
    evidence_BB: Tensor, mask_BB: Tensor | None = None, weight_B: Tensor | None = None, *, kl_weight: float = 0.005
) -> Tensor:
    """L_u of one query model, TCL eq. (10): the mean over queries, eq. (8), of risk + kl_weight * KL.

    The KL is of alpha with 1 in place of the matching pair's concentration, eq. (9): it drives the evidence of
    all others to zero.

    Args:
        evidence_BB: evidence >= 0, queries in rows, shape (B, B).
        mask_BB: entries that take part, shape (B, B), or None.
        weight_B: weight of each pair, >= 0, shape (B,), or None for equal weights; as in
            ``contrastive.infonce``, a pair of weight 0 is neither positive nor negative.
        kl_weight: lambda; 0 leaves the KL out.

    Returns:
        The loss, a scalar in float32 or better; 0 with a graph if no row has a rival.

    Raises:
        ValueError: shapes that do not fit.
    """
    with no_autocast(evidence_BB):
        evidence_BB = at_least_float32(evidence_BB)
        mask_BB, row_weight_B = _rows_that_count(evidence_BB, mask_BB, weight_B)
        loss_B = risk(evidence_BB, mask_BB)
        if kl_weight:
            others_BB = evidence_BB.masked_fill(eye_BB(len(evidence_BB), evidence_BB.device), 0.0)
            loss_B = loss_B + kl_weight * kl_to_uniform(others_BB + 1, mask_BB)
        return weighted_mean(loss_B, row_weight_B)


def consistency(
    own_BB: Tensor, other_BB: Tensor, mask_BB: Tensor | None = None, weight_B: Tensor | None = None
) -> Tensor:
    """L_c of one direction: how far two models' beliefs are apart, TCL eq. (12), (13).

    The mean over the candidates of a query, then over the queries, of |b - b^| with b = e / S.

    Args:
        own_BB: evidence of the model whose direction it is, queries in rows, shape (B, B). It is detached
            (Algorithm 1): the other model follows.
        other_BB: evidence of the other model, same shape.
        mask_BB: entries that take part, shape (B, B), or None.
        weight_B: as in ``uncertainty_aware_loss``.

    Returns:
        The loss, a scalar in float32 or better, at most 2 / K; 0 with a graph if no row has a rival.

    Raises:
        ValueError: shapes that do not fit.
    """
    if own_BB.shape != other_BB.shape:
        raise ValueError(f"evidence of shape {tuple(own_BB.shape)} and {tuple(other_BB.shape)} of one batch")
    with no_autocast(other_BB):
        mask_BB, row_weight_B = _rows_that_count(other_BB, mask_BB, weight_B)
        own_BB, other_BB = (dirichlet(e_BB, mask_BB).belief_BK for e_BB in (own_BB.detach(), other_BB))
        loss_B = (own_BB - other_BB).abs().sum(dim=1) / mask_BB.sum(dim=1)
        return weighted_mean(loss_B, row_weight_B)


def _rows_that_count(evidence_BB: Tensor, mask_BB: Tensor | None, weight_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask without pairs of weight 0, and the weight of each row, 0 where nothing is left to compare."""
    mask_BB = full_mask_BB(evidence_BB, mask_BB)
    if weight_B is None:
        weight_B = evidence_BB.new_ones(len(evidence_BB))
    weight_B = weight_B.detach().to(at_least_float32(evidence_BB))
    mask_BB = without_zero_weights_BB(mask_BB, weight_B)
    return mask_BB, torch.where(kept_rows_B(mask_BB), weight_B, torch.zeros_like(weight_B))


def _entropy_term(x: Tensor) -> Tensor:
    """t(x) = (x - 1) psi(x) - log Gamma(x) - x + log(2 pi) / 2 for x >= 1, in float64.

    Large arguments take Stirling's series of both functions, in which the terms that grow have cancelled:
    -log(x)/2 - 1/2 + 1/(2 x) - sum_k B_2k (x^(1-2k) / (2k - 1) - x^(-2k) / (2k)).
    """
    small = x.clamp(max=_SERIES_FROM)
    direct = (small - 1) * torch.digamma(small) - torch.lgamma(small) - small + _HALF_LOG_2PI
    large = x.clamp(min=_SERIES_FROM)
    inverse = large.reciprocal()
    square = inverse.square()
    odd, even = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(len(_BERNOULLI), 0, -1):
        odd = odd * square + _BERNOULLI[k - 1] / (2 * k - 1)
        even = even * square + _BERNOULLI[k - 1] / (2 * k)
    series = inverse * (0.5 - odd + inverse * even) - large.log() / 2 - 0.5
    return torch.where(x < _SERIES_FROM, direct, series)
