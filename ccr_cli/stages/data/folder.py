"""Import of a folder in ccr's dataset format, bundled or the user's own."""

import os
import shlex
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import counted, say, warn
from ccr_cli.data.collections import variants
from ccr_cli.data.manifests import bundled_names, bundled_root, read_folder, with_hidden
from ccr_cli.errors import ArtifactError, UsageError, did_you_mean, no_file
from ccr_cli.stages.data.collection import warn_of_kept_media_root
from ccr_cli.stages.data.options import DEFAULTS, ImportOptions
from ccr_cli.stages.shared.failures import write_failures
from ccr_cli.stages.shared.leaks import warn_of_overlap

_MOST_MISSING = 10
"""Maximum number of missing media to list."""


def import_folder(workspace: Workspace, source: str, options: ImportOptions = DEFAULTS) -> base.Artifact:
    """Makes a dataset artifact of a bundled data set, or of a folder in the dataset format.

    Bundled media are copied, so that the workspace is complete in itself; other media stay where they are.
    """
    path = locate(source)
    shipped = source in bundled_names()
    folder = read_folder(path)
    name = slug(options.name or folder.manifest["name"])
    digests = {f: base.sha256_file(path / f) for f in ("manifest.toml", "items.tsv", "captions.tsv")}
    digests |= {f"translations/{t.name}": base.sha256_file(t) for t in folder.tables}

    def write(site: Build) -> dict[str, int]:
        write_table(site.folder / "items.parquet", folder.items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", folder.captions, dataset.CAPTIONS)
        shutil.copyfile(path / "manifest.toml", site.folder / "manifest.toml")
        for table in folder.tables:
            (site.folder / "translations").mkdir(exist_ok=True)
            shutil.copyfile(table, site.folder / "translations" / table.name)
        if shipped:
            base.copy_files(path / "media", site.folder / "media")
        else:
            site.environment["media_root"] = workspace.relative(options.media_root or path / "media")
        write_failures(site.folder, folder.refused)
        if folder.hidden:
            say(f"{name}: {with_hidden(folder.hidden)}")
        return dataset.counts(folder.items, folder.captions, len(folder.refused))

    request = {"name": name, "sources": digests}
    artifact = build_artifact(workspace, "dataset", name, request, write=write, force=options.force)
    if not shipped:
        root = options.media_root or dataset.media_root(artifact)
        warn_of_absent_media(absent_media(dataset.read(artifact).items, root) if root is not None else [])
    if options.media_root is not None:
        warn_of_kept_media_root(artifact, options.media_root)
    warn_of_overlap(workspace, dataset.read(artifact))
    return artifact


def absent_media(items: pd.DataFrame, root: Path) -> list[Path]:
    """Returns the media of items that do not exist below the media root, or lie outside it."""
    places = {name: dataset.media_path(root, name) for name in items["media"].dropna().unique() if name}
    return [root / name for name, place in places.items() if place is None or not os.path.isfile(place)]


def warn_of_absent_media(missing: Sequence[Path], named: int = 0) -> None:
    """Warns of missing media and lists the first ones, each with any file whose name differs only in case.

    If all the `named` media are missing, lists only one.
    """
    if not missing:
        return

    @cache
    def beside(folder: Path) -> dict[str, str]:
        return {name.lower(): name for name in os.listdir(folder)} if os.path.isdir(folder) else {}

    most, lines = 1 if len(missing) == named else _MOST_MISSING, []
    for path in missing[:most]:
        other = beside(path.parent).get(path.name.lower())
        why = "it leads out of the media root" if os.path.isfile(path) else f"there is {other}" if other else ""
        lines.append(f"{path}{f' ({why})' if why else ''}")
    lines += [f"and {len(missing) - most:,} more"] if len(missing) > most else []
    number = counted(len(missing), "picture or video is", "pictures or videos are")
    what = f"{number} missing, and ccr extract will need them; in another folder: --media-root DIR"
    warn("\n  ".join([what, *lines]))


def locate(source: str) -> Path:
    """Returns the folder of a bundled data set, or the folder that a path names.

    Raises:
        UsageError: If there is none.
        ArtifactError: If it is a file, or empty.
    """
    names = bundled_names()
    path = bundled_root() / source if source in names else Path(source)
    if path.is_file():
        raise ArtifactError(
            f"{source!r} is a file, and neither a bundled data set, nor a collection, nor a folder",
            hint=f"for your own captions: ccr data import {shlex.quote(source)}",
        )
    if not path.is_dir() and path.name != source:
        raise no_file(path)
    if not path.is_dir():
        raise UsageError(
            f"{source!r} is neither a bundled data set, nor a collection, nor a folder",
            hint=f"{did_you_mean(source, [*names, *variants()])}all names: ccr data list",
        )
    if not any(path.iterdir()):
        hint = "name the folder of your pictures and captions, or a table: ccr data import FILE.csv"
        raise ArtifactError(f"the folder {path} is empty", hint)
    return path
