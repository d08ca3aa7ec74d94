"""What `ccr data import` does with its source: find out what it is, and import it."""

from __future__ import annotations

from pathlib import Path

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.data import collections
from ccr_cli.data.manifests import bundled
from ccr_cli.errors import UsageError
from ccr_cli.stages.data.collection import find_files, import_collection
from ccr_cli.stages.data.feature_files import import_labelled, import_mat
from ccr_cli.stages.data.folder import import_folder


def import_source(
    workspace: Workspace,
    source: str,
    *,
    root: Path | None = None,
    allow_partial: bool = False,
    name: str | None = None,
    media_root: Path | None = None,
    force: bool = False,
) -> list[base.Artifact]:
    """Imports a bundled data set, a collection, a MATLAB file of features or a folder in the dataset format.

    Args:
        workspace: Where to.
        source: Name or path.
        root: Folder of a collection's official files.
        allow_partial: Import what there is of a collection; what is missing or differs is recorded.
        name: Name of the artifact; by default the data set's.
        media_root: Where the media lie; they need not be there.
        force: Import again.

    Returns:
        The dataset, and the features if the source consists of them.

    Raises:
        UsageError: If the options do not fit the source.
        ArtifactError: If there is no such data set, or one of its files is wrong.
    """
    variant = find_variant(source)
    if variant is None:
        if root is not None or allow_partial:
            raise UsageError(
                f"--root and --allow-partial need a collection, and {source} is not one", hint="ccr data list"
            )
        if source.endswith(".mat"):
            return import_mat(workspace, Path(source), name=name, force=force)
        return [import_folder(workspace, source, name=name, media_root=media_root, force=force)]
    root = require_root(variant, root)
    files = find_files(variant, root)
    files.refuse_problems(allow_partial)
    name = slug(name or variant.name)
    if variant.kind == "features":
        return import_labelled(workspace, files, name, allow_partial=allow_partial, force=force)
    media = media_root or root
    return [import_collection(workspace, files, name, media_root=media, allow_partial=allow_partial, force=force)]


def find_variant(source: str) -> collections.Variant | None:
    """Finds the collection of a name, or of the user's own manifest (`NAME.toml`); None if it is neither.

    Raises:
        ArtifactError: If the manifest does not fit the schema.
    """
    if source in bundled():
        return None
    path = Path(source)
    return collections.find(path.stem, path.parent) if path.suffix == ".toml" else collections.find(source)


def require_root(variant: collections.Variant, root: Path | None) -> Path:
    """Returns the folder of a collection's files.

    Raises:
        UsageError: If there is none.
    """
    if root is None:
        raise UsageError(
            f"{variant.name} is a collection: name the folder of its official files with --root",
            hint=f"{variant.about['get']} More: ccr data show {variant.name}",
        )
    return root
