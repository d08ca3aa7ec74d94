"""Parquet tables with a fixed schema, read into and written from pandas."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts.base import Artifact, atomic_open
from ccr_cli.errors import ArtifactError

KEPT_BYTES = 128 << 20
"""How much memory the tables may take that `artifact_table` keeps."""


_tables: OrderedDict[tuple[str, ...], tuple[pd.DataFrame, int]] = OrderedDict()
"""The tables read last and their bytes, by their file's sha256 and their columns."""
_lock = threading.Lock()


def table_schema(columns: str) -> pa.Schema:
    """The schema of `name type` pairs with commas between, such as `item_id string, label int32?`; `?` allows null."""
    pairs = [column.split() for column in columns.split(", ")]
    return pa.schema([pa.field(n, pa.type_for_alias(type_.rstrip("?")), type_.endswith("?")) for n, type_ in pairs])


def write_table(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Writes a frame with exactly the schema's columns, in its order, atomically; its other columns are left out."""
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    with atomic_open(path) as handle:
        pq.write_table(table.replace_schema_metadata(None), handle, compression="zstd")


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads a table and checks its columns.

    Strings come back as Python objects with None for null, integers as numpy integers.

    Raises:
        ArtifactError: If it is not a Parquet file or its columns differ from the schema.
    """
    try:
        table = pq.read_table(path, columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{path} is not a readable Parquet file: {error}") from None
    expected = schema if columns is None else pa.schema([schema.field(c) for c in columns])
    if table.schema.remove_metadata() != expected:
        raise ArtifactError(f"{path} has the columns {table.schema.names}, expected {expected.names}")
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.string(): pd.StringDtype("python")}.get)
    for name in expected.names:
        if expected.field(name).type == pa.string():
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    return frame


def artifact_table(artifact: Artifact, name: str, schema: pa.Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads a table of an artifact (all its columns, or some); the same table is read once while there is room for it.

    Returns a frame of its own: pandas copies what the caller changes in it.

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
