"""Ready-made features: readers of their file formats, and the matching of entries with items.

- `.npz`, `.safetensors`: one array per item, under its id.
- `.parquet`: one row per item, with a column of ids (the first present of `caption_id`, `item_id`, `id` and `text`)
  and one of vectors, lists of numbers.
- `.h5`, `.hdf5`, `.hdf`, `.h5py`: one dataset per item (HGR's frames and regions); in groups, the id is the path.
- A folder of `.npy`: one array per item, `ID.npy`.
- BigFile (NRCCR, HGR, Dual Encoding), a folder: `feature.bin` is float32, row by row; `shape.txt` holds `N D`; `id.txt`
  the ids of the rows, separated by white space. If rows are frames, `video2frames.txt` holds a Python dict from each
  video to the list of its frames' ids, in their order.
- `.npy` with a list of ids (by default `NAME.txt` for `NAME.npy`): one array (N, D), or (N, R, D) with R regions per
  item (SCAN's `*_ims.npy`).
- `.mat` with a list of ids: one matrix with a column or a row per item (Karpathy's `vgg_feats.mat` has columns).

Arrays of an item are (T, D), (1, T, D) or (D,). Nothing is unpickled or run.

Shape suffixes: N rows of all items, T rows of an item, D feature.
"""

import ast
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import SafetensorError, safe_open

from ccr_cli.artifacts.arrays import PICKLED, UNPICKLE, mapped
from ccr_cli.artifacts.base import refuse_special
from ccr_cli.artifacts.features import STORED
from ccr_cli.artifacts.parquet import parquet_batches, parquet_schema
from ccr_cli.data.formats.base import stem
from ccr_cli.data.formats.text_files import read_ids
from ccr_cli.errors import ArtifactError, UsageError, no_file, require_packages
from ccr_cli.trial import read_matlab, try_reading

BIN, FRAMES = "feature.bin", "video2frames.txt"
BIGFILE = (BIN, "id.txt", "shape.txt", FRAMES)
HDF5 = (".h5", ".hdf5", ".hdf", ".h5py")
LISTED = (".npy", ".mat")
"""Formats that hold no ids."""
KEYED = (".npz", ".safetensors", ".parquet", *HDF5)
"""Formats of one file that hold ids."""
ID_COLUMNS = ("caption_id", "item_id", "id", "text")
"""Columns of a Parquet file that can hold the ids; the first one present is used."""
LARGEST, SMALLEST = float(np.finfo(STORED).max), float(np.finfo(STORED).smallest_subnormal)
LARGEST_ITEM, MOST_UNPACKED = 1 << 30, 200
"""The array of an item may have `LARGEST_ITEM` bytes, or `MOST_UNPACKED` times its compressed size."""
Place = tuple[int, int]
"""Number of a table, and of an entry in it."""


@dataclass(frozen=True)
class FeatureTable:
    """Features by id. Only the ids are in memory; rows are read on demand."""

    path: Path
    ids: Sequence[str]
    """In the order of the file."""
    rows: Callable[[int], npt.NDArray[Any]]
    """Reads the rows (T, D) of an entry by its number, in their stored precision."""


def join(items: Sequence[str], tables: Sequence[FeatureTable]) -> tuple[list[Place | None], list[str]]:
    """Matches items and entries by exact id, else by both without a media file's suffix; ArtifactError if ambiguous.

    Returns:
        The place of every item, in order, None if it has none; and the ids of entries that match no item.
    """
    where: dict[str, Place] = {}
    for t, table in enumerate(tables):
        for i, name in enumerate(table.ids):
            if name in where:
                other = tables[where[name][0]].path
                both = f"twice in {table.path}" if other == table.path else f"both in {other} and in {table.path}"
                raise ArtifactError(f"the id {name!r} is {both}")
            where[name] = (t, i)
    matches = {item: item for item in items if item in where}
    bare: dict[str, list[str]] = {}
    for name in where:
        if name not in matches:
            bare.setdefault(stem(name), []).append(name)
    owner: dict[str, str] = {}
    for item in items:
        names = [] if item in matches else bare.get(stem(item), [])
        if len(names) > 1:
            raise ArtifactError(f"both {names[0]!r} and {names[1]!r} could be the features of the item {item!r}")
        for name in names:
            if name in owner:
                raise ArtifactError(f"{name!r} could be the features of the items {owner[name]!r} and {item!r}")
            owner[name], matches[item] = item, name
    used = set(matches.values())
    places = [where[matches[item]] if item in matches else None for item in items]
    return places, [name for name in where if name not in used]


