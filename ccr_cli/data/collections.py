"""The manifests of collections, whose data ccr does not ship: what `ccr data import NAME` knows about them.

`data_manifests/NAME.toml` lists the official files with content, number of lines and hash, the evidence for every
fact, the variants in which the collection is used and the protocols of its evaluation. docs/datasets.md is made from
the manifests, and docs/dataset-format.md explains every key. Nothing here reads the official files.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import read_toml
from ccr_cli.artifacts.workspace import slug
from ccr_cli.data.formats import formats, options_of
from ccr_cli.data.manifests import SPLITS, bundled_root, refuse_lang
from ccr_cli.data.protocols import read_protocols
from ccr_cli.errors import ArtifactError

EVIDENCE = ("verified", "documented", "memory")
"""verified: checked on the bytes; documented: from a paper, a README or published code; memory: neither."""
FACTS = ("counts", "splits", "captions", "licence", "citation")
ROLES = ("captions", "ids", "splits", "translations", "features", "licence")
DEFAULT_SET = "human"


@dataclass(frozen=True)
class FileSpec:
    """An official file and the facts known about it."""

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

    @property
    def table(self) -> str:
        """The name of the table of recorded translations that the file becomes."""
        return f"{slug(self.engine)}-{self.source}-{self.target}.tsv"

    def path_options(self) -> list[str]:
        """Returns the options that name further files."""
        types = options_of(self.format) if self.format in formats() else {}
        return [key for key in self.options if "Path" in types.get(key, "")]


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
    """Patterns of the official ids with their id space, which may be empty."""
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
    def own(self) -> bool:
        """Whether the files are the user's own, without a manifest."""
        return self.toml == Path()

    @property
    def kind(self) -> str:
        """The kind of the items: image, video or features."""
        return str(self.about["kind"])

    @property
    def langs(self) -> tuple[str, ...]:
        """The source language and the query languages."""
        return (str(self.about["source_lang"]), *self.about.get("query_langs", []))

    @property
    def from_memory(self) -> bool:
        """Whether nobody has checked the counts."""
        return self.evidence.get("counts") == "memory"


def variants(root: Path | None = None) -> dict[str, Variant]:
    """Returns every variant of the collections in a folder, by default the bundled ones, by the name for the import."""
    found: dict[str, Variant] = {}
    for path in sorted((root or bundled_root()).glob("*.toml")):
        for variant in read(path):
            if found.setdefault(variant.name, variant) is not variant:
                raise ArtifactError(f"{path}: {found[variant.name].toml} has the name {variant.name!r} too")
    return found


def find(name: str, root: Path | None = None) -> Variant | None:
    """Finds a variant by name; None without one. The default variant has two names: `multi30k`, `multi30k-task1`."""
    for path in sorted((root or bundled_root()).glob("*.toml")):
        if name == path.stem or name.startswith(f"{path.stem}-"):
            for variant in read(path):
                if name in (variant.name, f"{variant.collection}-{variant.short}"):
                    return variant
    return None


_TYPES = {
    "str": (str, None, "a text"),
    "Path": (str, None, "a text"),
    "int": (int, None, "a whole number"),
    "bool": (bool, None, "true or false"),
    "list": (list, None, "a list of tables"),
    "tuple[str, ...]": (list, str, "a list of texts"),
    "Sequence[str]": (list, str, "a list of texts"),
    "Mapping[str, Any]": (dict, None, "a table"),
    "Mapping[str, str]": (dict, str, "a table of texts"),
    "Mapping[str, int]": (dict, int, "a table of whole numbers"),
}
"""By annotation of a key or of a format's option: its TOML type, the type of its values, and both in words."""
_SCHEMA = {
    "collection": {
        "str": "name title kind source_lang source_url get licence citation description media",
        "tuple[str, ...]": "query_langs quirks id_space",
        "list": "ids variants files protocols",
        "Mapping[str, str]": "evidence",
    },
    "variants": {
        "str": "name title validation",
        "tuple[str, ...]": "query_langs unlisted",
        "Mapping[str, Any]": "counts halve",
        "Mapping[str, str]": "parallel evidence",
        "Mapping[str, int]": "captions_per_item",
        "bool": "own_split",
    },
    "ids": {"str": "pattern space"},
}
_KEYS = {kind: {key: of for of, keys in types.items() for key in keys.split()} for kind, types in _SCHEMA.items()}
_KEYS["files"] = {each.name: str(each.type) for each in dataclasses.fields(FileSpec)}
"""The annotation of every key of a table; `read_protocols` checks those of protocols."""
_NEEDED = {
    "collection": ("name", "title", "kind", "source_lang", "source_url", "get", "licence", "citation", "description",
                   "evidence", "variants", "files"),
    "variants": ("name", "title", "counts"),
    "files": ("path", "role"),
    "protocols": ("name", "split", "note", "evidence"),
    "ids": ("pattern",),
}  # fmt: skip


