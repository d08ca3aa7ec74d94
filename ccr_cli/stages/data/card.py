"""What `ccr data list`, `show` and `verify` print: the data sets, a data set's card, and the check of a collection."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import collections
from ccr_cli.data.assemble import Assembly
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.data.manifests import bundled, read_folder
from ccr_cli.data.official import unique_paths
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data.collection import Problem, actual_numbers, differences, expected_numbers, find_files
from ccr_cli.stages.data.feature_files import preview
from ccr_cli.stages.data.folder import absent_media, locate
from ccr_cli.stages.data.stage import find_variant

Rows = list[tuple[str, str]]
_KNOWN = {
    "sha256": "right hash",
    "lines": "right number of lines",
    "bytes": "right size",
    "": "there; nothing to compare it with",
}


def listing(workspace: Workspace) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Lists bundled data sets, collections with their variants and other imported data sets, as columns and rows."""
    imported = {a.name: a for a in workspace.artifacts("dataset")}

    def state(name: str, otherwise: str) -> str:
        if name not in imported:
            return otherwise
        return "imported in part" if imported[name].toml("manifest.toml").get("partial") else "imported"

    rows: list[tuple[str, ...]] = []
    shipped = bundled()
    for name, about in shipped.items():
        langs = " ".join([about["source_lang"], *about.get("query_langs", [])])
        pairs = " ".join(f"{t['source']}->{t['target']}" for t in about.get("translations", []))
        rows.append((name, state(name, "bundled"), about.get("title", ""), langs, pairs, about.get("licence", "")))
    known = collections.variants()
    for name, variant in known.items():
        tables = (f"{spec.source}->{spec.target}" for spec in variant.files if spec.role == "translations")
        title = f"{variant.about['title']}: {variant.title}"
        facts = (title, " ".join(variant.langs), " ".join(dict.fromkeys(tables)), str(variant.about["licence"]))
        rows.append((name, state(name, "collection"), *facts))
    for name, artifact in imported.items():
        if name not in shipped and name not in known:
            langs = " ".join(k.removeprefix("captions.") for k in artifact.counts if k.startswith("captions."))
            rows.append((name, state(name, ""), "", langs, "", ""))
    return ("name", "state", "title", "languages", "recorded translations", "licence"), rows


def card(workspace: Workspace, source: str) -> Rows:
    """Describes a data set in rows of text: counts, languages, an example, licence and citation."""
    place = next((p for p in (Path(source), workspace.place("dataset", source)) if (p / base.RECORD).is_file()), None)
    data = dataset.read(base.load(place, "dataset")) if place is not None else None
    if data is None and (variant := find_variant(source)) is not None:
        return _manifest_card(variant)
    content = data or read_folder(locate(source))
    manifest, items, captions = content.manifest, content.items, content.captions
    facts = ("name", "title", "description", "source_url")
    rows: Rows = [(key, str(manifest[key])) for key in facts if key in manifest]
    rows.append(("kind", ", ".join(f"{kind} ({n})" for kind, n in items["kind"].value_counts(sort=False).items())))
    rows += [(f"items in {split}", str(n)) for split, n in items["split"].value_counts(sort=False).items()]
    rows += [("split", manifest["split_rule"])] if "split_rule" in manifest else []
    rows += [(f"captions in {lang}", str(n)) for lang, n in captions["lang"].value_counts(sort=False).items()]
    if data is not None and "collection" in manifest:
        evidence = manifest.get("evidence", {})
        expected = expected_numbers(manifest.get("counts", {}))
        rows += [(f"{what}, expected", f"{n:,} ({evidence.get('counts', 'memory')})") for what, n in expected.items()]
        rows.append(("evidence", _evidence_text(evidence)))
    rows += _protocol_rows(manifest.get("protocols", []))
    if data is not None and "collection" in manifest:
        partial = manifest.get("partial", [])
        rows += [("partial", str(problem)) for problem in partial]
        rows += [("get it", str(manifest["get"]))] if partial and manifest.get("get") else []
    root = None if data is None else dataset.media_root(data.artifact)
    named = items["media"].nunique()
    if root is not None and named:
        rows.append(("missing media", f"{len(absent_media(items, root)):,} of {named:,} below {root}"))
    recorded = [f"{t['source']}->{t['target']} ({t['engine']})" for t in manifest.get("translations", [])]
    rows.append(("recorded translations", ", ".join(recorded) or "none"))
    example = captions[captions["item_id"] == items["item_id"].iloc[0]]
    rows += [(f"example {c['caption_id']}", c["text"]) for c in example.head(8).to_dict("records")]
    rows += [(key, str(manifest[key])) for key in ("licence", "attribution", "citation") if key in manifest]
    return rows + [("quirk", quirk) for quirk in manifest.get("quirks", [])]


