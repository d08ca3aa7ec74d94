"""data import: a folder in ccr's dataset format, or a bundled data set by name, becomes a dataset artifact."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import warn
from ccr_cli.data import collections
from ccr_cli.data.manifests import Folder, bundled, bundled_root, read_folder
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.data.card import artifact_rows, manifest_card, media_rows, protocol_rows
from ccr_cli.stages.data.collection import import_collection
from ccr_cli.stages.data.feature_files import import_given
from ccr_cli.stages.data.overlap import warn_of_overlap
from ccr_cli.stages.shared.failures import write_failures


def import_any(
    workspace: Workspace,
    source: str,
    *,
    root: Path | None = None,
    allow_partial: bool = False,
    name: str | None = None,
    media_root: Path | None = None,
    force: bool = False,
) -> list[base.Artifact]:
    """Imports what a name or a path leads to: a bundled data set, a collection, a MATLAB file of features, a folder.

    Args:
        workspace: Where to.
        source: Name or path.
        root: Of a collection, where its files lie.
        allow_partial: Of a collection, take what there is of it.
        name: Name of the artifact.
        media_root: Where the media lie.
        force: Import again.

    Raises:
        UsageError: If the options do not fit what it is.
        ArtifactError: If there is no such data set, or a file of it is wrong.
    """
    variant = of_collection(source)
    if variant is not None:
        found = root_of(variant, root)
        options: dict[str, Any] = {"name": name, "media_root": media_root, "force": force}
        return import_collection(workspace, variant, found, allow_partial=allow_partial, **options)
    if root is not None or allow_partial:
        raise UsageError(f"--root and --allow-partial are of collections, and {source} is none", hint="ccr data list")
    if source.endswith(".mat"):
        return import_given(workspace, Path(source), name=name, force=force)
    return [import_data(workspace, source, name=name, media_root=media_root, force=force)]


def import_data(
    workspace: Workspace,
    source: str,
    *,
    name: str | None = None,
    media_root: Path | None = None,
    force: bool = False,
) -> base.Artifact:
    """Makes a dataset artifact.

    Bundled media are copied, so that the workspace is complete in itself; other media stay where they are.

    Args:
        workspace: Where to.
        source: Name of a bundled data set, or a folder in the dataset format.
        name: Name of the artifact; by default the manifest's.
        media_root: Where the media lie, if not in the folder's `media/`.
        force: Import again.

    Returns:
        The artifact.

    Raises:
        ArtifactError: If there is no such data set, or a file of it is wrong.
    """
    path = locate(source)
    shipped = source in bundled()
    folder = read_folder(path)
    name = slug(name or folder.manifest["name"])
    digests = {f: base.sha256_file(path / f) for f in ("manifest.toml", "items.tsv", "captions.tsv")}
    digests |= {f"translations/{t.name}": base.sha256_file(t) for t in folder.tables}

    def write(site: Build) -> dict[str, int]:
        _copy(folder, site.folder, copy_media=shipped)
        if not shipped:
            site.environment["media_root"] = str((media_root or path / "media").resolve())
        write_failures(site.folder, folder.refused)
        return _counts(folder)

    request = {"name": name, "sources": digests}
    artifact = build_artifact(workspace, "dataset", name, request, write=write, force=force)
    if not shipped:
        warn_of_absent_media(dataset.read(artifact), media_root)
    there = dataset.media_root(artifact)
    if media_root is not None and there != media_root.resolve():
        warn(f"{artifact.path} keeps its media root {there}; import with --force to change it")
    warn_of_overlap(workspace, dataset.read(artifact))
    return artifact


def listing(workspace: Workspace) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What there is: the bundled data sets, the collections with their variants, and what else was imported.

    Returns:
        The names of columns, and a row a data set.
    """
    imported = {a.name: a for a in workspace.artifacts("dataset")}

    def state(name: str, otherwise: str) -> str:
        if name not in imported:
            return otherwise
        about = tomllib.loads(imported[name].file("manifest.toml").read_text("utf-8"))
        return "imported in part" if about.get("partial") else "imported"

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


def absent_media(items: pd.DataFrame, root: Path) -> list[Path]:
    """The media of items that are not where they should be, which is below the root."""
    places = {str(name): dataset.media_path(root, str(name)) for name in items["media"].dropna() if name}
    return [root / name for name, place in places.items() if place is None or not place.is_file()]


def warn_of_absent_media(data: dataset.Dataset, root: Path | None = None) -> None:
    """Says how many media are not there; `root`: where they lie, if not where the data set says."""
    place = root or dataset.media_root(data.artifact)
    missing = absent_media(data.items, place) if place is not None else []
    if missing:
        warn(f"{len(missing)} media are not there, the first: {missing[0]}; ccr extract will need them")


