"""Encoding of media into pieces of features: threads decode, one encoder runs, and no batch crosses a piece.

Shape suffixes: B inputs of a batch, R rows of an input, N rows of an item, D feature.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli.artifacts.features import STORED
from ccr_cli.console import progress, say
from ccr_cli.errors import ResourceError, UnavailableError, out_of_memory
from ccr_cli.stages.extract.write_features import Bounds, EncodedItem, Pieces, PieceWriter, Place, Rows
from ccr_cli.stages.shared.media import MediaError, MediaReader, Medium
from ccr_cli.stages.shared.prefetch import End, Prefetch, decoding_threads

_FIRST_SIZE = {"cpu": (64, 64), "cuda": (256, 512)}
"""What `--batch-size auto` tries first: this many pictures, or clips with this many frames together."""


@dataclass(frozen=True)
class Resources:
    """What affects the speed of an extraction but not its result."""

    device: torch.device
    batch_size: int | None = None
    """Inputs per batch; None: as many as fit. Batches never cross a piece."""
    workers: int | None = None
    """Decoding threads; None: chosen by the number of processors."""
    compiled: bool = False
    """Whether to apply `torch.compile` to the encoder."""


class BatchEncoder:
    """Runs the encoder on batches; unless their size is fixed, halves it until they fit into memory."""

    def __init__(self, model: Any, resources: Resources) -> None:
        self._model, self._device, self._fixed = model, resources.device, resources.batch_size is not None
        self._compiled = resources.compiled
        if resources.compiled:
            model.compile()
        length = model.sampling.clip_frames
        pictures, frames = _FIRST_SIZE[self._device.type]
        self.size = resources.batch_size or (pictures if length == 1 else max(1, frames // length))

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """Encodes inputs in one or more batches; ResourceError if one input, or a batch of fixed size, does not fit."""
        outputs: list[Tensor] = []
        done = 0
        while done < len(inputs):
            part = inputs[done : done + self.size]
            output = self._try(part)
            if output is not None:
                outputs.append(output)
                done += len(part)
            elif self._fixed or len(part) == 1:
                hint = "--device cpu, or --dtype bfloat16" if len(part) == 1 else "--batch-size auto"
                raise ResourceError(f"out of memory with a batch of {len(part)}", hint=hint)
            else:
                self.size = len(part) // 2
                say(f"out of memory with a batch of {len(part)}: continuing with {self.size}", level=1)
                if self._device.type == "cuda":
                    torch.cuda.empty_cache()
        return outputs

    @torch.inference_mode()
    def _try(self, inputs: list[Tensor]) -> Tensor | None:
        """Encodes one batch; None if memory runs out."""
        on_gpu = self._device.type == "cuda"
        try:
            batch = torch.empty((len(inputs), *inputs[0].shape), dtype=inputs[0].dtype, pin_memory=on_gpu)
            torch.stack(inputs, out=batch)
            output: Tensor = self._model.encode(batch.to(self._device, non_blocking=True))
            return output if output.ndim == 3 else output[:, None]
        except RuntimeError as error:
            if out_of_memory(error):
                return None
            if not self._compiled:
                raise
            reason = str(error).strip().splitlines()[0]
            raise UnavailableError(f"torch.compile does not work here ({reason})", hint="leave --compile out") from None


@dataclass
class _Task:
    """A medium and the items that use it."""

    piece: int
    medium: Medium
    items: list[int]
    last: bool
    """Whether it is the last one of its piece."""
    place: Place = (0, 0)
    total_D: npt.NDArray[np.float64] | None = None
    """Sum of the rows, for their mean."""
    finite: bool = True
    end: End[Any] | None = None

    def take(self, rows_RD: npt.NDArray[np.float32] | Rows, writer: PieceWriter, pooled: bool) -> None:
        """Adds rows to the sum if `pooled`, else writes them."""
        if pooled:
            sum_D = rows_RD.sum(axis=0, dtype=np.float64)
            self.total_D = sum_D if self.total_D is None else self.total_D + sum_D
            self.place = (0, self.place[1] + len(rows_RD))
            return
        half_RD = _half(rows_RD)
        self.finite &= bool(np.isfinite(half_RD).all())
        at, count = writer.add(half_RD)
        self.place = (self.place[0] if self.place[1] else at, self.place[1] + count)

    def close(self, writer: PieceWriter) -> tuple[Place, str | None]:
        """Returns the place of its rows, and its error."""
        assert self.end is not None
        if self.end.error is not None:
            return (0, 0), str(self.end.error)
        if self.total_D is not None:
            mean_D = _half(self.total_D / self.place[1])
            self.finite = bool(np.isfinite(mean_D).all())
            self.place = writer.add(mean_D[None]) if self.finite else (0, 0)
        if not self.finite:
            return (0, 0), "NotFinite: the encoder gave NaN, infinity, or more than half precision holds"
        return self.place, self.end.result


def encode(
    pieces: Pieces,
    bounds: Sequence[Bounds],
    media: Sequence[Medium],
    reader: MediaReader,
    resources: Resources,
    *,
    pooled: bool,
) -> list[str | None]:
    """Encodes the media of the items within `bounds` and writes pieces; `pooled` stores the mean row of each item.

    Returns:
        For each item that was not done yet, why it failed, or None.

    Raises:
        ResourceError: If memory runs out.
        UnavailableError: If the encoder cannot be compiled.
    """
    tasks = [task for piece in bounds for task in _tasks(pieces, *piece, media)]
    run = BatchEncoder(reader.model, resources)
    threads = resources.workers or decoding_threads(resources.device)
    ahead: Prefetch[_Task, Tensor] = Prefetch(
        tasks, lambda task: reader.read(task.medium), workers=threads, most=2 * run.size + threads
    )
    batch: list[tuple[_Task, Tensor]] = []
    under_way: list[tuple[list[_Task], list[Tensor]]] = []
    errors: list[str | None] = []

    def settle(left: int) -> None:
        while len(under_way) > left:
            owners, outputs = under_way.pop(0)
            rows_BRD = np.concatenate([part.float().cpu().numpy() for part in outputs])
            for owner, rows_RD in zip(owners, rows_BRD, strict=True):
                assert writer is not None
                owner.take(rows_RD, writer, pooled)

    def flush() -> None:
        if batch:
            under_way.append(([task for task, _ in batch], run([part for _, part in batch])))
            batch.clear()
            settle(1)  # the next batch is collected while this one is encoded

    ends = dict(bounds)
    finished: list[_Task] = []
    writer: PieceWriter | None = None
    try:
        with progress(sum(len(task.items) for task in tasks), "extract", "items") as advance:
            for number, part in ahead:
                task = tasks[number]
                writer = writer or pieces.begin(task.piece)
                if not isinstance(part, End):
                    batch.append((task, part))
                    if len(batch) >= run.size:
                        flush()
                    continue
                if part.error is not None and not isinstance(part.error, MediaError):
                    raise part.error
                task.end = part
                advance(len(task.items))
                finished.append(task)
                if task.last:
                    flush()
                    settle(0)
                    errors += _end_piece(pieces, task.piece, ends[task.piece], finished, writer)
                    writer, finished = None, []
    finally:
        if writer is not None:
            writer.discard()
    return errors


def _tasks(pieces: Pieces, first: int, end: int, media: Sequence[Medium]) -> Iterator[_Task]:
    """Yields a task for each distinct medium that a piece still needs."""
    earlier = pieces.earlier(first)
    items_of: dict[Medium, list[int]] = {}
    for item in range(first, end):
        if earlier is None or earlier[item - first].rows_ND is None:
            items_of.setdefault(media[item], []).append(item)
    for number, (medium, items) in enumerate(items_of.items(), 1):
        yield _Task(first, medium, items, last=number == len(items_of))


def _end_piece(pieces: Pieces, first: int, end: int, tasks: Sequence[_Task], writer: PieceWriter) -> list[str | None]:
    """Completes a piece; returns the errors of the items that were tried."""
    earlier = pieces.earlier(first) or [EncodedItem(None)] * (end - first)
    places = [writer.add(item.rows_ND) for item in earlier]
    errors = [item.error for item in earlier]
    tried: list[str | None] = []
    for task in tasks:
        place, error = task.close(writer)
        for item in task.items:
            places[item - first], errors[item - first] = place, error
            tried.append(None if place[1] else error)
    pieces.end(first, writer, places, errors)
    return tried


def _half(rows: npt.NDArray[Any]) -> Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.astype(STORED, copy=False)
