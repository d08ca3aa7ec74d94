"""Features in the making: pieces of a fixed number of items, written one by one, from which shards are made at the end.

A piece never depends on who makes it: its items are consecutive ones of a shard, and batches are formed inside it. So
work can stop anywhere and be shared by any number of workers. Pieces lie beside the artifact, in `<name>.parts/`, where
workers of several machines meet, and are removed when the artifact is complete.

Shape suffixes: N rows of several items, D feature.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.build import PLAN, locked
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.extract.piece import Encoded, Place, Writing, fact, read
from ccr_cli.stages.extract.piece import facts as piece_facts
from ccr_cli.stages.shared.disk_space import require_room

PICTURES = 1024
VIDEOS = 64
"""Items of a piece of a data set without and with videos. What is lost when work stops is the piece begun."""
_ABOUT = "encoder.json"
_ROWS = ".f2"
_PATIENCE = 20.0


@dataclass(frozen=True)
class Pieces:
    """The pieces of one artifact."""

    folder: Path
    final: Path
    """The artifact's own folder."""
    item_ids: Sequence[str]
    size: int
    encoder: str = ""
    """Digest of what the encoder says of itself whose rows are written; it stands in every piece."""

    def bounds(self) -> list[tuple[int, int]]:
        """First item and end of each piece; none goes over the end of a shard."""
        total, shard = len(self.item_ids), features.SHARD_ITEMS
        return [
            (first, min(first + self.size, start + shard, total))
            for start in range(0, total, shard)
            for first in range(start, min(start + shard, total), self.size)
        ]

    def path(self, first: int) -> Path:
        """The file of the piece that begins with an item."""
        return self.folder / f"{first:09d}.npz"

    def todo(self) -> list[tuple[int, int]]:
        """Bounds of the pieces that are not there."""
        return [(first, end) for first, end in self.bounds() if not self.path(first).is_file()]

    def prepare(self, plan: Mapping[str, Any], purpose: str = "") -> None:
        """Makes the folder ready, empty or with what a stopped attempt at the same plan left behind.

        Args:
            plan: Request and parents.
            purpose: Why what is there already does not count, unless it was made for this very purpose; empty: it does.

        Raises:
            ArtifactError: If pieces of another plan lie there.
            LockedError: If they do not count, but another process is still at work on them.
        """
        wanted = {**plan, "piece": self.size, "purpose": purpose}
        place = self.folder / PLAN
        found = base.read_json(place) if place.is_file() else None
        if not self._begun() and not list(self.folder.glob("part-*.lock")):
            if found == wanted:
                (self.folder / _ABOUT).unlink(missing_ok=True)
            else:
                self.remove()
                found = None
        if found is not None and found != wanted:
            if not purpose and {**found, "purpose": ""} != wanted:
                raise ArtifactError(
                    f"{self.folder} holds parts of features that were asked for with other options",
                    hint=f"give another --name, or remove {self.folder}",
                )
            if purpose:
                self._clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not place.is_file():
            base.write_json(place, wanted)

    def begin(self, first: int) -> Writing:
        """Begins a piece, in place of what a stopped attempt left of it."""
        again = self._again(first)
        self._tidy(first, str(fact(again, "rows")) if again.is_file() else "")
        return Writing(self.folder / f"{first:09d}-{secrets.token_hex(8)}{_ROWS}")

    def write(self, first: int, items: Sequence[Encoded], *, again: bool = False) -> None:
        """Writes a piece.

        Args:
            first: Its first item.
            items: All of its items.
            again: What failed in it is to be tried again: it is kept, but not counted as there.
        """
        piece = self.begin(first)
        try:
            places = [piece.add(item.rows_ND) for item in items]
            self.end(first, piece, places, [item.error for item in items], again=again)
        except BaseException:
            piece.discard()
            raise

    def end(
        self, first: int, piece: Writing, places: Sequence[Place], told: Sequence[str | None], *, again: bool = False
    ) -> None:
        """Writes where the rows of each item lie, and what is amiss with it: with that the piece is there."""
        piece.close()
        errors = np.frombuffer(json.dumps(list(told)).encode(), dtype=np.uint8)
        facts = {
            "rows": np.array(piece.path.name),
            "shape": np.array((piece.n_rows, piece.dim)),
            "places": np.array(places, dtype=np.int64).reshape(-1, 2),
            "errors": errors,
            "encoder": np.array(self.encoder),
        }
        path = self._again(first) if again else self.path(first)
        with base.atomic_open(path) as handle:
            np.savez(handle, **facts)  # type: ignore[arg-type]
        if not again:
            self._again(first).unlink(missing_ok=True)
            self._tidy(first, piece.path.name)

    def read(self, first: int) -> list[Encoded]:
        """Reads a piece that is there."""
        return read(self.path(first))

    def kept(self, first: int) -> list[Encoded] | None:
        """What an earlier attempt came to in a piece that is not there."""
        path = self._again(first)
        return read(path) if path.is_file() else None

    def try_again(self, bounds: Sequence[tuple[int, int]]) -> None:
        """Takes those pieces in which something failed for not there, but for what succeeded in them."""
        for first, _ in bounds:
            if self.path(first).is_file() and any(item.rows_ND is None for item in self.read(first)):
                self.path(first).rename(self._again(first))

    def take_from(self, artifact: base.Artifact) -> None:
        """Takes over what succeeded in a complete artifact, so that only what failed is left to do."""
        about = base.read_json(artifact.file(_ABOUT))
        _write_once(self.folder / _ABOUT, about)
        taken = replace(self, encoder=_digest(about))
        index = features.read_index(artifact)
        for first, end in self.bounds():
            if self.path(first).is_file() or self._again(first).is_file():
                continue
            part = index.iloc[first:end]
            path = artifact.file(features.shard_name(int(part["shard"].iloc[0])))
            block = np.load(path, mmap_mode="r", allow_pickle=False)
            items = [
                Encoded(np.array(block[at : at + count]) if count else None, error)
                for at, count, error in zip(part["first_row"], part["n_rows"], part["error"], strict=True)
            ]
            taken.write(first, items, again=any(item.rows_ND is None for item in items))

    def by(self, about: Mapping[str, Any]) -> Pieces:
        """The same pieces for whoever encodes now; the first one to ask is noted, and all others must be alike.

        Raises:
            ArtifactError: If pieces that are there were made by another encoder.
        """
        path = self.folder / _ABOUT
        mine = json.loads(json.dumps(about))
        _write_once(path, mine)
        theirs = self.about()
        if theirs != mine:
            keys = [key for key in {**theirs, **mine} if theirs.get(key) != mine.get(key)]
            differences = "; ".join(f"{key}: {theirs.get(key)!r} there, {mine.get(key)!r} here" for key in keys)
            raise ArtifactError(
                f"{self.folder} holds parts that another encoder made: {differences}",
                hint="use one model and one version everywhere; --force begins anew",
            )
        return replace(self, encoder=_digest(mine))

    def about(self) -> dict[str, Any]:
        """Who encoded."""
        found: dict[str, Any] = base.read_json(self.folder / _ABOUT)
        return found

    def finish(self, folder: Path) -> pd.DataFrame:
        """Makes shards and their index in a folder of all pieces.

        Raises:
            ArtifactError: If a piece is damaged, or another encoder made it.
        """
        bounds, about = self.bounds(), self.about()
        dim, encoder = about["dim"], _digest(about)
        other = [str(self.path(first)) for first, _ in bounds if str(fact(self.path(first), "encoder")) != encoder]
        if other:
            raise ArtifactError(
                f"another encoder than {self.folder / _ABOUT} says made {', '.join(other)}",
                hint="remove these; the same command goes on. Use one model and one version everywhere",
            )
        for shard, start in enumerate(range(0, len(self.item_ids), features.SHARD_ITEMS)):
            end = min(start + features.SHARD_ITEMS, len(self.item_ids))
            pieces = [self.path(first) for first, _ in bounds if start <= first < end]
            facts = [piece_facts(path) for path in pieces]
            counts = np.concatenate([each for each, _ in facts])
            with base.atomic_open(folder / features.shard_name(shard)) as handle:
                features.write_header(handle, int(counts.sum()), dim)
                for path in pieces:
                    for item in read(path):
                        if item.rows_ND is not None:
                            handle.write(np.ascontiguousarray(item.rows_ND, dtype="<f2").data)
            told = [error for _, errors in facts for error in errors]
            frame = features.index_of(self.item_ids[start:end], shard, counts, told)
            write_table(folder / f"index-{shard:05d}.parquet", frame, features.INDEX)
        return features.finish_index(folder, len(self.item_ids))

    def require_space(self) -> None:
        """Looks whether what is left to do finds room, by what is done so far; before that, a row an item.

        Raises:
            ResourceError: If it does not.
        """
        done = [int(np.prod(fact(path, "shape"))) * 2 for path in self.folder.glob("*.npz")]
        left = len(self.todo())
        piece = sum(done) / len(done) if done else 2.0 * self.about()["dim"] * min(self.size, len(self.item_ids))
        need = piece * (left + left + len(done))  # pieces, and the shards that are made of all of them
        require_room(self.folder.parent, need, ". --pool mean and fewer frames (fps, frames) need less")

    @contextmanager
    def part(self, label: str) -> Iterator[None]:
        """Claims a part of the work, such as `3-of-64`.

        Raises:
            LockedError: If another process is at it.
        """
        with locked(self._claim(label)):
            yield

    @contextmanager
    def all_parts(self) -> Iterator[None]:
        """Claims all of it, from those who have begun a part.

        Raises:
            LockedError: If one of them is still at it.
        """
        with ExitStack() as stack:
            for path in sorted(self.folder.glob("part-*.lock")):
                stack.enter_context(locked(path.with_suffix("")))
            yield

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Keeps whoever builds the artifact out while a part opens the folder.

        Raises:
            LockedError: If it is being built.
        """
        self.final.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.final, _PATIENCE):
            yield

    @contextmanager
    def present(self) -> Iterator[None]:
        """Says it in words where the folder is removed meanwhile.

        Raises:
            ArtifactError: If it is.
        """
        try:
            yield
        except FileNotFoundError:
            if self.folder.is_dir():
                raise
            raise ArtifactError(
                f"{self.folder} was removed while its pieces were made", hint="the same command begins anew"
            ) from None

    def remove(self) -> None:
        """Removes all pieces."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_if_empty(self) -> None:
        """Removes the folder of an attempt that came to nothing."""
        if not self._begun():
            self.remove()

    def _clear(self) -> None:
        """Removes what is there while nobody is at work on it.

        Raises:
            LockedError: If somebody is.
        """
        with self.all_parts():
            for path in self.folder.iterdir():
                if not path.name.startswith("part-"):
                    path.unlink()

    def _begun(self) -> bool:
        return any(self.folder.glob("*.npz")) or any(self.folder.glob("*.again"))

    def _tidy(self, first: int, kept: str) -> None:
        """Removes rows of a piece that nothing leads to."""
        for path in self.folder.glob(f"{first:09d}-*{_ROWS}"):
            if path.name != kept:
                path.unlink()

    def _again(self, first: int) -> Path:
        return self.folder / f"{first:09d}.again"

    def _claim(self, label: str) -> Path:
        return self.folder / f"part-{label}"


def _digest(about: Mapping[str, Any]) -> str:
    return base.sha256_text(base.canonical_json(about))


def _write_once(path: Path, value: object) -> None:
    """Writes a file that is not there; of several that do so at once, one wins."""
    if path.is_file():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    base.write_json(draft, value)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links; whoever is late is found out by the digests in the pieces
        base.write_json(path, value)
    finally:
        draft.unlink(missing_ok=True)
