"""Detects the format of a file of captions, and the options with which to read it."""

from __future__ import annotations

import codecs
import csv
import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.parquet import parquet_batches, parquet_schema
from ccr_cli.console import counted
from ccr_cli.data.formats import options_of, reader
from ccr_cli.data.formats.base import ColumnError, NotUtf8, Record, is_media, lines, opened, read_json
from ccr_cli.data.formats.captions_csv import OTHER_NAMES, table_lines, table_rows, usual_delimiter
from ccr_cli.data.formats.columns import MACHINE, candidates, is_machine, machine_columns, match, role, text_columns
from ccr_cli.data.formats.excel import sheet_names, sheet_rows
from ccr_cli.data.formats.folder import captioned
from ccr_cli.data.formats.jsonl import json_rows
from ccr_cli.errors import ArtifactError, UsageError

TABLES = ("captions-csv", "excel", "jsonl", "parquet")
"""Formats with columns."""
ENDINGS = {
    ".csv": "captions-csv", ".tsv": "captions-csv", ".txt": "captions-csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".xlsx": "excel",
}  # fmt: skip
"""The format of a file by its ending; for JSON, the content decides."""
_DELIMITERS = (",", ";", "\t", "|")
_MOST_ABOVE = 10
"""Number of lines in which to look for the header of a table."""
_SAMPLE = 100
"""Number of rows from which to guess columns with unknown names."""
_UNREAD = 6
"""Most columns that a note names as not read."""
_FEWEST_WORDS = 1.5
"""Fewest words per row, on average, of a column that is taken for the text."""
_WORD = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]{1,2}|(?:(?![\u3040-\u9fff\uac00-\ud7af])[^\W\d_])+")
"""A word; in a language without spaces, two characters."""
_NUMBER_WORDS = {"id", "no", "nr"}
"""Languages whose codes also end the names of columns of ids and numbers: `sentence_id`, `text_no`, `title_nr`."""
_ID = re.compile(r"[^\s\d]*\d\S*")
"""An id, such as `q12`."""
_WORDS = {"\t": "tab", "item_id": "item", "media": "picture", MACHINE: "machine translation"}
Columns = Mapping[str, str] | Sequence[str]
"""The user's names of columns by ccr's names (empty: no such column), or all names in order if there is no header."""