def read(path: Path) -> tuple[Variant, ...]:
    """Reads a manifest and checks it; returns its variants, the default one first. ArtifactError names file and key."""
    about = read_toml(path)
    _check_keys(about, "collection", str(path))
    read_protocols(about, str(path))
    for key in ("ids", "variants", "files", "protocols"):
        for number, table in enumerate(about.get(key, []), 1):
            _check_keys(table, key, f"{path}: [[{key}]] {number}")
    for value, known, where in _choices(path, about):
        if value not in known:
            raise ArtifactError(f"{path}: {where} is one of {', '.join(known)}, not {value!r}")
    for lang in (about["source_lang"], *about.get("query_langs", [])):
        refuse_lang(lang, str(path))
    for mistake in chain.from_iterable(map(_mistakes, about["files"])):
        raise ArtifactError(f"{path}: {mistake}")
    return tuple(_variant(path, about, table) for table in about["variants"])


def _check_keys(table: Any, kind: str, where: str) -> None:
    if not isinstance(table, dict):
        raise ArtifactError(f"{where} is no table")
    for key in _NEEDED[kind]:
        if key not in table:
            raise ArtifactError(f"{where} lacks the key {key!r}")
    keys = _KEYS.get(kind, {})
    for key, value in table.items() if keys else ():
        if key not in keys:
            raise ArtifactError(f"{where}: there is no key {key!r}", hint=f"keys: {', '.join(sorted(keys))}")
        _check_type(value, keys[key], f"{where}: {key!r}")


def _check_type(value: Any, annotation: str, where: str) -> None:
    kind, inner, expected = _TYPES[annotation.removesuffix(" | None")]
    values = value.values() if isinstance(value, dict) else value
    if type(value) is not kind or (inner and any(type(each) is not inner for each in values)):
        problem = f"{where} is {expected}, not {value!r}"
        raise ArtifactError(problem, "put a text in quotes" if "text" in expected else None)