def with_lists(sources: Sequence[Path], ids: Sequence[Path]) -> list[tuple[Path, Path | None]]:
    """Pairs each source with its list of ids in order, None if it holds ids; UsageError on too many or few lists.

    If no list is given, that of `NAME.npy` or `NAME.mat` is `NAME.txt`.
    """
    if lacking := next((path for path in ids if not path.exists()), None):
        raise no_file(lacking, "--ids")
    bare = []
    for source in sources:
        suffix = source.suffix.lower()
        if source.is_dir():
            if not content(source):
                raise ArtifactError(f"{source} holds neither {BIN} nor .npy files")
        elif not source.exists():
            raise no_file(source)
        elif source.name == BIN:
            problem = f"{source} is one file of a BigFile"
            raise ArtifactError(problem, hint=f"pass its folder: --from {shlex.quote(str(source.parent))}")
        elif suffix not in (*LISTED, *KEYED):
            known = ", ".join((*LISTED, *KEYED))
            raise ArtifactError(f"{source} has an unknown format; known: {known}, and folders of .npy or BigFile")
        elif suffix in LISTED:
            bare.append(source)
    if not ids and all(source.with_suffix(".txt").is_file() for source in bare):
        ids = [source.with_suffix(".txt") for source in bare]
    if len(ids) < len(bare):
        lacking = bare[len(ids)]
        hint = f"list them, one per line in its order, in {lacking.with_suffix('.txt').name}; or ccr extract --ids FILE"
        raise UsageError(f"{lacking} holds no ids, and ccr does not guess an order", hint=hint)
    if len(ids) > len(bare):
        raise UsageError(f"--ids {ids[len(bare)]} is for .npy and .mat; the other formats hold their own ids")
    lists = iter(ids)
    return [(source, next(lists) if source in bare else None) for source in sources]


def content(source: Path) -> list[Path]:
    """Returns the files of a source."""
    if not source.is_dir():
        return [source]
    if (source / BIN).is_file():
        return [source / name for name in BIGFILE if (source / name).is_file()]
    with os.scandir(source) as entries:
        names = [e.name for e in entries if e.name.endswith(".npy") and not e.name.startswith(".") and e.is_file()]
    return [source / name for name in sorted(names, key=os.fsencode)]


def opened(source: Path, ids: Path | None) -> AbstractContextManager[FeatureTable]:
    """Opens a source from `with_lists`; ArtifactError, also while rows are read, if it is damaged or pickled."""
    suffix = source.suffix.lower()
    if source.is_dir():
        return nullcontext(_bigfile(source) if (source / BIN).is_file() else _folder(source))
    streamed = {".npz": _npz, ".safetensors": _safetensors, **dict.fromkeys(HDF5, opened_hdf5)}
    if suffix in streamed:
        return streamed[suffix](source)
    if suffix == ".parquet":
        return nullcontext(_parquet(source))
    assert ids is not None
    return nullcontext(_npy(source, ids) if suffix == ".npy" else _mat(source, ids))


def _folder(path: Path) -> FeatureTable:
    files = content(path)
    return FeatureTable(path, [file.stem for file in files], lambda i: _rows(mapped(files[i]), str(files[i])))


