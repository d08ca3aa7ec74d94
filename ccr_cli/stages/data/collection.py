"""Import of a collection: its official files, checked against the manifest, become a dataset artifact."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import say, warn
from ccr_cli.data import toml
from ccr_cli.data.assemble import Assembly
from ccr_cli.data.collections import Variant
from ccr_cli.data.official import CheckedFile, examine, locate
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data.options import ImportOptions
from ccr_cli.stages.shared.failures import failure, write_failures
from ccr_cli.stages.shared.leaks import warn_of_overlap

SHOWN = 10
"""Maximum number of problems to show."""


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
    """The files of a collection's variant in a folder, and the problems found in them."""

    variant: Variant
    root: Path
    files: list[CheckedFile]
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: str) -> Path | None:
        """Returns where a file is; None if it is missing."""
        return next((file.path for file in self.files if file.spec.path == path), None)

    def request(self, name: str) -> dict[str, Any]:
        """The request of the dataset artifact: the manifest and every file, by content."""
        digest = base.sha256_file(self.variant.toml)
        sources = {f"source.{file.spec.path}": file.sha256 for file in self.files if file.path is not None}
        return {"name": name, "collection": self.variant.name, "manifest": digest, **sources}

    def assembly(self, lenient: bool) -> Assembly:
        """Returns the assembly that reads the files; `lenient` leaves out files that cannot be read."""
        return Assembly(self.variant, self.place, lenient=lenient)

    def media_root(self, items: pd.DataFrame) -> Path:
        """The folder that holds the media of items unless the user names another."""
        return self.root

    def add_unread(self, unread: Mapping[str, str]) -> None:
        """Adds files that could not be read, with the reasons, to the problems."""
        self.problems += [Problem(path, "UnreadableFile", why) for path, why in unread.items()]

    def refuse_problems(self) -> None:
        """Raises ArtifactError if there are problems; its hint says where the files are, or how to get them."""
        if not self.problems:
            return
        lines = [f"  {problem}" for problem in self.problems[:SHOWN]]
        more = [f"  and {len(self.problems) - SHOWN} more"] if len(self.problems) > SHOWN else []
        head = f"{self.root} does not hold {self.variant.name} as its manifest describes it:"
        hint = f"{self.variant.about['get']} Or import what is there: --allow-partial"
        raise ArtifactError("\n".join([head, *lines, *more]), hint=self._deeper_root() or hint)

    def _deeper_root(self) -> str:
        """Returns a hint to name a subfolder of the root instead, if most of the files are there; else ""."""
        paths = [file.spec.path for file in self.files]
        here = sum(map(bool, locate(paths, self.root).values()))
        for folder in sorted(path for path in self.root.iterdir() if path.is_dir()):
            there = sum(map(bool, locate(paths, folder).values()))
            if there > max(here, len(paths) // 2):
                return f"{there} of {len(paths)} files lie in {folder}: --root {shlex.quote(str(folder))}"
        return ""

    def write_manifest(
        self,
        site: Build,
        tables: Collection[str] = (),
        refused: Sequence[dict[str, Any]] = (),
        split_rule: str = "",
    ) -> int:
        """Writes manifest and failures, including those of `refused` captions; returns the number of failures."""
        variant, own = self.variant, self.variant.own
        facts = {key: value for key, value in variant.about.items() if key != "media"}
        if own:
            del facts["kind"]  # items.parquet has the kind of every item
        else:
            title = f"{facts['title']}: {variant.title}"
            facts |= {"title": title, "collection": variant.collection, "variant": variant.short}
        about = {
            **facts,
            "name": site.final.name,
            "evidence": dict(variant.evidence),
            "counts": dict(variant.counts),
            "parallel": dict(variant.parallel),
            "own_split": variant.own_split or bool(split_rule),
            "split_rule": split_rule,
            "partial": [str(problem) for problem in self.problems],
            "protocols": [dict(protocol) for protocol in variant.protocols],
            "translations": [
                {"source": spec.source, "target": spec.target, "engine": spec.engine, "file": spec.table}
                for spec in variant.files
                if spec.role == "translations" and spec.table in tables
            ],
            "files": [
                {
                    "path": file.path.name if own else file.spec.path,
                    "sha256": file.sha256,
                    "checked": file.checked or "nothing",
                }
                for file in self.files
                if file.path is not None
            ],
        }
        about = {key: value for key, value in about.items() if value not in ({}, [], "", False)}
        (site.folder / "manifest.toml").write_text(toml.dumps(about), encoding="utf-8")
        failed = [failure(problem.what, "import", problem.error, problem.message) for problem in self.problems]
        write_failures(site.folder, [*failed, *refused])
        return len(failed) + len(refused)

    def warn_of_problems(self, data: dataset.Dataset, allow_partial: bool) -> None:
        """Warns of problems in a data set, even one imported earlier; refuses a partial one without `allow_partial`."""
        partial = data.manifest.get("partial", [])
        if partial and not allow_partial:
            raise ArtifactError(f"{data.artifact.path} is partial: {partial[0]}", hint="import it with --allow-partial")
        for line in partial[:SHOWN]:
            warn(f"{data.name} is partial: {line}")
        if len(partial) > SHOWN:
            warn(f"{data.name} is partial: {len(partial) - SHOWN} more, see ccr data describe {data.name}")
        splits = data.items.groupby("group")["split"].nunique()
        across = splits[splits > 1]
        if len(across):
            warn(f"{len(across):,} groups of {data.name} lie in more than one split, e.g. {across.index[0]!r}")
        if self.variant.from_memory:
            warn(f"the counts of {self.variant.name} are from memory; nobody has checked them against the files")


def find_files(variant: Variant, root: Path) -> CollectionFiles:
    """Finds the files of a variant and compares each with its hash, number of lines or size in the manifest."""
    if not root.is_dir():
        raise ArtifactError(f"there is no folder {root}", hint=str(variant.about["get"]))
    files = examine(variant.files, root)
    wrong = [file for file in files if file.problem]
    wrong.sort(key=lambda file: not file.sha256)  # a file that differs says more than one that is missing
    problems = [Problem(file.spec.path, "WrongFile" if file.sha256 else "MissingFile", file.problem) for file in wrong]
    return CollectionFiles(variant, root, files, problems)


def import_collection(workspace: Workspace, source: CollectionFiles, options: ImportOptions) -> base.Artifact:
    """Imports a collection as a dataset artifact; ArtifactError if its files differ from the manifest."""
    name = slug(options.name or source.variant.name)
    lenient = options.allow_partial

    def write(site: Build) -> dict[str, int]:
        assembly = source.assembly(lenient)
        items, captions = assembly.run()
        source.add_unread(assembly.unread)
        source.problems += differences(source.variant, items, captions)
        language = str(source.variant.about["source_lang"])
        if not lenient:
            source.refuse_problems()
            if language not in set(captions["lang"]):
                langs = ", ".join(captions["lang"].unique())
                raise ArtifactError(
                    f"{name} has no captions in {language}, the source language",
                    hint=f"--lang names the language of the captions to translate and train on; it has: {langs}",
                )
        write_table(site.folder / "items.parquet", items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", captions, dataset.CAPTIONS)
        for table, texts in assembly.translations.items():
            rows: Iterable[tuple[str, ...]] = chain([("source", "target")], texts.items())
            if exceptions := assembly.exceptions.get(table):
                rows = [("source", "target", "caption_id"), *((*pair, "") for pair in texts.items()), *exceptions]
            (site.folder / "translations").mkdir(exist_ok=True)
            with (site.folder / "translations" / table).open("w", encoding="utf-8", newline="") as file:
                file.writelines(map(write_tsv_line, rows))
        media_root = options.media_root or source.media_root(items)
        site.environment["media_root"] = workspace.relative(media_root)
        failed = source.write_manifest(site, assembly.translations, assembly.refused, assembly.split_rule)
        for note in assembly.notes:
            say(f"{name}: {note}")
        return dataset.counts(items, captions, failed)

    artifact = build_artifact(workspace, "dataset", name, source.request(name), write=write, force=options.force)
    data = dataset.read(artifact)
    source.warn_of_problems(data, lenient)
    warn_of_kept_media_root(artifact, options.media_root or source.media_root(data.items))
    warn_of_overlap(workspace, data)
    return artifact


def warn_of_kept_media_root(artifact: base.Artifact, media_root: Path) -> None:
    """Warns if a data set imported earlier keeps a media root other than the one named now."""
    recorded = dataset.media_root(artifact)
    if recorded != media_root.resolve():
        warn(f"{artifact.path} keeps its media root {recorded}; import with --force to change it")


def expected_numbers(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Returns the counts of a manifest by name, such as `items in train`."""
    return {f"{what} in {key}": number for what, numbers in counts.items() for key, number in numbers.items()}


def actual_numbers(variant: Variant, items: pd.DataFrame, captions: pd.DataFrame) -> dict[str, int]:
    """Counts the content; validation items that a hash took from the training items count as training items."""
    numbers = {f"items in {split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
    numbers |= {f"captions in {lang}": int(n) for lang, n in captions["lang"].value_counts(sort=False).items()}
    if variant.validation and "items in val" in numbers:
        numbers["items in train"] = numbers.get("items in train", 0) + numbers.pop("items in val")
    return numbers


def differences(variant: Variant, items: pd.DataFrame, captions: pd.DataFrame) -> list[Problem]:
    """Compares the manifest's counts with the content; counts from memory only give a warning."""
    actual = actual_numbers(variant, items, captions)
    numbers = [(what, n, actual.get(what, 0)) for what, n in expected_numbers(variant.counts).items()]
    for lang, number in variant.captions_per_item.items():
        sizes = items["item_id"].map(captions.loc[captions["lang"] == lang, "item_id"].value_counts()).fillna(0)
        covered = items["split"].isin(items.loc[sizes > 0, "split"])  # a language may be in the test split alone
        other = int((covered & (sizes != number)).sum())
        numbers.append((f"items with another number of captions in {lang} than {number}", 0, other))
    wrong = [(what, f"{number:,} expected, {there:,} found") for what, number, there in numbers if number != there]
    if not variant.from_memory:
        return [Problem(what, "Count", message) for what, message in wrong]
    for what, message in wrong:
        warn(f"{variant.name}: {what}: {message}; the expected number is from memory and may be wrong")
    return []
