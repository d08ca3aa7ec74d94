"""Heads that map an encoder's vectors into the common space, and gradient reversal."""

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """A linear map, or a perceptron, into the common space.

    The output is not normalised: ``nets.dual.DualEncoder`` does that, for both sides.

    Args:
        in_dim: length of an input vector.
        out_dim: length of an output vector.
        hidden: units of a hidden layer; None for a linear map.
        dropout: dropout probability of inputs and hidden units.
        norm_input: standardise every input vector first (mean 0, variance 1), for features of unknown scale.
        depth: number of hidden layers.
        activation: activation after each hidden layer.
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
        super().__init__()
        dropouts = [dropout] if dropout > 0 else []
        layers: list[nn.Module] = [nn.LayerNorm(in_dim, elementwise_affine=False)] if norm_input else []
        layers += [nn.Dropout(p) for p in dropouts]
        width = in_dim
        for units in [] if hidden is None else [hidden] * depth:
            layers += [nn.Linear(width, units), activation(), *(nn.Dropout(p) for p in dropouts)]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, out_dim))
        self.in_dim, self.dim = in_dim, out_dim

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns (B, out_dim), not normalised."""
        out_BD: Tensor = self.layers(x_BD)
        return out_BD


class Residual(nn.Linear):
    """x + W x with W = 0 at the start, so that vectors are unchanged at first."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, bias=False)
        nn.init.zeros_(self.weight)

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns (B, D)."""
        return x_BD + super().forward(x_BD)

    def linear(self) -> nn.Linear:
        """Returns the equivalent linear map."""
        same = nn.Linear(self.in_features, self.out_features)
        with torch.no_grad():
            same.weight.copy_(self.weight + torch.eye(self.in_features, device=self.weight.device))
            same.bias.zero_()
        return same


class AlignedHead(nn.Module):
    """Head for vectors that are already in the common space: the identity, or a `Residual` map.

    Args:
        dim: length of a vector.
        dropout: dropout probability of inputs.
        residual: whether to use a `Residual` map.
    """

    def __init__(self, dim: int, dropout: float = 0.0, residual: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Dropout(dropout)] * (dropout > 0), *[Residual(dim)] * residual)
        self.in_dim = self.dim = dim

    def forward(self, x_BD: Tensor) -> Tensor:
        """Returns (B, D), not normalised."""
        out_BD: Tensor = self.layers(x_BD)
        return out_BD


def reverse_gradient(x: Tensor) -> Tensor:
    """Returns `x` with the gradient of -x, so that one optimiser trains an adversary and the layers before it.

    Layers after it minimise the loss, layers before it maximise it. Ganin and Lempitsky, "Unsupervised domain
    adaptation by backpropagation", ICML 2015.
    """
    return 2 * x.detach() - x
