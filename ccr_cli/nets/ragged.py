"""Padding and pooling of ragged rows (tokens of texts, frames of videos).

Shape suffixes: B texts or items, N rows of all of them, L rows of the longest, D dimension.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

TextPooling = Literal["mean", "cls", "max", "last", "own"]


class Texts(Protocol):
    """A batch of tokenised texts, such as `data.tokens.Tokens`: text b has the ids offsets[b] to offsets[b + 1]."""

    @property
    def ids_N(self) -> Tensor:
        """Ids of all texts, one after the other."""

    @property
    def offsets_B1(self) -> Tensor:
        """B + 1 values from 0 to N."""

    @property
    def starts_N(self) -> Tensor:
        """True where an id is the first of a token."""

    @property
    def lengths_B(self) -> Tensor:
        """Number of ids of each text, on the host."""


class Rows(Protocol):
    """Rows of visual items, such as `data.frames.Frames`: item v has the rows offsets[v] to offsets[v + 1]."""

    @property
    def rows_ND(self) -> Tensor:
        """Features or pictures of all items, one after the other."""

    @property
    def offsets_V1(self) -> Tensor:
        """V + 1 values from 0 to N."""


@dataclass(frozen=True)
class Places:
    """Places of ragged rows in a padded block."""

    at_N: Tensor
    """Place of each row in the flattened block, B * L."""
    mask_BL: Tensor
    """True where there is a row."""

    @classmethod
    def of(cls, offsets_B1: Tensor, count: int, longest: int) -> "Places":
        """Finds the places of N = `count` rows; text or item b has those from offsets[b] to offsets[b + 1].

        It does not wait for the device.
        """
        device, lengths_B = offsets_B1.device, offsets_B1.diff()
        owner_N = torch.repeat_interleave(torch.arange(len(lengths_B), device=device), lengths_B, output_size=count)
        place_N = torch.arange(count, device=device) - offsets_B1.index_select(0, owner_N)
        mask_BL = torch.arange(longest, device=device) < lengths_B.unsqueeze(1)
        return cls(owner_N * longest + place_N, mask_BL)

    @classmethod
    def of_mask(cls, mask_BL: Tensor) -> "Places":
        """Finds the places where a mask is true; waits for the device."""
        return cls(mask_BL.flatten().nonzero().squeeze(1), mask_BL)

    @property
    def place_N(self) -> Tensor:
        """Place of each row in its text or item."""
        return self.at_N % self.mask_BL.shape[1]

    def padded(self, rows_N: Tensor, fill: float = 0) -> Tensor:
        """Pads rows (N, ...) to a block (B, L, ...)."""
        flat = rows_N.new_full((self.mask_BL.numel(), *rows_N.shape[1:]), fill)
        return flat.index_copy(0, self.at_N, rows_N).view(*self.mask_BL.shape, *rows_N.shape[1:])

    def taken(self, block_BL: Tensor) -> Tensor:
        """Takes the rows (N, ...) from a block (B, L, ...)."""
        return block_BL.flatten(0, 1).index_select(0, self.at_N)

    def mean(self, rows_ND: Tensor) -> Tensor:
        """Mean row of each text or item, (B, D)."""
        return masked_mean(self.padded(rows_ND), self.mask_BL)


def pad_rows(rows_N: Tensor, offsets_B1: Tensor, fill: float = 0, longest: int | None = None) -> tuple[Tensor, Tensor]:
    """Pads ragged rows, ids (N,) or vectors (N, D), on the right with `fill`.

    Text or item b has the rows from offsets[b] to offsets[b + 1] (int64). `longest` is L if it is known on the host;
    otherwise the function waits for the device.

    Returns:
        The block (B, L) or (B, L, D), and a bool mask (B, L) that is true where there is a row.
    """
    if longest is None:
        longest = int(offsets_B1.diff().max()) if len(offsets_B1) > 1 else 0
    places = Places.of(offsets_B1, len(rows_N), longest)
    return places.padded(rows_N, fill), places.mask_BL


def masked_mean(x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Mean (B, D) over the existing rows; 0 without any."""
    weight_BL1 = mask_BL.unsqueeze(-1).to(x_BLD.dtype)
    return (x_BLD * weight_BL1).sum(1) / weight_BL1.sum(1).clamp(min=1)


def mean_rows(rows_ND: Tensor, offsets_B1: Tensor) -> Tensor:
    """Mean (B, D) of ragged rows, at least one per text or item, summed in their order on every device."""
    if len(rows_ND) == len(offsets_B1) - 1:
        return rows_ND
    row_N = torch.arange(len(rows_ND), device=offsets_B1.device)
    return embedding_bag(row_N, rows_ND, offsets_B1, mode="mean", include_last_offset=True)


def pool_tokens(x_BLD: Tensor, mask_BL: Tensor, how: TextPooling) -> Tensor:
    """Pools the tokens of each text, padded on the right, into one vector (B, D); padding has no effect.

    `mean`, `cls` (the first), `max` (of each dimension) or `last`; the model itself does `own` pooling.
    """
    match how:
        case "mean":
            return masked_mean(x_BLD, mask_BL)
        case "cls":
            return x_BLD[:, 0]
        case "max":
            return x_BLD.masked_fill(~mask_BL.unsqueeze(2), -float("inf")).amax(1)
        case "last":
            at_B11 = (mask_BL.sum(1) - 1).clamp(min=0)[:, None, None]
            return x_BLD.gather(1, at_B11.expand(-1, 1, x_BLD.shape[2])).squeeze(1)
    raise ValueError(f"{how} is no pooling of tokens")
