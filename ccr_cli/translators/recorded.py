"""Replays recorded translations: the data set's tables, or one of yours.

A data set ships them as `translations/<engine>-<source>-<target>.tsv` with the columns `source` and
`target`, one sentence a line, escaped as in all tables of the dataset format; its manifest says which
engine, version and command made each. A text is looked up exactly, after Unicode NFC and without space at
its ends; nothing is guessed for one that is not there.

A table of yours (translations made elsewhere) is such a TSV; or JSON lines (`.jsonl`) with `source`, `target` and,
where there is one, `score`; or NRCCR's `*.caption.txt`, lines of `ITEM#TAG#NUMBER TEXT`, each the translation of the
data set's source caption of that item and number.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.base import sha256_file
from ccr_cli.console import say
from ccr_cli.data.formats import hashtag
from ccr_cli.data.formats.base import stem
from ccr_cli.data.tsv import read_tsv
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.translators import apertium
from ccr_cli.translators.base import Translation

_LANG = r"([a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-[A-Z]{2}|-[0-9]{3})?)"
_FORMATS = (".tsv", ".jsonl", ".caption.txt")
_NAME = re.compile(rf"(.+)-{_LANG}-{_LANG}")


@dataclass(frozen=True)
class Config:
    """Options of the engine."""

    table: str = ""
    """A file of your own, TSV, .jsonl or .caption.txt; by default the data set's tables."""

    engine: str = ""
    """Whose recording, where a data set has several of a pair (e.g. apertium); by default the first."""


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

    Args:
        source: Language of the texts, BCP 47.
        target: Language of the translations.
        config: Options.
        dataset_dir: The data set's folder, with `translations/` in it.
        device: Not used.

    Raises:
        UnavailableError: If the pair is not recorded; the recorded ones are listed.
        ArtifactError: If the table is damaged or contradicts itself.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.source, self.target = source, target
        self._table = self._choose(config, dataset_dir)
        self._entries = _read(self._table.path, dataset_dir, source)

    def _choose(self, config: Config, dataset_dir: Path | None) -> _Table:
        if config.table:
            path = _own_table(config)
            return _Table(path, self.source, self.target, path.name)
        tables = _tables(dataset_dir)
        for table in tables:
            asked = (self.source, self.target, config.engine or table.engine)
            if (table.source, table.target, table.engine) == asked:
                return table
        shown = [f"{t.source}->{t.target}" + (f" ({t.engine})" if config.engine else "") for t in tables]
        wanted = f"{self.source}->{self.target}" + (f" by {config.engine}" if config.engine else "")
        other = "--engine apertium, or " if apertium.reaches(self.source, self.target) else ""
        raise UnavailableError(
            f"no translations {wanted} are recorded in {dataset_dir or 'no data set'}",
            hint=f"recorded pairs: {', '.join(dict.fromkeys(shown)) or 'none'}; "
            f"or --set table=FILE.tsv, or {other}--engine hf",
        )

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Looks every text up; one that is not in the table fails with `not recorded`."""
        for position, text in enumerate(texts):
            if position not in known:
                yield position, self._look_up(text)

    def _look_up(self, text: str) -> Translation:
        key = _key(text)
        if not key:
            return Translation("")
        found = self._entries.get(key)
        if found is None:
            return Translation(None, error="not recorded")
        return found if found.text else Translation(None, error="recorded as empty")

    def describe(self) -> dict[str, str]:
        """Says what was recorded and how."""
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
    """What a request records: a table of the user's own by its content, wherever it lies."""
    return {"table": f"sha256:{sha256_file(_own_table(config))}"} if config.table else {}


def _own_table(config: Config) -> Path:
    path = Path(config.table).expanduser()
    if not path.exists():
        raise UnavailableError(f"there is no table {path}", hint="--set table=FILE")
    if not path.is_file() or not path.name.lower().endswith(_FORMATS):
        raise UsageError(
            f"{path} is {'of another format' if path.is_file() else 'no file'}; tables that are read: "
            "*.tsv (columns source and target), *.jsonl, *.caption.txt; none of them compressed",
            hint="--set table=FILE.tsv",
        )
    return path


def pairs(dataset_dir: Path | None) -> list[tuple[str, str]]:
    """Lists the recorded pairs of a data set, each once."""
    return list(dict.fromkeys((table.source, table.target) for table in _tables(dataset_dir)))


