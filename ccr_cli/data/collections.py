"""The manifests of collections, whose data ccr does not ship: what `ccr data import NAME` knows about them.

`data_manifests/NAME.toml` lists the official files with content, number of lines and hash, the evidence for every
fact, the variants in which the collection is used and the protocols of its evaluation. docs/datasets.md is made from
the manifests, and docs/dataset-format.md explains every key. Nothing here reads the official files.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.data.manifests import LANG, bundled_root
from ccr_cli.data.protocols import read_protocols
from ccr_cli.errors import ArtifactError, UsageError

EVIDENCE = ("verified", "documented", "memory")
"""verified: checked on the bytes; documented: from a paper, a README or published code; memory: neither."""
FACTS = ("counts", "splits", "captions", "licence", "citation")
ROLES = ("captions", "ids", "splits", "translations", "features", "licence")
SPLITS = ("train", "val", "test")
DEFAULT_SET = "human"

_TEXTS, _COUNTS = "a list of texts", "a table of whole numbers"
_TYPES = {str: "a text", int: "a whole number", bool: "true or false", dict: "a table", list: "a list of tables"}
_COLLECTION = {
    "name": str, "title": str, "kind": str, "source_lang": str, "query_langs": _TEXTS, "source_url": str, "get": str,
    "licence": str, "citation": str, "description": str, "quirks": _TEXTS, "id_space": _TEXTS, "media": str,
    "evidence": dict, "ids": list, "variants": list, "files": list, "protocols": list,
}  # fmt: skip
_VARIANT = {
    "name": str, "title": str, "query_langs": _TEXTS, "counts": dict, "captions_per_item": _COUNTS, "parallel": dict,
    "evidence": dict, "unlisted": _TEXTS, "halve": dict, "validation": str,
    "own_split": bool,
}  # fmt: skip
_FILE = {
    "path": str, "role": str, "variants": _TEXTS, "format": str, "options": dict, "split": str, "lang": str,
    "caption_set": str, "k": int, "keep": _TEXTS, "segmented": bool, "source": str, "target": str,
    "engine": str, "bytes": int, "lines": int, "sha256": str, "unpacked_sha256": str, "evidence": str, "note": str,
}  # fmt: skip
_IDS = {"pattern": str, "space": str}
_NEEDED = {
    "collection": ("name", "title", "kind", "source_lang", "source_url", "get", "licence", "citation", "description",
                   "evidence", "variants", "files"),
    "variants": ("name", "title", "counts"),
    "files": ("path", "role"),
    "protocols": ("name", "split", "note", "evidence"),
    "ids": ("pattern",),
}  # fmt: skip


@dataclass(frozen=True)
class FileSpec:
    """An official file, and what is known of it."""

    path: str
    role: str = "captions"
    variants: tuple[str, ...] = ()
    """The variants that use the file; empty means all."""
    format: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    lang: str = ""
    caption_set: str = ""
    k: int | None = None
    keep: tuple[str, ...] = ()
    """Only captions of items of these splits are read; empty means all."""
    segmented: bool = False
    """Whether the words of a language without spaces are separated, possibly with a part of speech after each."""
    source: str = ""
    target: str = ""
    engine: str = ""
    bytes: int | None = None
    lines: int | None = None
    sha256: str = ""
    unpacked_sha256: str = ""
    """sha256 of the content of a gzip file, which may also lie unpacked."""
    evidence: str = ""
    note: str = ""


@dataclass(frozen=True)
class Variant:
    """One way to use a collection; an import makes a data set of it."""

    name: str
    """The name for the import: the collection's, with the variant's after a dash unless it is the default."""
    collection: str
    short: str
    """The variant's own name."""
    title: str
    about: Mapping[str, Any]
    """Facts about the collection, overridden by those of the variant."""
    files: tuple[FileSpec, ...]
    protocols: tuple[Mapping[str, Any], ...] = ()
    ids: tuple[tuple[re.Pattern[str], str], ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    captions_per_item: Mapping[str, int] = field(default_factory=dict)
    parallel: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()
    """Splits whose items are kept although no list names them."""
    halve: Mapping[str, Any] = field(default_factory=dict)
    """`split` and `seed`: the items of this split are divided at random into validation and test items."""
    validation: str = ""
    """`hash`: there is no official validation split, and a hash takes some of the training items."""
    own_split: bool = False
    """Whether the split is ccr's own choice, not that of the papers."""
    toml: Path = Path()

    @property
    def kind(self) -> str:
        """The kind of the items: image, video or features."""
        return str(self.about["kind"])

    @property
    def langs(self) -> tuple[str, ...]:
        """The source language and the query languages."""
        return (str(self.about["source_lang"]), *self.about.get("query_langs", []))


@functools.cache
def formats() -> tuple[str, ...]:
    """Returns the names of the caption formats."""
    folder = Path(__file__).parent / "formats"
    texts = {n: (folder / f"{n.replace('-', '_')}.py").read_text("utf-8") for n in registry.names("data/formats")}
    return tuple(name for name, text in texts.items() if re.search(r"^def read\(", text, re.MULTILINE))


def reader(name: str) -> Callable[..., Iterator[Any]]:
    """Returns the function that reads a format.

    Raises:
        UsageError: If there is no such format.
    """
    if name not in formats():
        raise UsageError(f"there is no format {name!r}", hint=f"formats: {', '.join(formats())}")
    read: Callable[..., Iterator[Any]] = importlib.import_module(f"ccr_cli.data.formats.{name.replace('-', '_')}").read
    return read


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """Returns the options of a format; those annotated as `Path` name further files."""
    parameters = inspect.signature(reader(name)).parameters
    return {key: parameter for key, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}


def path_options(spec: FileSpec) -> list[str]:
    """Returns the options of a file that name further files."""
    if spec.format not in formats():
        return []
    return [key for key, parameter in options_of(spec.format).items() if "Path" in str(parameter.annotation)]


def variants(root: Path | None = None) -> dict[str, Variant]:
    """Returns every variant of every collection, by the name for the import.

    Args:
        root: Folder of the manifests; by default the bundled ones.

    Raises:
        ArtifactError: If a manifest does not fit the schema, or two variants have one name.
    """
    found: dict[str, Variant] = {}
    for path in sorted((root or bundled_root()).glob("*.toml")):
        for variant in read(path):
            if found.setdefault(variant.name, variant) is not variant:
                raise ArtifactError(f"{path}: {found[variant.name].toml} has the name {variant.name!r} too")
    return found


def find(name: str, root: Path | None = None) -> Variant | None:
    """Finds a variant by name. The default variant has two names: `multi30k` and `multi30k-task1`.

    Args:
        name: Its name for the import.
        root: Folder of the manifests; by default the bundled ones.

    Returns:
        The variant; None if there is none of this name.
    """
    for path in sorted((root or bundled_root()).glob("*.toml")):
        if name == path.stem or name.startswith(f"{path.stem}-"):
            for variant in read(path):
                if name in (variant.name, f"{variant.collection}-{variant.short}"):
                    return variant
    return None


def read(path: Path) -> tuple[Variant, ...]:
    """Reads a manifest and checks it.

    Returns:
        Its variants, the default one first.

    Raises:
        ArtifactError: With file and key.
    """
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} is not valid TOML: {error}") from None
    _refuse_dates(about, str(path))
    _need(about, _NEEDED["collection"], str(path))
    _check(about, _COLLECTION, str(path))
    read_protocols(about, str(path))
    for key, keys in (("ids", _IDS), ("variants", _VARIANT), ("files", _FILE), ("protocols", None)):
        for number, table in enumerate(about.get(key, []), 1):
            where = f"{path}: [[{key}]] {number}"
            if not isinstance(table, dict):
                raise ArtifactError(f"{where} is no table")
            _need(table, _NEEDED[key], where)
            if keys is not None:
                _check(table, keys, where)
    names = [table["name"] for table in about["variants"]]
    _check_values(path, about, names)
    return tuple(_variant(path, about, table, table is about["variants"][0]) for table in about["variants"])


