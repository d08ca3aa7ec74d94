"""A file of training pairs with verdicts: a diagnosis exports it, a person corrects it, training reads it.

Parquet or CSV with a header. `ccr diagnose --export` writes `COLUMNS`; readers need only some of them. A table is read
as a spreadsheet saves it: as a workbook, or as CSV with any of the usual delimiters and encodings, decimal commas,
percentages, names of columns in any case, and without empty cells at the end of a row. Other tools have formats of
their own (`pairs_tools`).

A file with the columns `REVIEW` is a log of verdicts (`data.review_file`), of which only the standing ones are read.
"""

import csv
import hashlib
import io
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import atomic_open, refuse_special
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.parquet import parquet_batches, parquet_schema, table_schema, write_table
from ccr_cli.console import HIDDEN, counted, say, warn
from ccr_cli.data.formats.excel import workbook
from ccr_cli.data.formats.layout import spreadsheet
from ccr_cli.data.pairs_tools import ISSUES, TOOLS, Pictures, annotated, label_issues
from ccr_cli.errors import ArtifactError, UsageError, no_file, require_packages

COLUMNS = table_schema(
    "slot_id string, source_caption_id string, item_id string, split string, lang string, alternative string, "
    "source_text string, translation string, correction string, place int32, verdict string, p_vs float32, "
    "p_clean float32, p_st float32, unmatched_source string, unmatched_translation string, flags string, "
    "witness string"
)
"""The columns of `ccr diagnose --export`, in order; `correction` is empty until a person types a translation. The file
of a run lacks `split`: all of its pairs are training pairs. `alternative`, the name of the translation, is there only
where a run has several of one language, and `witness`, its text, where one other translation was compared."""
KEY = ("slot_id", "lang", "alternative")
"""Columns that identify a pair, as far as a file has them."""
_IDS = {"slot_id", "source_caption_id", "item_id", "lang", "alternative"}
_EMPTY = {"correction", "unmatched_source", "unmatched_translation", "flags"}
"""Columns that the pairs to write may lack; they are then empty."""
REVIEW = ("reviewer", "time")
"""The last columns of a file of `ccr review`, to which each verdict adds a row."""
UNDONE = "undone"
"""Instead of a verdict: the reviewer takes back the last one on this pair."""
SENTENCES = ("source_text", "translation", "correction", "witness")
SUFFIXES = (".parquet", ".csv", ".xlsx")
READ_SUFFIXES = (*SUFFIXES, ".tsv", ".txt", ".json")
VERDICTS = CLEAN, NOISY, NOT_JUDGED = "clean", "noisy", "not judged"
PROBABILITIES = ("p_vs", "p_clean", "p_st")
_RUN = re.compile(r"'*(\s*[=+\-@]|[\t\r\n])")
"""Beginning of a cell that a spreadsheet runs as a formula; a leading apostrophe prevents that."""
_DAMAGED = re.compile(r"=.*|#(NAME\?|VALUE!|REF!|N/A|DIV/0!|NUM!|NULL!)", re.DOTALL)
"""A text that a spreadsheet took for a formula."""
WHERE_TO_CORRECT = "a correction belongs in the column correction, and the column translation stays as it was"
_HINT = "ccr diagnose RUN --export FILE writes such a file"
_LOG_HEADER = re.compile(rb"\xef\xbb\xbfslot_id,[a-z_,]*,reviewer,time\r\n")
_WHOLE = re.compile(rb",\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\r?\Z")
"""End of a complete row of a log."""


