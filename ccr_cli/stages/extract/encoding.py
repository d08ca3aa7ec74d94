"""From media to pieces of features: decoding in threads, batches that stay inside a piece, one encoder.

Shape suffixes: B inputs of a batch, R rows of an input, N rows of an item, D feature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli.console import progress, say
from ccr_cli.errors import ResourceError, UnavailableError
from ccr_cli.stages.extract.piece import Place, Rows, Writing
from ccr_cli.stages.extract.pieces import Pieces
from ccr_cli.stages.extract.prefetch import Ahead, End
from ccr_cli.stages.extract.reader import MediaError, Medium, Reader

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
    last: bool
    """Of its piece."""
    place: Place = (0, 0)
    total_D: npt.NDArray[np.float64] | None = None
    """The sum of the rows, where their mean is wanted."""
    finite: bool = True
    end: End[Any] | None = None

    def take(self, rows_RD: npt.NDArray[np.float32] | Rows, piece: Writing, pooled: bool) -> None:
        """Adds rows to the sum, or writes them."""
        if pooled:
            sum_D = rows_RD.sum(axis=0, dtype=np.float64)
            self.total_D = sum_D if self.total_D is None else self.total_D + sum_D
            self.place = (0, self.place[1] + len(rows_RD))
            return
        half_RD = _half(rows_RD)
        self.finite &= bool(np.isfinite(half_RD).all())
        at, count = piece.add(half_RD)
        self.place = (self.place[0] if self.place[1] else at, self.place[1] + count)

    def close(self, piece: Writing) -> tuple[Place, str | None]:
        """Where its rows are in the end, and what is amiss."""
        assert self.end is not None
        if self.end.error is not None:
            return (0, 0), str(self.end.error)
        if self.total_D is not None:
            mean_D = _half(self.total_D / self.place[1])
            self.finite = bool(np.isfinite(mean_D).all())
            self.place = piece.add(mean_D[None]) if self.finite else (0, 0)
        if not self.finite:
            return (0, 0), "NotFinite: the encoder gave NaN, infinity, or more than half precision holds"
        return self.place, self.end.result


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
    tasks: dict[int, _Task] = {}

    def begun() -> Iterator[_Task]:
        for number, task in enumerate(task for each in bounds for task in _tasks(pieces, *each, media)):
            tasks[number] = task
            yield task

    forward = Forward(reader.model, how)
    most = 2 * forward.size + how.threads()
    ahead: Ahead[_Task, Tensor] = Ahead(begun(), lambda t: reader.read(t.medium), workers=how.threads(), most=most)
    batch: list[tuple[_Task, Tensor]] = []
    under_way: list[tuple[list[_Task], list[Tensor]]] = []
    told: list[str | None] = []

    def settle(left: int) -> None:
        while len(under_way) > left:
            owners, found = under_way.pop(0)
            rows_BRD = np.concatenate([part.float().cpu().numpy() for part in found])
            for owner, rows_RD in zip(owners, rows_BRD, strict=True):
                assert piece is not None
                owner.take(rows_RD, piece, pooled)

    def flush() -> None:
        if batch:
            under_way.append(([task for task, _ in batch], forward([part for _, part in batch])))
            batch.clear()
            settle(1)  # the next batch is put together while this one is encoded

    ends = dict(bounds)
    own: list[_Task] = []
    piece: Writing | None = None
    try:
        with progress(sum(_left(pieces, *each) for each in bounds), "extract", "items") as advance:
            for number, part in ahead:
                task = tasks[number]
                piece = piece or pieces.begin(task.piece)
                if not isinstance(part, End):
                    batch.append((task, part))
                    if len(batch) >= forward.size:
                        flush()
                    continue
                if part.error is not None and not isinstance(part.error, MediaError):
                    raise part.error
                task.end = part
                advance(len(task.items))
                own.append(tasks.pop(number))
                if task.last:
                    flush()
                    settle(0)
                    told += _write(pieces, task.piece, ends[task.piece], own, piece)
                    piece, own = None, []
    finally:
        if piece is not None:
            piece.discard()
    return told


def _left(pieces: Pieces, first: int, end: int) -> int:
    """Items of a piece that are not done."""
    kept = pieces.kept(first)
    return end - first if kept is None else sum(item.rows_ND is None for item in kept)


def _tasks(pieces: Pieces, first: int, end: int, media: Sequence[Medium]) -> Iterator[_Task]:
    """The media that a piece still needs, each once."""
    kept = pieces.kept(first)
    found: dict[Medium, list[int]] = {}
    for item in range(first, end):
        if kept is None or kept[item - first].rows_ND is None:
            found.setdefault(media[item], []).append(item)
    for number, (medium, items) in enumerate(found.items(), 1):
        yield _Task(first, medium, items, last=number == len(found))


def _write(pieces: Pieces, first: int, end: int, tasks: Sequence[_Task], piece: Writing) -> list[str | None]:
    kept = pieces.kept(first)
    places = [(0, 0)] * (end - first) if kept is None else [piece.add(item.rows_ND) for item in kept]
    errors: list[str | None] = [None] * (end - first) if kept is None else [item.error for item in kept]
    told: list[str | None] = []
    for task in tasks:
        place, error = task.close(piece)
        for item in task.items:
            places[item - first], errors[item - first] = place, error
            told.append(None if place[1] else error)
    pieces.end(first, piece, places, errors)
    return told


def _half(rows: npt.NDArray[Any]) -> Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.astype(np.float16, copy=False)
