"""Lists of ids: lines, one line, a column of a table, a JSON list, a `.npy`."""

from __future__ import annotations

from pathlib import Path

from ccr_cli.data.formats import base, captions_csv
from ccr_cli.data.npy import mapped
from ccr_cli.errors import ArtifactError


def read_ids(path: Path, *, column: str = "", latin1: bool = False) -> list[str]:
    """Reads a list of ids, in its order; an id that is there twice is kept twice.

    Args:
        path: The list: `.npy` and `.json` by their names, else text. A single line is split at white space.
        column: Name of the column that holds them, where the file is a table with a header.
        latin1: Read text that is not UTF-8 as Latin-1, in which older collections write the ids of features.

    Raises:
        ArtifactError: If the file is not there or of another encoding, a line is empty, or it holds no id.
    """
    ending = path.name.lower().removesuffix(".gz")
    if ending.endswith(".npy"):
        return _array(path)
    if ending.endswith(".json"):
        found = [(each.place, each.name()) for each in base.read_json(path).each()]
    elif column:
        found = [(f"line {number}", name) for number, name in captions_csv.column(path, column)]
    else:
        found = [(f"line {number}", line) for number, line in enumerate(_lines(path, latin1), 1)]
        if len(found) == 1:
            found = [("line 1", word) for word in found[0][1].split()]
    for place, name in found:
        if not name.strip():
            raise ArtifactError(f"{path}, {place}: there is no id")
        if "\t" in name.strip():
            raise ArtifactError(f"{path}, {place}: a tab, so this is no list of ids: {name[:60]!r}")
    if not found:
        raise ArtifactError(f"{path} holds no id")
    return [name.strip() for _, name in found]


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
        raise ArtifactError(f"{path} holds {values.dtype} of the shape {values.shape}; expected a row of texts")
    try:
        ids = [each.decode() if isinstance(each, bytes) else str(each) for each in values.tolist()]
        "".join(ids).encode()
    except UnicodeError as error:
        raise ArtifactError(f"{path} holds texts that are not UTF-8: {error}") from None
    if not all(ids):
        raise ArtifactError(f"{path}: there is no id at place {ids.index('')}, counted from 0")
    return ids
