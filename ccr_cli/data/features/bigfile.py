"""Reading BigFile, the folder format of features in NRCCR, HGR and Dual Encoding.

`feature.bin` is float32, row by row; `shape.txt` holds `N D`; `id.txt` the N ids of the rows, separated by white
space. If `video2frames.txt` exists, rows are frames: it holds a Python dict from each video to the list of its frames'
ids, in their order. It is read as a literal, never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features.base import FeatureTable, read_text
from ccr_cli.errors import ArtifactError

BIN, FRAMES = "feature.bin", "video2frames.txt"
FILES = (BIN, "id.txt", "shape.txt", FRAMES)


@contextmanager
def opened(path: Path) -> Iterator[FeatureTable]:
    """Opens a folder; `feature.bin` is mapped into memory.

    Raises:
        ArtifactError: If its files do not fit together.
    """
    count, dim = _shape(path)
    ids = read_text(path / "id.txt").split()
    if len(ids) != count:
        raise ArtifactError(f"{path / 'id.txt'} has {len(ids)} ids, but shape.txt has {count} rows")
    size, expected = (path / BIN).stat().st_size, count * dim * 4
    if size != expected:
        raise ArtifactError(f"{path / BIN} has {size} bytes; {count} x {dim} numbers of shape.txt are {expected}")
    row_ND = np.asarray(np.memmap(path / BIN, dtype="<f4", mode="r", shape=(count, dim)))
    if not (path / FRAMES).is_file():
        yield FeatureTable(path, ids, lambda i: row_ND[i : i + 1])
        return
    videos, frames = _frames(path, ids)

    def rows(i: int) -> npt.NDArray[Any]:
        at_T = frames[i]
        together = len(at_T) and (np.diff(at_T) == 1).all()
        return row_ND[at_T[0] : at_T[0] + len(at_T)] if together else row_ND[at_T]

    yield FeatureTable(path, videos, rows)


def _shape(path: Path) -> tuple[int, int]:
    words = read_text(path / "shape.txt").split()
    if len(words) != 2 or not all(re.fullmatch("[1-9][0-9]{0,14}", word) for word in words):
        raise ArtifactError(f"{path / 'shape.txt'}: expected two numbers above 0, `N D`")
    return int(words[0]), int(words[1])


def _frames(path: Path, ids: Sequence[str]) -> tuple[list[str], list[npt.NDArray[np.int64]]]:
    """The videos and their rows."""
    where = {name: i for i, name in enumerate(ids)}
    if len(where) != len(ids):
        twice = next(name for i, name in enumerate(ids) if where[name] != i)
        raise ArtifactError(f"the id {twice!r} is twice in {path / 'id.txt'}")
    videos, frames = [], []
    for video, names in read_dict(path / FRAMES):
        if not isinstance(video, str) or not isinstance(names, list | tuple):
            raise ArtifactError(f"{path / FRAMES}: expected lists of frames by video, found {video!r}")
        absent = next((name for name in names if not isinstance(name, str) or name not in where), None)
        if absent is not None:
            raise ArtifactError(f"{path / FRAMES}: the video {video!r} has the frame {absent!r}, which id.txt lacks")
        videos.append(video)
        frames.append(np.array([where[name] for name in names], dtype=np.int64))
    return videos, frames


def read_dict(path: Path) -> list[tuple[Any, Any]]:
    """Reads a file with a literal Python dict as pairs, so that a repeated key is noticed.

    Raises:
        ArtifactError: If it holds anything else.
    """
    text = read_text(path)
    if '"' not in text and "\\" not in text:  # only single quotes: almost JSON, which is read 30 times as fast
        try:
            pairs = json.loads(text.replace("'", '"'), object_pairs_hook=list)
            if text.lstrip().startswith("{"):
                return list(pairs)
        except (ValueError, RecursionError):
            pass
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Dict) or None in tree.keys:
            raise ValueError("it is no dict")
        keys = [ast.literal_eval(key) for key in tree.keys if key is not None]
        return [(key, ast.literal_eval(value)) for key, value in zip(keys, tree.values, strict=True)]
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:  # the last: nested too deeply
        raise ArtifactError(f"{path} is not the literal of a Python dict: {error or 'too much of it'}") from None