def _refuse_dates(value: Any, where: str) -> None:
    """Refuses TOML's dates and times, which no key of a manifest has."""
    if isinstance(value, date | time):
        raise ArtifactError(f"{where} is a date or a time, {value}", hint="put a text in quotes")
    within = value.items() if isinstance(value, dict) else enumerate(value, 1) if isinstance(value, list) else ()
    for key, each in within:
        _refuse_dates(each, f"{where}: {key}")


def _need(table: Mapping[str, Any], needed: tuple[str, ...], where: str) -> None:
    for key in needed:
        if key not in table:
            raise ArtifactError(f"{where} lacks the key {key!r}")


def _check(table: Mapping[str, Any], keys: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        expected = keys.get(key)
        if expected is None:
            raise ArtifactError(f"{where}: there is no key {key!r}", hint=f"keys: {', '.join(sorted(keys))}")
        if expected is _TEXTS:
            fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
        elif expected is _COUNTS:
            fits = isinstance(value, dict) and all(type(each) is int for each in value.values())
        else:
            fits = type(value) is expected
        if not fits:
            shown = expected if isinstance(expected, str) else _TYPES[expected]
            raise ArtifactError(f"{where}: {key!r} is {shown}, not {value!r}")


def _check_values(path: Path, about: dict[str, Any], names: list[str]) -> None:
    """Checks values beyond their type."""

    def one_of(value: str, known: Any, where: str) -> None:
        if value not in known:
            raise ArtifactError(f"{path}: {where} is one of {', '.join(known)}, not {value!r}")

    if about["name"] != path.stem:
        raise ArtifactError(f"{path}: the name is {about['name']!r}, and the file's is {path.stem!r}")
    one_of(about["kind"], ("image", "video", "features"), "kind")
    for lang in (about["source_lang"], *about.get("query_langs", [])):
        if not LANG.fullmatch(lang):
            raise ArtifactError(f"{path}: {lang!r} is not a language tag (BCP 47, such as en)")
    for fact in (*FACTS, *about["evidence"]):
        one_of(fact, FACTS, "a key of [evidence]")
        one_of(about["evidence"].get(fact, ""), EVIDENCE, f"evidence.{fact}")
    for table in about.get("ids", []):
        try:
            groups = re.compile(table["pattern"]).groupindex
        except re.error as error:
            raise ArtifactError(f"{path}: [[ids]] pattern {table['pattern']!r}: {error}") from None
        if "space" in table and "id" not in groups:
            raise ArtifactError(f"{path}: [[ids]] pattern {table['pattern']!r} has no group (?P<id>...)")
        if "space" in table:
            one_of(table["space"], about.get("id_space", []), f"[[ids]] space of {table['pattern']!r}")
    if len(set(names)) != len(names) or not names:
        raise ArtifactError(f"{path}: each of the [[variants]] has a name of its own, and there is at least one")
    for table in about["variants"]:
        for what, counted in table["counts"].items():
            one_of(what, ("items", "captions"), "counts")
            _check({what: counted}, {what: _COUNTS}, f"{path}: counts of {table['name']}")
            if what == "items":
                for split in counted:
                    one_of(split, SPLITS, f"counts.items of {table['name']}")
        halve = table.get("halve", {"split": SPLITS[1], "seed": 0})
        if {*halve} != {"split", "seed"}:
            raise ArtifactError(f"{path}: halve of {table['name']} has the keys split and seed, not {halve}")
        for split in (halve["split"], *table.get("unlisted", [])):
            one_of(split, SPLITS, f"a split of {table['name']}")
        one_of(table.get("validation", "hash"), ("hash",), f"validation of {table['name']}")
        for fact, evidence in table.get("evidence", {}).items():
            one_of(fact, FACTS, f"a key of evidence of {table['name']}")
            one_of(evidence, EVIDENCE, f"evidence of {table['name']}")
    for table in (*about["files"], *about.get("protocols", [])):
        label = table.get("path", table.get("name"))
        for name in table.get("variants", []):
            one_of(name, names, f"variants of {label}")
        one_of(table.get("split", SPLITS[0]), SPLITS, f"split of {label}")
        if {"bytes", "lines", "sha256", "evidence"} & {*table}:
            one_of(table.get("evidence", ""), EVIDENCE, f"evidence of {label}")
    for table in about["files"]:
        _check_file(path, table, one_of)


def _check_file(path: Path, table: dict[str, Any], one_of: Callable[[str, Any, str], None]) -> None:
    label, role = table["path"], table["role"]
    if not label.strip("./"):
        raise ArtifactError(f"{path}: the path of a file is that of a file, not {label!r}")
    one_of(role, ROLES, f"role of {label}")
    if role in ("captions", "translations"):
        one_of(table.get("format", ""), formats(), f"format of {label}")
        for option in table.get("options", {}):
            one_of(option, options_of(table["format"]), f"an option of {label}")
            fits, expected = _of_option(str(options_of(table["format"])[option].annotation))
            if not fits(table["options"][option]):
                value = table["options"][option]
                raise ArtifactError(f"{path}: option {option!r} of {label} must be {expected}, not {value!r}")
    for split in table.get("keep", []):
        one_of(split, SPLITS, f"keep of {label}")
    if role == "features":
        one_of(table.get("format", ""), ("labelled", "svcl"), f"format of {label}")
    if role == "translations" and not all(table.get(key) for key in ("source", "target", "engine")):
        raise ArtifactError(f"{path}: {label} holds translations and needs the keys source, target and engine")
    if role == "splits" and not table.get("split"):
        raise ArtifactError(f"{path}: {label} is a list of a split, and does not say of which")
    for key in ("sha256", "unpacked_sha256"):
        if not re.fullmatch("|[0-9a-f]{64}", table.get(key, "")):
            raise ArtifactError(f"{path}: {key} of {label} is 64 digits in hex, not {table[key]!r}")
    if table["path"].startswith("/") or ".." in Path(table["path"]).parts:
        raise ArtifactError(f"{path}: {label} leads out of the folder of the files")


def _of_option(annotation: str) -> tuple[Callable[[Any], bool], str]:
    """Returns a check of an option's type, and the name of the type."""
    if annotation == "bool":
        return lambda value: isinstance(value, bool), "true or false"
    if "Sequence" in annotation:
        return lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value), _TEXTS
    if "Mapping" in annotation:
        return lambda value: isinstance(value, dict) and all(isinstance(v, str) for v in value.values()), (
            "a table of texts"
        )
    return lambda value: isinstance(value, str), "a text"


def _spec(entry: Mapping[str, Any]) -> FileSpec:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return FileSpec(**values)


def _variant(path: Path, about: dict[str, Any], table: dict[str, Any], default: bool) -> Variant:
    short, name = table["name"], about["name"]
    files = tuple(_spec(entry) for entry in about["files"] if short in entry.get("variants", [short]))
    facts = {k: v for k, v in about.items() if k not in ("ids", "variants", "files", "protocols", "evidence")}
    return Variant(
        name=name if default else f"{name}-{short}",
        collection=name,
        short=short,
        title=table["title"],
        about={**facts, **{k: v for k, v in table.items() if k == "query_langs"}},
        files=files,
        protocols=tuple(p for p in about.get("protocols", []) if short in p.get("variants", [short])),
        ids=tuple((re.compile(each["pattern"]), each.get("space", "")) for each in about.get("ids", [])),
        counts=table["counts"],
        captions_per_item=table.get("captions_per_item", {}),
        parallel=table.get("parallel", {}),
        evidence={**about["evidence"], **table.get("evidence", {})},
        unlisted=tuple(table.get("unlisted", [])),
        halve=table.get("halve", {}),
        validation=table.get("validation", ""),
        own_split=table.get("own_split", False),
        toml=path,
    )
