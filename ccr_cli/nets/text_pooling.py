"""One vector of a text's tokens.

Shape suffixes: B texts, L tokens of the longest, D dimension.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ccr_cli.nets.ragged import masked_mean

TextPooling = Literal["mean", "cls", "max", "last", "own"]


def pool_tokens(x_BLD: Tensor, mask_BL: Tensor, how: TextPooling) -> Tensor:
    """Pools vectors of tokens, padded on the right; padding plays no part.

    Args:
        x_BLD: The vectors.
        mask_BL: True where a token is.
        how: `mean`, `cls` (the first), `max` (of each dimension) or `last`; `own` is the model's affair.

    Returns:
        Vectors (B, D).
    """
    match how:
        case "mean":
            return masked_mean(x_BLD, mask_BL)
        case "cls":
            return x_BLD[:, 0]
        case "max":
            return x_BLD.masked_fill(~mask_BL.unsqueeze(2), -float("inf")).amax(1)
        case "last":
            at_B11 = (mask_BL.sum(1) - 1).clamp(min=0)[:, None, None]
            return x_BLD.gather(1, at_B11.expand(-1, 1, x_BLD.shape[2])).squeeze(1)
    raise ValueError(f"{how} is no pooling of tokens")
