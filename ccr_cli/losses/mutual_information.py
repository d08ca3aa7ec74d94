"""Mutual information from the scores of a discriminator, and a bound on the conditional one.

Dang et al., "Disentangled Noisy Correspondence Learning" (DisNCL), eq. (9), (10), (12); Belghazi et al., "Mutual
information neural estimation" (MINE), ICML 2018. A discriminator scores pairs that occur together (the joint
distribution) and pairs put together from different items (the product of the marginals). Scores are logits, f =
sigmoid(score): log(1 - f) as printed is -inf as soon as f rounds to 1, at a logit of 17 in float32, of 6 in bfloat16.

Shapes: N scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ccr_cli.losses.masks import weighted_mean, weights_B
from ccr_cli.losses.precision import full_precision


def strangers(item_B: Tensor) -> tuple[Tensor, Tensor]:
    """For every row the next one, cyclically, of another item: a draw from the product of the marginals.

    A batch is in random order, so its next row is a random one. The paper does not say how it draws. Rows of one
    item are never put together, by the id under which the data set *gives* them.

    Returns:
        The number of the other row (B,), and whether there is one (B,); without one it is the row itself.
    """
    size = len(item_B)
    row_B = torch.arange(size, device=item_B.device)
    ahead_BB = (row_B[None, :] - row_B[:, None]) % max(size, 1)
    ahead_BB = ahead_BB.masked_fill(item_B[:, None] == item_B[None, :], size)
    step_B = ahead_BB.amin(dim=1) if size else row_B
    return (row_B + step_B) % max(size, 1), step_B < size


@full_precision
def jensen_shannon(
    joint_N: Tensor, marginal_N: Tensor, joint_weight_N: Tensor | None = None, marginal_weight_N: Tensor | None = None
) -> Tensor:
    """I_JSD = E_joint[log f] + E_marginal[log(1 - f)] with f = sigmoid(score), DisNCL eq. (9) and (12).

    -log 4 where the discriminator cannot tell them apart, at most 0. Weighted means; 0 with a graph where either side
    is without weight: joint pairs alone would teach the discriminator to say yes.
    """
    one_N, two_N = weights_B(joint_weight_N, joint_N), weights_B(marginal_weight_N, marginal_N)
    both = ((one_N > 0).any() & (two_N > 0).any()).to(joint_N.dtype)
    return weighted_mean(logsigmoid(joint_N), one_N * both) + weighted_mean(logsigmoid(-marginal_N), two_N * both)


@full_precision
def conditional_bound(one_BD: Tensor, two_BD: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """Upper bound of I(V; V_S | T): KL of unit-variance Gaussians, mean of 1/2 ||mu_V - mu_T||^2, DisNCL eq. (10).

    The means of either side are mu_V = V_S and mu_T = T_S. The bound of I(T; T_S | V) is the same number.
    """
    half_B = (one_BD - two_BD).square().sum(dim=1) / 2
    return weighted_mean(half_B, weights_B(weight_B, half_B))


def donsker_varadhan(joint_N: Tensor, marginal_N: Tensor) -> Tensor:
    """Lower bound of the mutual information, E_joint[T] - log E_marginal[exp T], in nats, in float64: MINE's value.

    For diagnosis: measured on rows that the statistic T was not fitted on, else it grows with the fit.
    """
    joint_N, marginal_N = joint_N.double(), marginal_N.double()
    return joint_N.mean() - (torch.logsumexp(marginal_N, dim=0) - math.log(max(len(marginal_N), 1)))
