"""Tables of captions in CSV or TSV, with the columns `text`, `item_id` or `media`, and optional ones."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ccr_cli.console import counted
from ccr_cli.data.formats.base import ColumnError, Record, caption_format, kind_of, lines, listed
from ccr_cli.errors import ArtifactError

COLUMNS = ("item_id", "text", "split", "lang", "k", "caption_set", "media", "kind", "label", "caption_id")
OTHER_NAMES = "--columns text=YOURS,media=YOURS"
"""The option to type if columns have other names."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""A line above the header that tells a spreadsheet the delimiter."""


@caption_format
def captions_csv(
    path: Path,
    *,
    delimiter: str = "",
    quoted: bool = True,
    encoding: str = "utf-8",
    columns: Sequence[str] = (),
    header: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    header_line: int = 1,
) -> Iterator[Record]:
    """Reads captions from a table whose header names `COLUMNS`: `text`, and `item_id` or `media`, are required.

    Options:
        delimiter: Separator of fields, one character or `tab`; by default a tab in a `.tsv`, otherwise a comma.
        quoted: Whether a field may be in quotes (doubled inside); otherwise a quote is an ordinary character.
        encoding: Encoding of the text: utf-8, utf-16 or cp1252.
        columns: Names of the columns of a table without a header, in order; "" for a column to skip.
        header: The file's own column names: `{"item_id": "video_id", "text": "sentence"}`; "" for none. Columns with
            ccr's own names are read too, others are not.
        texts: Several columns of texts with their languages, instead of `text`: `{"caption_en": "en"}`; a language
            `mt.de` is that of machine translations.
        header_line: Line of the header; those above it are skipped.
    """
    if columns and header:
        raise ArtifactError(f"{path}: options `columns` (no header) and `header` exclude each other")
    hint = "put a text that contains the delimiter in quotes" if quoted else None
    rows = table_rows(path, delimiter, quoted, encoding, header_line)
    yield from records(path, rows, columns, header, texts, hint)


def records(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    columns: Sequence[str] = (),
    header: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
    hint: str | None = None,
) -> Iterator[Record]:
    """Yields the captions of numbered rows; `hint` is the hint of the error if a row has too many fields.

    The first row is the header unless `columns` has the names; `header` and `texts` are those of `captions_csv`.
    """
    where = str(path)
    if not columns:
        number, names = next(rows, (1, []))
        columns = [name.strip() for name in names]
        where = f"{path}, line {number}: the header is {', '.join(columns)!r}"
    places, lang_of = _places(columns, header, texts or {}, where)
    lacking = []
    for number, fields in rows:
        where = f"{path}, line {number}"
        if len(fields) != len(columns):
            fill = "fill in that line: a field for each column, or as many delimiters"
            hint = hint if len(fields) > len(columns) else fill
            raise ArtifactError(f"{where}: {len(fields)} fields, expected {len(columns)}", hint)
        row: dict[str, Any] = {name: fields[place] for name, place in places.items()}
        for name in ("k", "label"):
            row[name] = _number(row.get(name, ""), where, name)
        row["kind"] = kind_of(row.get("kind", "").strip(), where)
        where = f"{path.name}, line {number}"
        if "item_id" in row and not row["item_id"].strip():
            lacking.append(where)
            continue
        yield from captions_of_row(
            Record(row.pop("item_id", ""), "", where, **row), [(fields[place], lang) for place, lang in lang_of]
        )
    refuse_without_id(lacking)


def captions_of_row(row: Record, texts: Sequence[tuple[str, str]]) -> Iterator[Record]:
    """Yields the captions of a row from its texts with their languages; an empty one only if all texts are empty."""
    made = tuple((lang, text) for text, tag in texts if (lang := made_in(tag)) and text.strip())
    own = [(text, lang) for text, lang in texts if not made_in(lang)]
    for text, lang in [(text, lang) for text, lang in own if text.strip()] or own[:1]:
        yield replace(row, text=text, lang=lang or row.lang, translations=made)


def made_in(tag: str) -> str:
    """Returns the language in the tag of a column of machine translations: `de` for `mt.de`; empty for other tags."""
    return tag.removeprefix("mt.") if tag.startswith("mt.") else ""


def refuse_without_id(places: Sequence[str]) -> None:
    """Raises a ColumnError that lists the rows without an id, if there are any."""
    if places:
        hint = "fill in those lines; or, to name the items after their pictures: --columns item_id="
        raise ColumnError("item_id", f"{listed(places)}: item_id is empty ({counted(len(places), 'row')})", hint)


def table_rows(
    path: Path, delimiter: str = "", quoted: bool = True, encoding: str = "utf-8", header_line: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Yields the line in which a row begins and its fields, beginning with the header; empty lines are skipped."""
    named, table = table_lines(path, encoding)
    delimiter = "\t" if delimiter == "tab" else delimiter or named or usual_delimiter(path)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ArtifactError(f"{path}: fields are separated by one character, or `tab`, not by {delimiter!r}")
    reader = csv.reader(
        (f"{line}\n" for _, line in table),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        number = reader.line_num + (2 if named else 1)
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            double = "Double a quote inside quotes; if quotes have no meaning: --set quoted=false"
            problem = f"{path}, line {number}: not a row of a table: {error}"
            raise ArtifactError(problem, hint=f"a quote may not be closed. {double}") from None
        if fields and number >= header_line:
            yield number, fields


def usual_delimiter(path: Path) -> str:
    """Returns a tab for a `.tsv`, which may be gzipped, and a comma for any other table."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def table_lines(path: Path, encoding: str = "utf-8") -> tuple[str, Iterator[tuple[int, str]]]:
    """Returns the delimiter that a first line such as `sep=;` names, else "", and the other lines, numbered."""
    table = lines(path, encoding)
    first = next(table, None)
    named = _SEPARATOR.fullmatch(first[1]) if first else None
    return (named[1], table) if named else ("", chain([first] if first else [], table))


def _places(
    columns: Sequence[str], header: Mapping[str, str] | None, texts: Mapping[str, str], where: str
) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """Returns the places of columns by name in `COLUMNS` (without the text), and place and language of each text."""
    own = [name for name in columns if name and name not in texts and (name in COLUMNS or not texts)]
    names = {**(header or {name: name for name in own})}
    if texts:
        names["text"] = next(iter(texts))
    unknown = [name for name in names if name not in COLUMNS]
    nameless = "media" in names or any(map(made_in, texts.values()))
    lacking = [name for name in COLUMNS[:2] if name not in names and not (name == "item_id" and nameless)]
    if unknown or lacking:
        what = f"unknown column {unknown[0]!r}" if unknown else f"{' and '.join(lacking)} is missing"
        raise ArtifactError(f"{where}; {what}", hint=f"columns: {', '.join(COLUMNS)}; for other names: {OTHER_NAMES}")
    theirs = {*names, *names.values()}
    names = {**{name: name for name in COLUMNS if name not in theirs and columns.count(name) == 1}, **names}
    for name in (*names.values(), *texts):
        if name and columns.count(name) != 1:
            raise ArtifactError(f"{where}; expected {name!r} in it exactly once")
    texts = texts or {names["text"]: ""}
    places = {ours: columns.index(theirs) for ours, theirs in names.items() if theirs and ours != "text"}
    return places, [(columns.index(name), lang) for name, lang in texts.items()]


def _number(field: str, where: str, name: str) -> int | None:
    if not field:
        return None
    if not _NUMBER.fullmatch(field):
        raise ColumnError(name, f"{where}: {name} is a whole number of at most nine digits, not {field[:40]!r}")
    return int(field)
