"""Lists of ids: lines, one line, a column of a table, a JSON list, a `.npy`."""

from __future__ import annotations

from pathlib import Path

from ccr_cli.data.formats import base, captions_csv
from ccr_cli.data.npy import mapped
from ccr_cli.errors import ArtifactError


def read_ids(path: Path, *, column: str = "", latin1: bool = False) -> list[str]:
    """Reads a list of ids in order; repeated ids are kept.

    Args:
        path: The list: `.npy` or `.json` by the ending, otherwise text. A single line is split at white space.
        column: Name of the column with the ids, if the file is a table with a header.
        latin1: Read text that is not UTF-8 as Latin-1, in which older collections write the ids of features.

    Raises:
        ArtifactError: If the file is missing or has another encoding, a line is empty, or there is no id.
    """
    ending = path.name.lower().removesuffix(".gz")
    if ending.endswith(".npy"):
        return _array(path)
    if ending.endswith(".json"):
        ids = [(entry.place, entry.name()) for entry in base.read_json(path).each()]
    elif column:
        ids = [(f"line {number}", name) for number, name in captions_csv.column(path, column)]
    else:
        ids = [(f"line {number}", line) for number, line in enumerate(_lines(path, latin1), 1)]
        if len(ids) == 1:
            ids = [("line 1", word) for word in ids[0][1].split()]
    for place, name in ids:
        if not name.strip():
            raise ArtifactError(f"{path}, {place}: there is no id")
        if "\t" in name.strip():
            raise ArtifactError(f"{path}, {place}: a tab, so this is not a list of ids: {name[:60]!r}")
    if not ids:
        raise ArtifactError(f"{path} holds no id")
    return [name.strip() for _, name in ids]


def _lines(path: Path, latin1: bool) -> list[str]:
    try:
        return [line for _, line in base.lines(path)]
    except base.NotUtf8:
        if not latin1:
            raise
        return [line for _, line in base.lines(path, "latin-1")]


def _array(path: Path) -> list[str]:
    try:
        values = mapped(path)
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    if values.dtype.kind not in "US" or values.ndim != 1 or not len(values):
        raise ArtifactError(
            f"{path} holds {values.dtype} of shape {values.shape}; expected a one-dimensional array of texts"
        )
    try:
        ids = [text.decode() if isinstance(text, bytes) else str(text) for text in values.tolist()]
        "".join(ids).encode()
    except UnicodeError as error:
        raise ArtifactError(f"{path} holds texts that are not UTF-8: {error}") from None
    if not all(ids):
        raise ArtifactError(f"{path}: there is no id at place {ids.index('')}, counted from 0")
    return ids
