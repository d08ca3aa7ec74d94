"""Image and text features with categories, in MATLAB or HDF5 files.

`read_labelled` reads the layouts of FUME's five data sets: matrices with one row per item under their own names, in
HDF5 (NUS-WIDE-10K) or MATLAB files (Pascal Sentence, Wikipedia, INRIA-Websearch), or in a cell array with one cell per
kind of media (XMediaNet). `read_svcl` reads the struct in which SVCL's Wikipedia collection circulates.

scipy and h5py read the files; nothing is unpickled or run. Shape suffixes: V items, D image feature, E text feature,
C categories.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ccr_cli.data.features import HDF5, opened_hdf5
from ccr_cli.errors import ArtifactError
from ccr_cli.trial import read_matlab

_F = TypeVar("_F", bound=np.floating[Any])
_KEY = re.compile(r"([^\[\]]+)(?:\[([0-9]{1,3})\])?")
_PARTS = ("image", "text", "label")
_LAYOUT = "expected: a struct `data` with X1, X2, Y and split.ind_train, split.ind_test (docs/data.md)"


@dataclass(frozen=True)
class LabelledItems:
    """Items with an image feature, a text feature and one category each."""

    split_V: list[str]
    visual_VD: npt.NDArray[np.float32]
    text_VE: npt.NDArray[np.float32]
    label_V: npt.NDArray[np.int64]
    """Category numbers, starting at 0."""


def read_labelled(path: Path, splits: Mapping[str, Mapping[str, Any]]) -> LabelledItems:
    """Reads the splits matrix by matrix; ArtifactError if a key is missing or the matrices do not fit together.

    Args:
        path: The file, `.mat` (up to version 7.2) or one of `HDF5`.
        splits: The keys of each split's matrices: `{"train": {"image": "tr_img", "text": "tr_txt", "label":
            "tr_img_lab"}}`. The key `train[0]` is the first cell of the MATLAB cell array `train`. `"rows": [0, 231]`
            takes rows 0 to 230 of all three matrices.

    Returns:
        The items of all splits, one split after the other. In the file, categories are one-hot (V, C), or whole
        numbers (V,), (V, 1) or (1, V) that start at 0 or 1: at 1 if the lowest number of all splits is 1.
    """
    parts: dict[str, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]] = {}
    notations: dict[str, str] = {}
    with _opened(path) as load:
        for split, keys in splits.items():
            where = f"{path}, split {split}"
            rows = keys.get("rows", (0, 1))
            fit = isinstance(rows, Sequence) and len(rows) == 2 and all(type(n) is int for n in rows)
            names = [value for key, value in keys.items() if key in _PARTS and isinstance(value, str)]
            if not fit or not 0 <= rows[0] < rows[1] or len(names) < 3 or not {*keys} <= {*_PARTS, "rows"}:
                expected = "keys of image, text and label are expected, and perhaps rows = [FIRST, END]"
                raise ArtifactError(f"{where}: {expected}; found {dict(keys)}")
            visual_VD, text_VE = (_matrix(path, keys[name], load(keys[name]), np.float32) for name in _PARTS[:2])
            label_V, notations[split] = _labels(path, keys["label"], load(keys["label"]))
            shapes = f"image {visual_VD.shape}, text {text_VE.shape}, label {label_V.shape}"
            if not len(visual_VD) == len(text_VE) == len(label_V):
                raise ArtifactError(f"{where}: expected one row per item in each of {shapes}")
            start, end = keys.get("rows", (0, len(label_V)))
            if end > len(label_V):
                raise ArtifactError(f"{where}: no rows {start} to {end} in {shapes}")
            parts[split] = visual_VD[start:end], text_VE[start:end], label_V[start:end]
    visual, text, label = zip(*parts.values(), strict=True)
    for what, values in (
        ("image features", [rows.shape[1] for rows in visual]),
        ("text features", [rows.shape[1] for rows in text]),
        ("categories", list(notations.values())),
    ):
        if len(set(values)) > 1:
            differing = ", ".join(f"{value} in {split}" for split, value in zip(parts, values, strict=True))
            raise ArtifactError(f"{path}: the {what} of the splits differ: {differing}")
    label_V = np.concatenate(label)
    first = 0 if "one-hot" in notations.values() else int(label_V.min())
    if first > 1:
        raise ArtifactError(f"{path}: the lowest category is {first}; they count from 0 or from 1")
    split_V = [split for split, part in parts.items() for _ in part[2]]
    return LabelledItems(split_V, np.concatenate(visual), np.concatenate(text), label_V - first)


def read_svcl(path: Path) -> LabelledItems:
    """Reads training and test items in SVCL's layout.

    The file has one struct `data` with `X1` (image features), `X2` (text features), `Y` (one-hot categories), each with
    one column per item, and `split.ind_train`, `split.ind_test` (item numbers from 1).
    """
    data = read_matlab(path, squeezed=True).get("data")
    visual, text, label = (_matrix(path, name, _field(path, data, name), np.float32) for name in ("X1", "X2", "Y"))
    count = visual.shape[1]
    if text.shape[1] != count or label.shape[1] != count:
        shapes = f"X1 {visual.shape}, X2 {text.shape}, Y {label.shape}"
        raise ArtifactError(f"{path}: a column an item is expected in each of {shapes}", hint=_LAYOUT)
    if not _one_hot(label.T):
        raise ArtifactError(f"{path}: Y has items with no category or several, expected exactly one")
    split = _field(path, data, "split")
    split_V = np.full(count, "", dtype=object)
    used = 0
    for name in ("ind_train", "ind_test"):
        value = np.atleast_1d(_field(path, split, name))
        if not value.size:
            raise ArtifactError(f"{path}: {name} is empty", hint=_LAYOUT)
        whole = value.dtype.kind in "fiu" and (value == value.round()).all()
        if not whole or value.min() < 1 or value.max() > count:
            raise ArtifactError(f"{path}: {name} holds other numbers than those of items, 1 to {count}", hint=_LAYOUT)
        split_V[value.astype(np.int64).ravel() - 1] = name.removeprefix("ind_")
        used += value.size
    if used != count or not split_V.all():
        raise ArtifactError(f"{path}: ind_train and ind_test do not divide the {count} items")
    return LabelledItems(list(split_V), visual.T.copy(), text.T.copy(), label.argmax(axis=0).astype(np.int64))


def _field(path: Path, struct: Any, name: str) -> Any:
    if not isinstance(struct, dict) or name not in struct:
        raise ArtifactError(f"{path} has no {name}", hint=_LAYOUT)
    return struct[name]


def _matrix(path: Path, name: str, value: Any, dtype: type[_F]) -> npt.NDArray[_F]:
    """Returns a value as a matrix of finite numbers; ArtifactError if it is none."""
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "fiub" or not value.size:
        actual = f"{value.dtype} of the shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise ArtifactError(f"{path}: {name} is not a matrix of numbers but {actual}")
    with np.errstate(over="ignore"):
        matrix: npt.NDArray[_F] = value.astype(dtype, copy=False)
    if not np.isfinite(matrix).all():
        raise ArtifactError(f"{path}: {name} holds numbers that are not finite, or too large")
    return matrix


def _labels(path: Path, key: str, value: Any) -> tuple[npt.NDArray[np.int64], str]:
    """Returns the categories as numbers, and their notation in the file: `numbers` or `one-hot`."""
    label = _matrix(path, key, value, np.float64)
    if 1 in label.shape:
        if not (label == label.round()).all() or label.min() < 0 or label.max() >= 10**9:
            raise ArtifactError(f"{path}: {key} holds other numbers than categories from 0 or 1")
        return label.reshape(-1).astype(np.int64), "numbers"
    if not _one_hot(label):
        what = "neither one number per item nor one row per item with a single 1"
        raise ArtifactError(f"{path}: {key} of shape {label.shape} is {what}")
    return label.argmax(axis=1).astype(np.int64), "one-hot"


def _one_hot(label_VC: npt.NDArray[Any]) -> bool:
    return bool(((label_VC == 0) | (label_VC == 1)).all() and (label_VC.sum(axis=1) == 1).all())


@contextmanager
def _opened(path: Path) -> Iterator[Callable[[str], Any]]:
    """Yields a function that returns the value of a key; an HDF5 file is read key by key, a MATLAB file at once."""
    if not path.is_file():
        raise ArtifactError(f"there is no {path}")
    if path.suffix.lower() in HDF5:
        with opened_hdf5(path) as table:
            yield lambda key: table.rows(_place(path, table.ids, key))
        return
    content = read_matlab(path)

    def load(key: str) -> Any:
        found = _KEY.fullmatch(key)
        name = found[1] if found else key
        _place(path, list(content), name)
        value = content[name]
        if not found or found[2] is None:
            return value
        cells = value if isinstance(value, list) else []
        if int(found[2]) >= len(cells):
            raise ArtifactError(f"{path}: there is no {key}, {name} has {len(cells)} cells")
        return cells[int(found[2])]

    yield load


def _place(path: Path, names: Sequence[str], key: str) -> int:
    if key not in names:
        raise ArtifactError(f"{path} has no {key!r}; it has {', '.join(names[:20]) or 'nothing'}")
    return names.index(key)
