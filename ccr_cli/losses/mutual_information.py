"""Mutual information from the scores of a discriminator, and a bound on the conditional one.

Dang et al., "Disentangled Noisy Correspondence Learning" (DisNCL), eq. (9), (10), (12); Belghazi et al., "Mutual
information neural estimation" (MINE), ICML 2018. A discriminator scores pairs that occur together (the joint
distribution) and pairs put together from different items (the product of the marginals). Scores are logits, f =
sigmoid(score): log(1 - f) as printed is -inf as soon as f rounds to 1, at a logit of 17 in float32, of 6 in bfloat16.

Shapes: B rows, N scores, D dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ccr_cli.losses.masks import weighted_mean
from ccr_cli.losses.precision import at_least_float32, no_autocast


def strangers(item_B: Tensor) -> tuple[Tensor, Tensor]:
    """For every row the next one, cyclically, of another item: a draw from the product of the marginals.

    A batch is in random order, so its next row is a random one. The paper does not say how it draws. Rows of one
    item are never put together, by the id under which the data set *gives* them.

    Args:
        item_B: item of each row, shape (B,).

    Returns:
        The number of the other row, shape (B,), and whether there is one, shape (B,); without one it is the row
        itself.
    """
    size = len(item_B)
    row_B = torch.arange(size, device=item_B.device)
    ahead_BB = (row_B[None, :] - row_B[:, None]) % max(size, 1)
    ahead_BB = ahead_BB.masked_fill(item_B[:, None] == item_B[None, :], size)
    step_B = ahead_BB.amin(dim=1) if size else row_B
    return (row_B + step_B) % max(size, 1), step_B < size


def jensen_shannon(
    joint_N: Tensor,
    marginal_N: Tensor,
    joint_weight_N: Tensor | None = None,
    marginal_weight_N: Tensor | None = None,
) -> Tensor:
    """I_JSD = E_joint[log f] + E_marginal[log(1 - f)] with f = sigmoid(score), DisNCL eq. (9) and (12).

    -log 4 where the discriminator cannot tell them apart, at most 0.

    Args:
        joint_N: logits of pairs that occur together, any number.
        marginal_N: logits of pairs of different items, any number.
        joint_weight_N: their weights, >= 0, or None for equal ones; multiplying all by a constant changes nothing.
        marginal_weight_N: the same of the others.

    Returns:
        The estimate, a scalar in float32 or better. 0 with a graph where either side is without weight: joint
        pairs alone would teach the discriminator to say yes.
    """
    with no_autocast(joint_N):
        joint_N, marginal_N = at_least_float32(joint_N), at_least_float32(marginal_N)
        one_N = torch.ones_like(joint_N) if joint_weight_N is None else joint_weight_N.to(joint_N)
        two_N = torch.ones_like(marginal_N) if marginal_weight_N is None else marginal_weight_N.to(marginal_N)
        both = ((one_N > 0).any() & (two_N > 0).any()).to(joint_N.dtype)
        return weighted_mean(logsigmoid(joint_N), one_N * both) + weighted_mean(logsigmoid(-marginal_N), two_N * both)


def conditional_bound(one_BD: Tensor, two_BD: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """Upper bound of I(V; V_S | T): KL of unit-variance Gaussians, mean of 1/2 ||mu_V - mu_T||^2, DisNCL eq. (10).

    That of I(T; T_S | V) is the same number.

    Args:
        one_BD: means of one side, mu_V = V_S, shape (B, D).
        two_BD: means of the other, mu_T = T_S, shape (B, D).
        weight_B: weight of each row, >= 0, or None.

    Returns:
        The bound, a scalar in float32 or better; 0 with a graph if no row has weight.
    """
    with no_autocast(one_BD):
        half_B = (at_least_float32(one_BD) - at_least_float32(two_BD)).square().sum(dim=1) / 2
        return weighted_mean(half_B, torch.ones_like(half_B) if weight_B is None else weight_B)


def donsker_varadhan(joint_N: Tensor, marginal_N: Tensor) -> Tensor:
    """Lower bound of the mutual information, E_joint[T] - log E_marginal[exp T], in nats: MINE's value.

    For diagnosis: measured on rows that the statistic T was not fitted on, else it grows with the fit.

    Args:
        joint_N: T of pairs that occur together.
        marginal_N: T of pairs of different items.

    Returns:
        The bound, a scalar in float64.
    """
    joint_N, marginal_N = joint_N.double(), marginal_N.double()
    return joint_N.mean() - (torch.logsumexp(marginal_N, dim=0) - math.log(max(len(marginal_N), 1)))
