"""Replays recorded translations: the data set's tables, or your own.

A data set ships tables `translations/<engine>-<source>-<target>.tsv` with the columns `source` and `target`, one
sentence per line, escaped as in all tables of the dataset format; its manifest names engine, version and command. Texts
are looked up exactly, in Unicode NFC and without white space at the ends. A line with a `caption_id`, an optional third
column, applies to that caption alone.

Your own table is such a TSV; or CSV or Excel with these columns, among others; or JSON lines (`.jsonl`) with `source`,
`target` and optionally `score`; or NRCCR's `*.caption.txt`, lines of `ITEM#TAG#NUMBER TEXT`, each the translation of
the source caption of that item and number.
"""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.base import sha256_file
from ccr_cli.data.formats.base import stem
from ccr_cli.data.formats.layout import spreadsheet
from ccr_cli.data.formats.text_files import hashtag
from ccr_cli.data.tsv import read_tsv
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError, no_file
from ccr_cli.translators import apertium
from ccr_cli.translators.base import Translation

_LANG = r"([a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-[A-Z]{2}|-[0-9]{3})?)"
_FORMATS = (".tsv", ".csv", ".xlsx", ".jsonl", ".caption.txt")
_FACTS = ("source", "target", "engine", "version", "command", "licence")
_NAME = re.compile(rf"(.+)-{_LANG}-{_LANG}")
_Entries = dict[str, Translation]
_ByCaption = dict[tuple[str, str], Translation]
_EMPTY = Translation(None, error="recorded as empty")


@dataclass(frozen=True)
class Config:
    """Options of the engine."""

    table: str = ""
    """Your own file, TSV, CSV, .xlsx, .jsonl or .caption.txt; default: the data set's tables."""

    engine: str = ""
    """Engine of the recording, if a data set has several for a pair (e.g. apertium); default: the first."""


@dataclass(frozen=True)
class _Table:
    path: Path
    source: str
    target: str
    engine: str
    version: str = ""
    command: str = ""
    licence: str = ""


class Translator:
    """Looks texts up in one table.

    Raises:
        UnavailableError: If the pair is not recorded; the hint lists the recorded ones.
        UsageError: If the user's own table does not exist or has another format.
        ArtifactError: If the table is damaged or contradicts itself.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.source, self.target = source, target
        self._table = self._choose(config, dataset_dir)
        self._entries, self.by_caption, self.lines = _read(self._table.path, dataset_dir, source)
        """The keys of `by_caption` are pairs of caption id and source text; `lines` is their number in the table."""

    def _choose(self, config: Config, dataset_dir: Path | None) -> _Table:
        if config.table:
            path = _own_table(config)
            return _Table(path, self.source, self.target, path.name)
        tables = _tables(dataset_dir)
        for table in tables:
            if (table.source, table.target) == (self.source, self.target) and config.engine in ("", table.engine):
                return table
        recorded = [f"{t.source}->{t.target}" + (f" ({t.engine})" if config.engine else "") for t in tables]
        pair = f"{self.source}->{self.target}" + (f" by {config.engine}" if config.engine else "")
        other = "--engine apertium, or " if apertium.reaches(self.source, self.target) else ""
        problem = f"no translations {pair} are recorded in {dataset_dir or 'no data set'}"
        known = ", ".join(dict.fromkeys(recorded)) or "none"
        hint = f"recorded pairs: {known}; or --set table=FILE.tsv, or {other}--engine hf"
        raise UnavailableError(problem, hint=hint)

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Looks every text up; a text that is not in the table fails with `not recorded`."""
        missing = Translation(None, error="not recorded")
        for position, text in enumerate(texts):
            if position not in known:
                found = self._entries.get(key, missing) if (key := _key(text)) else Translation("")
                yield position, _EMPTY if key and found.text == "" else found

    def describe(self) -> dict[str, str]:
        """Names the engine, version, command and licence of the recording."""
        return {
            "engine": "recorded",
            "model": self._table.engine,
            "version": self._table.version,
            "command": self._table.command,
            "licence": self._table.licence,
            "table": self._table.path.name,
        }

    def identity(self) -> dict[str, Any]:
        """Nothing: a look-up needs no cache."""
        return {}


def identity(config: Config) -> dict[str, str]:
    """What a request records: the user's own table by its content."""
    return {"table": f"sha256:{sha256_file(_own_table(config))}"} if config.table else {}


def _own_table(config: Config) -> Path:
    path = Path(config.table).expanduser()
    if not path.exists():
        raise no_file(path, "--set table")
    if not path.is_file() or not path.name.lower().endswith(_FORMATS):
        what = "of another format" if path.is_file() else "no file"
        formats = "*.tsv, *.csv or *.xlsx (columns source and target), *.jsonl, *.caption.txt"
        raise UsageError(f"{path} is {what}; a table is an uncompressed {formats}", hint="--set table=FILE.tsv")
    return path


def pairs(dataset_dir: Path | None) -> list[tuple[str, str]]:
    """Lists the recorded pairs of a data set, each once."""
    return list(dict.fromkeys((table.source, table.target) for table in _tables(dataset_dir)))


def engines(dataset_dir: Path | None, source: str, target: str) -> list[str]:
    """Lists the engines of a data set's recordings of a pair; the first one is the default."""
    tables = (table for table in _tables(dataset_dir) if (table.source, table.target) == (source, target))
    return list(dict.fromkeys(table.engine for table in tables))