def _npy(path: Path, ids: Path) -> FeatureTable:
    """Maps an array; if the list repeats every id equally often, once per caption, one row per id is used."""
    values, names = mapped(path), read_ids(ids, latin1=True)
    if values.ndim not in (2, 3):
        raise ArtifactError(f"{path} has the shape {values.shape}; expected (N, D) or (N, R, D)")
    if values.dtype.kind not in "fiu":
        raise ArtifactError(f"{path} holds {values.dtype}, not numbers")
    values = values[:, None] if values.ndim == 2 else values
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    times = len(names) // max(1, len(starts))
    if starts != list(range(0, len(names), times or 1)):
        starts, times = list(range(len(names))), 1
    first_names = [names[i] for i in starts]
    if len(values) == len(starts):
        return _by_number(path, first_names, values)
    if len(values) != len(names):
        raise ArtifactError(f"{path} has {len(values)} rows, but {ids} has {len(names)} ids")

    def first(i: int) -> npt.NDArray[Any]:
        same: npt.NDArray[Any] = values[i * times : (i + 1) * times]
        if len({row.tobytes() for row in same}) > 1:
            raise ArtifactError(f"{ids} has {names[i * times]!r} {times} times, but {path} has different rows there")
        return np.asarray(same[0])

    return FeatureTable(path, first_names, first)


def _mat(path: Path, ids: Path) -> FeatureTable:
    """Reads a whole matrix; the number of ids shows whether items are columns or rows, so a square one is refused."""
    names = read_ids(ids, latin1=True)
    matrices = {
        name: value
        for name, value in read_matlab(path).items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiuc"
        if value.ndim == 2 and min(value.shape) > 1 and len(names) in value.shape
    }
    if len(matrices) != 1:
        candidates = f"several: {', '.join(matrices)}" if matrices else "none"
        problem = f"{path}: expected one matrix with a column or a row for each of {len(names)} ids, found {candidates}"
        raise ArtifactError(problem)
    ((name, matrix),) = matrices.items()
    if matrix.shape[0] == matrix.shape[1]:
        problem = f"{path}: {name} is square, so items may be columns or rows"
        raise ArtifactError(problem, hint="save it as .npy with one row per item")
    return _by_number(path, names, matrix.T if matrix.shape[1] == len(names) else matrix)


@contextmanager
def _npz(path: Path) -> Iterator[FeatureTable]:
    with path.open("rb") as handle:
        try:
            archive = np.lib.npyio.NpzFile(handle, allow_pickle=False)
        except Exception as error:  # a damaged directory can make the reader raise anything
            raise ArtifactError(f"{path} is damaged or not .npz: {error}") from None
        ids, entries = list(archive.files), archive.zip.infolist() if archive.zip else []

        def rows(i: int) -> npt.NDArray[Any]:
            what = f"{ids[i]!r} in {path}"
            with _damage(what, Exception):
                entry = entries[i]
                if entry.file_size > max(LARGEST_ITEM, MOST_UNPACKED * entry.compress_size):
                    raise ArtifactError(f"{what} unpacks to {entry.file_size >> 30} GiB")
                value = archive[ids[i]]
            if not isinstance(value, np.ndarray):
                raise ArtifactError(f"{what} is not an array")
            return _rows(value, what)

        yield FeatureTable(path, ids, rows)


@contextmanager
def _safetensors(path: Path) -> Iterator[FeatureTable]:
    with _damage(str(path), SafetensorError, OSError):
        file = safe_open(path, framework="pt")
    with file as tensors:
        ids = list(tensors.keys())

        def rows(i: int) -> npt.NDArray[Any]:
            what = f"{ids[i]!r} in {path}"
            with _damage(what, SafetensorError, TypeError, RuntimeError):
                value = tensors.get_tensor(ids[i])
                return _rows((value.float() if value.is_floating_point() else value).numpy(), what)

        yield FeatureTable(path, ids, rows)


