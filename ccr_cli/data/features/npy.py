"""Reading `.npy`: one array of all items with a list of their ids, or a folder with one file per item.

The array is (N, D), or (N, R, D) with R regions per item (SCAN's `*_ims.npy`: R = 36, D = 2048). Some collections with
five captions per image publish arrays with one row per caption, so each image occurs five times in a row, or a list of
ids with one line per caption. If the list repeats every id equally often, one row of each is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features.base import FeatureTable, as_rows, by_number
from ccr_cli.data.formats.text_files import read_ids
from ccr_cli.data.npy import mapped
from ccr_cli.errors import ArtifactError


@contextmanager
def opened(path: Path, ids: Path) -> Iterator[FeatureTable]:
    """Memory-maps one array.

    Args:
        path: The array.
        ids: The list of ids, one per line, in the order of the rows.

    Raises:
        ArtifactError: If the file is damaged or pickled, or the list does not fit.
    """
    values, names = mapped(path), read_ids(ids, latin1=True)
    if values.ndim not in (2, 3):
        raise ArtifactError(f"{path} has the shape {values.shape}; expected (N, D) or (N, R, D)")
    if values.dtype.kind not in "fiu":
        raise ArtifactError(f"{path} holds {values.dtype}, not numbers")
    if values.ndim == 2:
        values = values[:, None]
    yield _table(path, ids, values, names)


def _table(path: Path, ids: Path, values: npt.NDArray[Any], names: list[str]) -> FeatureTable:
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    times = len(names) // max(1, len(starts))
    if starts != list(range(0, len(names), times or 1)):
        starts, times = list(range(len(names))), 1
    if len(values) == len(starts):
        return by_number([names[i] for i in starts], values, path)
    if len(values) != len(names):
        raise ArtifactError(f"{path} has {len(values)} rows, but {ids} has {len(names)} ids")

    def first(i: int) -> npt.NDArray[Any]:
        same: npt.NDArray[Any] = values[i * times : (i + 1) * times]
        if len({row.tobytes() for row in same}) > 1:
            raise ArtifactError(f"{ids} has {names[i * times]!r} {times} times, but {path} has different rows there")
        return np.asarray(same[0])

    return FeatureTable(path, [names[i] for i in starts], first)


@contextmanager
def opened_folder(path: Path) -> Iterator[FeatureTable]:
    """Opens a folder of arrays (T, D), (1, T, D) or (D,), named by item: `ID.npy`."""
    files = files_of(path)
    yield FeatureTable(path, [file.stem for file in files], lambda i: as_rows(mapped(files[i]), str(files[i])))


def files_of(path: Path) -> list[Path]:
    """Returns the arrays of a folder, sorted by name."""
    with os.scandir(path) as entries:
        names = [e.name for e in entries if e.name.endswith(".npy") and not e.name.startswith(".") and e.is_file()]
    return [path / name for name in sorted(names, key=os.fsencode)]
