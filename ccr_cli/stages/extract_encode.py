"""From media to pieces of features: decoding in threads, batches that stay inside a piece, one encoder.

Shape suffixes: B inputs of a batch, R rows of an input, N rows of an item, D feature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli.console import progress, say
from ccr_cli.errors import ResourceError, UnavailableError
from ccr_cli.stages.extract_ahead import Ahead, End
from ccr_cli.stages.extract_pieces import Encoded, Pieces, Rows
from ccr_cli.stages.extract_read import MediaError, Medium, Reader

PICTURES_ON_CPU, FRAMES_ON_CPU = 64, 64
PICTURES_ON_CUDA, FRAMES_ON_CUDA = 256, 512
"""What `--batch-size auto` begins with: so many pictures, or clips of so many frames together."""
MOST_WORKERS = 16
_NO_MEMORY = re.compile("out of memory|can't allocate memory", re.IGNORECASE)


@dataclass(frozen=True)
class How:
    """What changes how fast features come, but not what they are."""

    device: torch.device
    batch_size: int | None = None
    """Inputs at once; None: as many as fit."""
    workers: int | None = None
    """Threads that decode; None: by the processors."""
    compiled: bool = False
    """Whether `torch.compile` shall make the encoder faster, which takes it a minute first."""

    def threads(self) -> int:
        """Threads that decode. Where the encoder needs the processors too, they get half of them, but two at least."""
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
        return self.workers or min(MOST_WORKERS, here if self.device.type == "cuda" else max(2, here // 2))


class Forward:
    """Runs the encoder on batches; where their size is free, halves it until they fit into memory."""

    def __init__(self, model: Any, how: How) -> None:
        self._model, self._device, self._fixed = model, how.device, how.batch_size is not None
        self._compiled = how.compiled
        if how.compiled:
            model.compile()
        length = model.sampling.clip_frames
        if self._device.type == "cuda":
            usual = PICTURES_ON_CUDA if length == 1 else max(1, FRAMES_ON_CUDA // length)
        else:
            usual = PICTURES_ON_CPU if length == 1 else max(1, FRAMES_ON_CPU // length)
        self.size = how.batch_size or usual

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """Returns what the encoder gives of some inputs, in one batch or in several.

        Raises:
            ResourceError: If not even one input fits, or not as many as were asked for.
            UnavailableError: If compiling fails.
        """
        found: list[Tensor] = []
        done = 0
        while done < len(inputs):
            part = inputs[done : done + self.size]
            if (given := self._fitting(part)) is not None:
                found.append(given)
                done += len(part)
            elif self._fixed or len(part) == 1:
                raise ResourceError(
                    f"out of memory with {len(part)} inputs at once",
                    hint="--device cpu, or --dtype bfloat16" if len(part) == 1 else "--batch-size auto",
                )
            else:
                self.size = len(part) // 2
                say(f"out of memory with {len(part)} inputs at once: {self.size} from now on", level=1)
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()
        return found

    def _fitting(self, inputs: list[Tensor]) -> Tensor | None:
        """What the encoder gives, or None where memory does not suffice."""
        try:
            return self._encode(inputs)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or _NO_MEMORY.search(str(error)):
                return None
            if not self._compiled:
                raise
            raise UnavailableError(
                f"torch.compile does not work here ({str(error).strip().splitlines()[0]})", hint="leave --compile out"
            ) from None

    @torch.inference_mode()
    def _encode(self, inputs: list[Tensor]) -> Tensor:
        on_gpu = self._device.type == "cuda"
        batch = torch.empty((len(inputs), *inputs[0].shape), dtype=inputs[0].dtype, pin_memory=on_gpu)
        torch.stack(inputs, out=batch)
        found: Tensor = self._model.encode(batch.to(self._device, non_blocking=True))
        return found if found.ndim == 3 else found[:, None]


@dataclass
class _Task:
    """A medium, and the items that are it."""

    piece: int
    medium: Medium
    items: list[int]
    rows: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    end: End[Any] | None = None


def encode(
    pieces: Pieces,
    bounds: Sequence[tuple[int, int]],
    media: Sequence[Medium],
    reader: Reader,
    how: How,
    *,
    pooled: bool,
) -> list[str | None]:
    """Writes pieces.

    Args:
        pieces: Where to.
        bounds: Which.
        media: Of all items.
        reader: Reads them, with the encoder.
        how: How.
        pooled: One row an item, the mean of its rows.

    Returns:
        Why each of the items that were not done yet failed, None where it did not.

    Raises:
        ResourceError: If memory does not suffice.
        UnavailableError: If the encoder shall be compiled and nothing here can do that.
    """
    tasks = [task for first, end in bounds for task in _tasks(pieces, first, end, media)]
    forward = Forward(reader.model, how)
    most = 2 * forward.size + how.threads()
    ahead: Ahead[_Task, Tensor] = Ahead(tasks, lambda t: reader.read(t.medium), workers=how.threads(), most=most)
    batch: list[tuple[_Task, Tensor]] = []
    under_way: list[tuple[list[_Task], list[Tensor]]] = []
    told: list[str | None] = []

    def settle(left: int) -> None:
        while len(under_way) > left:
            owners, found = under_way.pop(0)
            rows_BRD = np.concatenate([part.float().cpu().numpy() for part in found])
            rows_BRD = rows_BRD if pooled else _half(rows_BRD)
            for owner, rows_RD in zip(owners, rows_BRD, strict=True):
                owner.rows.append(rows_RD)

    def flush() -> None:
        if batch:
            under_way.append(([task for task, _ in batch], forward([part for _, part in batch])))
            batch.clear()
            settle(1)  # the next batch is put together while this one is encoded

    ends = dict(bounds)
    own: list[_Task] = []
    with progress(sum(len(task.items) for task in tasks), "extract", "items") as advance:
        for number, part in ahead:
            task = tasks[number]
            if not isinstance(part, End):
                batch.append((task, part))
                if len(batch) >= forward.size:
                    flush()
                continue
            if part.error is not None and not isinstance(part.error, MediaError):
                raise part.error
            task.end = part
            advance(len(task.items))
            own.append(task)
            if number + 1 == len(tasks) or tasks[number + 1].piece != task.piece:
                flush()
                settle(0)
                told += _write(pieces, task.piece, ends[task.piece], own, pooled)
                for each in own:
                    each.rows = []
                own = []
    return told


def _tasks(pieces: Pieces, first: int, end: int, media: Sequence[Medium]) -> Iterator[_Task]:
    """The media that a piece still needs, each once."""
    kept = pieces.kept(first)
    found: dict[Medium, list[int]] = {}
    for item in range(first, end):
        if kept is None or kept[item - first].rows_ND is None:
            found.setdefault(media[item], []).append(item)
    for medium, items in found.items():
        yield _Task(first, medium, items)


def _write(pieces: Pieces, first: int, end: int, tasks: Sequence[_Task], pooled: bool) -> list[str | None]:
    items = pieces.kept(first) or [Encoded(None)] * (end - first)
    told: list[str | None] = []
    for task in tasks:
        encoded = _encoded(task, pooled)
        for item in task.items:
            items[item - first] = encoded
            told.append(encoded.error if encoded.rows_ND is None else None)
    pieces.write(first, items)
    return told


def _half(rows: npt.NDArray[Any]) -> Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.astype(np.float16, copy=False)


def _encoded(task: _Task, pooled: bool) -> Encoded:
    assert task.end is not None
    if task.end.error is not None:
        return Encoded(None, str(task.end.error))
    rows_ND = np.concatenate(task.rows)
    if pooled:
        rows_ND = rows_ND.mean(axis=0, keepdims=True)
    half_ND = _half(rows_ND)
    if not np.isfinite(half_ND).all():
        return Encoded(None, "NotFinite: the encoder gave NaN, infinity, or more than half precision holds")
    return Encoded(half_ND, task.end.result)
