"""Parts of an embedding (what both modalities share, what one has for itself) and discriminators between vectors.

Dang et al., "Disentangled Noisy Correspondence Learning" (DisNCL), section III-C: heads and discriminators are
perceptrons of three layers with LeakyReLU 0.2. Shape suffixes: B rows, D dimension, H hidden units.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, rms_norm

SLOPE = 0.2


class Parts(NamedTuple):
    """The two parts of B embeddings, unit vectors."""

    shared_BD: Tensor
    """V_S or T_S: what the other modality has too."""
    own_BD: Tensor | None
    """V_X or T_X: what it has not; None where there is no such head."""


class Splitter(nn.Module):
    """The two heads of one modality, f_S and f_X of pictures or g_S and g_X of texts.

    The paper does not say how long the parts are. Unit vectors here: similarity is a cosine anyway, the bound of
    eq. (10) depends on the length, and a part cannot hide from a discriminator by shrinking.
    """

    def __init__(self, in_dim: int, part_dim: int, hidden: int, exclusive: bool = True) -> None:
        """Make the heads.

        Args:
            in_dim: length of an embedding.
            part_dim: length of each part.
            hidden: hidden units.
            exclusive: make the head of the exclusive part too.
        """
        super().__init__()
        self.shared = _perceptron(in_dim, part_dim, hidden)
        self.own = _perceptron(in_dim, part_dim, hidden) if exclusive else None

    def embed_shared(self, x_BD: Tensor) -> Tensor:
        """Return the modality-invariant parts alone, unit vectors."""
        return normalize(self.shared(_evened(x_BD)), dim=-1)

    def embed_own(self, x_BD: Tensor) -> Tensor:
        """Return the modality-exclusive parts alone, unit vectors."""
        assert self.own is not None, "this splitter has no exclusive part"
        return normalize(self.own(_evened(x_BD)), dim=-1)

    def forward(self, x_BD: Tensor) -> Parts:
        """Split embeddings (B, D)."""
        return Parts(self.embed_shared(x_BD), None if self.own is None else self.embed_own(x_BD))


class Discriminator(nn.Module):
    """Scores whether two vectors belong together, f of DisNCL eq. (9) and (12); sigmoid(score) is its probability.

    It computes in float32 under autocast too: half precision would round its sure answers to certainty.
    """

    def __init__(self, left_dim: int, right_dim: int, hidden: int) -> None:
        """Make the layers; the first one reads the two vectors side by side."""
        super().__init__()
        self.left, self.right = nn.Linear(left_dim, hidden), nn.Linear(right_dim, hidden, bias=False)
        self.rest = nn.Sequential(
            nn.LeakyReLU(SLOPE), nn.Linear(hidden, hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, 1)
        )

    def forward(self, left_BD: Tensor, right_BD: Tensor, stranger_B: Tensor) -> tuple[Tensor, Tensor]:
        """Score each left vector with the right one of its row, and with that of another row.

        Args:
            left_BD: first vectors, shape (B, D).
            right_BD: second vectors, shape (B, D).
            stranger_B: for each row the number of the other one, shape (B,).

        Returns:
            Logits (B,) of the pairs that occur together, and of those put together.
        """
        with torch.autocast(left_BD.device.type, enabled=False):
            left_BH = self.left(_evened(left_BD.float()))
            right_BH = self.right(_evened(right_BD.float()))
            score_2B = self.rest(torch.cat([left_BH + right_BH, left_BH + right_BH[stranger_B]])).squeeze(1)
        return score_2B[: len(left_BD)], score_2B[len(left_BD) :]


def _perceptron(in_dim: int, out_dim: int, hidden: int) -> nn.Sequential:
    """Three layers."""
    return nn.Sequential(
        nn.Linear(in_dim, hidden),
        nn.LeakyReLU(SLOPE),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(SLOPE),
        nn.Linear(hidden, out_dim),
    )


def _evened(x_BD: Tensor) -> Tensor:
    """Vectors whose components have mean square 1: a unit vector's are so small that biases would drown it."""
    return rms_norm(x_BD, x_BD.shape[-1:], eps=1e-6)
