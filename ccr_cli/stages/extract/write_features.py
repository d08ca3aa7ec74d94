"""Writing features: in pieces while an encoder runs, and shard by shard.

A piece is a fixed number of consecutive items of one shard. Batches are formed inside a piece, so it does not depend on
the worker that makes it: work can stop anywhere and be shared by any number of workers. Pieces are in `<name>.parts/`
next to the artifact, where workers on several machines find them, and are removed when the artifact is complete.

Shape suffixes: N rows of several items, D feature.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.build import PLAN, locked
from ccr_cli.console import progress, warn
from ccr_cli.errors import ArtifactError, CcrError, require_space
from ccr_cli.stages.shared.failures import failure, write_failures

PICTURES = 1024
VIDEOS = 64
"""Items per piece, for a data set without and with videos. When work stops, the unfinished piece is lost."""
_ABOUT = "encoder.json"
_PIECE, _AGAIN, _ROWS = ".piece", ".again", ".f2"
"""File suffixes of a finished piece, of a piece whose failed items are to be retried, and of the rows of either."""
_PATIENCE = 20.0

Rows = npt.NDArray[np.float16]
Place = tuple[int, int]
"""First row and number of rows of an item; (0, 0) if it failed."""
Bounds = tuple[int, int]
"""First item and end of a piece."""
ShardContent = tuple[npt.NDArray[np.int32], Sequence[str | None]]
"""Number of rows, and error, of each item of a shard."""


@dataclass(frozen=True)
class EncodedItem:
    """The result for one item."""

    rows_ND: Rows | None
    """None if it failed."""
    error: str | None = None
    """Why it failed, or for an item with rows, what is damaged."""


class PieceWriter:
    """Writes the rows of a piece as they come, so that long videos take no memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_rows, self.dim = path, 0, 0
        self._handle = path.open("wb")

    def add(self, rows_ND: Rows | None) -> Place:
        """Appends rows; None stands for an item without any."""
        if rows_ND is None:
            return 0, 0
        self._handle.write(np.ascontiguousarray(rows_ND, dtype=features.STORED).data)
        self.n_rows += len(rows_ND)
        self.dim = rows_ND.shape[1]
        return self.n_rows - len(rows_ND), len(rows_ND)

    def close(self) -> None:
        """Flushes all rows to disk."""
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._handle.close()

    def discard(self) -> None:
        """Removes an unfinished piece."""
        self._handle.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Piece:
    """A piece on disk: where the rows of its items are."""

    rows: str
    """Name of the file with the rows, in the same folder."""
    shape: tuple[int, int]
    """Rows and dimension."""
    places: Sequence[Place]
    errors: Sequence[str | None]
    encoder: str
    """Digest of the description of the encoder that made it."""

    def items(self, path: Path) -> list[EncodedItem]:
        """Returns the items of the piece in a file, with memory-mapped rows; ArtifactError if the rows are damaged."""
        rows = path.with_name(self.rows)
        if not rows.is_file() or rows.stat().st_size != features.STORED.itemsize * self.shape[0] * self.shape[1]:
            raise _damaged(path, f"{rows.name} does not hold {self.shape[0]} rows of {self.shape[1]}")
        empty = np.zeros((0, 0), dtype=features.STORED)
        block_ND = np.memmap(rows, features.STORED, "r", shape=tuple(self.shape)) if self.shape[0] else empty
        return [
            EncodedItem(block_ND[at : at + count] if count else None, error)
            for (at, count), error in zip(self.places, self.errors, strict=True)
        ]


def _load(path: Path) -> Piece:
    """Reads a piece without its rows; ArtifactError if it is damaged."""
    try:
        return Piece(**base.read_json(path))
    except (ArtifactError, OSError, TypeError) as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, reason: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {reason}", hint=f"remove {path}; the same command resumes")