@dataclass(frozen=True)
class Layout:
    """How to read a file of captions."""

    path: Path
    form: str
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was guessed, and what to type otherwise."""

    def records(self) -> Iterator[Record]:
        """Reads the captions."""
        types = options_of(self.form)
        options = {key: Path(value) if "Path" in types[key] else value for key, value in self.options.items()}
        return reader(self.form)(self.path, **options)

    @cached_property
    def facts(self) -> Facts:
        """Facts about the captions; reads the whole file."""
        langs, splits = True, False
        names: dict[str, None] = {}
        first: dict[tuple[str, str], Record] = {}
        clash, made = "", dict[str, None]()
        for record in self.records():
            langs, splits = langs and bool(record.lang), splits or bool(record.split)
            if record.media:
                names[record.media] = None
                for own, other in (("item", "media"), ("media", "item")):
                    name, value = getattr(record, own), getattr(record, other)
                    before = first.setdefault((own, name), record)
                    if not clash and getattr(before, other) != value:
                        earlier = f"{name!r} has {getattr(before, other)!r} in {before.where}"
                        clash = f"{earlier}, and {value!r} in {record.where}"
            made |= {lang: None for lang, _ in record.translations}
        return Facts(langs, splits, tuple(names), clash, tuple(made))


@dataclass(frozen=True)
class Facts:
    """Facts about the captions of a file."""

    langs: bool
    """Whether every caption names its language."""
    splits: bool
    """Whether any caption names a split."""
    media: tuple[str, ...]
    clash: str
    """Describes an id with two images or videos, or one of these with two ids; empty if there is none."""
    translations: tuple[str, ...]
    """The languages of machine translations."""


def form_of(path: Path) -> str:
    """Returns the format of a file or folder, by its ending or, of JSON, its content; UsageError if it is unknown."""
    if path.is_dir():
        return "folder"
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".json":
        content = read_json(path)
        keys = content.value if isinstance(content.value, dict) else {}
        images = keys.get("images")
        if "annotations" in keys and "images" in keys:
            return "coco"
        if isinstance(images, list) and images and isinstance(images[0], dict) and "sentences" in images[0]:
            return "karpathy"
        if isinstance(content.value, list):
            return "jsonl"
        problem = f"{path} is JSON, but neither a list of objects, nor COCO's annotations, nor Karpathy's images"
        raise UsageError(problem, hint="name its format: --format, see docs/data.md")
    if ending not in ENDINGS:
        raise UsageError(
            f"the name of {path} does not tell its format",
            hint=f"--format FORMAT; or an ending that ccr knows: {', '.join([*ENDINGS, '.json'])}",
        )
    return ENDINGS[ending]


def look(path: Path, form: str = "", options: Mapping[str, Any] | None = None, columns: Columns = ()) -> Layout:
    """Finds out how to read a file of captions.

    Args:
        path: A file, or a folder of pictures with captions beside them.
        form: Its format; empty: by its ending or content. If it names `jsonl`, objects with `item_id` and `text` are
            read by ccr's names alone.
        options: Options of the format that the user has set; they are kept.
        columns: The user's names of the columns; what they leave open is guessed from the header.

    Raises:
        UsageError: If the format is unknown, or `columns` do not fit it.
        ArtifactError: If the file is damaged, or if no column has the text, or none an id or a picture.
    """
    named, form, options = bool(form), form or form_of(path), dict(options or {})
    if form not in TABLES:
        if columns:
            raise UsageError(f"--columns is for tables ({', '.join(TABLES)}); {path} has the format {form}")
        return Layout(path, form, options, tuple(_folder_notes(path)) if form == "folder" else ())
    notes = []
    if form == "captions-csv":
        options |= guessed_encoding(path, options)
        if "encoding" in options:
            notes.append(f"{path.name} is not UTF-8: read as {options['encoding']}; otherwise: --set encoding=NAME")
        if "delimiter" not in options and not options.get("columns"):
            options |= (found := guessed_delimiter(path, options))
            notes += [
                f"{path.name}: the delimiter is {each!r}; otherwise: --set delimiter=," for each in found.values()
            ]
    sheets = sheet_names(path) if form == "excel" and not options.get("sheet") else []
    if len(sheets) > 1:
        others = f"otherwise: --set sheet={shlex.quote(sheets[1])}"
        notes.append(f"{path.name} has the sheets {', '.join(sheets)}: {sheets[0]!r} is read; {others}")
    if (
        {"header", "texts"} & {*options}
        or options.get("columns")
        or (form == "jsonl" and {*options} & {"item", "text", "by_lang"})
    ):
        if columns:
            raise UsageError("--columns and the same in --set exclude each other", hint=OTHER_NAMES)
        return Layout(path, form, options, tuple(notes))
    headed = columns if isinstance(columns, Mapping) else None if columns else {}
    if form in ("captions-csv", "excel") and "header_line" not in options and headed is not None:
        options |= _guessed_header_line(Layout(path, form, options), headed)
        if line := options.get("header_line"):
            notes.append(f"the header of {path.name} is in line {line}; otherwise: --set header_line=1")
    layout = Layout(path, form, options, tuple(notes))
    if named and form == "jsonl" and not columns and {"item_id", "text"} <= {*_names(layout)}:
        return layout
    return _with_columns(layout, columns, to_the_letter=named)


def _folder_notes(path: Path) -> Iterator[str]:
    """Yields notes on pictures without captions, and captions without pictures; ArtifactError without any captions."""
    found = captioned(path)
    if not found.captions:
        tables = [each for each in sorted(path.iterdir()) if each.suffix.lower() in ENDINGS and each.suffix != ".txt"]
        table = f"; or import a table: ccr data import {shlex.quote(str(tables[0]))}" if tables else ""
        raise ArtifactError(
            f"{path} has no captions beside its pictures, and no manifest.toml",
            hint=f"write the captions of a.jpg into a.txt{table}; or see docs/dataset-format.md",
        )
    for thing, lacks, lone in (("picture", "captions", found.bare), ("text", "a picture", found.lone)):
        if lone:
            yield f"{counted(len(lone), thing)} without {lacks} left out, such as {lone[0].as_posix()!r}"


def _with_columns(layout: Layout, columns: Columns, *, to_the_letter: bool) -> Layout:
    """Adds the options that name the columns of a table, and the notes about them.

    A guessed column whose values do not fit is left out, unless the file is read to the letter.
    """
    path, form = layout.path, layout.form
    headless = not isinstance(columns, Mapping) and bool(columns)
    if headless and form not in ("captions-csv", "excel"):
        raise UsageError(f"--columns {','.join(columns)}: expected OURS=YOURS", hint=OTHER_NAMES)
    names = list(columns) if headless else _names(layout)
    if not names:
        raise ArtifactError(f"{path} is empty", hint="a table has a column for the pictures and one for the texts")
    chosen = _chosen(columns, names) if isinstance(columns, Mapping) else {}
    absent = [(ours, theirs) for ours, theirs in _single(chosen, names) if theirs not in names]
    if absent:
        near = [(ours, difflib.get_close_matches(theirs, names, 1)) for ours, theirs in absent]
        meant = ",".join(f"{ours}={shlex.quote(likely[0])}" for ours, likely in near if likely)
        what = " or ".join(repr(theirs) for _, theirs in absent)
        hint = f"--columns {meant}" if meant else OTHER_NAMES
        raise ArtifactError(f"{_header(layout, names)}; there is no column {what}", hint=hint)
    if headless and "text" in (header := match(first := _names(layout), {})) and {"item_id", "media"} & {*header}:
        raise UsageError(
            f"{_header(layout, first)}, and --columns {','.join(columns)} is for a table without one",
            hint=f"leave --columns out; or, if the first line is no header: --set columns={','.join(columns)}",
        )
    all_names, by_content = names, dict[str, str]()
    if not headless:
        names, by_content = _by_content(layout, names, chosen)
        chosen |= by_content
    found, machine = match(names, chosen), machine_columns(names, chosen)
    lacking = [] if "text" in found else ["the text"]
    lacking += [] if {"item_id", "media"} & {*found} or machine else ["the picture"]
    if lacking:
        hint = f"name the columns: {OTHER_NAMES}"
        if form in ("captions-csv", "excel"):
            hint += "; or, if the first line is no header, all of them in order: --columns media,text; or, if the "
            hint += "header is in another line: --set header_line=3"
        hint = "; ".join([hint, *(note for note in layout.notes if "--set sheet=" in note)])
        raise ArtifactError(f"{_header(layout, all_names)}; no column of it is known for {' and '.join(lacking)}", hint)
    texts = text_columns(names, chosen)
    if machine and (several := [name for name, lang in texts.items() if [*texts.values()].count(lang) > 1]):
        ours = f"{MACHINE}.{next(iter(machine.values()))}"
        problem = f"{path}: {ours} translates one text of a row, and there are several: {', '.join(several)}"
        raise UsageError(problem, f"--columns text={shlex.quote(several[0])}; or --columns {ours}= for no translations")
    guessed = [(f"text.{lang}" if lang else "text", column) for column, lang in texts.items()]
    typed = {*chosen} - {*by_content}
    if any(ours.partition(".")[0] == "text" for ours in typed):
        guessed = []
    guessed += [(f"{MACHINE}.{lang}", name) for name, lang in machine.items()]
    guessed = [(ours, theirs) for ours, theirs in guessed if ours not in typed]
    guessed += [(ours, theirs) for ours, theirs in found.items() if ours not in {*typed, "text"}]
    guessed = [(ours, theirs) for ours, theirs in guessed if ours != theirs]
    notes = list(layout.notes)
    if guessed:
        said = ", ".join(f"{theirs!r} is the {_word(ours)}" for ours, theirs in guessed)
        otherwise = ",".join(f"{ours}=NAME" for ours, _ in guessed)
        notes.append(f"columns of {path.name}: {said}; otherwise: --columns {otherwise}")
    for ours, fitting in candidates(names, chosen).items():
        others = [name for name in fitting[1:] if name not in {*texts, *machine}]
        if others:
            further = f"{path.name} has further columns for the {_word(ours)}: {', '.join(others)}"
            both = ",".join(f"text={shlex.quote(name)}" for name in (*texts, *others))
            notes.append(further + (f"; for all of them: --columns {both}" if ours == "text" else ""))
    read = {*texts, *machine, *found.values(), *chain(*candidates(names, chosen).values())}
    if unread := [] if headless else [name for name in all_names if name not in {*read, ""}]:
        named = ", ".join(map(repr, unread[:_UNREAD])) + (
            f" and {len(unread) - _UNREAD} more" * (len(unread) > _UNREAD)
        )
        way = "" if machine else f"; a column of machine translations: --columns {MACHINE}.LANG=NAME"
        notes.append(f"columns of {path.name} that are not read: {named}{way}")
    doubtful = set() if headless or to_the_letter else {*found} - {*chosen, "item_id"}
    if "item_id" in dict(guessed) and "media" in found:
        doubtful.add("item_id")
    while True:
        options = {**layout.options, **_column_options(form, names, chosen, headless)}
        layout = replace(layout, options=options, notes=tuple(notes))
        ours, why = _misfit(layout, doubtful)
        if not ours:
            return layout
        out = f"the column {found[ours]!r} of {path.name} is left out"
        notes.append(f"{out}: {why}; otherwise: --columns {ours}={shlex.quote(found[ours])}")
        chosen, doubtful = {**chosen, ours: ""}, doubtful - {ours}


def _misfit(layout: Layout, columns: Collection[str]) -> tuple[str, str]:
    """Returns one of these columns whose values do not fit, and why; two empty texts if all fit."""
    try:
        if columns and (clash := layout.facts.clash) and "item_id" in columns:
            return "item_id", f"it does not name the pictures one to one ({clash}), so these name the items"
    except ColumnError as error:
        if error.column in columns:
            return error.column, error.message
    except ArtifactError:
        pass  # the import reports it, after the notes
    return "", ""


def _by_content(layout: Layout, names: list[str], chosen: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Guesses the columns of pictures and text from their values, if no name is known for them.

    Returns:
        The names, with "" for a column such as `Nr` or `text_id` that is named like a language but holds numbers or
        ids; and the guessed columns, for the text the one with the most words.
    """
    found = match(names, chosen)
    typed = {theirs for _, theirs in _single(chosen, names)}
    tags = {**text_columns(names, chosen), **machine_columns(names, chosen)}
    langs = {name: tag.partition("-")[0] for name, tag in tags.items() if name not in typed}
    texts = [name for name, lang in langs.items() if len(name) == 2 or lang in _NUMBER_WORDS]
    lacking = [ours for ours in ("media", "text") if ours not in found and ours not in chosen]
    if not (texts or lacking) or any(map(is_media, names)):
        return names, {}
    values = _sample(layout, names)
    numbers = [name for name in texts if values[name] and _are_numbers(values[name], langs[name])]
    if numbers:
        return _by_content(layout, ["" if name in numbers else name for name in names], chosen)
    free = {name: some for name, some in values.items() if some and name not in {*found.values(), *chosen.values()}}
    guessed: dict[str, str] = {}
    pictures = [name for name, some in free.items() if sum(map(is_media, some)) > len(some) / 2]
    if "media" in lacking and pictures:
        guessed["media"] = pictures[0]
    machine = machine_columns(names, chosen)
    words = {
        name: sum(len(_WORD.findall(text)) for text in some) / len(some)
        for name, some in free.items()
        if name not in {*pictures, *machine} and not any("://" in text for text in some)
    }
    texts = [name for name in words if words[name] >= _FEWEST_WORDS]
    if "text" in lacking and texts:
        guessed["text"] = max(texts, key=lambda name: (not is_machine(name), words[name]))
    return names, guessed


