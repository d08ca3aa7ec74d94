"""Reads a MATLAB file of image features, text features and categories.

One struct `data` with `X1` (image features, a column an item), `X2` (text features), `Y` (categories, one-hot, a column
an item) and `split.ind_train`, `split.ind_test` (numbers from 1): the layout in which the Wikipedia collection of
SVCL circulates. scipy reads it; nothing is unpickled or run.

Shape suffixes: V items, D image feature, E text feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ccr_cli.errors import ArtifactError

_F = TypeVar("_F", bound=np.floating[Any])
_LAYOUT = "expected: a struct `data` with X1, X2, Y and split.ind_train, split.ind_test (docs/data.md)"


@dataclass(frozen=True)
class Paired:
    """Items with an image feature, a text feature and one category each."""

    visual_VD: npt.NDArray[np.float32]
    text_VE: npt.NDArray[np.float32]
    label_V: npt.NDArray[np.int64]
    train_V: npt.NDArray[np.bool_]
    """Which items are for training; the others are for testing."""


def read_matlab(path: Path, reader: Callable[[Path], Any]) -> Any:
    """Reads a file with a function of scipy.

    Raises:
        ArtifactError: If it cannot be read.
    """
    try:
        return reader(path)
    except NotImplementedError:
        raise ArtifactError(f"{path} has MATLAB's format 7.3 (HDF5)", hint="save it with -v7") from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can make the reader raise anything
        raise ArtifactError(f"{path} is not a readable MATLAB file: {error}") from None


def read_mat(path: Path) -> Paired:
    """Reads the file.

    Raises:
        ArtifactError: If it is not a MATLAB file of this layout, or its parts do not fit together.
    """
    from scipy.io import loadmat  # takes half a second, and only this command needs it

    content = read_matlab(path, lambda file: loadmat(file, variable_names=["data"], squeeze_me=True))
    data = content.get("data")
    visual, text, label = (matrix(path, name, _field(path, data, name), np.float32) for name in ("X1", "X2", "Y"))
    count = visual.shape[1]
    if text.shape[1] != count or label.shape[1] != count:
        shapes = f"X1 {visual.shape}, X2 {text.shape}, Y {label.shape}"
        raise ArtifactError(f"{path}: a column an item is expected in each of {shapes}", hint=_LAYOUT)
    if not ((label == 0) | (label == 1)).all() or not (label.sum(axis=0) == 1).all():
        raise ArtifactError(f"{path}: Y has items with no category or several, expected exactly one")
    split = _field(path, data, "split")
    train, test = (_numbers(path, split, name, count) for name in ("ind_train", "ind_test"))
    used = np.concatenate([train, test])
    if len(np.unique(used)) != len(used) or len(used) != count:
        raise ArtifactError(f"{path}: ind_train and ind_test do not divide the {count} items")
    train_V = np.zeros(count, dtype=bool)
    train_V[train] = True
    return Paired(visual.T.copy(), text.T.copy(), label.argmax(axis=0).astype(np.int64), train_V)


def _field(path: Path, struct: Any, name: str) -> Any:
    names = getattr(getattr(struct, "dtype", None), "names", None) or ()
    if name not in names:
        raise ArtifactError(f"{path} has no {name}", hint=_LAYOUT)
    return struct[name][()]


def matrix(path: Path, name: str, value: Any, dtype: type[_F]) -> npt.NDArray[_F]:
    """Takes a dense or sparse matrix of finite numbers.

    Raises:
        ArtifactError: If it is not a matrix, or a number is too large for the type.
    """
    value = value.toarray() if hasattr(value, "toarray") else value
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "fiub" or not value.size:
        found = f"{value.dtype} of the shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise ArtifactError(f"{path}: {name} is not a matrix of numbers but {found}")
    with np.errstate(over="ignore"):
        value = value.astype(dtype, copy=False)
    if not np.isfinite(value).all():
        raise ArtifactError(f"{path}: {name} holds numbers that are not finite, or too large")
    made: npt.NDArray[_F] = value
    return made


def _numbers(path: Path, struct: Any, name: str, count: int) -> npt.NDArray[np.int64]:
    """Item numbers, from 0."""
    value = np.atleast_1d(_field(path, struct, name))
    if value.dtype.kind not in "fiu" or not (value == value.round()).all() or value.min() < 1 or value.max() > count:
        raise ArtifactError(f"{path}: {name} holds something else than item numbers from 1 to {count}", hint=_LAYOUT)
    return value.astype(np.int64).ravel() - 1
