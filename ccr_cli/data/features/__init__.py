"""Ready-made features: one reader per file format."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ccr_cli.data.features import bigfile, hdf5, mat, npy, npz
from ccr_cli.data.features.base import FeatureTable
from ccr_cli.errors import ArtifactError, UsageError

LISTED = {".npy": npy.opened, ".mat": mat.opened}
"""Formats that hold no ids."""
NAMED = {".npz": npz.opened, **dict.fromkeys((".h5", ".hdf5", ".hdf", ".h5py"), hdf5.opened)}


def with_lists(sources: Sequence[Path], ids: Sequence[Path]) -> list[tuple[Path, Path | None]]:
    """Pairs each file without ids with its list, in the order of both; names determine the formats.

    Raises:
        ArtifactError: If a source does not exist or has an unknown format.
        UsageError: If there are more or fewer lists than such files.
    """
    for source in sources:
        _known(source)
    bare = [source for source in sources if _listed(source)]
    if len(ids) < len(bare):
        raise UsageError(
            f"{bare[len(ids)]} holds no ids, and ccr does not guess an order",
            hint="pass a list of its ids, one per line in its order: --ids FILE",
        )
    if len(ids) > len(bare):
        raise UsageError(f"--ids {ids[len(bare)]} is for .npy and .mat; the other formats hold their own ids")
    lists = iter(ids)
    return [(source, next(lists) if _listed(source) else None) for source in sources]


def content(source: Path) -> list[Path]:
    """Returns the files of a source."""
    if not source.is_dir():
        return [source]
    if (source / bigfile.BIN).is_file():
        return [source / name for name in bigfile.FILES if (source / name).is_file()]
    return npy.files_of(source)


def opened(source: Path, ids: Path | None) -> AbstractContextManager[FeatureTable]:
    """Opens a source from `with_lists`."""
    if source.is_dir():
        return bigfile.opened(source) if (source / bigfile.BIN).is_file() else npy.opened_folder(source)
    suffix = source.suffix.lower()
    if suffix in LISTED:
        assert ids is not None
        return LISTED[suffix](source, ids)
    return NAMED[suffix](source)


def _listed(source: Path) -> bool:
    return not source.is_dir() and source.suffix.lower() in LISTED


def _known(source: Path) -> None:
    if source.is_dir():
        if not content(source):
            raise ArtifactError(f"{source} holds neither {bigfile.BIN} nor .npy files")
    elif not source.exists():
        raise ArtifactError(f"{source} does not exist")
    elif source.name == bigfile.BIN:
        raise ArtifactError(f"{source} is one file of a BigFile", hint=f"pass its folder: --from {source.parent}")
    elif source.suffix.lower() not in {*LISTED, *NAMED}:
        known = ", ".join((*LISTED, *NAMED))
        raise ArtifactError(f"{source} has an unknown format; known: {known}, and folders of .npy or BigFile")
