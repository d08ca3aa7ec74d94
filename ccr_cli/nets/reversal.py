"""Gradient reversal: one optimiser serves an adversary and those whom it watches.

Ganin and Lempitsky, "Unsupervised domain adaptation by backpropagation", ICML 2015.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * grad[0], None


def reverse_gradient(x: Tensor, scale: float = 1.0) -> Tensor:
    """Returns `x`; its gradient is multiplied by -scale on the way back.

    What comes after minimises the loss, what came before maximises it.
    """
    out: Tensor = _Reversal.apply(x, scale)  # type: ignore[no-untyped-call]
    return out