@dataclass(frozen=True)
class PairsFile:
    """The content of a file of pairs."""

    path: Path
    frame: pd.DataFrame
    """Columns as in the file: ids and texts are str, `p_*` float."""
    sha256: str
    encoding: str = ""
    """Encoding of a text file that is not UTF-8."""
    unread: tuple[str, ...] = ()
    """Columns that are not among `COLUMNS` and `REVIEW`."""
    reviewed: bool = False
    """Whether it is a log of reviewers' verdicts, which may cover only some of the pairs."""

    def require(self, *columns: str) -> None:
        """Refuses a file without these columns; says which columns are not read, and if it was not read as UTF-8."""
        if self.encoding:
            say(f"{self.path} is not UTF-8: read as {self.encoding}; if letters are wrong, save it as CSV UTF-8")
        if self.unread:
            say(f"{self.path}: columns that are not read: {', '.join(self.unread)}")
        missing = [name for name in columns if name not in self.frame]
        if missing:
            raise UsageError(f"{self.path} has no column {missing[0]}", hint=_HINT)

    def refuse_others(self, data: Dataset, column: str, langs: Collection[str] = ()) -> None:
        """Refuses a file that is not about a data set's source captions, or lacks pairs in one of the languages.

        A warning names captions that the data set does not have, such as deleted ones.

        Raises:
            UsageError: If all ids in the column are unknown, or the file has languages and lacks one of these.
        """
        known = set(data.captions_in(data.source_lang)["caption_id"])
        unknown = [name for name in self.frame[column] if name not in known]
        if unknown:
            more = f", nor are {len(unknown) - 1} more" if len(unknown) > 1 else ""
            problem = f"{self.path}: {unknown[0]!r} is no source caption of {data.name}{more}"
            if len(unknown) == len(self.frame):
                raise UsageError(problem, hint="the file must contain pairs of this data set")
            warn(f"{problem}: left out")
        missing = sorted(set(langs) - self.langs) if self.langs and not self.reviewed else []
        if missing:
            raise UsageError(f"{self.path} has pairs in {' and '.join(sorted(self.langs))}, and none in {missing[0]}")

    @cached_property
    def correction(self) -> npt.NDArray[np.object_]:
        """The corrected translation of each row, "" without one."""
        return np.array(self.frame.get("correction", [""] * len(self.frame)), dtype=object)

    @property
    def no_correction(self) -> str:
        """Why the file has no corrections: no such column, or only empty cells."""
        unread = f" (not read: {', '.join(map(repr, self.unread))})" if self.unread else ""
        return "no corrections" if "correction" in self.frame else f"no column 'correction'{unread}"

    @cached_property
    def langs(self) -> set[str]:
        """The languages of the translations; empty if the file does not tell."""
        return set(self.frame["lang"]) - {""} if "lang" in self.frame else set()


def check(path: Path) -> None:
    """Refuses to overwrite a file that may have a person's work, and names that do not end like an export."""
    _check_suffix(path, (*SUFFIXES, *TOOLS, ISSUES), "--export pairs.csv")
    if path.suffix.lower() == ".xlsx":
        require_packages(f"the Excel file {path}", "excel", "openpyxl")
    if not path.is_file() or not path.stat().st_size or path.name.lower().endswith((".fiftyone.json", ISSUES)):
        return  # nobody corrects these two
    try:
        table = read(path)
    except UsageError as error:
        raise UsageError(f"{path} would be written over: {error.message}", hint="another file name") from None
    corrected = int(np.count_nonzero(table.correction))
    if corrected or table.unread or table.reviewed:
        what = [
            *([counted(corrected, "correction")] if corrected else []),
            *(f"the column {name}" for name in table.unread),
            *(["verdicts of reviewers"] if table.reviewed else []),
        ]
        raise UsageError(f"{path} has {', '.join(what)}, which would be lost", hint="another file name")


def _check_suffix(path: Path, suffixes: Sequence[str], hint: str) -> None:
    if not path.name.lower().endswith(tuple(suffixes)):
        raise UsageError(f"{path.name!r} does not end in {' or '.join(suffixes)}", hint=hint)


def write(path: Path, pairs: pd.DataFrame, pictures: Pictures = lambda item: None, root: Path | None = None) -> None:
    """Writes pairs atomically, as a table with `COLUMNS` or for another tool with pictures below the media root.

    Raises:
        UsageError: If the suffix is unknown, the folder is missing, or a person's work would be lost.
    """
    check(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    schema = pa.schema([field for field in COLUMNS if field.name in pairs or field.name in _EMPTY])
    frame = pairs.assign(**dict.fromkeys(_EMPTY - {*pairs.columns}, ""))[schema.names].sort_values("place")
    for field in filter(lambda field: field.type == pa.string(), schema):
        frame[field.name] = frame[field.name].map(_visible, na_action="ignore")
    tool = next((tool for end, tool in TOOLS.items() if path.name.lower().endswith(end)), None)
    if path.suffix.lower() == ".parquet":
        write_table(path, frame, schema)
        return
    with atomic_open(path) as handle:
        if tool:
            handle.write(tool(frame, pictures, root))
            return
        frame = label_issues(frame) if path.name.lower().endswith(ISSUES) else frame
        rows = [list(frame.columns), *(list(map(safe_cell, row)) for row in frame.itertuples(index=False))]
        if path.suffix.lower() == ".xlsx":
            handle.write(workbook(rows, SENTENCES))
            return
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator="\r\n").writerows(rows)  # so a text with either of these is quoted
        handle.write(out.getvalue().encode("utf-8-sig"))  # without a BOM, Excel reads it as cp1252


