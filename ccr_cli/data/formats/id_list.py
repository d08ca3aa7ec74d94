"""Lists of ids: one a line, or all on one line between white space, or a `.npy` of texts."""

from __future__ import annotations

from pathlib import Path

from ccr_cli.data.formats import base
from ccr_cli.data.npy import mapped
from ccr_cli.errors import ArtifactError


def read_ids(path: Path, *, latin1: bool = False) -> list[str]:
    """Reads a list of ids, in its order; an id that is there twice is kept twice.

    Args:
        path: The list.
        latin1: Read what is not UTF-8 as Latin-1, in which older collections write the ids of features.

    Raises:
        ArtifactError: If the file is not there or of another encoding, a line is empty, or it holds no id.
    """
    if path.suffix.lower() == ".npy":
        return _array(path)
    try:
        ids = [line.strip() for _, line in base.lines(path)]
    except base.NotUtf8:
        if not latin1:
            raise
        ids = [line.strip() for _, line in base.lines(path, "latin-1")]
    if len(ids) == 1:
        ids = ids[0].split()
    if not ids:
        raise ArtifactError(f"{path} holds no id")
    if not all(ids):
        raise ArtifactError(f"{path}, line {ids.index('') + 1}: there is no id")
    return ids


def _array(path: Path) -> list[str]:
    values = mapped(path)
    if values.dtype.kind not in "US" or values.ndim != 1 or not len(values):
        raise ArtifactError(f"{path} holds {values.dtype} of the shape {values.shape}; expected a row of texts")
    try:
        ids = [each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in values.tolist()]
        "".join(ids).encode("utf-8")
    except UnicodeError as error:
        raise ArtifactError(f"{path} holds texts that are not UTF-8: {error}") from None
    if not all(ids):
        raise ArtifactError(f"{path}: there is no id at place {ids.index('')}, counted from 0")
    return ids
