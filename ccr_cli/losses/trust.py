"""Evidential learning of the matching probability, and consistent opinions of two models: the losses of TCL.

Qin et al., "Trustworthy Visual-Textual Retrieval", IEEE TIP 2025, doi 10.1109/TIP.2025.3587575. Every function
works on the rows of a matrix, one query per row; for textual queries, pass the transposed matrix.

Evidence exp(s / tau) reaches 5e8 at tau = 0.05, where the terms of eq. (9) as printed are of the order 1e12
and cancel to 1e3. Eq. (9) is therefore computed in float64, in a form without cancellation.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ccr_cli.losses.evidential import dirichlet
from ccr_cli.losses.masks import eye_BB, full_mask_BB, kept_B, taking_part, weighted_mean
from ccr_cli.losses.precision import check_choice, check_positive, check_shapes, full_precision

Form = Literal["exp", "relu", "softplus"]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_SERIES_FROM = 16.0  # above it, the series of `_entropy_term` has converged to float64
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)  # B_2, B_4, ...


@full_precision
def evidence(sim: Tensor, tau: float = 0.05, form: Form = "exp") -> Tensor:
    """Evidence >= 0 of cosines of any shape, TCL eq. (3): g(sim / tau) with g exp, ReLU or softplus.

    For unbounded similarities the authors' code has exp(tanh(sim) / tau); cosines are bounded. The paper advises a
    temperature tau of 0.03 to 0.07.
    """
    check_positive("tau", tau)
    check_choice("evidence", form, Form)
    scaled = sim / tau
    if form == "exp":
        return scaled.exp()
    return scaled.relu() if form == "relu" else softplus(scaled)


@full_precision
def risk(evidence_BB: Tensor, mask_BB: Tensor | None = None) -> Tensor:
    """Expected cross-entropy of each query (B,) under its Dirichlet distribution, TCL eq. (7).

    psi(S_i) - psi(alpha_ii), with S_i the sum of the unmasked concentrations alpha = e + 1; 0 for a row with
    only its diagonal left.
    """
    mask_BB = full_mask_BB(evidence_BB, mask_BB)
    alpha_BB = evidence_BB.double() + 1
    strength_B = alpha_BB.masked_fill(~mask_BB, 0.0).sum(dim=1)
    value_B = torch.digamma(strength_B) - torch.digamma(alpha_BB.diagonal())
    return value_B.to(evidence_BB.dtype)


@full_precision
def kl_to_uniform(alpha_BK: Tensor, mask_BK: Tensor | None = None) -> Tensor:
    """KL(D(p | alpha) || D(p | 1, ..., 1)) of each row (B,), TCL eq. (9), for alpha >= 1.

    With h = log(2 pi) / 2 and t(x) = (x - 1) psi(x) - log Gamma(x) - x + h, which grows as -log(x) / 2, the
    printed sum equals (K - 1)(psi(S) - h) - t(S) + sum_j t(alpha_j) - log Gamma(K), K and S being number and sum
    of the unmasked concentrations.
    """
    dtype = alpha_BK.dtype
    alpha_BK = alpha_BK.double()
    if mask_BK is None:
        mask_BK = torch.ones_like(alpha_BK, dtype=torch.bool)
    count_B = mask_BK.sum(dim=1).double()
    strength_B = alpha_BK.masked_fill(~mask_BK, 0.0).sum(dim=1)
    terms_B = _entropy_term(alpha_BK).masked_fill(~mask_BK, 0.0).sum(dim=1)
    value_B = (count_B - 1) * (torch.digamma(strength_B) - _HALF_LOG_2PI) - _entropy_term(strength_B)
    return (value_B + terms_B - torch.lgamma(count_B)).to(dtype)


@full_precision
def uncertainty_aware_loss(
    evidence_BB: Tensor, mask_BB: Tensor | None = None, weight_B: Tensor | None = None, *, kl_weight: float = 0.005
) -> Tensor:
    """L_u of one query model, TCL eq. (10): the mean over queries (rows), eq. (8), of risk + kl_weight * KL.

    In the KL, 1 replaces the concentration of the matching pair, eq. (9), so that it drives the evidence of all
    other candidates to zero. kl_weight is lambda; 0 leaves the KL out.
    """
    mask_BB, weight_B = taking_part(evidence_BB, mask_BB, weight_B)
    loss_B = risk(evidence_BB, mask_BB)
    if kl_weight:
        others_BB = evidence_BB.masked_fill(eye_BB(len(evidence_BB), evidence_BB.device), 0.0)
        loss_B = loss_B + kl_weight * kl_to_uniform(others_BB + 1, mask_BB)
    return weighted_mean(loss_B, kept_B(weight_B, mask_BB))


@full_precision
def consistency(
    own_BB: Tensor, other_BB: Tensor, mask_BB: Tensor | None = None, weight_B: Tensor | None = None
) -> Tensor:
    """L_c of one direction: distance between the beliefs of two models, TCL eq. (12), (13); at most 2 / K.

    The mean over the candidates of a query (row), then over the queries, of |b - b^| with b = e / S. The evidence of
    this direction's own model, `own_BB`, is detached (Algorithm 1), so that the other model follows it.
    """
    check_shapes(own_BB, other_BB, 2)
    mask_BB, weight_B = taking_part(other_BB, mask_BB, weight_B)
    own_BB, other_BB = (dirichlet(e_BB, mask_BB).belief_BK for e_BB in (own_BB.detach(), other_BB))
    loss_B = (own_BB - other_BB).abs().sum(dim=1) / mask_BB.sum(dim=1)
    return weighted_mean(loss_B, kept_B(weight_B, mask_BB))


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
