"""The loss of a language discriminator, which the encoder works against.

Shapes: B pairs of an English and a translated caption.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from ccr_cli.losses.precision import at_least_float32, no_autocast


def language_cross_entropy(source_logit_B: Tensor, target_logit_B: Tensor) -> Tensor:
    """L_adv = -mean [log F(source) + log(1 - F(target))], NRCCR eq. (11) with its sign turned.

    As printed, eq. (11) is the discriminator's log-likelihood, and the minus before it in eq. (12) makes
    everything that is trained, the encoder too, help the discriminator. Here it is the discriminator's
    cross-entropy: the discriminator minimises it, the encoder maximises it (``nets.reversal``). 2 log 2 is chance.

    Args:
        source_logit_B: logits of F, "this is the source language", for source captions, shape (B,).
        target_logit_B: the same for target captions, shape (B,).

    Returns:
        The loss, a scalar in float32 or better; 0 for an empty batch.

    Raises:
        ValueError: shapes that do not fit.
    """
    if source_logit_B.ndim != 1 or source_logit_B.shape != target_logit_B.shape:
        shapes = f"{tuple(source_logit_B.shape)} and {tuple(target_logit_B.shape)}"
        raise ValueError(f"logits of shape {shapes}: want (B,) twice")
    with no_autocast(source_logit_B):
        cost_B = softplus(-at_least_float32(source_logit_B)) + softplus(at_least_float32(target_logit_B))
        return cost_B.sum() / max(len(cost_B), 1)
