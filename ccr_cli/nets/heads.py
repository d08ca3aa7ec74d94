"""Heads that carry an encoder's vectors into the common space.

Shape suffixes: B rows, D dimension.
"""

from __future__ import annotations

import torch
from torch import nn


class Projection(nn.Module):
    """A linear map, or a perceptron of one hidden layer (GELU), into the common space.

    The output is not normalised: ``nets.dual.DualEncoder`` does that, for both sides.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden: int | None = None,
        dropout: float = 0.0,
        norm_input: bool = False,
    ) -> None:
        """Make the layers.

        Args:
            in_dim: length of an input vector.
            out_dim: length of an output vector.
            hidden: units of the hidden layer; None for a linear map.
            dropout: share of inputs, and of hidden units, that training switches off.
            norm_input: give every input vector mean 0 and variance 1 first, for features of unknown scale.
        """
        super().__init__()
        layers: list[nn.Module] = []
        if norm_input:
            layers.append(nn.LayerNorm(in_dim, elementwise_affine=False))
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        if hidden is not None:
            layers += [nn.Linear(in_dim, hidden), nn.GELU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(in_dim if hidden is None else hidden, out_dim))
        self.layers = nn.Sequential(*layers)
        self.in_dim, self.dim = in_dim, out_dim

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Return (B, out_dim), not normalised."""
        out_BD: torch.Tensor = self.layers(x_BD)
        return out_BD