def _are_numbers(values: Sequence[str], lang: str) -> bool:
    """Whether the values of a column that may be in a language are only numbers or, if its name may say so, ids."""
    if lang in _NUMBER_WORDS and all(map(_ID.fullmatch, values)):
        return True
    return not any(map(_WORD.search, values))


def _sample(layout: Layout, names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the non-empty texts of each column in the first rows."""
    rows: Iterable[Mapping[str, Any]]
    if layout.form == "jsonl":
        rows = ({key: at.value for key, at in row.entries()} for row in json_rows(layout.path))
    elif layout.form == "parquet":
        rows = (row for batch in parquet_batches(layout.path, names) for row in batch.to_pylist())
    else:
        rows = (dict(zip(names, fields, strict=False)) for _, fields in islice(_rows(layout), 1, None))
    some = list(islice(rows, _SAMPLE))
    return {name: [text for row in some if (text := str(row.get(name) or "").strip())] for name in names if name}


def _column_options(form: str, names: Sequence[str], chosen: Mapping[str, str], headless: bool) -> dict[str, Any]:
    """Returns the options of a format for these columns; none if all of them have ccr's names."""
    found, texts = match(names, chosen), text_columns(names, chosen)
    machine = {name: f"{MACHINE}.{lang}" for name, lang in machine_columns(names, chosen).items()}
    chosen = {ours: theirs for ours, theirs in chosen.items() if not ours.startswith(f"{MACHINE}.")}
    dropped = {ours: "" for ours, theirs in chosen.items() if not theirs}
    several = {"texts": {**texts, **machine}} if machine or len(texts) > 1 or any(texts.values()) else {}
    if several:
        del found["text"]
    if form == "jsonl":
        keys = {"item_id": "", **found, **dropped}
        return {"item" if ours == "item_id" else ours: key for ours, key in keys.items() if key != ours} | several
    if headless:
        ours = {theirs: ours for ours, theirs in found.items()} | ({name: name for name in texts} if several else {})
        return {"columns": [ours.get(name, "") for name in names], **several}
    if several:
        return {"header": {**found, **dropped}, **several}
    if all(ours == theirs for ours, theirs in found.items()) and {*names} <= {*found} and not dropped:
        return {}
    return {"header": {**found, **dropped}}


def _names(layout: Layout) -> list[str]:
    """Returns the names of a table's columns, as its reader calls them."""
    path = layout.path
    if layout.form == "jsonl":
        return list({key: None for row in json_rows(path) for key, _ in row.entries()})
    if layout.form == "parquet":
        return list(parquet_schema(path).names)
    _, names = next(_rows(layout), (1, []))
    return [name.strip() for name in names]


def _rows(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yields the line and the cells of each row of a CSV file or a sheet, beginning with the header."""
    return (sheet_rows if layout.form == "excel" else table_rows)(layout.path, **layout.options)


def _guessed_header_line(layout: Layout, columns: Mapping[str, str]) -> dict[str, int]:
    """Returns the option for a header below other lines: the first one that names a text, and a picture or an id."""
    for row, (number, cells) in enumerate(islice(_rows(layout), _MOST_ABOVE)):
        names = [cell.strip() for cell in cells]
        chosen = _chosen(columns, names)
        found = match(names, chosen)
        known = "text" in found and ("media" in found or "item_id" in found)
        if known and all(theirs in names for _, theirs in _single(chosen, names)):
            return {"header_line": number} if row else {}
    return {}


def _chosen(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Returns the user's columns by ccr's names, in the upper or lower case of the header."""
    as_in_file = {name.lower(): name for name in reversed(names)}

    def found(theirs: str) -> str:
        return theirs if theirs in names else as_in_file.get(theirs.strip().lower(), theirs)

    return {
        role(ours): theirs if theirs in names else ",".join(map(found, theirs.split(",")))
        for ours, theirs in columns.items()
    }


def _single(chosen: Mapping[str, str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the columns that the user names, one by one, including each of several texts."""
    for ours, theirs in chosen.items():
        several = ours.partition(".")[0] == "text" and theirs not in names
        yield from ((ours, each) for each in (theirs.split(",") if several else [theirs]) if each)


def _word(ours: str) -> str:
    name, _, lang = ours.partition(".")
    return _WORDS.get(name, name) + (f" in {lang}" if lang else "")


def _header(layout: Layout, names: Sequence[str]) -> str:
    what = "keys are" if layout.form == "jsonl" else "header is"
    return f"{layout.path}: the {what} {', '.join(names)!r}"


def spreadsheet(path: Path) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """Reads an Excel workbook, or CSV whose encoding and delimiter are guessed.

    Returns:
        The encoding of CSV that is not UTF-8, else ""; and the number and the cells of each row.
    """
    if path.suffix.lower() == ".xlsx":
        return "", sheet_rows(path)
    options: dict[str, Any] = guessed_encoding(path, {})
    options |= guessed_delimiter(path, options)
    return options.get("encoding", ""), table_rows(path, **options)


def guessed_encoding(path: Path, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the option for a text file that is not UTF-8: UTF-16 by its byte order mark, else Windows' cp1252."""
    if "encoding" in options:
        return {}
    with opened(path) as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return {"encoding": "utf-16"}
    try:
        for _ in lines(path):
            pass
    except NotUtf8:
        for _ in lines(path, "cp1252"):
            pass
        return {"encoding": "cp1252"}
    return {}


def guessed_delimiter(path: Path, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the option for the delimiter that gives the header the most known names, if it is not the usual one.

    A first line such as `sep=;` decides.
    """
    usual = usual_delimiter(path)
    named, table = table_lines(path, options.get("encoding", "utf-8"))

    def fit(delimiter: str, line: str) -> tuple[int, int, bool]:
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # the table's reader reports it
            names = []
        return len(match(names, {})), len(names), delimiter == usual

    some = [line for _, line in islice(table, _MOST_ABOVE)] or [""]
    header = max(some, key=lambda line: max(fit(delimiter, line)[0] for delimiter in _DELIMITERS))
    best = named or max(_DELIMITERS, key=lambda delimiter: fit(delimiter, header))
    return {} if best == usual else {"delimiter": _WORDS.get(best, best)}