def _parquet(path: Path) -> FeatureTable:
    """Reads the columns of ids and vectors whole, and no other column."""
    schema = parquet_schema(path)
    key = next((name for name in ID_COLUMNS if name in schema.names), None)
    vectors = [field.name for field in schema if _is_list(field.type)]
    if key is None or len(vectors) != 1:
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        wanted = f"a column of ids ({', '.join(ID_COLUMNS)}) and one of vectors, lists of numbers"
        raise ArtifactError(f"{path} has the columns {columns}", hint=wanted)
    ids: list[str] = []
    parts = [np.empty((0, 0), np.float32)]
    for batch in parquet_batches(path, [key, vectors[0]]):
        column, names = batch.column(vectors[0]), batch.column(key).to_pylist()
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        flat = column.flatten()
        wrong = next((i for i, n in enumerate(lengths) if n != lengths[0] or not n or names[i] is None), None)
        if wrong is not None or flat.null_count or (len(parts) > 1 and parts[-1].shape[1] != lengths[0]):
            row = len(ids) + (wrong or 0)
            known = lengths[0] if len(parts) == 1 else parts[-1].shape[1]
            problem = f"{path}, row {row + 1} ({names[wrong or 0]!r}): a vector of {lengths[wrong or 0]} numbers"
            raise ArtifactError(f"{problem}; expected an id, and {known} numbers without gaps as in the first row")
        ids += map(str, names)
        parts.append(flat.to_numpy(zero_copy_only=False).reshape(len(names), -1))
    return _by_number(path, ids, np.concatenate(parts[1:]) if ids else parts[0])


