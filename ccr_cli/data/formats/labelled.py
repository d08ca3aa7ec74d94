"""Image and text features with categories, in MATLAB or HDF5 files.

The layouts of FUME's five data sets: matrices with one row per item under their own names, in HDF5 (NUS-WIDE-10K) or
MATLAB files (Pascal Sentence, Wikipedia, INRIA-Websearch), or in a cell array with one cell per kind of media
(XMediaNet). `data.labelled_mat` reads the struct in which SVCL's Wikipedia collection circulates.

Shape suffixes: V items, D image feature, E text feature, C categories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features import hdf5
from ccr_cli.data.labelled_mat import matrix, read_matlab
from ccr_cli.errors import ArtifactError

_KEY = re.compile(r"([^\[\]]+)(?:\[([0-9]{1,3})\])?")
ONE_HOT = "one-hot"
_PARTS = ("image", "text", "label")
_HDF5 = (".h5", ".hdf5", ".hdf", ".h5py")


@dataclass(frozen=True)
class LabelledSplit:
    """The items of one split."""

    visual_VD: npt.NDArray[np.float32]
    text_VE: npt.NDArray[np.float32]
    label_V: npt.NDArray[np.int64]
    """From 0."""


@dataclass(frozen=True)
class Labelled:
    """A file of labelled features."""

    splits: dict[str, LabelledSplit]
    numbering: str
    """How the file writes categories, for messages."""


def read_labelled(path: Path, splits: Mapping[str, Mapping[str, Any]]) -> Labelled:
    """Reads the splits, one matrix after the other.

    Args:
        path: The file, `.mat` (up to version 7.2) or `.h5`, `.hdf5`, `.hdf`, `.h5py`.
        splits: By split, the keys of its matrices: `{"train": {"image": "tr_img", "text": "tr_txt", "label":
            "tr_img_lab"}}`. A cell of a MATLAB cell array is `train[0]`, counted from 0. `"rows": [0, 231]` takes
            these rows of all three, the second number not included.

    Returns:
        The splits, float32. Categories are (V, C) one-hot, or (V,), (V, 1), (1, V) whole numbers, which count from 0
        or from 1: from 1 where the lowest number of all splits is 1.

    Raises:
        ArtifactError: If a key is not there, or the matrices do not fit together.
        UnavailableError: If h5py is needed and not installed.
    """
    parts: dict[str, LabelledSplit] = {}
    kinds: dict[str, str] = {}
    with _opened(path) as load:
        for split, keys in splits.items():
            _check_keys(path, split, keys)
            visual_VD, text_VE = (matrix(path, keys[name], load(keys[name]), np.float32) for name in _PARTS[:2])
            label_V, kinds[split] = _labels(path, keys["label"], load(keys["label"]))
            shapes = f"image {visual_VD.shape}, text {text_VE.shape}, label {label_V.shape}"
            if not len(visual_VD) == len(text_VE) == len(label_V):
                raise ArtifactError(f"{path}, split {split}: expected one row per item in each of {shapes}")
            start, end = keys.get("rows", (0, len(label_V)))
            if end > len(label_V):
                raise ArtifactError(f"{path}, split {split}: no rows {start} to {end} in {shapes}")
            parts[split] = LabelledSplit(visual_VD[start:end], text_VE[start:end], label_V[start:end])
    for what, values in (
        ("image features", [str(part.visual_VD.shape[1]) for part in parts.values()]),
        ("text features", [str(part.text_VE.shape[1]) for part in parts.values()]),
        ("categories", list(kinds.values())),
    ):
        if len(set(values)) > 1:
            found = ", ".join(f"{value} in {split}" for split, value in zip(parts, values, strict=True))
            raise ArtifactError(f"{path}: the {what} of the splits differ: {found}")
    first = min((int(part.label_V.min()) for part in parts.values()), default=0)
    if ONE_HOT in kinds.values():
        return Labelled(parts, ONE_HOT)
    if first > 1:
        raise ArtifactError(f"{path}: the lowest category is {first}; they count from 0 or from 1")
    shifted = {split: replace(part, label_V=part.label_V - first) for split, part in parts.items()}
    return Labelled(shifted, f"numbers from {first}")


def _check_keys(path: Path, split: str, keys: Mapping[str, Any]) -> None:
    rows = keys.get("rows", (0, 1))
    fit = isinstance(rows, Sequence) and len(rows) == 2 and all(type(n) is int for n in rows) and 0 <= rows[0] < rows[1]
    if not fit or not {*_PARTS} <= {*keys} <= {*_PARTS, "rows"}:
        raise ArtifactError(
            f"{path}, split {split}: keys of image, text and label are expected, and perhaps rows = [FIRST, END]; "
            f"found {dict(keys)}"
        )


def _labels(path: Path, key: str, value: Any) -> tuple[npt.NDArray[np.int64], str]:
    """Categories as numbers, and how they were written."""
    label = matrix(path, key, value, np.float64)
    if 1 in label.shape:
        if not (label == label.round()).all() or label.min() < 0 or label.max() >= 10**9:
            raise ArtifactError(f"{path}: {key} holds other numbers than categories from 0 or 1")
        return label.reshape(-1).astype(np.int64), "numbers"
    if not ((label == 0) | (label == 1)).all() or not (label.sum(axis=1) == 1).all():
        raise ArtifactError(
            f"{path}: {key} of shape {label.shape} is neither one number per item nor one row per item with a single 1"
        )
    return label.argmax(axis=1).astype(np.int64), ONE_HOT


@contextmanager
def _opened(path: Path) -> Iterator[Callable[[str], Any]]:
    """Gives a function that reads the value of a key; nothing else is kept in memory."""
    if not path.is_file():
        raise ArtifactError(f"there is no {path}")
    if path.suffix.lower() in _HDF5:
        with hdf5.opened(path) as table:
            yield lambda key: table.rows(_place(path, table.ids, key))
        return
    from scipy.io import loadmat, whosmat  # takes half a second, and only this format needs it

    names = [name for name, _, _ in read_matlab(path, whosmat)]

    def load(key: str) -> Any:
        found = _KEY.fullmatch(key)
        name = found[1] if found else key
        _place(path, names, name)
        value = read_matlab(path, lambda file: loadmat(file, variable_names=[name]))[name]
        if not found or found[2] is None:
            return value
        cells = list(value.reshape(-1)) if isinstance(value, np.ndarray) and value.dtype == object else []
        if int(found[2]) >= len(cells):
            raise ArtifactError(f"{path}: there is no {key}, {name} has {len(cells)} cells")
        return cells[int(found[2])]

    yield load


def _place(path: Path, names: Sequence[str], key: str) -> int:
    if key not in names:
        raise ArtifactError(f"{path} has no {key!r}; it has {', '.join(names[:20]) or 'nothing'}")
    return names.index(key)
