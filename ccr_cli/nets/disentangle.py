"""Heads that take a part out of an embedding, and discriminators between two vectors.

Dang et al., "Disentangled Noisy Correspondence Learning" (DisNCL), section III-C; both are perceptrons with LeakyReLU
0.2. Shape suffixes: B rows, D dimension, H hidden units.
"""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, rms_norm

from ccr_cli.nets.plain import Unit

SLOPE = 0.2
EPS = 1e-6


class Head(nn.Module):
    """One part of an embedding, f_S and f_X of pictures, g_S and g_X of texts.

    The paper does not say how long a part is. It is a unit vector here: similarity is a cosine anyway, the bound of
    eq. (10) depends on the length, and a part cannot hide from a discriminator by shrinking.
    """

    def __init__(self, in_dim: int, out_dim: int, hidden: int, layers: int = 3) -> None:
        super().__init__()
        self.layers = _perceptron([in_dim, *[hidden] * (layers - 1), out_dim])

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns unit vectors (B, out_dim)."""
        return normalize(self.layers(_evened(x_BD)), dim=-1)

    def plain(self) -> tuple[nn.Module, ...]:
        """Returns plain layers that do the same for unit vectors, which `_evened` all divides by one number."""
        first, *rest = self.layers
        assert isinstance(first, nn.Linear)
        evened = copy.deepcopy(first).requires_grad_(False)
        evened.weight /= (1 / first.in_features + EPS) ** 0.5
        return (evened, *rest, Unit())


class Discriminator(nn.Module):
    """Scores whether two vectors belong together, f of DisNCL eq. (9) and (12); sigmoid(score) is its probability.

    It computes in float32 under autocast too: half precision would round its sure answers to certainty. The first layer
    reads the two vectors side by side.
    """

    def __init__(self, left_dim: int, right_dim: int, hidden: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(left_dim, hidden), nn.Linear(right_dim, hidden, bias=False)
        self.rest = nn.Sequential(nn.LeakyReLU(SLOPE), _perceptron([hidden, hidden, 1]))

    def forward(self, left_BD: Tensor, right_BD: Tensor, stranger_B: Tensor) -> tuple[Tensor, Tensor]:
        """Scores each left vector with the right one of its row, and with that of another row.

        `stranger_B` are the numbers of the other rows. Returns logits (B,) of the pairs that occur together, and of
        those put together.
        """
        with torch.autocast(left_BD.device.type, enabled=False):
            left_BH = self.left(_evened(left_BD.to(self.left.weight.dtype)))
            right_BH = self.right(_evened(right_BD.to(self.right.weight.dtype)))
            score_2B = self.rest(torch.cat([left_BH + right_BH, left_BH + right_BH[stranger_B]])).squeeze(1)
        return score_2B[: len(left_BD)], score_2B[len(left_BD) :]


def _perceptron(dims: list[int]) -> nn.Sequential:
    """Linear maps between the dimensions, LeakyReLU between the maps."""
    layers: list[nn.Module] = []
    for in_dim, out_dim in pairwise(dims):
        layers += [nn.Linear(in_dim, out_dim), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def _evened(x_BD: Tensor) -> Tensor:
    """Vectors whose components have mean square 1: those of a unit vector are so small that biases would dominate."""
    return rms_norm(x_BD, x_BD.shape[-1:], eps=EPS)
