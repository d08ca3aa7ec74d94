"""Parquet tables with a fixed schema each, read into and written from pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.errors import ArtifactError


def write_table(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Writes a frame with exactly the schema's columns, in its order, atomically.

    Args:
        path: Where to.
        frame: Must have every column of the schema; others are left out.
        schema: Column names and types; null only where the field is nullable.
    """
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    with atomic_open(path) as handle:
        pq.write_table(table.replace_schema_metadata(None), handle, compression="zstd")


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads a table and checks its columns.

    Strings come back as Python objects with None for null, integers as numpy integers.

    Raises:
        ArtifactError: If it is no Parquet file or its columns differ from the schema.
    """
    try:
        table = pq.read_table(path, columns=columns)
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{path} is not a readable Parquet file: {error}") from None
    wanted = schema if columns is None else pa.schema([schema.field(c) for c in columns])
    if table.schema.remove_metadata() != wanted:
        raise ArtifactError(f"{path} has the columns {table.schema.names}, expected {wanted.names}")
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.string(): pd.StringDtype("python")}.get)
    for name in wanted.names:
        if wanted.field(name).type == pa.string():
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    return frame


def append_jsonl(path: Path, line: str) -> None:
    """Appends one line to a log of JSON lines and flushes it."""
    with path.open("a", encoding="utf-8", newline="\n") as handle:
        handle.write(line + "\n")
