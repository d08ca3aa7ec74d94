"""Heads that carry an encoder's vectors into the common space, and the reversal of their gradient."""

from __future__ import annotations

from torch import Tensor, nn


class Projection(nn.Module):
    """A linear map, or a perceptron, into the common space.

    The output is not normalised: ``nets.dual.DualEncoder`` does that, for both sides.

    Args:
        in_dim: length of an input vector.
        out_dim: length of an output vector.
        hidden: units of a hidden layer; None for a linear map.
        dropout: share of inputs, and of hidden units, that training switches off.
        norm_input: give every input vector mean 0 and variance 1 first, for features of unknown scale.
        depth: number of hidden layers.
        activation: what follows a hidden layer.
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


def reverse_gradient(x: Tensor) -> Tensor:
    """Returns `x`, with the gradient of -x: one optimiser then serves an adversary and those whom it watches.

    What comes after minimises the loss, what came before maximises it. Ganin and Lempitsky, "Unsupervised domain
    adaptation by backpropagation", ICML 2015.
    """
    return 2 * x.detach() - x
