"""Stage of `ccr data import`: finds out what the sources are, and imports them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import collections
from ccr_cli.data.formats.base import is_media
from ccr_cli.data.formats.layout import ENDINGS
from ccr_cli.data.manifests import bundled_names
from ccr_cli.errors import UsageError, did_you_mean, no_file
from ccr_cli.stages.data.caption_files import import_own, parse_source
from ccr_cli.stages.data.collection import find_files, import_collection
from ccr_cli.stages.data.feature_files import import_labelled, import_mat
from ccr_cli.stages.data.folder import import_folder
from ccr_cli.stages.data.options import ImportOptions
from ccr_cli.stages.data.packed import is_packed, unpack


def import_source(workspace: Workspace, sources: Sequence[str], options: ImportOptions) -> list[base.Artifact]:
    """Imports caption files, a bundled data set, a collection, a MATLAB file of features, or a folder.

    Returns:
        The dataset, and the features artifact if the source holds features.

    Raises:
        UsageError: If the options do not fit the source.
        ArtifactError: If there is no such data set, or one of its files is wrong.
    """
    own = ("lang", "splits", "ids", "media", "format_options", "columns")
    for_own = any(getattr(options, field) for field in own)
    if not sources and for_own and "help" not in (options.format_options or {}):
        raise UsageError(
            "the file of your captions is missing", hint="name it before the options: ccr data import FILE"
        )
    if not sources and options.form is None and for_own:
        raise UsageError("the options of --set depend on the format", hint="ccr data import FILE --set help")
    if not sources and not for_own:
        raise UsageError("which data set? give its name, its folder or its files", hint="ccr data import noto-emoji")
    if options.media_root is not None and not options.media_root.is_dir():
        raise no_file(options.media_root, "--media-root")
    packed = [source for source in sources if options.form is None and is_packed(source)]
    if packed and len(packed) < len(sources):
        raise UsageError(f"{packed[0]} holds pictures, and other files do not", hint=f"ccr data import {packed[0]}")
    if packed:
        name, rows = unpack(workspace, sources)
        sources, options = [str(rows)], replace(options, name=options.name or name)
    collection_only = options.root is not None or options.allow_partial
    if options.form is not None or (sources and all(map(_is_own, sources))):
        if collection_only:
            raise UsageError(
                "--root and --allow-partial need a collection; these files are your own, by their names or --format"
            )
        return [import_own(workspace, sources, options)]
    if for_own:
        strange = next((source for source in sources if not _is_own(source)), "")
        problem = (
            f"--lang, --split, --ids, --media, --columns and --set are for your own files, and {strange!r} is none"
        )
        raise UsageError(problem, hint="name your file: ccr data import FILE.csv; or its format: --format")
    if len(sources) > 1:
        tars = "names such as train-000.tar give the split: ccr data import 'wds:data/*.tar'"
        hint = tars if any("wds:" in source for source in sources) else "--format names their format"
        raise UsageError("only one data set at a time, except for your own files", hint=hint)
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
        hint = f"{did_you_mean(source, collections.variants())}all names: ccr data list"
        raise UsageError(f"--root and --allow-partial need a collection, and {source} is not one", hint=hint)
    if source.endswith(".mat"):
        return import_mat(workspace, Path(source), options)
    return [import_folder(workspace, source, options)]


def _is_own(source: str) -> bool:
    """Whether a source is a file of the user's captions, or a folder of pictures with captions."""
    path = Path(parse_source(source)[2])
    if source in bundled_names() or path.suffix in (".mat", ".toml") or find_variant(source) is not None:
        return False
    if path.is_dir():
        described = any((path / name).exists() for name in ("manifest.toml", "items.tsv", "captions.tsv"))
        return not described and any(is_media(each.name) for each in path.rglob("*"))
    return path.is_file() or path.suffix.lower() in ENDINGS


def find_variant(source: str) -> collections.Variant | None:
    """Finds the collection of a name or of the user's own manifest (`NAME.toml`); None if there is none."""
    if source in bundled_names():
        return None
    path = Path(source)
    return collections.find(path.stem, path.parent) if path.suffix == ".toml" else collections.find(source)


def require_root(variant: collections.Variant, root: Path | None) -> Path:
    """Returns the folder of a collection's files; UsageError without one."""
    if root is None:
        raise UsageError(
            f"{variant.name} is a collection: name the folder of its official files with --root",
            hint=f"{variant.about['get']} More: ccr data describe {variant.name}",
        )
    return root
