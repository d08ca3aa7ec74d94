"""What `ccr data import` does with its sources: find out what they are, and import them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import collections
from ccr_cli.data.manifests import bundled
from ccr_cli.errors import UsageError
from ccr_cli.stages.data.caption_files import import_own
from ccr_cli.stages.data.collection import find_files, import_collection
from ccr_cli.stages.data.feature_files import import_labelled, import_mat
from ccr_cli.stages.data.folder import import_folder
from ccr_cli.stages.data.options import ImportOptions


def import_source(workspace: Workspace, sources: Sequence[str], options: ImportOptions) -> list[base.Artifact]:
    """Imports caption files; or a bundled data set, a collection, a MATLAB file of features, or a folder.

    Returns:
        The dataset, and the features if the source consists of them.

    Raises:
        UsageError: If the options do not fit the source.
        ArtifactError: If there is no such data set, or one of its files is wrong.
    """
    if not sources and "help" not in (options.format_options or {}):
        raise UsageError("which data set? give its name, its folder or its files", hint="ccr data import noto-emoji")
    collection_only = options.root is not None or options.allow_partial
    if options.form is not None:
        if collection_only:
            raise UsageError("--root and --allow-partial need a collection; --format is for your own files")
        return [import_own(workspace, options.form, sources, options)]
    if any((options.lang, options.splits, options.ids, options.media, options.format_options)):
        raise UsageError(
            "--lang, --split, --ids, --media and --set are for your own files", hint="name their format: --format"
        )
    if len(sources) > 1:
        raise UsageError("only one data set at a time", hint="for your own files, name their format: --format")
    (source,) = sources
    variant = find_variant(source)
    if variant is not None:
        files = find_files(variant, require_root(variant, options.root))
        if not options.allow_partial:
            files.refuse_problems()
        if variant.kind == "features":
            return import_labelled(workspace, files, options)
        return [import_collection(workspace, files, options)]
    if collection_only:
        raise UsageError(f"--root and --allow-partial need a collection, and {source} is not one", hint="ccr data list")
    if source.endswith(".mat"):
        return import_mat(workspace, Path(source), options)
    return [import_folder(workspace, source, options)]


def find_variant(source: str) -> collections.Variant | None:
    """Finds the collection of a name, or of the user's own manifest (`NAME.toml`); None if it is neither."""
    if source in bundled():
        return None
    path = Path(source)
    return collections.find(path.stem, path.parent) if path.suffix == ".toml" else collections.find(source)


def require_root(variant: collections.Variant, root: Path | None) -> Path:
    """Returns the folder of a collection's files; UsageError without one."""
    if root is None:
        raise UsageError(
            f"{variant.name} is a collection: name the folder of its official files with --root",
            hint=f"{variant.about['get']} More: ccr data show {variant.name}",
        )
    return root
