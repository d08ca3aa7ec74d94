"""Tensors on their way from the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(x: Tensor, device: torch.device | str) -> Tensor:
    """Returns the tensor on the device; a GPU copies it from pinned memory, and nobody waits for it."""
    pinned = torch.device(device).type == "cuda" and not x.is_cuda
    return (x.pin_memory() if pinned else x).to(device, non_blocking=True)