@dataclass(frozen=True)
class Pieces:
    """The pieces of one artifact."""

    folder: Path
    final: Path
    """The artifact's own folder."""
    item_ids: Sequence[str]
    size: int
    encoder: str = ""
    """Digest of the encoder's description, recorded in every piece that is written."""

    def bounds(self) -> list[Bounds]:
        """Returns the bounds of each piece; none crosses the end of a shard."""
        total, shard = len(self.item_ids), features.SHARD_ITEMS
        return [
            (first, min(first + self.size, start + shard, total))
            for start in range(0, total, shard)
            for first in range(start, min(start + shard, total), self.size)
        ]

    def path(self, first: int, suffix: str = _PIECE) -> Path:
        """Returns the file of the piece that starts at an item."""
        return self.folder / f"{first:09d}{suffix}"

    def todo(self) -> list[Bounds]:
        """Returns the bounds of the pieces that do not exist yet."""
        return [(first, end) for first, end in self.bounds() if not self.path(first).is_file()]

    def prepare(self, plan: Mapping[str, Any], purpose: str = "") -> None:
        """Prepares the folder: empty, or with the pieces that a stopped attempt at the same plan left behind.

        The plan holds request and parents. With a `purpose` (force, or a retry), existing pieces count only if they
        were made for the same purpose (`replacing`); without one, they always count.

        Raises:
            ArtifactError: If pieces of another plan exist.
            LockedError: If existing pieces do not count, but another process is still at work on them.
        """
        plan = {**plan, "piece": self.size, "purpose": purpose}
        path = self.folder / PLAN
        existing = base.read_json(path) if path.is_file() else None
        if not self._has_pieces() and not list(self.folder.glob("part-*.lock")):
            if existing == plan:
                (self.folder / _ABOUT).unlink(missing_ok=True)
            else:
                self.remove()
                existing = plan
        if existing != plan:
            if existing and not purpose and {**existing, "purpose": ""} != plan:
                hint = f"use another --name, or remove {self.folder}"
                raise ArtifactError(f"{self.folder} holds parts of features with other options", hint=hint)
            if purpose or not existing:  # without a plan, they are left of a removal that was stopped
                with self.claim_all():
                    for file in self.folder.iterdir():
                        if not file.name.startswith("part-"):
                            file.unlink()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            base.write_json(path, plan)

    def begin(self, first: int) -> PieceWriter:
        """Begins a piece, and removes the rows that a stopped attempt left of it, except those to be reused."""
        earlier = self.path(first, _AGAIN)
        self._remove_rows(first, keep=_load(earlier).rows if earlier.is_file() else "")
        return PieceWriter(self.path(first, f"-{secrets.token_hex(8)}{_ROWS}"))

    def end(
        self,
        first: int,
        writer: PieceWriter,
        places: Sequence[Place],
        errors: Sequence[str | None],
        suffix: str = _PIECE,
    ) -> None:
        """Completes a piece whose rows are all written; the suffix `_AGAIN` marks its failed items for a retry."""
        writer.close()
        piece = Piece(writer.path.name, (writer.n_rows, writer.dim), places, errors, self.encoder)
        base.write_json(self.path(first, suffix), asdict(piece))
        if suffix == _PIECE:
            self.path(first, _AGAIN).unlink(missing_ok=True)
            self._remove_rows(first, keep=writer.path.name)

    def read(self, first: int) -> list[EncodedItem]:
        """Reads the items of a piece that is done."""
        return _load(self.path(first)).items(self.path(first))

    def earlier(self, first: int) -> list[EncodedItem] | None:
        """Reads the items of a piece that is marked for a retry; None if it is not marked."""
        path = self.path(first, _AGAIN)
        return _load(path).items(path) if path.is_file() else None

    def try_again(self, bounds: Sequence[Bounds]) -> None:
        """Marks the pieces that have failed items for a retry; their successful items are kept."""
        for first, _ in bounds:
            if self.path(first).is_file() and any(item.rows_ND is None for item in self.read(first)):
                self.path(first).rename(self.path(first, _AGAIN))

    def take_from(self, artifact: base.Artifact) -> None:
        """Takes over the successful items of a complete artifact, so that only the failed ones are left to do."""
        about = artifact.json(_ABOUT)
        _write_once(self.folder / _ABOUT, about)
        pieces = replace(self, encoder=_digest(about))
        index = features.read_index(artifact)
        for first, end in self.bounds():
            if self.path(first).is_file() or self.path(first, _AGAIN).is_file():
                continue
            part = index.iloc[first:end]
            block = features.read_shard(artifact, int(part["shard"].iloc[0]), part)
            writer = pieces.begin(first)
            try:
                counts = part["n_rows"]
                rows = [block[at : at + n] if n else None for at, n in zip(part["first_row"], counts, strict=True)]
                places = [writer.add(rows_ND) for rows_ND in rows]
                pieces.end(first, writer, places, list(part["error"]), _PIECE if counts.all() else _AGAIN)
            except BaseException:
                writer.discard()
                raise

    def by(self, about: Mapping[str, Any]) -> "Pieces":
        """Returns the pieces for an encoder's description; the first call records it, and later ones must agree.

        Raises:
            ArtifactError: If another encoder made existing pieces.
        """
        mine = json.loads(json.dumps(about))
        _write_once(self.folder / _ABOUT, mine)
        theirs = self.about()
        if theirs != mine:
            keys = [key for key in {**theirs, **mine} if theirs.get(key) != mine.get(key)]
            differences = "; ".join(f"{key}: {theirs.get(key)!r} there, {mine.get(key)!r} here" for key in keys)
            hint = "use one model and one version everywhere; --force starts over"
            raise ArtifactError(f"another encoder made the parts in {self.folder}: {differences}", hint=hint)
        return replace(self, encoder=_digest(mine))

    def about(self) -> dict[str, Any]:
        """Returns the encoder's description."""
        about: dict[str, Any] = base.read_json(self.folder / _ABOUT)
        return about

    def write_shards(self, folder: Path) -> pd.DataFrame:
        """Turns all pieces into shards and their index.

        Raises:
            ArtifactError: If a piece is damaged, or another encoder made it.
        """
        about = self.about()
        encoder = _digest(about)
        pieces = {first: _load(self.path(first)) for first, _ in self.bounds()}
        other = [str(self.path(first)) for first, piece in pieces.items() if piece.encoder != encoder]
        if other:
            hint = "remove these; the same command resumes. Use one model and one version everywhere"
            raise ArtifactError(f"an encoder other than that of {self.folder / _ABOUT} made {', '.join(other)}", hint)

        def fill(handle: IO[bytes], shard: int, part: slice) -> ShardContent:
            own = {first: piece for first, piece in pieces.items() if part.start <= first < part.stop}
            for item in (item for first, piece in own.items() for item in piece.items(self.path(first))):
                if item.rows_ND is not None:
                    handle.write(np.ascontiguousarray(item.rows_ND, dtype=features.STORED).data)
            counts = np.array([count for piece in own.values() for _, count in piece.places], dtype=np.int32)
            return counts, [error for piece in own.values() for error in piece.errors]

        for stale in folder.glob("index-*.parquet"):  # of an attempt that may have had other pieces
            stale.unlink()
        return write_shards(folder, self.item_ids, about["dim"], fill)

    def require_space(self) -> None:
        """Checks the free disk space, extrapolating from the pieces so far, or assuming one row per item."""
        done = [features.STORED.itemsize * int(np.prod(_load(path).shape)) for path in self.folder.glob(f"*{_PIECE}")]
        left = len(self.todo())
        piece = sum(done) / len(done) if done else 2.0 * self.about()["dim"] * min(self.size, len(self.item_ids))
        need = piece * (left + left + len(done))  # pieces, and the shards that all of them become
        require_space(self.folder.parent, need, ". --pool mean and fewer frames (fps, frames) need less")

    def claim_part(self, label: str) -> AbstractContextManager[None]:
        """Claims a part of the work, such as `3-of-64`; LockedError if another process is working on it."""
        return locked(self.folder / f"part-{label}")

    @contextmanager
    def claim_all(self) -> Iterator[None]:
        """Claims every part that was ever begun; LockedError if another process is still working on one."""
        with ExitStack() as stack:
            for path in sorted(self.folder.glob("part-*.lock")):
                stack.enter_context(locked(path.with_suffix("")))
            yield

    def opening(self) -> AbstractContextManager[None]:
        """Keeps the builder of the artifact out while a part opens the folder; LockedError if it is being built."""
        self.final.parent.mkdir(parents=True, exist_ok=True)
        return locked(self.final, _PATIENCE)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Wraps work on the folder; ArtifactError if it is removed meanwhile."""
        try:
            yield
        except FileNotFoundError:
            if self.folder.is_dir():
                raise
            message = f"{self.folder} was removed while its pieces were made"
            raise ArtifactError(message, hint="the same command starts over") from None

    def remove(self) -> None:
        """Removes all pieces."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def replacing(self, how: str) -> str:
        """Returns the purpose of pieces that replace the artifact by `how` (force or retry); none outlives it."""
        record = self.final / base.RECORD
        return f"{how} {record.stat().st_mtime_ns if record.is_file() else 0}"

    def remove_unneeded(self) -> None:
        """Removes the pieces that a stopped run left beside the complete artifact.

        Pieces that are to replace this artifact, from which a rebuild resumes, and those of a process at work are kept.
        """

        def is_unneeded() -> bool:
            path, rebuilds = self.folder / PLAN, (self.replacing("force"), self.replacing("retry"))
            return self.folder.is_dir() and not (path.is_file() and base.read_json(path).get("purpose") in rebuilds)

        with suppress(CcrError, OSError):
            if is_unneeded():  # asked first, so as not to wait for the lock of a rebuild
                with locked(self.final), self.claim_all():
                    if is_unneeded():
                        self.remove()

    def remove_if_empty(self) -> None:
        """Removes the folder if it holds no piece."""
        if not self._has_pieces():
            self.remove()

    def _has_pieces(self) -> bool:
        return any(path.suffix in (_PIECE, _AGAIN) for path in self.folder.glob("*"))

    def _remove_rows(self, first: int, keep: str) -> None:
        for path in self.folder.glob(f"{first:09d}-*{_ROWS}"):
            if path.name != keep:
                path.unlink()


