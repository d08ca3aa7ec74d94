"""data import of a collection: its official files, checked, become a dataset artifact like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import say, warn
from ccr_cli.data import toml
from ccr_cli.data.assemble import OTHERS, Assembled, Assembly, crossing, translations
from ccr_cli.data.collections import FileSpec, Variant
from ccr_cli.data.official import Found, examine, locate
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data.overlap import warn_of_overlap
from ccr_cli.stages.shared.failures import failure, write_failures

SHOWN = 10
"""So many of a list of problems are shown."""


@dataclass(frozen=True)
class Problem:
    """What is not as the manifest says."""

    what: str
    """A path, or what was counted."""
    error: str
    message: str
    """Expected and found."""

    def __str__(self) -> str:
        return f"{self.what}: {self.message}"


@dataclass
class Material:
    """Files of a variant, found below a folder."""

    variant: Variant
    root: Path
    found: list[Found]
    problems: list[Problem] = field(default_factory=list)
    asked: dict[str, Any] | None = None
    """What an import of one's own files depends on; None: the manifest and the files say it."""

    def place(self, path: str) -> Path | None:
        """Where a file lies; None where it is missing."""
        return next((each.path for each in self.found if each.spec.path == path), None)

    def refuse(self, problems: Sequence[Problem]) -> ArtifactError:
        """The error that lists problems, with how to get the files."""
        shown = [f"  {problem}" for problem in problems[:SHOWN]]
        more = [f"  and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        head = f"{self.root} does not hold {self.variant.name} as its manifest says:"
        hint = f"{self.variant.about['get']} Or take what there is: --allow-partial"
        return ArtifactError("\n".join([head, *shown, *more]), hint=self._deeper() or hint)

    def _deeper(self) -> str:
        """Which folder of the root to name in its place, if most of the files lie there."""
        paths = [each.spec.path for each in self.found]
        here = sum(map(bool, locate(paths, self.root).values()))
        for folder in sorted(each for each in self.root.iterdir() if each.is_dir()):
            there = sum(map(bool, locate(paths, folder).values()))
            if there > max(here, len(paths) // 2):
                return f"{there} of {len(paths)} files lie in {folder}: --root {folder}"
        return ""


def gather(variant: Variant, root: Path) -> Material:
    """Finds the files of a variant and compares each with what is known of it.

    Raises:
        ArtifactError: If there is no such folder.
    """
    if not root.is_dir():
        raise ArtifactError(f"there is no folder {root}", hint=str(variant.about["get"]))
    found = examine(variant.files, root)
    wrong = [each for each in found if each.problem]
    wrong.sort(key=lambda each: not each.sha256)  # what is there and differs says more than what is missing
    problems = [Problem(each.spec.path, "WrongFile" if each.sha256 else "MissingFile", each.problem) for each in wrong]
    return Material(variant, root, found, problems)


def import_collection(
    workspace: Workspace,
    variant: Variant,
    root: Path,
    *,
    allow_partial: bool = False,
    name: str | None = None,
    media_root: Path | None = None,
    force: bool = False,
) -> list[base.Artifact]:
    """Makes a dataset artifact of a collection's official files; of labelled features their artifact too.

    Args:
        workspace: Where to.
        variant: Which collection, used in which way.
        root: The folder of its files.
        allow_partial: Take what there is; what is missing or differs is recorded.
        name: Name of the artifact; by default the variant's.
        media_root: Where the media lie; they need not be there.
        force: Import again.

    Returns:
        The dataset, and the features where the collection consists of them.

    Raises:
        ArtifactError: If a file is missing or is not what the manifest says, with expected and found.
    """
    material = gather(variant, root)
    if material.problems and not allow_partial:
        raise material.refuse(material.problems)
    name = slug(name or variant.name)
    if variant.kind == "features":
        from ccr_cli.stages.data.feature_files import import_features

        return import_features(workspace, material, name, allow_partial=allow_partial, force=force)
    made = build(workspace, material, name, allow_partial=allow_partial, media_root=media_root or root, force=force)
    return [made]


def build(
    workspace: Workspace, material: Material, name: str, *, allow_partial: bool, media_root: Path, force: bool
) -> base.Artifact:
    """Makes the dataset artifact of files that were found.

    Raises:
        ArtifactError: If their content is not what the manifest says.
    """

    def write(site: Build) -> dict[str, int]:
        assembly = Assembly(material.variant, material.place, lenient=allow_partial)
        made = assembly.run()
        material.problems += [Problem(path, "UnreadableFile", why) for path, why in made.unread.items()]
        tables = recorded(assembly, made, material, lenient=allow_partial)
        material.problems += differences(material.variant, made.items, made.captions)
        if material.problems and not allow_partial:
            raise material.refuse(material.problems)
        source = str(material.variant.about["source_lang"])
        if source not in set(made.captions["lang"]) and not allow_partial:
            raise ArtifactError(
                f"{name} has no captions in {source}, the source language",
                hint="--lang says in which language the captions are that are translated and trained on",
            )
        write_table(site.folder / "items.parquet", made.items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", made.captions, dataset.CAPTIONS)
        _write_tables(site.folder, tables)
        site.environment["media_root"] = str(media_root.resolve())
        counts = finish(site, material, made.items, made.captions, tables=list(tables), refused=made.refused)
        for note in made.notes:
            say(f"{name}: {note}")
        return counts

    artifact = build_artifact(workspace, "dataset", name, request(material, name), write=write, force=force)
    read = dataset.read(artifact)
    tell(read, material, allow_partial)
    there = dataset.media_root(artifact)
    if there != media_root.resolve():
        warn(f"{artifact.path} keeps its media root {there}; import with --force to change it")
    warn_of_overlap(workspace, read)
    return artifact


def request(material: Material, name: str) -> dict[str, Any]:
    """What an import depends on: the manifest and every file, by content."""
    if material.asked is not None:
        return material.asked
    digest = base.sha256_file(material.variant.toml)
    sources = {f"source.{each.spec.path}": each.sha256 for each in material.found if each.path is not None}
    return {"name": name, "collection": material.variant.name, "manifest": digest, **sources}


def finish(
    site: Build,
    material: Material,
    items: pd.DataFrame,
    captions: pd.DataFrame,
    *,
    tables: Sequence[str] = (),
    refused: Sequence[dict[str, Any]] = (),
) -> dict[str, int]:
    """Writes the manifest and the failures; returns the counts."""
    about = manifest(material, site.final.name, tables)
    (site.folder / "manifest.toml").write_text(toml.dumps(about), encoding="utf-8")
    failed = [failure(problem.what, "import", problem.error, problem.message) for problem in material.problems]
    write_failures(site.folder, [*failed, *refused])
    counts = {f"items.{split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
    counts |= {f"captions.{lang}": int(n) for lang, n in captions["lang"].value_counts(sort=False).items()}
    return {**dict(sorted(counts.items())), "failed": len(failed) + len(refused)}


def manifest(material: Material, name: str, tables: Sequence[str]) -> dict[str, Any]:
    """The artifact's manifest: the facts about the collection, and of its variant the protocols alone."""
    variant = material.variant
    facts = dict(variant.about)
    facts.pop("media", None)
    if material.asked is not None:
        del facts["kind"]  # items.parquet says it of each
    else:
        facts |= {"title": f"{facts['title']}: {variant.title}", "collection": variant.collection}
        facts |= {"variant": variant.short}
    about = {
        **facts,
        "name": name,
        "evidence": dict(variant.evidence),
        "counts": dict(variant.counts),
        "parallel": dict(variant.parallel),
        "own_split": variant.own_split,
        "partial": [str(problem) for problem in material.problems],
        "protocols": [dict(protocol) for protocol in variant.protocols],
        "translations": [
            {"source": spec.source, "target": spec.target, "engine": spec.engine, "file": table_of(spec)}
            for spec in variant.files
            if spec.role == "translations" and table_of(spec) in tables
        ],
        "files": [
            {
                "path": each.spec.path if material.asked is None else each.path.name,
                "sha256": each.sha256,
                "checked": each.checked or "nothing",
            }
            for each in material.found
            if each.path is not None
        ],
    }
    return {key: value for key, value in about.items() if value not in ({}, [], "", False)}


def differences(variant: Variant, items: pd.DataFrame, captions: pd.DataFrame) -> list[Problem]:
    """Compares what the manifest counts with what there is; counts from memory are warned about and no more."""
    splits = {str(split): int(n) for split, n in items["split"].value_counts().items()}
    langs = {str(lang): int(n) for lang, n in captions["lang"].value_counts().items()}
    if variant.validation:  # the validation items are taken of those for training, by ccr
        splits["train"] = splits.get("train", 0) + splits.pop("val", 0)
    expected = variant.counts.get("items", {})
    found = [(f"items in {split}", number, splits.get(split, 0)) for split, number in expected.items()]
    expected = variant.counts.get("captions", {})
    found += [(f"captions in {lang}", number, langs.get(lang, 0)) for lang, number in expected.items()]
    for lang, number in variant.captions_per_item.items():
        sizes = items["item_id"].map(captions.loc[captions["lang"] == lang, "item_id"].value_counts()).fillna(0)
        covered = items["split"].isin(items.loc[sizes > 0, "split"].unique())  # a language may be of the test alone
        other = int((covered & (sizes != number)).sum())
        found.append((f"items with another number of captions in {lang} than {number}", 0, other))
    wrong = [(what, f"{number:,} expected, {there:,} found") for what, number, there in found if number != there]
    if variant.evidence.get("counts") == "memory":
        for what, message in wrong:
            warn(f"{variant.name}: {what}: {message}; the number expected is from memory and may be what is wrong")
        return []
    return [Problem(what, "Count", message) for what, message in wrong]


def table_of(spec: FileSpec) -> str:
    """The name of the table of recorded translations that a file becomes."""
    return f"{slug(spec.engine)}-{spec.source}-{spec.target}.tsv"


def recorded(assembly: Assembly, made: Assembled, material: Material, *, lenient: bool) -> dict[str, dict[str, str]]:
    """Reads the recorded translations.

    Args:
        assembly: What knows the items.
        made: The data set; what is left out is noted in it.
        material: The files; one that cannot be read is noted as a problem.
        lenient: Note it, instead of stopping at it.

    Returns:
        Translations by source text, by the name of their table.

    Raises:
        ArtifactError: If a file cannot be read.
    """
    tables: dict[str, dict[str, str]] = {}
    sources: dict[str, str] = {}
    for spec in material.variant.files:
        if spec.role != "translations" or material.place(spec.path) is None:
            continue
        try:
            table, left_out = translations(spec, assembly, made.captions)
        except ArtifactError as error:
            if not lenient:
                raise
            material.problems.append(Problem(spec.path, "UnreadableFile", error.message))
            continue
        known = tables.setdefault(table_of(spec), {})
        left_out[OTHERS] += sum(known.setdefault(text, target) != target for text, target in table.items())
        made.notes += [f"{number:,} translations of {spec.path} {why}" for why, number in left_out.items() if number]
        sources[table_of(spec)] = spec.source
    for name, source in sources.items():
        own = made.captions.loc[made.captions["lang"] == source, "text"]
        lacking = int((~own.isin(tables[name].keys())).sum())
        if lacking:
            made.notes.append(f"{lacking:,} of {len(own):,} captions in {source} have no translation in {name}")
    return tables


def _write_tables(folder: Path, tables: Mapping[str, Mapping[str, str]]) -> None:
    for name, table in tables.items():
        (folder / "translations").mkdir(exist_ok=True)
        lines = [write_tsv_line(("source", "target")), *map(write_tsv_line, table.items())]
        (folder / "translations" / name).write_text("".join(lines), encoding="utf-8", newline="")


def tell(made: dataset.Dataset, material: Material, allow_partial: bool) -> None:
    """Says what is not as it should be, also of what was imported before.

    Raises:
        ArtifactError: If it is partial, and that was not allowed.
    """
    partial = made.manifest.get("partial", [])
    if partial and not allow_partial:
        raise ArtifactError(f"{made.artifact.path} is partial: {partial[0]}", hint="import it with --allow-partial")
    for line in partial[:SHOWN]:
        warn(f"{made.name} is partial: {line}")
    if len(partial) > SHOWN:
        warn(f"{made.name} is partial: {len(partial) - SHOWN} more, see ccr data show {made.name}")
    across = crossing(made.items)
    if len(across):
        warn(f"{len(across):,} groups of {made.name} lie in more than one split, e.g. {across.index[0]!r}")
    if material.variant.evidence.get("counts") == "memory":
        warn(f"the counts of {material.variant.name} are from memory; nobody has checked them against the files")