def engines(dataset_dir: Path | None, source: str, target: str) -> list[str]:
    """Lists whose recordings of a pair a data set has; the first is taken if nobody is named."""
    found = (table for table in _tables(dataset_dir) if (table.source, table.target) == (source, target))
    return list(dict.fromkeys(table.engine for table in found))


def _tables(dataset_dir: Path | None) -> list[_Table]:
    """The tables that exist: in the manifest's order, then those that only their file name describes."""
    if dataset_dir is None:
        return []
    tables: dict[Path, _Table] = {}
    manifest = dataset_dir / "manifest.toml"
    if manifest.is_file():
        try:
            entries: list[dict[str, Any]] = tomllib.loads(manifest.read_text("utf-8")).get("translations", [])
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{manifest} is not valid TOML: {error}") from None
        for entry in entries:
            text = {key: str(value) for key, value in entry.items()}
            path = dataset_dir / text.get("file", "")
            if not path.is_file():
                path = dataset_dir / "translations" / text.get("file", "")
            if path.is_file() and path.resolve().is_relative_to(dataset_dir.resolve()):
                tables[path] = _Table(
                    path,
                    text.get("source", ""),
                    text.get("target", ""),
                    text.get("engine", ""),
                    text.get("version", ""),
                    text.get("command", ""),
                    text.get("licence", ""),
                )
    for path in sorted((dataset_dir / "translations").glob("*.tsv")):
        if parts := _NAME.fullmatch(path.stem):
            engine, source, target = parts.groups()
            tables.setdefault(path, _Table(path, source, target, engine))
    return list(tables.values())


def _read(path: Path, dataset_dir: Path | None, lang: str) -> dict[str, Translation]:
    """Reads a file of translations in whichever of the formats it is, by source text."""
    if path.name.lower().endswith(".caption.txt"):
        return _read_captions(path, dataset_dir, lang)
    entries: dict[str, Translation] = {}
    for line, source, target, score in _read_jsonl(path) if path.suffix.lower() == ".jsonl" else _read_tsv(path):
        made = Translation(_key(target), score)
        if entries.setdefault(_key(source), made).text != made.text:
            raise ArtifactError(f"{path}, line {line}: {source!r} has another translation further up")
    return entries


def _read_tsv(path: Path) -> Iterator[tuple[int, str, str, float | None]]:
    for line, (source, target) in read_tsv(path, ("source", "target")):
        yield line, source, target, None


def _read_jsonl(path: Path) -> Iterator[tuple[int, str, str, float | None]]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            source, target, score = entry["source"], entry["target"], entry.get("score")
            if not (isinstance(source, str) and isinstance(target, str)):
                raise TypeError
            yield number, source, target, None if score is None else float(score)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            wanted = '{"source": TEXT, "target": TEXT, "score": NUMBER or none}'
            raise ArtifactError(f"{path}, line {number}: expected {wanted}") from None


def _read_captions(path: Path, dataset_dir: Path | None, lang: str) -> dict[str, Translation]:
    """Joins lines of ITEM#TAG#NUMBER with the data set's captions; of two for one text the first counts."""
    place = None if dataset_dir is None else dataset_dir / "captions.parquet"
    if place is None or not place.is_file():
        raise UsageError(f"{path.name} names captions by item and number, and no data set says which these are")
    data = dataset.read(base.load(place.parent))
    if lang != data.source_lang:
        raise UsageError(
            f"{path.name} says by item and number what it translates: captions in {data.source_lang}, none in {lang}",
            hint="leave out --back, --queries and --rounds, or bring a TSV with the sentences of both languages",
        )
    frame = data.captions[data.captions["lang"] == lang]
    source_of: dict[tuple[str, int], str] = {}
    for item, k, text in zip(frame["item_id"], frame["k"], frame["text"], strict=True):
        if source_of.setdefault((item, int(k)), text) != text:
            raise ArtifactError(
                f"{path.name} cannot say which caption it means: {item} has two of number {k} in {lang}",
                hint="a TSV with the columns source and target",
            )
    entries: dict[str, Translation] = {}
    differing = 0
    for line in hashtag.read(path):
        k = line.k or 0
        source = source_of.get((line.item, k), source_of.get((stem(line.item), k)))
        if source is not None:
            made = Translation(_key(line.text))
            differing += entries.setdefault(_key(source), made) != made
    if differing:
        say(f"{path.name}: {differing} captions have other translations than captions of the same text further up")
    if not entries:
        raise ArtifactError(f"{path} has no line of an item and number of this data set's {lang} captions")
    return entries


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
