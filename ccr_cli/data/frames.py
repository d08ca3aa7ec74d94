"""Features of visual items as ragged rows, one per image or per frame of a video; or pictures instead of features.

Shape suffixes: V visual items, N rows of all of them, D dimension.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Frames:
    """Visual items: item v is ``rows_ND[offsets_V1[v]:offsets_V1[v + 1]]``, at least one row."""

    rows_ND: Tensor
    """Features; or pictures (N, 3, H, W)."""
    offsets_V1: Tensor
    """int64, V + 1 values from 0 to N."""
    first_V: Tensor | None = None
    """First row of each item in a table that also has other items; None: the table has no others."""

    @classmethod
    def single(cls, features_VD: Tensor) -> "Frames":
        """Builds items of one row each."""
        return cls(features_VD, torch.arange(len(features_VD) + 1, device=features_VD.device))

    @property
    def dim(self) -> int:
        """D, the length of a row."""
        return int(self.rows_ND.shape[1])

    def only(self, items_V: Tensor) -> "Frames":
        """Returns some of the items; their rows are read only when selected, for a table on disk."""
        first_V = (self.offsets_V1[:-1] if self.first_V is None else self.first_V)[items_V]
        return Frames(self.rows_ND, _offsets(self.offsets_V1.diff()[items_V]), first_V)

    def select(self, rows_B: Tensor) -> "Frames":
        """Gathers items by number, in their order, with repetitions."""
        if self.first_V is None and len(self.rows_ND) == len(self):
            return Frames.single(self.rows_ND[rows_B])
        starts_B = (self.offsets_V1 if self.first_V is None else self.first_V)[rows_B]
        place_N, offsets_B1 = places_of(starts_B, self.offsets_V1[rows_B + 1] - self.offsets_V1[rows_B])
        return Frames(self.rows_ND[place_N], offsets_B1)

    def to(self, device: torch.device | str) -> "Frames":
        """Copies the items to ``device`` asynchronously."""
        whole = self if self.first_V is None else self.select(torch.arange(len(self)))
        return Frames(sent(whole.rows_ND, device), sent(whole.offsets_V1, device))

    def __len__(self) -> int:
        """V, the number of items."""
        return int(self.offsets_V1.shape[0]) - 1


def sent(x: Tensor, device: torch.device | str) -> Tensor:
    """Copies a tensor to the device; to a GPU from pinned memory, asynchronously."""
    pinned = torch.device(device).type == "cuda" and not x.is_cuda
    return (x.pin_memory() if pinned else x).to(device, non_blocking=True)


def places_of(starts_B: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the places (N,) of ragged items' rows in their table, and the items' offsets (B + 1,) in a batch."""
    offsets_B1 = _offsets(lengths_B)
    total = int(offsets_B1[-1])
    shift_N = torch.repeat_interleave(starts_B - offsets_B1[:-1], lengths_B, output_size=total)
    return shift_N + torch.arange(total, device=shift_N.device), offsets_B1


def _offsets(lengths_B: Tensor) -> Tensor:
    offsets_B1 = torch.zeros(len(lengths_B) + 1, dtype=torch.int64, device=lengths_B.device)
    torch.cumsum(lengths_B, 0, out=offsets_B1[1:])
    return offsets_B1
