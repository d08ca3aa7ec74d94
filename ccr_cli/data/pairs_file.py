"""A file of training pairs with verdicts: a diagnosis exports it, a person corrects it, training reads it.

Parquet or CSV with a header. `ccr diagnose --export` writes `COLUMNS`; readers need only some of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.artifacts.parquet import table_schema
from ccr_cli.errors import UsageError

COLUMNS = table_schema(
    "slot_id string, source_caption_id string, item_id string, lang string, source_text string, translation string, "
    "place int32, verdict string, p_vs float32, p_clean float32, p_st float32"
)
SUFFIXES = (".parquet", ".csv")
VERDICTS = ("clean", "noisy")
_RUN = re.compile(r"'*(\s*[=+\-@]|[\t\r\n])")
"""Beginning of a cell that a spreadsheet runs as a formula; a leading apostrophe prevents that."""


@dataclass(frozen=True)
class PairsFile:
    """The content of a file of pairs."""

    path: Path
    frame: pd.DataFrame
    """Columns as in the file: ids and texts are str, `p_*` float."""
    sha256: str

    def require(self, *columns: str) -> None:
        """Refuses a file without these columns.

        Raises:
            UsageError: If one is missing.
        """
        missing = [name for name in columns if name not in self.frame]
        if missing:
            raise UsageError(
                f"{self.path} has no column {missing[0]}", hint="ccr diagnose RUN --export FILE writes such a file"
            )

    def refuse_unknown(self, column: str, known: Collection[str], data: str) -> None:
        """Refuses a file of other captions.

        Args:
            column: A column of caption ids.
            known: The training captions of a data set.
            data: The data set's name.

        Raises:
            UsageError: If an id is unknown.
        """
        unknown = [name for name in self.frame[column] if name not in known]
        if unknown:
            more = f", nor are {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise UsageError(
                f"{self.path}: {unknown[0]!r} is no training caption of {data}{more}",
                hint="the file must contain pairs of this data set's training split only",
            )


def write(path: Path, pairs: pd.DataFrame) -> None:
    """Writes pairs atomically.

    Args:
        path: `.parquet` or `.csv`; its folder must exist.
        pairs: Table with `COLUMNS`.

    Raises:
        UsageError: If the suffix is another one, or the folder is missing.
    """
    check(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    frame = pairs[COLUMNS.names].sort_values("place")
    with atomic_open(path) as handle:
        if path.suffix == ".parquet":
            table = pa.Table.from_pandas(frame, schema=COLUMNS, preserve_index=False)
            pq.write_table(table.replace_schema_metadata(None), handle, compression="zstd")
            return
        out = io.StringIO(newline="")
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(frame.columns)
        lines.writerows([_escaped(cell) for cell in row] for row in frame.itertuples(index=False))
        handle.write(out.getvalue().encode())


def check(path: Path) -> None:
    """Refuses a file name that is neither `.parquet` nor `.csv`.

    Raises:
        UsageError: If it is neither.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name!r} is neither .parquet nor .csv")


def read(path: Path) -> PairsFile:
    """Reads a file of pairs.

    Raises:
        UsageError: If it is missing, not a file of pairs or empty, contains a pair twice, or has an invalid verdict or
            probability.
    """
    check(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        frame = _parquet(content) if path.suffix == ".parquet" else _csv(content)
    except (pa.ArrowException, csv.Error, ValueError) as error:
        raise UsageError(f"{path} is not a file of pairs: {error}") from None
    file = PairsFile(path, frame, hashlib.sha256(content).hexdigest())
    if not content or (len(frame.columns) and frame.empty):
        raise UsageError(f"{path} is empty")
    if not {"slot_id", "source_caption_id"} & set(frame.columns):
        hint = "ccr diagnose RUN --export pairs.csv writes such a file"
        raise UsageError(f"{path} is not a file of pairs: it has no column slot_id or source_caption_id", hint=hint)
    _refuse(file, "verdict", ~frame["verdict"].isin(VERDICTS) if "verdict" in frame else None, "clean or noisy")
    for name in ("p_vs", "p_clean", "p_st"):
        if name in frame:
            _refuse(file, name, ~frame[name].between(0, 1), "a probability")
    keys = [name for name in ("slot_id", "lang") if name in frame]
    if "slot_id" in keys:
        _refuse(file, "slot_id", frame.duplicated(keys), "unique")
    return file


def _refuse(file: PairsFile, name: str, wrong: pd.Series[bool] | None, what: str) -> None:
    if wrong is not None and wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise UsageError(f"{file.path}, row {row + 1}: {name} '{file.frame[name].iloc[row]}' is not {what}")


def _parquet(content: bytes) -> pd.DataFrame:
    table = pq.read_table(io.BytesIO(content))
    names = [name for name in table.column_names if name in COLUMNS.names]
    return _typed({name: table.column(name).to_pylist() for name in names})


def _csv(content: bytes) -> pd.DataFrame:
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    if not rows:
        return _typed({})
    short = next((number for number, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if short is not None:
        raise ValueError(f"line {short + 1} has {len(rows[short])} cells, the header {len(rows[0])}")
    columns = {name: [row[at] for row in rows[1:]] for at, name in enumerate(rows[0]) if name in COLUMNS.names}
    return _typed({name: [_unescaped(cell) for cell in cells] for name, cells in columns.items()})


def _typed(columns: dict[str, list[Any]]) -> pd.DataFrame:
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    for name in frame:
        number = pa.types.is_floating(COLUMNS.field(name).type)
        frame[name] = frame[name].astype(float) if number else frame[name].map(str).astype(object)
    return frame


def _escaped(cell: object) -> str:
    """A cell of a CSV file, escaped for spreadsheets."""
    return f"'{cell}" if isinstance(cell, str) and _RUN.match(cell) else str(cell)


def _unescaped(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _RUN.match(cell) else cell