def _tables(dataset_dir: Path | None) -> list[_Table]:
    """The existing tables: those of the manifest, in its order, then those recognised by their file names."""
    if dataset_dir is None:
        return []
    tables: dict[Path, _Table] = {}
    manifest = dataset_dir / "manifest.toml"
    if manifest.is_file():
        for entry in base.read_toml(manifest).get("translations", []):
            name, *facts = (str(entry.get(key, "")) for key in ("file", *_FACTS))
            path = dataset_dir / name
            if not path.is_file():
                path = dataset_dir / "translations" / name
            if path.is_file() and path.resolve().is_relative_to(dataset_dir.resolve()):
                tables[path] = _Table(path, *facts)
    for path in sorted((dataset_dir / "translations").glob("*.tsv")):
        if parts := _NAME.fullmatch(path.stem):
            engine, source, target = parts.groups()
            tables.setdefault(path, _Table(path, source, target, engine))
    return list(tables.values())


def _read(path: Path, dataset_dir: Path | None, lang: str) -> tuple[_Entries, _ByCaption, int]:
    """Reads a file of translations in any of the formats.

    Returns:
        Those by source text, those of single captions, and the number of lines.
    """
    if path.name.lower().endswith(".caption.txt"):
        return _read_captions(path, dataset_dir, lang)
    entries: _Entries = {}
    by_caption: _ByCaption = {}
    lines = 0
    readers = {".jsonl": _read_jsonl, ".csv": _read_table, ".xlsx": _read_table}
    for line, source, target, score, caption in readers.get(path.suffix.lower(), _read_tsv)(path):
        lines += 1
        translation = Translation(_key(target), score)
        if caption:
            known = by_caption.setdefault((caption, _key(source)), translation if translation.text else _EMPTY)
        else:
            known = entries.setdefault(_key(source), translation)
        if (known.text or "") != translation.text:
            what = repr(caption or source)
            raise ArtifactError(f"{path}, line {line}: {what} has another translation in an earlier line")
    return entries, by_caption, lines


_Lines = Iterator[tuple[int, str, str, float | None, str]]
"""Line number, source, target, score, and the id of the only caption that the line applies to ("" for any)."""


def _read_tsv(path: Path) -> _Lines:
    for line, (source, target, caption) in read_tsv(path, ("source", "target", "caption_id"), ("caption_id",)):
        yield line, source, target, None, caption


def _read_table(path: Path) -> _Lines:
    _, rows = spreadsheet(path)
    _, header = next(rows, (1, []))
    names = [name.strip().lower() for name in header]
    if not {"source", "target"} <= {*names}:
        problem = f"{path}: the header is {', '.join(header)!r}, expected the columns source and target"
        raise ArtifactError(problem, hint="name the columns of the texts and of their translations so")
    for line, fields in rows:
        if len(fields) != len(names):
            hint = "put a text that contains the delimiter in quotes"
            raise ArtifactError(f"{path}, line {line}: {len(fields)} fields, expected {len(names)}", hint)
        yield line, fields[names.index("source")], fields[names.index("target")], None, ""


def _read_jsonl(path: Path) -> _Lines:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            source, target, score = entry["source"], entry["target"], entry.get("score")
            if not (isinstance(source, str) and isinstance(target, str)):
                raise TypeError
            yield number, source, target, None if score is None else float(score), ""
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            form = '{"source": TEXT, "target": TEXT, "score": NUMBER or none}'
            raise ArtifactError(f"{path}, line {number}: expected {form}") from None


def _read_captions(path: Path, dataset_dir: Path | None, lang: str) -> tuple[_Entries, _ByCaption, int]:
    """Joins lines of ITEM#TAG#NUMBER with the data set's captions."""
    if dataset_dir is None or not (dataset_dir / "captions.parquet").is_file():
        raise UsageError(f"{path.name} names captions by item and number, which takes a data set")
    data = dataset.read(base.load(dataset_dir))
    if lang != data.source_lang:
        hint = "leave out --back, --with-queries and --rounds, or bring a TSV with the sentences of both languages"
        raise UsageError(f"{path.name} translates captions in {data.source_lang}, not in {lang}", hint=hint)
    frame = data.captions_in(lang)
    sources: defaultdict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for item, k, caption, text in zip(*(frame[name] for name in ("item_id", "k", "caption_id", "text")), strict=True):
        sources[item, int(k)].append((caption, _key(text)))
        if sources[item, int(k)][0][1] != _key(text):
            message = f"{path.name} is ambiguous: {item} has two captions of number {k} in {lang}"
            raise ArtifactError(message, hint="a TSV with the columns source and target")
    found: dict[tuple[str, str], Translation] = {}
    lines = 0
    for line in hashtag(path):
        lines += 1
        k = line.k or 0
        made = Translation(text) if (text := _key(line.text)) else _EMPTY
        for source in sources.get((line.item, k)) or sources.get((stem(line.item), k), []):
            found.setdefault(source, made)
    if not found:
        raise ArtifactError(f"{path} has no line for a caption of this data set in {lang}")
    entries = {text: made for (_, text), made in reversed(found.items())}
    return entries, {source: made for source, made in found.items() if entries[source[1]] != made}, lines


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