def _is_list(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    return bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


@contextmanager
def opened_hdf5(path: Path) -> Iterator[FeatureTable]:
    """Opens an HDF5 file; every link to a dataset is an id, and data in other files is refused."""
    require_packages(f"reading {path.name}", "hdf5", "h5py")
    try_reading(path, read_hdf5)
    with _hdf5(path) as table:
        yield table


def read_hdf5(path: Path) -> None:
    """Reads every dataset of an HDF5 file, which may end the process if the file is malformed."""
    with _hdf5(path) as table:
        for number in range(len(table.ids)):
            try:
                table.rows(number)
            except ArtifactError as error:
                if isinstance(error.__context__, MemoryError):
                    raise error.__context__ from None


@contextmanager
def _hdf5(path: Path) -> Iterator[FeatureTable]:
    import h5py

    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise ArtifactError(f"{path} is damaged or not HDF5: {error}") from None
    broken = (KeyError, OSError, RuntimeError, SystemError, TypeError, ValueError)
    ids: list[str] = []

    def visit(name: str, link: object) -> None:
        try:
            if isinstance(link, h5py.ExternalLink) or isinstance(file[name], h5py.Dataset):
                ids.append(name)
        except broken:
            if isinstance(link, h5py.HardLink):  # a link of another kind may lead nowhere
                raise

    def rows(i: int) -> npt.NDArray[Any]:
        what = f"{ids[i]!r} in {path}"
        with _damage(what, *broken):
            outside = isinstance(file.get(ids[i], getlink=True), h5py.ExternalLink)
            value = None if outside else file[ids[i]]
            if value is None or value.file.filename != file.filename or value.external or value.is_virtual:
                raise ArtifactError(f"{what} refers to another file")
            return _rows(np.asarray(value[()]), what)

    with file:
        with _damage(str(path), *broken):
            file.visititems_links(visit)
        yield FeatureTable(path, ids, rows)


@contextmanager
def _damage(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Turns the errors of a library that reads a damaged file into an `ArtifactError`."""
    try:
        yield
    except ArtifactError:
        raise
    except MemoryError:
        raise ArtifactError(f"{what} claims to be larger than memory") from None
    except errors as error:
        if "allow_pickle" in str(error):
            raise ArtifactError(f"{what} {PICKLED}", hint=UNPICKLE) from None
        raise ArtifactError(f"{what} is damaged: {error}") from None


def _bigfile(path: Path) -> FeatureTable:
    words = _text(path / "shape.txt").split()
    if len(words) != 2 or not all(re.fullmatch("[1-9][0-9]{0,14}", word) for word in words):
        problem = f"{path / 'shape.txt'}: expected two numbers above 0, `N D`, found {' '.join(words)[:40]!r}"
        raise ArtifactError(problem)
    count, dim = map(int, words)
    ids = _text(path / "id.txt").split()
    if len(ids) != count:
        raise ArtifactError(f"{path / 'id.txt'} has {len(ids)} ids, but shape.txt has {count} rows")
    size, expected = (path / BIN).stat().st_size, count * dim * 4
    if size != expected:
        raise ArtifactError(f"{path / BIN} has {size} bytes; {count} x {dim} numbers of shape.txt are {expected}")
    row_ND = np.asarray(np.memmap(path / BIN, dtype="<f4", mode="r", shape=(count, dim)))
    if not (path / FRAMES).is_file():
        return FeatureTable(path, ids, lambda i: row_ND[i : i + 1])
    where = {name: i for i, name in enumerate(ids)}
    if len(where) != len(ids):
        twice = next(name for i, name in enumerate(ids) if where[name] != i)
        raise ArtifactError(f"the id {twice!r} is twice in {path / 'id.txt'}")
    videos: list[str] = []
    frames: list[npt.NDArray[np.int64]] = []
    for video, names in read_dict(path / FRAMES):
        if not isinstance(video, str) or not isinstance(names, list | tuple):
            raise ArtifactError(f"{path / FRAMES}: expected lists of frames by video, found {video!r}")
        absent = next((name for name in names if not isinstance(name, str) or name not in where), None)
        if absent is not None:
            raise ArtifactError(f"{path / FRAMES}: the video {video!r} has the frame {absent!r}, which id.txt lacks")
        videos.append(video)
        frames.append(np.array([where[name] for name in names], dtype=np.int64))

    def rows(i: int) -> npt.NDArray[Any]:
        at_T = frames[i]
        together = len(at_T) and (np.diff(at_T) == 1).all()
        return row_ND[at_T[0] : at_T[0] + len(at_T)] if together else row_ND[at_T]

    return FeatureTable(path, videos, rows)


def read_dict(path: Path) -> list[tuple[Any, Any]]:
    """Reads a file with a literal Python dict as pairs, so that a repeated key is noticed; never runs it."""
    text = _text(path)
    # Only single quotes: almost JSON. 26,000 videos of 32 frames take 0.2 s; `ast.literal_eval` takes 4.8 s and 0.8 GB.
    if '"' not in text and "\\" not in text:
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


def _text(path: Path) -> str:
    """Reads UTF-8, else Latin-1, which older collections use for ids."""
    try:
        raw = refuse_special(path).read_bytes()
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _by_number(path: Path, ids: Sequence[str], values: npt.NDArray[Any]) -> FeatureTable:
    return FeatureTable(path, ids, lambda i: _rows(np.asarray(values[i]), f"{ids[i]!r} in {path}"))


def _rows(value: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Returns an array (T, D), (1, T, D) or (D,) as rows (T, D)."""
    if value.dtype.kind not in "fiu":
        raise ArtifactError(f"{what} holds {value.dtype}, not numbers")
    rows = value[0] if value.ndim == 3 and len(value) == 1 else value[None] if value.ndim == 1 else value
    if rows.ndim != 2 or not rows.shape[1]:
        raise ArtifactError(f"{what} has the shape {value.shape}; expected (T, D), (1, T, D) or (D,)")
    return rows


def half_precision(item: str, rows_TD: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """Returns the rows of an item in half precision; ArtifactError if they do not fit.

    They do not if a value is not finite or too large, or if all values are so small that only zeros would be left.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        half_TD = np.ascontiguousarray(rows_TD, dtype=STORED)
    bits = half_TD.view("<u2") & 0x7FFF  # without the sign; numpy compares half precision itself ten times as slowly
    hint = "scale all features by one factor, or each row to unit length"
    if (top := bits.max(initial=0)) < 0x7C00:
        if top == 0 and rows_TD.any():
            most = float(np.abs(rows_TD).max())
            problem = f"{item!r} holds at most {most:g}, but half precision starts at {SMALLEST:.1g}"
            raise ArtifactError(f"{problem}: all would be zero", hint=hint)
        return half_TD
    bad = np.flatnonzero(~np.isfinite(rows_TD).all(axis=1))
    if len(bad):
        hint = "fix the features, or leave the item out: it is then recorded as missing"
        raise ArtifactError(f"row {bad[0] + 1} of {item!r} holds NaN or infinity", hint=hint)
    most = float(np.abs(rows_TD.astype(np.float64)).max())
    raise ArtifactError(f"{item!r} holds {most:g}, but half precision ends at {LARGEST:g}", hint=hint)
