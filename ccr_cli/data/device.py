"""Tensors on their way from the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(x: Tensor, device: torch.device | str) -> Tensor:
    """Copies a tensor to the device; to a GPU from pinned memory, asynchronously."""
    pinned = torch.device(device).type == "cuda" and not x.is_cuda
    return (x.pin_memory() if pinned else x).to(device, non_blocking=True)
