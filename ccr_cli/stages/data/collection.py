"""Import of a collection: its official files, checked against the manifest, become a dataset artifact."""

from __future__ import annotations

from collections.abc import Sequence
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
from ccr_cli.data.official import CheckedFile, examine, locate
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.shared.failures import failure, write_failures
from ccr_cli.stages.shared.leaks import warn_of_overlap

SHOWN = 10
"""How many problems of a list are shown."""


@dataclass(frozen=True)
class Problem:
    """A difference between the files and the manifest."""

    what: str
    """A path, or what was counted."""
    error: str
    message: str
    """Expected and found."""

    def __str__(self) -> str:
        return f"{self.what}: {self.message}"


@dataclass
class CollectionFiles:
    """The files of a collection's variant below a folder, with what is wrong with them."""

    variant: Variant
    root: Path
    files: list[CheckedFile]
    problems: list[Problem] = field(default_factory=list)
    own_request: dict[str, Any] | None = None
    """The request of an import of one's own files; None for a collection, whose manifest and files decide."""

    def place(self, path: str) -> Path | None:
        """Where a file lies; None if it is missing."""
        return next((file.path for file in self.files if file.spec.path == path), None)

    def request(self, name: str) -> dict[str, Any]:
        """The request of the dataset artifact: the manifest and every file, by content."""
        if self.own_request is not None:
            return self.own_request
        digest = base.sha256_file(self.variant.toml)
        sources = {f"source.{file.spec.path}": file.sha256 for file in self.files if file.path is not None}
        return {"name": name, "collection": self.variant.name, "manifest": digest, **sources}

    def refuse_problems(self, allow_partial: bool) -> None:
        """Refuses files that are not as the manifest says, unless a partial import is allowed.

        Raises:
            ArtifactError: With the problems, and how to get the files.
        """
        if self.problems and not allow_partial:
            raise self.error()

    def error(self) -> ArtifactError:
        """The error that lists the problems, with how to get the files."""
        lines = [f"  {problem}" for problem in self.problems[:SHOWN]]
        more = [f"  and {len(self.problems) - SHOWN} more"] if len(self.problems) > SHOWN else []
        head = f"{self.root} does not hold {self.variant.name} as its manifest describes it:"
        hint = f"{self.variant.about['get']} Or import what is there: --allow-partial"
        return ArtifactError("\n".join([head, *lines, *more]), hint=self._deeper_root() or hint)

    def _deeper_root(self) -> str:
        """The hint to name a folder of the root instead, if most of the files lie there."""
        paths = [file.spec.path for file in self.files]
        here = sum(map(bool, locate(paths, self.root).values()))
        for folder in sorted(path for path in self.root.iterdir() if path.is_dir()):
            there = sum(map(bool, locate(paths, folder).values()))
            if there > max(here, len(paths) // 2):
                return f"{there} of {len(paths)} files lie in {folder}: --root {folder}"
        return ""


def find_files(variant: Variant, root: Path) -> CollectionFiles:
    """Finds the files of a variant and compares each with its hash, number of lines or size in the manifest.

    Raises:
        ArtifactError: If there is no such folder.
    """
    if not root.is_dir():
        raise ArtifactError(f"there is no folder {root}", hint=str(variant.about["get"]))
    files = examine(variant.files, root)
    wrong = [file for file in files if file.problem]
    wrong.sort(key=lambda file: not file.sha256)  # a file that differs says more than one that is missing
    problems = [Problem(file.spec.path, "WrongFile" if file.sha256 else "MissingFile", file.problem) for file in wrong]
    return CollectionFiles(variant, root, files, problems)


def import_collection(
    workspace: Workspace,
    source: CollectionFiles,
    name: str,
    *,
    media_root: Path,
    allow_partial: bool = False,
    force: bool = False,
) -> base.Artifact:
    """Makes the dataset artifact of a collection's files.

    Args:
        workspace: Where to.
        source: The files.
        name: Name of the artifact.
        media_root: Where the media lie; they need not be there.
        allow_partial: Import what is there; what is missing or differs is recorded.
        force: Import again.

    Returns:
        The dataset artifact.

    Raises:
        ArtifactError: If the content is not what the manifest says.
    """

    def write(site: Build) -> dict[str, int]:
        assembly = Assembly(source.variant, source.place, lenient=allow_partial)
        made = assembly.run()
        source.problems += [Problem(path, "UnreadableFile", why) for path, why in made.unread.items()]
        tables = recorded_translations(assembly, made, source, lenient=allow_partial)
        source.problems += differences(source.variant, made.items, made.captions)
        source.refuse_problems(allow_partial)
        language = str(source.variant.about["source_lang"])
        if language not in set(made.captions["lang"]) and not allow_partial:
            raise ArtifactError(
                f"{name} has no captions in {language}, the source language",
                hint="--lang names the language of the captions to translate and train on",
            )
        write_table(site.folder / "items.parquet", made.items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", made.captions, dataset.CAPTIONS)
        for table, texts in tables.items():
            (site.folder / "translations").mkdir(exist_ok=True)
            lines = [write_tsv_line(("source", "target")), *map(write_tsv_line, texts.items())]
            (site.folder / "translations" / table).write_text("".join(lines), encoding="utf-8", newline="")
        site.environment["media_root"] = str(media_root.resolve())
        failed = write_manifest(site, source, list(tables), made.refused)
        for note in made.notes:
            say(f"{name}: {note}")
        return dataset.counts(made.items, made.captions, failed)

    artifact = build_artifact(workspace, "dataset", name, source.request(name), write=write, force=force)
    data = dataset.read(artifact)
    warn_of_problems(data, source, allow_partial)
    warn_of_kept_media_root(artifact, media_root)
    warn_of_overlap(workspace, data)
    return artifact


def write_manifest(
    site: Build, source: CollectionFiles, tables: Sequence[str] = (), refused: Sequence[dict[str, Any]] = ()
) -> int:
    """Writes the manifest and the failures of a dataset artifact; returns how many failures there are."""
    about = _manifest(source, site.final.name, tables)
    (site.folder / "manifest.toml").write_text(toml.dumps(about), encoding="utf-8")
    failed = [failure(problem.what, "import", problem.error, problem.message) for problem in source.problems]
    write_failures(site.folder, [*failed, *refused])
    return len(failed) + len(refused)


def warn_of_kept_media_root(artifact: base.Artifact, media_root: Path) -> None:
    """Warns if a data set that was imported before has another media root than the one named now."""
    recorded = dataset.media_root(artifact)
    if recorded != media_root.resolve():
        warn(f"{artifact.path} keeps its media root {recorded}; import with --force to change it")


def _manifest(source: CollectionFiles, name: str, tables: Sequence[str]) -> dict[str, Any]:
    """The artifact's manifest: the facts about the collection, and the protocols of its variant."""
    variant = source.variant
    facts = dict(variant.about)
    facts.pop("media", None)
    if source.own_request is not None:
        del facts["kind"]  # items.parquet has the kind of every item
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
        "partial": [str(problem) for problem in source.problems],
        "protocols": [dict(protocol) for protocol in variant.protocols],
        "translations": [
            {"source": spec.source, "target": spec.target, "engine": spec.engine, "file": table_of(spec)}
            for spec in variant.files
            if spec.role == "translations" and table_of(spec) in tables
        ],
        "files": [
            {
                "path": file.spec.path if source.own_request is None else file.path.name,
                "sha256": file.sha256,
                "checked": file.checked or "nothing",
            }
            for file in source.files
            if file.path is not None
        ],
    }
    return {key: value for key, value in about.items() if value not in ({}, [], "", False)}


def differences(variant: Variant, items: pd.DataFrame, captions: pd.DataFrame) -> list[Problem]:
    """Compares the manifest's counts with the content; counts from memory only give a warning."""
    splits = {str(split): int(n) for split, n in items["split"].value_counts().items()}
    langs = {str(lang): int(n) for lang, n in captions["lang"].value_counts().items()}
    if variant.validation:  # ccr takes the validation items from the training items
        splits["train"] = splits.get("train", 0) + splits.pop("val", 0)
    expected = variant.counts.get("items", {})
    numbers = [(f"items in {split}", number, splits.get(split, 0)) for split, number in expected.items()]
    expected = variant.counts.get("captions", {})
    numbers += [(f"captions in {lang}", number, langs.get(lang, 0)) for lang, number in expected.items()]
    for lang, number in variant.captions_per_item.items():
        sizes = items["item_id"].map(captions.loc[captions["lang"] == lang, "item_id"].value_counts()).fillna(0)
        covered = items["split"].isin(
            items.loc[sizes > 0, "split"].unique()
        )  # a language may be in the test split alone
        other = int((covered & (sizes != number)).sum())
        numbers.append((f"items with another number of captions in {lang} than {number}", 0, other))
    wrong = [(what, f"{number:,} expected, {there:,} found") for what, number, there in numbers if number != there]
    if variant.evidence.get("counts") == "memory":
        for what, message in wrong:
            warn(f"{variant.name}: {what}: {message}; the expected number is from memory and may be wrong")
        return []
    return [Problem(what, "Count", message) for what, message in wrong]


def table_of(spec: FileSpec) -> str:
    """The name of the table of recorded translations that a file becomes."""
    return f"{slug(spec.engine)}-{spec.source}-{spec.target}.tsv"


def recorded_translations(
    assembly: Assembly, made: Assembled, source: CollectionFiles, *, lenient: bool
) -> dict[str, dict[str, str]]:
    """Reads the recorded translations.

    Args:
        assembly: Knows the items.
        made: The data set; notes on what is left out are added to it.
        source: The files; one that cannot be read is added to its problems.
        lenient: Note an unreadable file instead of stopping at it.

    Returns:
        Translations by source text, by the name of their table.

    Raises:
        ArtifactError: If a file cannot be read.
    """
    tables: dict[str, dict[str, str]] = {}
    languages: dict[str, str] = {}
    for spec in source.variant.files:
        if spec.role != "translations" or source.place(spec.path) is None:
            continue
        try:
            table, left_out = translations(spec, assembly, made.captions)
        except ArtifactError as error:
            if not lenient:
                raise
            source.problems.append(Problem(spec.path, "UnreadableFile", error.message))
            continue
        known = tables.setdefault(table_of(spec), {})
        left_out[OTHERS] += sum(known.setdefault(text, target) != target for text, target in table.items())
        made.notes += [f"{number:,} translations of {spec.path} {why}" for why, number in left_out.items() if number]
        languages[table_of(spec)] = spec.source
    for name, language in languages.items():
        texts = made.captions.loc[made.captions["lang"] == language, "text"]
        lacking = int((~texts.isin(tables[name].keys())).sum())
        if lacking:
            made.notes.append(f"{lacking:,} of {len(texts):,} captions in {language} have no translation in {name}")
    return tables


def warn_of_problems(data: dataset.Dataset, source: CollectionFiles, allow_partial: bool) -> None:
    """Warns of what is wrong with an imported collection, also with one that was imported before.

    Raises:
        ArtifactError: If it is partial, and that is not allowed.
    """
    partial = data.manifest.get("partial", [])
    if partial and not allow_partial:
        raise ArtifactError(f"{data.artifact.path} is partial: {partial[0]}", hint="import it with --allow-partial")
    for line in partial[:SHOWN]:
        warn(f"{data.name} is partial: {line}")
    if len(partial) > SHOWN:
        warn(f"{data.name} is partial: {len(partial) - SHOWN} more, see ccr data show {data.name}")
    across = crossing(data.items)
    if len(across):
        warn(f"{len(across):,} groups of {data.name} lie in more than one split, e.g. {across.index[0]!r}")
    if source.variant.evidence.get("counts") == "memory":
        warn(f"the counts of {source.variant.name} are from memory; nobody has checked them against the files")