def _digest(about: Mapping[str, Any]) -> str:
    return base.sha256_text(base.canonical_json(about))


def _write_once(path: Path, value: object) -> None:
    """Writes a file unless it exists; of several processes that do so at once, one wins."""
    if path.is_file():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    base.write_json(draft, value)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links; the digests in the pieces reveal a conflict
        base.write_json(path, value)
    finally:
        draft.unlink(missing_ok=True)


def write_shards(
    folder: Path,
    item_ids: Sequence[str],
    dim: int,
    fill: Callable[[IO[bytes], int, slice], ShardContent],
    need: Callable[[int], float] = lambda first: 0.0,
) -> pd.DataFrame:
    """Writes the shards that a stopped attempt did not finish, and returns the index of all items.

    `fill` writes the rows (N, D) of a shard, given its number and its slice of the items; `need` estimates the bytes
    needed for all items from a given number on.

    Raises:
        ResourceError: If there is too little disk space.
    """
    with progress(len(item_ids), "extract", "items") as advance:
        for shard, first in enumerate(range(0, len(item_ids), features.SHARD_ITEMS)):
            part = slice(first, first + features.SHARD_ITEMS)
            path = folder / features.index_name(shard)
            if not path.is_file():
                require_space(folder.parent, need(first))
                with base.atomic_open(folder / features.shard_name(shard)) as handle:
                    start = features.write_header(handle, 0, dim)
                    n_rows, errors = fill(handle, shard, part)
                    handle.seek(0)
                    end = features.write_header(handle, int(n_rows.sum()), dim)
                    assert end == start, "numpy leaves room for the number of rows to grow"
                features.write_index(path, item_ids[part], shard, n_rows, errors)
            advance(len(item_ids[part]))
    return features.finish_index(folder, len(item_ids))


def write_outcome(
    folder: Path, index: pd.DataFrame, about: Mapping[str, Any], *, retried: bool = False
) -> dict[str, int]:
    """Writes the failures (`retried` or not) and `encoder.json` next to the shards; returns the artifact's counts."""
    failed = index[index["status"] == "failed"]
    records = []
    for item, error in zip(failed["item_id"], failed["error"], strict=True):
        cause, _, message = str(error).partition(": ")  # the format of the column
        records.append(failure(item, "extract", cause, message))
    write_failures(folder, records, retried=retried)
    base.write_json(folder / _ABOUT, about)
    counts = {"items": len(index), "rows": int(index["n_rows"].sum()), "failed": len(failed)}
    if damaged := int((index["status"] == "damaged").sum()):
        counts["damaged"] = damaged
        warn(f"{damaged} videos are damaged; their readable frames are encoded (see index.parquet)")
    return counts
