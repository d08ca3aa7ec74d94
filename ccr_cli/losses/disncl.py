"""Robust alignment, and mutual information from the scores of a discriminator: the losses of DisNCL.

Dang et al., "Disentangled Noisy Correspondence Learning". The margin of the hinge grows with the similarity, and the
targets are soft, eq. (3) to (6); similarities are cosines. For eq. (9), (10), (12) see also Belghazi et al., "Mutual
information neural estimation" (MINE), ICML 2018. A discriminator scores pairs that occur together (the joint
distribution) and pairs put together from different items (the product of the marginals). Scores are logits, f =
sigmoid(score): log(1 - f) as printed is -inf as soon as f rounds to 1, at a logit of 17 in float32, of 6 in bfloat16.

Shapes: N scores.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ccr_cli.losses.masks import (
    Reduction,
    kept_B,
    masked_log_softmax_BK,
    reduced,
    taking_part,
    weighted_mean,
    weights_B,
)
from ccr_cli.losses.precision import check_choice, check_positive, full_precision
from ccr_cli.losses.triplet import triplet


@full_precision
def soft_margin(sim_B: Tensor, margin: float = 0.2, base: float = 10.0) -> Tensor:
    """Margin of each pair, (base^h - 1) / (base - 1) * margin, DisNCL eq. (3); base > 0, not 1, is the paper's m.

    The equation prints similarities but needs values in [0, 1] (a cosine below 0 would make the margin negative), so
    h = (1 + sim) / 2. No gradient flows into the margin, as in the work that it is taken from (NCR), where it depends
    on a label. At cosine 1 the margin is `margin`, at cosine -1 it is 0.
    """
    check_positive("base", base)
    if base == 1:
        raise ValueError(f"base {base} has no soft margin")
    h_B = (1 + sim_B.detach()) / 2
    return (base**h_B - 1) / (base - 1) * margin


def align(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    margin: float = 0.2,
    base: float | None = 10.0,
    reduction: Reduction = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_align, DisNCL eq. (3): the triplet loss with each pair's soft margin; `reduction` as in `triplet`.

    `weight_B` is the probability that the pair matches. Without a `base` the margin is constant, as in the warm-up.
    """
    bound = margin if base is None else soft_margin(sim_BB.diagonal(), margin, base)
    return triplet(sim_BB, mask_BB, margin=bound, reduction=reduction, weight_B=weight_B)


@full_precision
def soft_alignment(
    sim_BB: Tensor,
    mask_BB: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_share: float = 0.5,
    reduction: Reduction = "sum",
    weight_B: Tensor | None = None,
) -> Tensor:
    """L_soft, DisNCL eq. (4) to (6): cross-entropy to beta_3 one-hot + (1 - beta_3) p of the other direction.

    Eq. (4) as printed sets *rows* of noisy pairs to 0, which changes nothing, since eq. (6) leaves these rows out;
    here noisy *columns* are taken out of the softmax. The targets are constants (bootstrapping): no gradient flows
    into them. Both distributions of a row cover the same candidates. `temperature` is tau, `hard_share` beta_3,
    `weight_B` the probability that the pair matches; `reduction` is ``sum`` over the clean rows as printed, or
    ``mean``, in each direction; the two directions are added.
    """
    check_positive("temperature", temperature)
    check_choice("reduction", reduction, Reduction)
    mask_BB, weight_B = taking_part(sim_BB, mask_BB, weight_B)
    mask_BB = mask_BB & mask_BB.T
    forth_BB = masked_log_softmax_BK(sim_BB / temperature, mask_BB)
    back_BB = masked_log_softmax_BK(sim_BB.T / temperature, mask_BB)

    def cross_entropy_B(log_p_BB: Tensor, log_other_BB: Tensor) -> Tensor:
        return -(soft_targets(log_other_BB, hard_share) * log_p_BB.masked_fill(~mask_BB, 0.0)).sum(dim=1)

    loss_B = cross_entropy_B(forth_BB, back_BB) + cross_entropy_B(back_BB, forth_BB)
    return reduced(loss_B, kept_B(weight_B, mask_BB), reduction)


def soft_targets(log_other_BB: Tensor, hard_share: float) -> Tensor:
    """Y of DisNCL eq. (6), without gradient: beta_3 one-hot + (1 - beta_3) p, from log p of the other direction."""
    one_hot_BB = torch.eye(len(log_other_BB), dtype=log_other_BB.dtype, device=log_other_BB.device)
    return hard_share * one_hot_BB + (1 - hard_share) * log_other_BB.detach().exp()


def strangers(item_B: Tensor) -> tuple[Tensor, Tensor]:
    """Finds for each row the next row (cyclically) of another item: a draw from the product of the marginals.

    A batch is in random order, so the next row is a random one; the paper does not say how it draws. Rows of one item,
    by the id that the data set *gives*, are never put together.

    Returns:
        The index of the other row (B,), and whether there is one (B,); if not, the index is the row's own.
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

    It is at most 0, and -log 4 if the discriminator cannot tell joint from marginal pairs. Means are weighted; if
    either side has no weight, the result is 0 with a graph: joint pairs alone would teach it to always say yes.
    """
    one_N, two_N = weights_B(joint_weight_N, joint_N), weights_B(marginal_weight_N, marginal_N)
    both = ((one_N > 0).any() & (two_N > 0).any()).to(joint_N.dtype)
    return weighted_mean(logsigmoid(joint_N), one_N * both) + weighted_mean(logsigmoid(-marginal_N), two_N * both)


@full_precision
def conditional_bound(one_BD: Tensor, two_BD: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """Upper bound of I(V; V_S | T): KL of unit-variance Gaussians, mean of 1/2 ||mu_V - mu_T||^2, DisNCL eq. (10).

    The Gaussians have the means mu_V = V_S and mu_T = T_S. The bound of I(T; T_S | V) is the same number.
    """
    half_B = (one_BD - two_BD).square().sum(dim=1) / 2
    return weighted_mean(half_B, weights_B(weight_B, half_B))