def check_files(variant: Variant, root: Path) -> tuple[Rows, list[Problem]]:
    """Checks a collection's files and content without importing it; returns a row per file and count, and problems."""
    source = find_files(variant, root)
    rows: Rows = []
    for file in source.files:
        known = f"{_KNOWN[file.checked]} ({file.spec.evidence})" if file.checked else _KNOWN[""]
        rows.append((file.spec.path, file.problem or known))
    notes: list[str] = []
    try:
        if variant.kind == "features":
            tables = preview(source)
            if tables is None:
                return rows, source.problems
            items, captions = tables
        else:
            assembly = Assembly(variant, source.place, lenient=True)
            items, captions = assembly.run()
            source.add_unread(assembly.unread)
            rows += [(f"translations/{name}", f"{len(table):,} texts") for name, table in assembly.translations.items()]
            notes = assembly.notes
    except ArtifactError as error:
        source.add_unread({"content": error.message})
        return rows, source.problems
    source.problems += differences(variant, items, captions)
    actual, expected = actual_numbers(variant, items, captions), expected_numbers(variant.counts)
    for what in dict.fromkeys([*expected, *actual]):
        number = (
            f"{expected[what]:,} expected ({variant.evidence['counts']})" if what in expected else "nothing expected"
        )
        rows.append((what, f"{actual.get(what, 0):,}; {number}"))
    taken = int((items["split"] == "val").sum())
    if variant.validation and taken:
        notes = [*notes, f"a hash chose {taken:,} of the training items for validation"]
    rows += [("note", note) for note in notes]
    rows.append(("evidence", _evidence_text(variant.evidence)))
    return rows, source.problems


def _manifest_card(variant: Variant) -> Rows:
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
    numbers = expected_numbers({**variant.counts, "captions per item": variant.captions_per_item})
    rows += [(what, f"{number:,} ({evidence['counts']})") for what, number in numbers.items()]
    rows.append(("evidence", _evidence_text(evidence)))
    rows += _protocol_rows(variant.protocols)
    rows += [("file", _file_text(spec)) for spec in unique_paths(variant.files)]
    rows += [(fact, f"{about[fact]} ({evidence[fact]})") for fact in ("licence", "citation")]
    return rows + [("quirk", quirk) for quirk in about.get("quirks", [])]


def _evidence_text(evidence: Mapping[str, str]) -> str:
    """Formats the source of each fact on one line."""
    return ", ".join(f"{fact} {'from memory' if by == 'memory' else by}" for fact, by in evidence.items())


def _protocol_rows(protocols: Iterable[Mapping[str, Any]]) -> Rows:
    """One row per protocol, with its note and its evidence."""
    facts = [(each["name"], each.get("note", ""), each.get("evidence", "")) for each in protocols]
    return [("protocol", name + (f": {note}" if note else "") + (f" ({by})" if by else "")) for name, note, by in facts]


def _file_text(spec: FileSpec) -> str:
    """Describes a file on one line: path, content, and what the manifest records of it."""
    holds = " ".join(filter(None, (spec.role, spec.split, spec.lang or spec.engine)))
    known = [f"{spec.lines:,} lines"] if spec.lines is not None else []
    known += ["hash"] if spec.sha256 else []
    known += [f"{spec.bytes:,} bytes"] if spec.bytes is not None and not known else []
    return f"{spec.path}: {holds}" + (f"; {' and '.join(known)} {spec.evidence}" if known else "")
