"""data show and data verify of collections: what a manifest says, and what of it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import dataset
from ccr_cli.data.assemble import Assembly
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data.collection import Problem, differences, gather, recorded
from ccr_cli.stages.data.feature_files import preview

Rows = list[tuple[str, str]]
_KNOWN = {"sha256": "right hash", "lines": "right number of lines", "bytes": "right size"}


def manifest_card(variant: Variant) -> Rows:
    """The card of a collection that is not imported."""
    about, evidence = variant.about, variant.evidence
    rows = [
        ("name", variant.name),
        ("state", "not imported"),
        ("title", f"{about['title']}: {variant.title}"),
        ("description", str(about["description"])),
        ("get it", str(about["get"])),
        ("import it", f"ccr data import {variant.name} --root DIR"),
        ("source_url", str(about["source_url"])),
        ("languages", " ".join(variant.langs)),
    ]
    rows += [(what, f"{number:,} ({evidence['counts']})") for what, number in counted(variant.counts)]
    rows += [
        (f"captions per item in {lang}", f"{number:,} ({evidence['counts']})")
        for lang, number in variant.captions_per_item.items()
    ]
    rows.append(("evidence", evidence_text(evidence)))
    rows += protocol_rows(variant.protocols)
    rows += [("file", file_text(spec)) for spec in unique(variant.files)]
    rows += [(fact, f"{about[fact]} ({evidence[fact]})") for fact in ("licence", "citation")]
    return rows + [("quirk", quirk) for quirk in about.get("quirks", [])]


def artifact_rows(read: dataset.Dataset) -> Rows:
    """What the card of an imported collection has beside that of any data set: evidence, protocols, what is missing."""
    manifest = read.manifest
    evidence = manifest.get("evidence", {})
    rows = [
        (f"{what}, expected", f"{number:,} ({evidence.get('counts', 'memory')})")
        for what, number in counted(manifest.get("counts", {}))
    ]
    rows.append(("evidence", evidence_text(evidence)))
    rows += protocol_rows(manifest.get("protocols", []))
    partial = manifest.get("partial", [])
    rows += [("partial", str(problem)) for problem in partial]
    if partial and manifest.get("get"):
        rows.append(("get it", str(manifest["get"])))
    return rows


def media_rows(read: dataset.Dataset) -> Rows:
    """How many of an imported data set's media are not there."""
    rows: Rows = []
    root = dataset.media_root(read.artifact)
    named = read.items["media"].dropna()
    if len(named) and root is not None:
        places = (dataset.media_path(root, str(name)) for name in named)
        absent = sum(place is None or not place.is_file() for place in places)
        rows.append(("media that are not there", f"{absent:,} of {len(named):,} below {root}"))
    return rows


def check(variant: Variant, root: Path) -> tuple[Rows, list[Problem]]:
    """Checks the files of a collection and what they hold, without importing it.

    Returns:
        A row a file and a number, and what is wrong.
    """
    material = gather(variant, root)
    rows: Rows = []
    for each in material.found:
        known = f"{_KNOWN[each.checked]} ({each.spec.evidence})" if each.checked else "there; nothing is known of it"
        rows.append((each.spec.path, each.problem or known))
    notes: list[str] = []
    try:
        if variant.kind == "features":
            tables = preview(material)
            if tables is None:
                return rows, material.problems
            items, captions = tables
        else:
            assembly = Assembly(variant, material.place, lenient=True)
            made = assembly.run()
            material.problems += [Problem(path, "UnreadableFile", why) for path, why in made.unread.items()]
            for name, table in recorded(assembly, made, material, lenient=True).items():
                rows.append((f"translations/{name}", f"{len(table):,} texts"))
            items, captions, notes = made.items, made.captions, made.notes
    except ArtifactError as error:
        return rows, [*material.problems, Problem("content", "UnreadableFile", error.message)]
    material.problems += differences(variant, items, captions)
    evidence = variant.evidence["counts"]
    found = {f"items in {split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
    found |= {f"captions in {lang}": int(n) for lang, n in captions["lang"].value_counts(sort=False).items()}
    if variant.validation and "items in val" in found:
        notes = [*notes, f"{found['items in val']:,} of the training items validate, chosen by a hash"]
        found["items in train"] = found.get("items in train", 0) + found.pop("items in val")
    expected = dict(counted(variant.counts))
    for what in dict.fromkeys([*expected, *found]):
        said = f"{expected[what]:,} expected ({evidence})" if what in expected else "no number is known"
        rows.append((what, f"{found.get(what, 0):,}; {said}"))
    rows += [("note", note) for note in notes]
    rows.append(("evidence", evidence_text(variant.evidence)))
    return rows, material.problems


def evidence_text(evidence: Mapping[str, str]) -> str:
    """Who vouches for what, in a line."""
    return ", ".join(f"{fact} {'from memory' if said == 'memory' else said}" for fact, said in evidence.items())


def counted(counts: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, int]]:
    """`items in train` and so on, with their numbers."""
    for what, numbers in counts.items():
        for key, number in numbers.items():
            yield f"{what} in {key}", number


def protocol_rows(protocols: Iterable[Mapping[str, Any]]) -> Rows:
    """A line a protocol: its name, and what is said of it."""
    texts = ([each["name"], each.get("note", ""), each.get("evidence", "")] for each in protocols)
    return [
        ("protocol", name + (f": {note}" if note else "") + (f" ({said})" if said else ""))
        for name, note, said in texts
    ]


def unique(specs: tuple[FileSpec, ...]) -> list[FileSpec]:
    """A file once, though it may be read in two ways."""
    return list({spec.path: spec for spec in reversed(specs)}.values())[::-1]


def file_text(spec: FileSpec) -> str:
    """A file in a line: path, what it holds, and what is known of it."""
    holds = " ".join(filter(None, (spec.role, spec.split, spec.lang or spec.engine)))
    known = [f"{spec.lines:,} lines"] if spec.lines is not None else []
    known += ["hash"] if spec.sha256 else []
    known += [f"{spec.bytes:,} bytes"] if spec.bytes is not None and not known else []
    return f"{spec.path}: {holds}" + (f"; {' and '.join(known)} {spec.evidence}" if known else "")