def safe_cell(value: object) -> object:
    """Returns a value as a cell that no spreadsheet runs as a formula."""
    if not isinstance(value, str):
        return value
    return f"'{value}" if _RUN.match(value) else value


def read(path: Path) -> PairsFile:
    """Reads a file of pairs.

    Raises:
        UsageError: If it is missing, not a file of pairs or empty, contains a pair twice, or has an invalid verdict or
            probability.
    """
    _check_suffix(path, READ_SUFFIXES, "save the table as CSV UTF-8")
    try:
        content = refuse_special(path).read_bytes()
    except FileNotFoundError:
        raise no_file(path) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        suffix, encoding = path.suffix.lower(), ""
        if suffix == ".parquet":
            rows = _parquet(path)
        elif suffix == ".json":
            rows = annotated(content)
        elif torn := torn_row(content):
            say(f"{path}: the last row is incomplete and is left out: {torn.decode(errors='replace')!r}")
            text = content.removesuffix(torn).decode("utf-8-sig")
            rows = enumerate(csv.reader(io.StringIO(text, newline="")), 1)
        else:
            encoding, rows = spreadsheet(path)
        columns, unread, lines = _table(rows)
    except ValueError as error:
        raise UsageError(f"{path} is not a file of pairs: {error}") from None
    except ArtifactError as error:
        raise UsageError(error.message, hint="save it as CSV UTF-8") from None
    reviewed = {*columns} >= {*REVIEW, "slot_id", "verdict"}
    of_correction: list[int | None] = []
    if reviewed:
        standing = _standing(columns)
        corrections, of_correction = columns.get("correction", []), list(standing.values())
        columns = {name: [cells[row] for row in standing] for name, cells in columns.items()}
        columns["correction"] = ["" if row is None else corrections[row] for row in of_correction]
        of_correction = [None if row is None else lines[row] for row in of_correction]
        lines = [lines[row] for row in standing]
    if not content or (columns and not lines):
        raise UsageError(f"{path} is empty")
    if not {"slot_id", "source_caption_id"} & {*columns}:
        raise UsageError(f"{path} is not a file of pairs: it has no column slot_id or source_caption_id", hint=_HINT)
    if unread and {*columns} <= _IDS:
        hint = f"columns that are read: {', '.join(name for name in COLUMNS.names if name not in _IDS)}"
        raise UsageError(f"{path} has only ids, and columns that are not read: {', '.join(unread)}", hint=hint)
    of_sheet = suffix not in (".parquet", ".json")
    frame = pd.DataFrame(
        {
            name: pd.Series([unquoted(cell) if of_sheet else cell for cell in cells], dtype=object)
            for name, cells in columns.items()
        }
    )
    wrong: dict[str, tuple[pd.Series, str]] = {}
    if "verdict" in frame:
        frame["verdict"] = frame["verdict"].str.strip().str.lower()
        wrong["verdict"] = ~frame["verdict"].isin(VERDICTS), "clean, noisy or not judged"
    if "slot_id" in frame:
        key = [name for name in KEY if name in frame]
        wrong["slot_id"] = frame.duplicated(key), "unique"
    for name in PROBABILITIES:
        if name in frame:
            frame[name] = frame[name].map(_probability).astype(float)
            wrong[name] = ~frame[name].between(0, 1), "a probability from 0 to 1"
    if "correction" in frame:
        frame["correction"] = frame["correction"].map(one_line).astype(object)
        damaged = pd.Series([of_sheet and bool(_DAMAGED.fullmatch(cell.strip())) for cell in columns["correction"]])
        wrong["correction"] = damaged, "a translation but a formula: type it again, with ' before a leading ="
    for name, (rows_N, what) in wrong.items():
        if rows_N.any():
            row = int(rows_N.to_numpy().argmax())
            todo = "type clean or noisy, or leave the whole column out" if name == "verdict" else None
            if name in PROBABILITIES:
                todo = f"type a number, or leave the columns {', '.join(PROBABILITIES)} out"
            line = of_correction[row] if of_correction and name == "correction" else lines[row]
            raise UsageError(f"{path}, line {line}: {name} {columns[name][row]!r} is not {what}", hint=todo)
    return PairsFile(path, frame, hashlib.sha256(content).hexdigest(), encoding, unread, reviewed)