def _copy(folder: Folder, target: Path, *, copy_media: bool) -> None:
    write_table(target / "items.parquet", folder.items, dataset.ITEMS)
    write_table(target / "captions.parquet", folder.captions, dataset.CAPTIONS)
    shutil.copyfile(folder.path / "manifest.toml", target / "manifest.toml")
    if folder.tables:
        (target / "translations").mkdir(exist_ok=True)
        for table in folder.tables:
            shutil.copyfile(table, target / "translations" / table.name)
    if copy_media:
        base.copy_files(folder.path / "media", target / "media")


def _counts(folder: Folder) -> dict[str, int]:
    counts = {f"items.{split}": int(n) for split, n in folder.items["split"].value_counts(sort=False).items()}
    counts |= {f"captions.{lang}": int(n) for lang, n in folder.captions["lang"].value_counts(sort=False).items()}
    counts["failed"] = len(folder.refused)
    return dict(sorted(counts.items()))


def of_collection(source: str) -> collections.Variant | None:
    """The collection of a name, or of a manifest of one's own (`NAME.toml`); None: it is neither.

    Raises:
        ArtifactError: If its manifest is not of the schema.
    """
    if source in bundled():
        return None
    path = Path(source)
    return collections.find(path.stem, path.parent) if path.suffix == ".toml" else collections.find(source)


def root_of(variant: collections.Variant, root: Path | None) -> Path:
    """Where the files of a collection lie, which only the user can say.

    Raises:
        UsageError: If it was not said.
    """
    if root is None:
        raise UsageError(
            f"{variant.name} is a collection: --root says where its official files lie",
            hint=f"{variant.about['get']} More: ccr data show {variant.name}",
        )
    return root


def locate(source: str) -> Path:
    """Where a bundled data set or a folder lies.

    Raises:
        ArtifactError: If it is neither.
    """
    names = bundled()
    path = bundled_root() / source if source in names else Path(source)
    if path.is_file():
        raise ArtifactError(
            f"{source!r} is a file, and neither a bundled data set, nor a collection, nor a folder",
            hint=f"captions of your own: ccr data import --format {_format(path)} {source} --lang en",
        )
    if not path.is_dir():
        raise ArtifactError(
            f"{source!r} is neither a bundled data set, nor a collection, nor a folder",
            hint=f"bundled: {', '.join(names) or 'none'}; collections: ccr data list; folders: docs/dataset-format.md",
        )
    return path


def _format(path: Path) -> str:
    """The format that a file of captions has by the ending of its name, or the word for one."""
    endings = {".csv": "captions-csv", ".tsv": "captions-csv", ".jsonl": "jsonl"}
    return endings.get(Path(path.name.removesuffix(".gz")).suffix.lower(), "FORMAT")


def card(workspace: Workspace, source: str) -> list[tuple[str, str]]:
    """What a data set is: counts, languages, an example, licence and citation, as rows of text."""
    place = next((p for p in (Path(source), workspace.place("dataset", source)) if (p / base.RECORD).is_file()), None)
    if place is not None:
        read = dataset.read(base.load(place, "dataset"))
        manifest, items, captions = read.manifest, read.items, read.captions
    else:
        variant = of_collection(source)
        if variant is not None:
            return manifest_card(variant)
        folder = read_folder(locate(source))
        manifest, items, captions = folder.manifest, folder.items, folder.captions
    imported = place is not None and "collection" in manifest
    rows: list[tuple[str, str]] = [
        (key, str(manifest[key])) for key in ("name", "title", "description", "source_url") if key in manifest
    ]
    rows.append(("kind", ", ".join(f"{kind} ({n})" for kind, n in items["kind"].value_counts(sort=False).items())))
    rows += [(f"items in {split}", str(n)) for split, n in items["split"].value_counts(sort=False).items()]
    rows += [(f"captions in {lang}", str(n)) for lang, n in captions["lang"].value_counts(sort=False).items()]
    rows += artifact_rows(read) if imported else protocol_rows(manifest.get("protocols", []))
    rows += media_rows(read) if place is not None else []
    recorded = [f"{t['source']}->{t['target']} ({t['engine']})" for t in manifest.get("translations", [])]
    rows.append(("recorded translations", ", ".join(recorded) or "none"))
    example = captions[captions["item_id"] == items["item_id"].iloc[0]]
    rows += [(f"example {c['caption_id']}", c["text"]) for c in example.head(8).to_dict("records")]
    rows += [(key, str(manifest[key])) for key in ("licence", "attribution", "citation") if key in manifest]
    rows += [("quirk", quirk) for quirk in manifest.get("quirks", [])]
    return rows
