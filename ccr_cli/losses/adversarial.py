"""The loss of a language discriminator, which the encoder works against."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from ccr_cli.losses.precision import check_shapes, full_precision


@full_precision
def language_cross_entropy(source_logit_B: Tensor, target_logit_B: Tensor) -> Tensor:
    """L_adv = -mean [log F(source) + log(1 - F(target))], NRCCR eq. (11) with its sign turned; 0 for an empty batch.

    As printed, eq. (11) is the discriminator's log-likelihood, and the minus before it in eq. (12) makes everything
    that is trained, the encoder too, help the discriminator. Here it is the discriminator's cross-entropy: the
    discriminator minimises it, the encoder maximises it (``nets.heads``). 2 log 2 is chance.

    Args:
        source_logit_B: logits of F, "this is the source language", for source captions.
        target_logit_B: the same for target captions.
    """
    check_shapes(source_logit_B, target_logit_B, 1)
    cost_B = softplus(-source_logit_B) + softplus(target_logit_B)
    return cost_B.sum() / max(len(cost_B), 1)
