"""Heads that carry an encoder's vectors into the common space.

Shape suffixes: B rows, D dimension.
"""

from __future__ import annotations

import torch
from torch import nn


class Projection(nn.Module):
    """A linear map, or a perceptron, into the common space.

    The output is not normalised: ``nets.dual.DualEncoder`` does that, for both sides.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden: int | None = None,
        dropout: float = 0.0,
        norm_input: bool = False,
        depth: int = 1,
        activation: type[nn.Module] = nn.GELU,
    ) -> None:
        """Make the layers.

        Args:
            in_dim: length of an input vector.
            out_dim: length of an output vector.
            hidden: units of a hidden layer; None for a linear map.
            dropout: share of inputs, and of hidden units, that training switches off.
            norm_input: give every input vector mean 0 and variance 1 first, for features of unknown scale.
            depth: number of hidden layers.
            activation: what follows a hidden layer.
        """
        super().__init__()
        layers: list[nn.Module] = []
        if norm_input:
            layers.append(nn.LayerNorm(in_dim, elementwise_affine=False))
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        width = in_dim
        for _ in range(0 if hidden is None else depth):
            assert hidden is not None
            layers += [nn.Linear(width, hidden), activation()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            width = hidden
        layers.append(nn.Linear(width, out_dim))
        self.layers = nn.Sequential(*layers)
        self.in_dim, self.dim = in_dim, out_dim

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        """Return (B, out_dim), not normalised."""
        out_BD: torch.Tensor = self.layers(x_BD)
        return out_BD
