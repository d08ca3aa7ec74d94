"""One piece of features in the making: a file of rows, written as they come, and what says whose they are.

Shape suffixes: R rows that come together, N rows of several items, D feature.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.errors import ArtifactError

Rows = npt.NDArray[np.float16]
Place = tuple[int, int]
"""Where the rows of an item begin, and how many they are; 0 where it failed."""


@dataclass(frozen=True)
class Encoded:
    """What became of an item."""

    rows_ND: Rows | None
    """None where it failed."""
    error: str | None = None
    """Why it failed; of an item with rows, what is amiss with it."""


class Writing:
    """The rows of a piece, written as they come, so that long videos take no memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.n_rows, self.dim = path, 0, 0
        self._handle = path.open("wb")

    def add(self, rows_ND: Rows | None) -> Place:
        """Writes rows behind the others; None: of an item that has none."""
        if rows_ND is None:
            return 0, 0
        self._handle.write(np.ascontiguousarray(rows_ND, dtype="<f2").data)
        self.n_rows += len(rows_ND)
        self.dim = rows_ND.shape[1]
        return self.n_rows - len(rows_ND), len(rows_ND)

    def close(self) -> None:
        """Has all rows on disk."""
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._handle.close()

    def discard(self) -> None:
        """Removes a piece that is not wanted."""
        self._handle.close()
        self.path.unlink(missing_ok=True)


def read(path: Path) -> list[Encoded]:
    """The items of a piece; their rows are mapped, so that they take no memory of their own."""
    rows, shape = path.with_name(str(fact(path, "rows"))), tuple(fact(path, "shape").tolist())
    if not rows.is_file() or rows.stat().st_size != 2 * shape[0] * shape[1]:
        raise damaged(path, f"{rows.name} has not {shape[0]} rows of {shape[1]}")
    block_ND = np.memmap(rows, dtype="<f2", mode="r", shape=shape) if shape[0] else np.zeros((0, 0), dtype=np.float16)
    errors = json.loads(fact(path, "errors").tobytes())
    return [
        Encoded(block_ND[at : at + count] if count else None, error)
        for (at, count), error in zip(fact(path, "places").tolist(), errors, strict=True)
    ]


def facts(path: Path) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    """The number of rows of each item of a piece, and its error."""
    return fact(path, "places")[:, 1].astype(np.int32), json.loads(fact(path, "errors").tobytes())


def fact(path: Path, name: str) -> npt.NDArray[Any]:
    """One of the arrays that say what a piece is.

    Raises:
        ArtifactError: If it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            array: npt.NDArray[Any] = found[name]
            return array
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise damaged(path, str(error)) from None


def damaged(path: Path, why: str) -> ArtifactError:
    """The error of a piece that cannot be used."""
    return ArtifactError(f"{path} is damaged: {why}", hint=f"remove {path}; the same command goes on")
