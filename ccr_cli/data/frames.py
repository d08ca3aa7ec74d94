"""Features of visual items as ragged rows: one of an image, one a frame of a video.

Shape suffixes: V visual items, N rows of all of them, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Frames:
    """Visual items: item v is ``rows_ND[offsets_V1[v]:offsets_V1[v + 1]]``, at least one row."""

    rows_ND: Tensor
    offsets_V1: Tensor
    """int64, V + 1 values from 0 to N."""

    @classmethod
    def single(cls, features_VD: Tensor) -> Frames:
        """Items of one row each."""
        return cls(features_VD, torch.arange(len(features_VD) + 1, device=features_VD.device))

    @property
    def dim(self) -> int:
        """D, the length of a row."""
        return int(self.rows_ND.shape[1])

    def select(self, rows_B: Tensor) -> Frames:
        """Gathers items by number, in the order given and as often as named."""
        if len(self.rows_ND) == len(self):
            return Frames.single(self.rows_ND[rows_B])
        starts_B = self.offsets_V1[rows_B]
        lengths_B = self.offsets_V1[rows_B + 1] - starts_B
        offsets_B1 = torch.zeros(len(rows_B) + 1, dtype=torch.int64, device=rows_B.device)
        torch.cumsum(lengths_B, 0, out=offsets_B1[1:])
        shift_N = torch.repeat_interleave(starts_B - offsets_B1[:-1], lengths_B)
        return Frames(self.rows_ND[shift_N + torch.arange(len(shift_N), device=shift_N.device)], offsets_B1)

    def split(self, size: int) -> Iterator[Frames]:
        """The same items, at most `size` at a time."""
        for rows_B in torch.split(torch.arange(len(self), device=self.offsets_V1.device), size):
            yield self.select(rows_B)

    def to(self, device: torch.device | str) -> Frames:
        """Returns the same items on ``device``."""
        return Frames(self.rows_ND.to(device), self.offsets_V1.to(device))

    def __len__(self) -> int:
        """V, the number of items."""
        return int(self.offsets_V1.shape[0]) - 1
