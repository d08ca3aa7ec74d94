"""A file of training pairs with verdicts: a diagnosis exports it, a person corrects it, training reads it.

Parquet or CSV with a header. `ccr diagnose --export` writes `COLUMNS`; readers need only some of them. A table is read
as a spreadsheet saves it: as a workbook, or as CSV with any of the usual delimiters and encodings, decimal commas, and
without empty cells at the end of a row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.parquet import table_schema
from ccr_cli.console import say
from ccr_cli.data.formats.captions_csv import table_rows
from ccr_cli.data.formats.excel import sheet_rows
from ccr_cli.data.formats.layout import guessed_delimiter, guessed_encoding
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError, UsageError

COLUMNS = table_schema(
    "slot_id string, source_caption_id string, item_id string, lang string, source_text string, translation string, "
    "correction string, place int32, verdict string, p_vs float32, p_clean float32, p_st float32, "
    "unmatched_source string, unmatched_translation string"
)
"""The columns of `ccr diagnose --export`, in order; `correction` is empty until a person types a translation."""
_EMPTY = {"correction", "unmatched_source", "unmatched_translation"}
"""Columns that may be lacking, and are empty then."""
SUFFIXES = (".parquet", ".csv")
READ_SUFFIXES = (*SUFFIXES, ".tsv", ".txt", ".xlsx")
VERDICTS = ("clean", "noisy")
PROBABILITIES = ("p_vs", "p_clean", "p_st")
_RUN = re.compile(r"'*(\s*[=+\-@]|[\t\r\n])")
"""Beginning of a cell that a spreadsheet runs as a formula; a leading apostrophe prevents that."""
_HINT = "ccr diagnose RUN --export FILE writes such a file"


@dataclass(frozen=True)
class PairsFile:
    """The content of a file of pairs."""

    path: Path
    frame: pd.DataFrame
    """Columns as in the file: ids and texts are str, `p_*` float."""
    sha256: str
    encoding: str = ""
    """Of a text that is not UTF-8."""

    def require(self, *columns: str) -> None:
        """Refuses a file without these columns, and says if it was not read as UTF-8."""
        if self.encoding:
            say(f"{self.path} is not UTF-8: read as {self.encoding}; if letters are wrong, save it as CSV UTF-8")
        missing = [name for name in columns if name not in self.frame]
        if missing:
            raise UsageError(f"{self.path} has no column {missing[0]}", hint=_HINT)

    def refuse_others(self, data: Dataset, column: str, langs: Collection[str] = ()) -> None:
        """Refuses a file of other captions than a data set's training captions, or without pairs in some language.

        Raises:
            UsageError: If an id in the column is unknown, or the file has languages and lacks one of these.
        """
        train = set(items_of(data.items, "train")["item_id"])
        captions = data.captions[(data.captions["lang"] == data.source_lang) & data.captions["item_id"].isin(train)]
        known = set(captions["caption_id"])
        unknown = [name for name in self.frame[column] if name not in known]
        if unknown:
            more = f", nor are {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise UsageError(
                f"{self.path}: {unknown[0]!r} is no training caption of {data.name}{more}",
                hint="the file must contain pairs of this data set's training split only",
            )
        missing = sorted(set(langs) - self.langs) if self.langs else []
        if missing:
            raise UsageError(f"{self.path} has pairs in {' and '.join(sorted(self.langs))}, and none in {missing[0]}")

    @cached_property
    def correction(self) -> npt.NDArray[np.object_]:
        """The corrected translation of each row, "" without one."""
        return np.array(self.frame.get("correction", [""] * len(self.frame)), dtype=object)

    @cached_property
    def langs(self) -> set[str]:
        """The languages of the translations; empty if the file does not tell."""
        return set(self.frame["lang"]) if "lang" in self.frame else set()


def check(path: Path) -> None:
    """Refuses to write a file that has corrections already, or whose name does not end in one of `SUFFIXES`."""
    _check_suffix(path, SUFFIXES, "--export pairs.csv")
    try:
        corrected = np.count_nonzero(read(path).correction) if path.is_file() else 0
    except UsageError:  # whatever is there, it is no list of pairs
        return
    if corrected:
        raise UsageError(f"{path} has {corrected} corrections, which would be lost", hint="another file name")


def _check_suffix(path: Path, suffixes: Sequence[str], hint: str) -> None:
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path.name!r} does not end in {' or '.join(suffixes)}", hint=hint)


def write(path: Path, pairs: pd.DataFrame) -> None:
    """Writes a table with `COLUMNS` atomically; UsageError on another suffix than `SUFFIXES` or without the folder."""
    check(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    frame = pairs.assign(**dict.fromkeys(_EMPTY - {*pairs.columns}, ""))[COLUMNS.names].sort_values("place")
    with atomic_open(path) as handle:
        if path.suffix.lower() == ".parquet":
            table = pa.Table.from_pandas(frame, schema=COLUMNS, preserve_index=False)
            pq.write_table(table.replace_schema_metadata(None), handle, compression="zstd")
            return
        out = io.StringIO(newline="")
        lines = csv.writer(out, lineterminator="\r\n")  # both also in a text are then quoted
        lines.writerow(frame.columns)
        for row in frame.itertuples(index=False):
            lines.writerow([f"'{cell}" if isinstance(cell, str) and _RUN.match(cell) else str(cell) for cell in row])
        handle.write(out.getvalue().encode("utf-8-sig"))  # without the mark Excel takes it for cp1252


def read(path: Path) -> PairsFile:
    """Reads a file of pairs.

    Raises:
        UsageError: If it is missing, not a file of pairs or empty, contains a pair twice, or has an invalid verdict or
            probability.
    """
    _check_suffix(path, READ_SUFFIXES, "save the table as CSV UTF-8")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        suffix, encoding = path.suffix.lower(), ""
        if suffix == ".parquet":
            columns = _parquet(content)
        elif suffix == ".xlsx":
            columns = _table(sheet_rows(path))
        else:
            encoding = guessed_encoding(path, {}).get("encoding", "")
            how = {"encoding": encoding or "utf-8"}
            delimiter = guessed_delimiter(path, how).get("delimiter", "")
            columns = _table(table_rows(path, delimiter, True, how["encoding"]))
        frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
        for name in columns:
            frame[name] = frame[name].astype(float) if name in PROBABILITIES else frame[name].map(str).astype(object)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(f"{path} is not a file of pairs: {error}") from None
    except ArtifactError as error:
        raise UsageError(error.message, hint="save it as CSV UTF-8") from None
    if not content or (len(frame.columns) and frame.empty):
        raise UsageError(f"{path} is empty")
    if not {"slot_id", "source_caption_id"} & set(frame.columns):
        raise UsageError(f"{path} is not a file of pairs: it has no column slot_id or source_caption_id", hint=_HINT)
    wrong = {name: (~frame[name].between(0, 1), "a probability") for name in PROBABILITIES if name in frame}
    if "verdict" in frame:
        frame["verdict"] = frame["verdict"].str.strip().str.lower()
        wrong["verdict"] = ~frame["verdict"].isin(VERDICTS), "clean or noisy"
    if "slot_id" in frame:
        wrong["slot_id"] = frame.duplicated([name for name in ("slot_id", "lang") if name in frame]), "unique"
    for name, (rows, what) in wrong.items():
        if rows.any():
            row = int(rows.to_numpy().argmax())
            raise UsageError(f"{path}, row {row + 1}: {name} '{frame[name].iloc[row]}' is not {what}")
    return PairsFile(path, frame, hashlib.sha256(content).hexdigest(), encoding)


def _parquet(content: bytes) -> dict[str, list[Any]]:
    table = pq.read_table(io.BytesIO(content))
    columns = {name: table.column(name).to_pylist() for name in table.column_names if name in COLUMNS.names}
    if "correction" in columns:
        columns["correction"] = [one_line(cell if isinstance(cell, str) else "") for cell in columns["correction"]]
    return columns


def _table(rows: Iterator[tuple[int, list[str]]]) -> dict[str, list[str]]:
    """The known columns of a table, given the number and the cells of each row, the header first."""
    header = [name.strip() for name in next(rows, (1, []))[1]]
    table: list[list[str]] = []
    for number, row in rows:
        if any(row[len(header) :]):
            raise ValueError(f"line {number} has {len(row)} cells, the header {len(header)}")
        if any(row):
            table.append(row + [""] * (len(header) - len(row)))

    def plain(name: str, cell: str) -> str:
        if name in PROBABILITIES:
            return cell.replace(",", ".")
        text = cell[1:] if cell.startswith("'") and _RUN.match(cell) else cell
        return one_line(text) if name == "correction" else text

    return {name: [plain(name, row[at]) for row in table] for at, name in enumerate(header) if name in COLUMNS.names}


def one_line(text: str) -> str:
    """A text in Unicode NFC with its white space as single blanks, however programs end lines."""
    return " ".join(unicodedata.normalize("NFC", text).split())
