"""Embedding whole tables in evaluation mode.

Shape suffixes: V visual items, T texts, D embedding.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from ccr_cli.artifacts import arrays
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokenizer, Tokens
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.methods.base import Embedder

BATCH = 1024
PICTURES = 128
"""Batch size of items that are pictures, which a network encodes."""
AT_ONCE = 2**18
"""Rows that `taken` reads in one pass over a file."""


@torch.no_grad()
def embed_texts(
    method: Embedder,
    table: Tokens,
    device: torch.device,
    some_T: Tensor | None = None,
    folder: Path | None = None,
) -> Tensor:
    """Embeds all or some texts of a table in float32 (T, D), on the device; many on a CPU in a file of `folder`."""
    rows = torch.split(torch.arange(len(table)) if some_T is None else some_T, BATCH)
    return _joined((method.embed_text(table.select(r).to(device)).float() for r in rows), sum(map(len, rows)), folder)


@torch.no_grad()
def embed_visuals(
    method: Embedder,
    visual: Frames,
    device: torch.device,
    some_V: Tensor | None = None,
    folder: Path | None = None,
) -> Tensor:
    """Embeds all or some visual items in float32 (V, D), on the device; many on a CPU in a file of `folder`."""
    rows = torch.arange(len(visual)) if some_V is None else some_V
    parts = torch.split(rows.to(visual.offsets_V1.device), BATCH if visual.rows_ND.ndim == 2 else PICTURES)
    vectors = (method.embed_visual(visual.select(part).to(device)).float() for part in parts)
    return _joined(vectors, len(rows), folder)


def _joined(parts: Iterator[Tensor], count: int, folder: Path | None) -> Tensor:
    """Writes parts one after the other into a table of `count` rows, so that they are never in memory twice."""
    first, at = next(parts), 0
    table_ND = _empty_like(first, count, folder)
    for part in chain([first], parts):
        table_ND[at : at + len(part)] = part
        at += len(part)
    return table_ND


def _empty_like(x_ND: Tensor, count: int, folder: Path | None) -> Tensor:
    """A table of `count` such rows whose values are not set; a large one on a CPU is in a file of `folder`."""
    shape = (count, *x_ND.shape[1:])
    return torch.from_numpy(arrays.empty(shape, folder)) if folder and x_ND.is_cpu else x_ND.new_empty(shape)


def taken(x_ND: Tensor, rows_R: Tensor, folder: Path | None = None) -> Tensor:
    """Copies the given rows (R, D), many on a CPU into a file of `folder`.

    They are read in ascending order, many at a time, so a file larger than the memory is read a few times from front to
    back. At random, each row would be a read of its own.
    """
    if not x_ND.is_cpu or not len(rows_R):
        return x_ND[rows_R]
    table_RD = _empty_like(x_ND, len(rows_R), folder)
    for first in range(0, len(rows_R), AT_ONCE):
        ascending_B, from_B = rows_R[first : first + AT_ONCE].sort()
        for some, to in zip(torch.split(ascending_B, BATCH), torch.split(from_B + first, BATCH), strict=True):
            table_RD[to] = x_ND[some]
    return table_RD


def encode_and_embed(method: Embedder, tokenizer: Tokenizer, texts: Sequence[str], device: torch.device) -> Tensor:
    """Tokenises and embeds texts (T, D)."""
    return embed_texts(method, tokenizer.encode(list(texts)), device)


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` is CUDA if available. UnavailableError without CUDA; UsageError on other names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError("there is no CUDA device here", hint="--device cpu, or see: ccr doctor")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UsageError(f"--device is auto, cpu or cuda, not {name!r}")
    return torch.device(name)