def torn_row(content: bytes) -> bytes:
    """Returns the last row of a log of verdicts if writing it was interrupted; empty if all are complete."""
    tail = content[content.rfind(b"\n") + 1 :]
    return tail if tail and _LOG_HEADER.match(content) and not _WHOLE.search(tail) else b""


Key = tuple[str, ...]
"""The cells that identify a pair."""


def last_verdicts(rows: Iterable[tuple[Key, str, str]]) -> dict[Key, dict[str, int]]:
    """Finds the verdicts of a log that were not taken back, given pair, reviewer and verdict of each row.

    Returns:
        By pair and reviewer, the number of the row with the last such verdict.
    """
    kept: dict[Key, dict[str, list[int]]] = {}
    for number, (pair, reviewer, verdict) in enumerate(rows):
        own = kept.setdefault(pair, {}).setdefault(reviewer, [])
        if verdict != UNDONE:
            own.append(number)
        elif own:
            own.pop()
    return {pair: last for pair, by in kept.items() if (last := {name: own[-1] for name, own in by.items() if own})}


def standing(last: Collection[int], verdicts: Sequence[str], corrections: Sequence[str]) -> tuple[int, int | None]:
    """Returns which of the reviewers' last rows on a pair stands, and the row whose correction stands, if any.

    The latest verdict stands; a skipped pair has none. A correction also stands if another reviewer says `noisy` later.
    """
    judged = [row for row in sorted(last) if verdicts[row] != NOT_JUDGED] or sorted(last)
    typed = [row for row in judged if corrections[row]]
    return judged[-1], typed[-1] if typed and verdicts[judged[-1]] == NOISY else None


def _standing(columns: dict[str, list[str]]) -> dict[int, int | None]:
    """Returns the standing rows of a log, in its order, each with the row of its correction."""
    verdicts = [verdict.strip().lower() for verdict in columns["verdict"]]
    corrections = columns.get("correction", [""] * len(verdicts))
    keys = zip(*(columns[name] for name in KEY if name in columns), strict=True)
    last = last_verdicts(zip(keys, columns["reviewer"], verdicts, strict=True))
    rows = (standing(by.values(), verdicts, corrections) for by in last.values())
    return dict(sorted(rows, key=lambda row: row[0]))


def _parquet(path: Path) -> Iterator[tuple[int, list[str]]]:
    yield 0, parquet_schema(path).names
    rows = (row for batch in parquet_batches(path) for row in zip(*map(pa.Array.to_pylist, batch.columns), strict=True))
    for number, row in enumerate(rows, 1):
        yield number, ["" if cell is None else str(cell) for cell in row]


def _table(rows: Iterator[tuple[int, list[str]]]) -> tuple[dict[str, list[str]], tuple[str, ...], list[int]]:
    """Reads a table, given the number and the cells of each row, the header first.

    Returns:
        The cells of the columns in `COLUMNS` and `REVIEW` as they are, the names of the other columns, and the number
        of each row.
    """
    header = [name.strip() for name in next(rows, (1, []))[1]]
    known = (*COLUMNS.names, *REVIEW)
    names = [name.lower() if name.lower() in known else name for name in header]
    if twice := [name for name in known if names.count(name) > 1]:
        raise ValueError(f"it has the column {twice[0]} twice")
    table: list[list[str]] = []
    numbers = []
    for number, row in rows:
        if any(row[len(header) :]):
            raise ValueError(f"line {number} has {len(row)} cells, the header {len(header)}")
        if any(row):
            table.append(row + [""] * (len(header) - len(row)))
            numbers.append(number)
    columns = {name: [row[at] for row in table] for at, name in enumerate(names) if name in known}
    return columns, tuple(name for name in names if name and name not in columns), numbers


def _probability(cell: str) -> float:
    """Returns the number in a cell such as `0.43`, `0,43` or `43%`; nan if it is none."""
    text = cell.strip().replace(",", ".")
    number = text.removesuffix("%")
    try:
        return float(number) if number == text else float(number) / 100
    except ValueError:
        return float("nan")


def unquoted(cell: str) -> str:
    """Removes from a spreadsheet cell the apostrophe that prevents a formula."""
    return cell[1:] if cell.startswith("'") and _RUN.match(cell) else cell


def _visible(text: str) -> str:
    return HIDDEN.sub("\ufffd", text)


def comparable(text: str) -> str:
    """Returns a text as `write` and `read` would change it, to compare a file's texts with the originals."""
    return one_line(_visible(text))


def one_line(text: str) -> str:
    """Returns a text in Unicode NFC on one line, with all white space as single blanks."""
    return " ".join(unicodedata.normalize("NFC", text).split())
