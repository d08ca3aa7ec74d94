"""Parquet tables with a fixed schema, read into and written from pandas."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccr_cli.artifacts.base import Artifact, atomic_open, refuse_special
from ccr_cli.errors import ArtifactError

MOST_ROWS = 4
"""Most rows per byte of a file; every row has an id, which takes more space even when compressed."""
MOST_BYTES, EXPANSION = 256 << 20, 200
"""Rows may take `MOST_BYTES` in memory, or `EXPANSION` times the size of the file; ids compress far less."""
KEPT_BYTES = 128 << 20
"""Most memory in bytes for the tables that `artifact_table` keeps."""


_tables: OrderedDict[tuple[str, ...], tuple[pd.DataFrame, int]] = OrderedDict()
"""The tables read last and their size in bytes, by sha256 of the file and columns."""
_lock = threading.Lock()


def table_schema(columns: str) -> pa.Schema:
    """Returns the schema of comma-separated columns, such as `item_id string, label int32?`; `?` allows null."""
    pairs = [column.split() for column in columns.split(", ")]
    return pa.schema([pa.field(n, pa.type_for_alias(type_.rstrip("?")), type_.endswith("?")) for n, type_ in pairs])


def write_table(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Writes the schema's columns of a frame atomically, in the schema's order; other columns are left out."""
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    with atomic_open(path) as handle:
        pq.write_table(table.replace_schema_metadata(None), handle, compression="zstd")


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file; ArtifactError if it is damaged, also while it is read."""
    try:
        with pq.ParquetFile(refuse_special(path)) as file:
            if file.metadata.num_rows > MOST_ROWS * max(1, path.stat().st_size):
                rows = f"{file.metadata.num_rows:,} rows"
                raise ArtifactError(f"{path} claims to have {rows}, more than its bytes can hold")
            yield file
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    except PermissionError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"{path} is not a readable Parquet file: {str(error)[:200]}"
        raise ArtifactError(problem, hint="fetch it or write it again") from None


def parquet_schema(path: Path) -> pa.Schema:
    """Returns the columns of a Parquet file with types; ArtifactError if it is damaged or claims too many rows."""
    with _opened(path) as file:
        return file.schema_arrow


def parquet_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a Parquet file in validated batches.

    Raises:
        ArtifactError: If it is damaged, or its rows would take far more memory than its bytes can hold.
    """
    with _opened(path) as file:
        yield from _batches(path, file, columns)


def _batches(path: Path, file: pq.ParquetFile, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    left = max(MOST_BYTES, EXPANSION * path.stat().st_size)
    for batch in file.iter_batches(batch_size=1024, columns=columns):
        batch.validate(full=True)
        left -= batch.nbytes
        if left < 0:
            raise ArtifactError(f"{path} repeats more than its bytes can hold")
        yield batch


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads a table and checks its columns and values.

    Strings come back as Python objects with None for null, integers as numpy integers.

    Raises:
        ArtifactError: If it is not a Parquet file, its columns differ from the schema, or its values do not fit it: a
            null where none may be, text that is not UTF-8, a negative number that counts something, or a key twice
            (the first column if it is an id; a `slot_id` counts with its language and translation).
    """
    names = schema.names if columns is None else columns
    with _opened(path) as file:
        found = file.schema_arrow
        if any(name not in found.names or found.field(name).type != schema.field(name).type for name in names):
            raise ArtifactError(f"{path} has the columns {_types(found)}, expected {_types(schema)}")
        if columns is None and found.names != names:
            raise ArtifactError(f"{path} has the columns {found.names}, expected {names}")
        batches = _batches(path, file, names)
        table = pa.Table.from_batches(batches, pa.schema([found.field(name) for name in names]))
    for name in names:
        values, field = table.column(name), schema.field(name)
        if not field.nullable and values.null_count:
            raise ArtifactError(f"{path}: {name} has no value in {values.null_count} rows, expected one in each")
        if pa.types.is_integer(field.type) and name != "label" and (pc.min(values).as_py() or 0) < 0:
            raise ArtifactError(f"{path}: {name} is {pc.min(values).as_py()}, expected 0 or more")
    columns_of = {}
    for name in names:  # freed one by one
        columns_of[name], table = _objects(table.column(name)), table.drop_columns(name)
    frame = pd.DataFrame(columns_of, copy=False)
    key = (
        [name for name in ("slot_id", "lang", "alternative") if name in schema.names]
        if "slot_id" in names
        else schema.names[:1]
    )
    if key[0].endswith("id") and set(key) <= set(names) and (again := frame.duplicated(key)).any():
        raise ArtifactError(f"{path}: {key[0]} {frame[key[0]][again].iloc[0]!r} is there twice")
    return frame


def _objects(column: pa.ChunkedArray) -> "pd.Series[Any]":
    """Returns a column for pandas; equal texts are one object, since most columns have few different ones."""
    if column.type != pa.string():
        return pd.Series(column.to_pandas()).copy()  # Arrow's own memory cannot be written to
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()  # one may exceed 2 GiB
    texts = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return pd.Series(texts[encoded.indices.fill_null(-1).to_numpy()], dtype=object)


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def artifact_table(artifact: Artifact, name: str, schema: pa.Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads a table of an artifact (all its columns, or some), from memory if it was read recently.

    The caller may change the frame: pandas then copies what changes.

    Raises:
        ArtifactError: If the file is missing, was changed, or has other columns.
    """
    path, sha256 = artifact.file(name), artifact.entry(name).sha256
    names = columns or schema.names
    with _lock:
        for key in ((sha256, *schema.names), (sha256, *names)):
            if key in _tables:
                _tables.move_to_end(key)
                return _tables[key][0][names].copy(deep=False)
    frame = read_table(path, schema, columns)
    size = int(frame.memory_usage(deep=True).sum())
    with _lock:
        if size <= KEPT_BYTES:
            _tables[key] = frame, size
        while sum(size for _, size in _tables.values()) > KEPT_BYTES:
            _tables.popitem(last=False)
    return frame.copy(deep=False)
