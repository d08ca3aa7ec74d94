"""The table that a reader of ready-made features returns, and the matching of its entries with items.

Shape suffixes: T rows of an item, D feature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.formats.base import stem
from ccr_cli.errors import ArtifactError


@dataclass(frozen=True)
class FeatureTable:
    """Features by id. Only the ids are in memory; rows are read on demand."""

    path: Path
    ids: Sequence[str]
    """In the order of the file."""
    rows: Callable[[int], npt.NDArray[Any]]
    """Reads the rows (T, D) of an entry by its number, in their stored precision."""


@dataclass(frozen=True)
class Joined:
    """The entry of every item."""

    places: list[tuple[int, int] | None]
    """Table and entry of every item, in order; None if it has none."""
    left: list[str]
    """Ids of entries that match no item."""


def join(items: Sequence[str], tables: Sequence[FeatureTable]) -> Joined:
    """Matches items and entries by exact id, or else by both ids without the suffix of a media file.

    Raises:
        ArtifactError: If an id occurs twice, or a match is ambiguous.
    """
    where: dict[str, tuple[int, int]] = {}
    for t, table in enumerate(tables):
        for i, name in enumerate(table.ids):
            if name in where:
                other = tables[where[name][0]].path
                both = f"twice in {table.path}" if other == table.path else f"both in {other} and in {table.path}"
                raise ArtifactError(f"the id {name!r} is {both}")
            where[name] = (t, i)
    matches = {item: item for item in items if item in where}
    bare: dict[str, list[str]] = {}
    for name in where:
        if name not in matches:
            bare.setdefault(stem(name), []).append(name)
    owner: dict[str, str] = {}
    for item in items:
        names = [] if item in matches else bare.get(stem(item), [])
        if len(names) > 1:
            raise ArtifactError(f"both {names[0]!r} and {names[1]!r} could be the features of the item {item!r}")
        for name in names:
            if name in owner:
                raise ArtifactError(f"{name!r} could be the features of the items {owner[name]!r} and {item!r}")
            owner[name], matches[item] = item, name
    used = set(matches.values())
    places = [where[matches[item]] if item in matches else None for item in items]
    return Joined(places, [name for name in where if name not in used])


def as_rows(value: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Returns an array (T, D), (1, T, D) or (D,) as rows (T, D).

    Raises:
        ArtifactError: If it has another shape or holds no numbers.
    """
    if value.dtype.kind not in "fiu":
        raise ArtifactError(f"{what} holds {value.dtype}, not numbers")
    rows = value[0] if value.ndim == 3 and len(value) == 1 else value[None] if value.ndim == 1 else value
    if rows.ndim != 2 or not rows.shape[1]:
        raise ArtifactError(f"{what} has the shape {value.shape}; expected (T, D), (1, T, D) or (D,)")
    return rows


def read_text(path: Path) -> str:
    """Reads UTF-8, else Latin-1, which older collections use for ids.

    Raises:
        ArtifactError: If the file does not exist.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def by_number(ids: Sequence[str], values: npt.NDArray[Any], path: Path) -> FeatureTable:
    """Returns a table of an array, in memory or mapped: entry i is `values[i]`."""
    return FeatureTable(path, ids, lambda i: as_rows(np.asarray(values[i]), f"{ids[i]!r} in {path}"))
