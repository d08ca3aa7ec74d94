"""A table of captions, CSV or TSV: `item_id`, `text` and optional columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ccr_cli.data.formats.base import Record, kind_of, lines
from ccr_cli.errors import ArtifactError

COLUMNS = ("item_id", "text", "split", "lang", "k", "caption_set", "media", "kind", "label", "caption_id")
_NUMBER = re.compile(r"[0-9]{1,9}")


def read(
    path: Path,
    *,
    delimiter: str = "",
    quoted: bool = True,
    columns: Sequence[str] = (),
    header: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Reads captions.

    Args:
        path: The table. Its first line names the columns: `item_id`, `text`, and any of `split`, `lang`, `k`,
            `caption_set`, `media`, `kind` (image or video), `label`, `caption_id`.
        delimiter: Separator of fields, one character or `tab`; by default a tab in a `.tsv`, otherwise a comma.
        quoted: Whether a field may be in quotes (doubled inside); otherwise a quote is an ordinary character.
        columns: Names of the columns of a table without a header, in order; "" for a column to skip.
        header: The file's own column names: `{"item_id": "video_id", "text": "sentence"}`. Columns with the names
            above are read too, others are not.

    Raises:
        ArtifactError: With file and line, if the columns are others, or a field does not fit its column.
    """
    if columns and header:
        raise ArtifactError(f"{path}: options `columns` (no header) and `header` exclude each other")
    rows = table(path, delimiter, quoted)
    places, width = (_places(list(columns), str(path)), len(columns)) if columns else _header(path, rows, header)
    for number, fields in rows:
        where = f"{path}, line {number}"
        if len(fields) != width:
            raise ArtifactError(
                f"{where}: {len(fields)} fields, expected {width}",
                hint="put a text that contains the delimiter in quotes" if quoted and len(fields) > width else None,
            )
        row = {name: fields[place] for name, place in places.items()}
        if not row["item_id"].strip():
            raise ArtifactError(f"{where}: item_id is empty")
        yield Record(
            item=row["item_id"],
            text=row["text"],
            where=f"{path.name}, line {number}",
            lang=row.get("lang", ""),
            k=_number(row.get("k", ""), where, "k"),
            split=row.get("split", ""),
            media=row.get("media", ""),
            caption_id=row.get("caption_id", ""),
            caption_set=row.get("caption_set", ""),
            label=_number(row.get("label", ""), where, "label"),
            kind=kind_of(row.get("kind", "").strip(), where),
        )


def table(path: Path, delimiter: str = "", quoted: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Reads a table row by row, including its header; empty lines are skipped.

    Yields:
        Number of the line in which a row begins, and its fields.

    Raises:
        ArtifactError: With file and line, if it is not readable as a table.
    """
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


def column(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Reads one column of a table with a header, with line numbers.

    Raises:
        ArtifactError: If there is no such column, or a line is shorter.
    """
    rows = table(path)
    at = _header(path, rows, {"item_id": name, "text": name})[0]["item_id"]
    for number, fields in rows:
        if len(fields) <= at:
            raise ArtifactError(f"{path}, line {number}: {len(fields)} fields, and {name!r} is number {at + 1}")
        yield number, fields[at]


def _header(
    path: Path, rows: Iterator[tuple[int, list[str]]], names: Mapping[str, str] | None
) -> tuple[dict[str, int], int]:
    """Returns the place of every column, and the number of fields of a row."""
    number, fields = next(rows, (1, []))
    columns = [name.strip() for name in fields]
    where = f"{path}, line {number}: the header is {', '.join(columns)!r}"
    if not names:
        return _places(columns, where), len(columns)
    _known(names, where)
    absent = [name for name in names.values() if columns.count(name) != 1]
    if absent:
        raise ArtifactError(f"{where}; expected {absent[0]!r} in it exactly once")
    taken = {*names, *names.values()}
    own = {name: name for name in COLUMNS if name not in taken and columns.count(name) == 1}
    return {ours: columns.index(theirs) for ours, theirs in {**own, **names}.items()}, len(columns)


def _places(columns: list[str], where: str) -> dict[str, int]:
    used = [name for name in columns if name]
    _known(used, where)
    if len(set(used)) != len(used):
        raise ArtifactError(f"{where}: a column occurs twice")
    return {name: columns.index(name) for name in used}


def _known(names: Collection[str], where: str) -> None:
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


def _number(field: str, where: str, name: str) -> int | None:
    if not field:
        return None
    if not _NUMBER.fullmatch(field):
        raise ArtifactError(f"{where}: {name} is a whole number of at most nine digits, not {field[:40]!r}")
    return int(field)