def _choices(path: Path, about: dict[str, Any]) -> Iterator[tuple[Any, Collection[str], str]]:
    """Yields each value with fixed choices, the choices, and its name in messages; checks what it reads for that."""
    names = [table["name"] for table in about["variants"]]
    if len(set(names)) != len(names) or not names:
        raise ArtifactError(f"{path}: each of the [[variants]] has a name of its own, and there is at least one")
    yield about["name"], [path.stem], "the name, that of the file,"
    yield about["kind"], ("image", "video", "features"), "kind"
    for fact in (*FACTS, *about["evidence"]):
        yield fact, FACTS, "a key of [evidence]"
        yield about["evidence"].get(fact, ""), EVIDENCE, f"evidence.{fact}"
    for table in about.get("ids", []):
        where = f"[[ids]] pattern {table['pattern']!r}"
        try:
            groups = re.compile(table["pattern"]).groupindex
        except re.error as error:
            raise ArtifactError(f"{path}: {where}: {error}") from None
        if "space" in table:
            if "id" not in groups:
                raise ArtifactError(f"{path}: {where} has no group (?P<id>...)")
            yield table["space"], about.get("id_space", []), f"[[ids]] space of {table['pattern']!r}"
    for table in about["variants"]:
        for what, counted in table["counts"].items():
            yield what, ("items", "captions"), f"counts of {table['name']}"
            _check_type(counted, "Mapping[str, int]", f"{path}: counts of {table['name']}: {what!r}")
            yield from ((split, SPLITS, f"counts.items of {table['name']}") for split in counted if what == "items")
        halve = table.get("halve", {"split": SPLITS[1], "seed": 0})
        if {*halve} != {"split", "seed"} or type(halve["seed"]) is not int:
            raise ArtifactError(f"{path}: halve of {table['name']} has the keys split and seed (a number), not {halve}")
        for split in (halve["split"], *table.get("unlisted", [])):
            yield split, SPLITS, f"a split of {table['name']}"
        yield table.get("validation", "hash"), ("hash",), f"validation of {table['name']}"
        for fact, evidence in table.get("evidence", {}).items():
            yield fact, FACTS, f"a key of evidence of {table['name']}"
            yield evidence, EVIDENCE, f"evidence of {table['name']}"
    for table in (*about["files"], *about.get("protocols", [])):
        label = table.get("path", table.get("name"))
        yield from ((name, names, f"variants of {label}") for name in table.get("variants", []))
        for split in (table.get("split", SPLITS[0]), *table.get("keep", [])):
            yield split, SPLITS, f"split of {label}"
        if {"bytes", "lines", "sha256", "evidence"} & {*table}:
            yield table.get("evidence", ""), EVIDENCE, f"evidence of {label}"
    for table in about["files"]:
        yield table["role"], ROLES, f"role of {table['path']}"
        if table["role"] == "features":
            yield table.get("format", ""), ("labelled", "svcl"), f"format of {table['path']}"
        if table["role"] in ("captions", "translations"):
            yield table.get("format", ""), formats(), f"format of {table['path']}"
            for option, value in table.get("options", {}).items():
                yield option, options_of(table["format"]), f"an option of {table['path']}"
                annotation = options_of(table["format"])[option]
                _check_type(value, annotation, f"{path}: option {option!r} of {table['path']}")


def _mistakes(table: dict[str, Any]) -> Iterator[str]:
    path, role = table["path"], table["role"]
    if not path.strip("./"):
        yield f"the path of a file is that of a file, not {path!r}"
    if path.startswith("/") or ".." in Path(path).parts:
        yield f"{path} leads out of the folder of the files"
    if role == "translations" and not all(table.get(key) for key in ("source", "target", "engine")):
        yield f"{path} holds translations and needs the keys source, target and engine"
    if role == "splits" and not table.get("split"):
        yield f"{path} is the list of a split and needs the key split"
    for key in ("sha256", "unpacked_sha256"):
        if not re.fullmatch("|[0-9a-f]{64}", table.get(key, "")):
            yield f"{key} of {path} is 64 digits in hex, not {table.get(key)!r}"


def _variant(path: Path, about: dict[str, Any], table: dict[str, Any]) -> Variant:
    short, name = table["name"], about["name"]
    facts = {k: v for k, v in about.items() if k not in ("ids", "variants", "files", "protocols", "evidence")}
    return Variant(
        name=name if table is about["variants"][0] else f"{name}-{short}",
        collection=name,
        short=short,
        about={**facts, **{key: value for key, value in table.items() if key == "query_langs"}},
        files=tuple(FileSpec(**_tuples(f)) for f in about["files"] if short in f.get("variants", [short])),
        protocols=tuple(p for p in about.get("protocols", []) if short in p.get("variants", [short])),
        ids=tuple((re.compile(each["pattern"]), each.get("space", "")) for each in about.get("ids", [])),
        evidence={**about["evidence"], **table.get("evidence", {})},
        toml=path,
        **{key: value for key, value in _tuples(table).items() if key not in ("name", "evidence", "query_langs")},
    )


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
