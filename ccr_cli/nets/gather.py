"""Rows of all processes of one training as one tensor, with the gradient of the whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed


class Across(torch.autograd.Function):
    """Puts equally many rows of every process one after the other, in the order of ranks.

    Every process computes its loss of all rows. The gradient that a row gets is the sum over the processes' losses, so
    that the mean of the processes' gradients of a weight is the gradient of the mean of their losses: exactly that
    of one process with all rows, where they compute the same.
    """

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        """Gathers the rows (b, ...) into (processes x b, ...)."""
        parts = [
            torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(distributed.get_world_size())
        ]
        distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> Tensor:
        """Sums the gradients of all processes, and takes this one's rows."""
        total = grads[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size())[distributed.get_rank()]


def across(x: Tensor) -> Tensor:
    """Returns the rows of all processes, which must have equal numbers of rows."""
    out: Tensor = Across.apply(x)  # type: ignore[no-untyped-call]
    return out
