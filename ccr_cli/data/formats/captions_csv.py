"""A table of captions, CSV or TSV: `item_id`, `text` and optional columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccr_cli.data.formats.base import Record, caption_format, kind_of, lines
from ccr_cli.errors import ArtifactError

COLUMNS = ("item_id", "text", "split", "lang", "k", "caption_set", "media", "kind", "label", "caption_id")
_NUMBER = re.compile(r"[0-9]{1,9}")


@caption_format
def captions_csv(
    path: Path,
    *,
    delimiter: str = "",
    quoted: bool = True,
    columns: Sequence[str] = (),
    header: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Reads captions from a table whose first line names `COLUMNS`; the first two are required.

    Options:
        delimiter: Separator of fields, one character or `tab`; by default a tab in a `.tsv`, otherwise a comma.
        quoted: Whether a field may be in quotes (doubled inside); otherwise a quote is an ordinary character.
        columns: Names of the columns of a table without a header, in order; "" for a column to skip.
        header: The file's own column names: `{"item_id": "video_id", "text": "sentence"}`. Columns with the names
            above are read too, others are not.
    """
    if columns and header:
        raise ArtifactError(f"{path}: options `columns` (no header) and `header` exclude each other")
    rows, where = _rows(path, delimiter, quoted), str(path)
    if not columns:
        number, columns = next(rows, (1, []))
        columns = [name.strip() for name in columns]
        where = f"{path}, line {number}: the header is {', '.join(columns)!r}"
    places = _places(columns, header, where)
    for number, fields in rows:
        where = f"{path}, line {number}"
        if len(fields) != len(columns):
            hint = "put a text that contains the delimiter in quotes" if quoted and len(fields) > len(columns) else None
            raise ArtifactError(f"{where}: {len(fields)} fields, expected {len(columns)}", hint=hint)
        row: dict[str, Any] = {name: fields[place] for name, place in places.items()}
        if not row["item_id"].strip():
            raise ArtifactError(f"{where}: item_id is empty")
        for name in ("k", "label"):
            row[name] = _number(row.get(name, ""), where, name)
        row["kind"] = kind_of(row.get("kind", "").strip(), where)
        yield Record(row.pop("item_id"), where=f"{path.name}, line {number}", **row)


def _rows(path: Path, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yields the line in which a row begins and its fields, beginning with the header; empty lines are skipped."""
    by_name = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    delimiter = "\t" if delimiter == "tab" else delimiter or by_name
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ArtifactError(f"{path}: fields are separated by one character, or `tab`, not by {delimiter!r}")
    reader = csv.reader(
        (f"{line}\n" for _, line in lines(path)),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ArtifactError(
                f"{path}, line {number}: not a row of a table: {error}",
                hint="a quote may not be closed. Double a quote inside quotes; if quotes have no meaning, set "
                "quoted=false",
            ) from None
        if fields:
            yield number, fields


def _places(columns: Sequence[str], header: Mapping[str, str] | None, where: str) -> dict[str, int]:
    """Returns the place of every column by its name in `COLUMNS`."""
    names = header or {name: name for name in columns if name}
    unknown = [name for name in names if name not in COLUMNS]
    lacking = [name for name in COLUMNS[:2] if name not in names]
    if unknown or lacking:
        what = f"unknown column {unknown[0]!r}" if unknown else f"{' and '.join(lacking)} is missing"
        hint = f"columns: {', '.join(COLUMNS)}; the first two are required; "
        hint += "for other names: --set header=item_id:YOURS,text:YOURS,split:YOURS"
        for delimiter, text in ((";", "';'"), ("\t", "tab"), ("|", "'|'"), (",", ",")):
            if len(unknown) == 1 and delimiter in unknown[0]:
                hint = f"another delimiter: --set delimiter={text}"
        raise ArtifactError(f"{where}; {what}", hint=hint)
    theirs = {*names, *names.values()}
    names = {**{name: name for name in COLUMNS if name not in theirs and columns.count(name) == 1}, **names}
    for name in names.values():
        if columns.count(name) != 1:
            raise ArtifactError(f"{where}; expected {name!r} in it exactly once")
    return {ours: columns.index(theirs) for ours, theirs in names.items()}


def _number(field: str, where: str, name: str) -> int | None:
    if not field:
        return None
    if not _NUMBER.fullmatch(field):
        raise ArtifactError(f"{where}: {name} is a whole number of at most nine digits, not {field[:40]!r}")
    return int(field)
