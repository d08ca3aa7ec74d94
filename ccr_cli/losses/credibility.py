"""Category credibility from fuzzy set theory: the losses of FUME, and those of its baseline.

Duan et al., "Fuzzy Multimodal Learning for Trusted Cross-modal Retrieval", CVPR 2025, eq. (2) to (10); Sensoy et
al., "Evidential Deep Learning to Quantify Classification Uncertainty", NeurIPS 2018, for the comparison of FUME's
Figures 3 and 5.

Shapes: B items in the batch, M views of each (the picture and its texts), N = M B views in total, K classes, Q queries,
G gallery; `m_BK` membership degrees, `label_B` the true class of each item, int64.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from ccr_cli.losses.evidential import squared_error_BK
from ccr_cli.losses.masks import eye_BB, weighted_mean, weights_B
from ccr_cli.losses.precision import check_positive, full_precision


@full_precision
def membership(z_BD: Tensor, weight_KD: Tensor) -> Tensor:
    """Membership degrees m = ReLU(W z), shape (B, K), FUME eq. (3); at most 1 for unit z and orthonormal rows of W."""
    return (z_BD @ weight_KD.T).relu()


@full_precision
def credibility(m_BK: Tensor) -> Tensor:
    """Credibility c_k = (m_k + 1 - max over l != k of m_l) / 2, shape (B, K), FUME eq. (2).

    The mean of the possibility and the necessity of class k. With a single class the maximum over the others is 0.
    """
    return (m_BK + 1 - _largest_other(m_BK)) / 2


def _largest_other(m_BK: Tensor) -> Tensor:
    """Largest membership among the other classes, for each class, shape (B, K)."""
    if m_BK.shape[1] < 2:
        return torch.zeros_like(m_BK)
    two_B2, at_B2 = m_BK.topk(2, dim=1)
    best_BK = one_hot(at_B2[:, 0], m_BK.shape[1]).bool()
    return torch.where(best_BK, two_B2[:, 1:], two_B2[:, :1])


@full_precision
def training_credibility(m_BK: Tensor, label_B: Tensor) -> Tensor:
    """Credibility while training, shape (B, K), FUME eq. (5).

    For the true class l as in eq. (2), for any other class (m_k + 1 - m_l) / 2: the necessity of a wrong class falls
    when the true class rises, never when a third one does.
    """
    true_BK = _one_hot(label_B, m_BK.shape[1])
    own_B1 = m_BK.gather(1, label_B[:, None])
    return (m_BK + 1 - torch.where(true_BK, _largest_other(m_BK), own_B1)) / 2


@full_precision
def fuzzy_loss(m_BK: Tensor, label_B: Tensor, weight_B: Tensor | None = None) -> Tensor:
    """L_fml of one view: the mean over the batch of ||r_i - y_i||_2, FUME eq. (4); the views' losses are added.

    The norm has no derivative at 0, which a view with one-hot membership reaches; the gradient there is 0 (FUME's code
    divides by zero). Items of weight 0 are ignored.
    """
    r_BK = training_credibility(m_BK, label_B)
    gap_BK = r_BK - _one_hot(label_B, m_BK.shape[1]).to(r_BK)
    return weighted_mean(torch.linalg.vector_norm(gap_BK, dim=1), weights_B(weight_B, r_BK))


@full_precision
def consistency_loss(
    views: Sequence[Tensor],
    temperature: float = 1.0,
    mask_BB: Tensor | None = None,
    weights: Sequence[Tensor] | None = None,
    *,
    include_self: bool = True,
) -> Tensor:
    """L_cl: minus the mean over items of sum_j log P(i | x_i^j), FUME eq. (6), (7).

    P is the share of the views of the anchor's own item in the sum of exp(similarity / temperature) over all views of
    all items. Eq. (6) prints z_i in the denominator, but sums over t: z_t is meant, or P would be 1 / B.

    Args:
        views: unit vectors of each view, M tensors of shape (B, D), row i of item i.
        temperature: tau.
        mask_BB: items that may act as each other's negatives.
        weights: weight of each item in each view, M tensors (B,). It applies to the view as an anchor and among the
            views of its own item; a view of weight 0 is not a negative either.
        include_self: count the anchor among its own item's views (v = j), as in eq. (6); FUME's code does not.

    Returns:
        The sum over views of weighted means. Anchors without a negative, or with no view of their own item left, are
        left out.
    """
    check_positive("temperature", temperature)
    z_ND, size, count = torch.cat(list(views)), len(views[0]), len(views)
    weight_N = weights_B(None if weights is None else torch.cat(list(weights)), z_ND)
    own_NN = eye_BB(size, z_ND.device).repeat(count, count)
    rivals_BB = torch.ones_like(own_NN[:size, :size]) if mask_BB is None else mask_BB
    if len(z_ND) != size * count or rivals_BB.shape != (size, size):
        raise ValueError(f"{len(z_ND)} rows, a mask of {tuple(rivals_BB.shape)} for {count} views of {size}")
    there_N = weight_N > 0
    rivals_NN = rivals_BB.repeat(count, count) & ~own_NN & there_N[None, :]
    own_NN = own_NN & there_N[None, :]
    if not include_self:
        own_NN = own_NN & ~eye_BB(len(z_ND), z_ND.device)
    kept_N = there_N & own_NN.any(dim=1) & rivals_NN.any(dim=1)
    logits_NN = z_ND @ z_ND.T / temperature
    # an item's own views count by their weight, its rivals in full
    logits_NN = logits_NN + torch.where(own_NN, weight_N.clamp(min=torch.finfo(z_ND.dtype).tiny), 1.0).log()
    ignored_N1 = ~kept_N[:, None]  # an empty sum has no logarithm: such rows get a sum that is not used
    own_N = logits_NN.masked_fill(~own_NN & ~ignored_N1, -torch.inf).logsumexp(dim=1)
    rivals_N = logits_NN.masked_fill(~rivals_NN & ~ignored_N1, -torch.inf).logsumexp(dim=1)
    loss_N = softplus(rivals_N - own_N)  # -log(own / (own + rivals)), without a difference of near equals
    used_N = torch.where(kept_N, weight_N, torch.zeros_like(weight_N))
    per_view = zip(torch.split(loss_N, size), torch.split(used_N, size), strict=True)
    return torch.stack([weighted_mean(loss_B, used_B) for loss_B, used_B in per_view]).sum()


@full_precision
def decision_uncertainty(c_BK: Tensor) -> Tensor:
    """Uncertainty of a view (B,), in [0, 1]: the mean over classes of the binary entropy of its credibility, in bits.

    FUME eq. (9).
    """
    c_BK = c_BK.clamp(0.0, 1.0)  # only rounding leaves this range
    entropy_BK: Tensor = torch.special.entr(c_BK) + torch.special.entr(1 - c_BK)
    return (entropy_BK.mean(dim=1) / math.log(2)).clamp(0.0, 1.0)


def pair_uncertainty(query_Q: Tensor, gallery_G: Tensor) -> Tensor:
    """Uncertainty of every pair, 1 - (1 - u_q)(1 - u_g), shape (Q, G), FUME eq. (10)."""
    return 1 - (1 - query_Q[:, None]) * (1 - gallery_G[None, :])


@full_precision
def evidential_classification(
    evidence_BK: Tensor, label_B: Tensor, kl_weight: float, weight_B: Tensor | None = None
) -> Tensor:
    """Evidential classification of one view, Sensoy et al. eq. (5) with the divergence of its section 4.

    With alpha = e + 1, S = sum alpha, p = alpha / S: sum_k (y_k - p_k)^2 + p_k (1 - p_k) / (S + 1), plus kl_weight,
    min(1, epoch / 10) in the paper, times KL(Dir(y + (1 - y) alpha) || Dir(1)). The weighted mean over the batch.
    """
    alpha_BK = evidence_BK + 1
    classes = alpha_BK.shape[1]
    true_BK = _one_hot(label_B, classes)
    loss_B = squared_error_BK(alpha_BK, true_BK.to(alpha_BK)).sum(dim=1)
    wrong_BK = torch.where(true_BK, torch.ones_like(alpha_BK), alpha_BK)
    total_B1 = wrong_BK.sum(dim=1, keepdim=True)
    kl_B = total_B1[:, 0].lgamma() - wrong_BK.lgamma().sum(dim=1) - math.lgamma(classes)
    kl_B = kl_B + ((wrong_BK - 1) * (wrong_BK.digamma() - total_B1.digamma())).sum(dim=1)
    return weighted_mean(loss_B + kl_weight * kl_B, weights_B(weight_B, alpha_BK))


@full_precision
def evidential_uncertainty(evidence_BK: Tensor) -> Tensor:
    """Uncertainty u = K / S of each row, in (0, 1], shape (B,); it depends on the sum of the evidence alone."""
    return evidence_BK.shape[1] / (evidence_BK + 1).sum(dim=1)


def _one_hot(label_B: Tensor, classes: int) -> Tensor:
    if len(label_B) and (int(label_B.min()) < 0 or int(label_B.max()) >= classes):
        raise ValueError(f"a label lies outside 0..{classes - 1}")
    return one_hot(label_B, classes).bool()
