"""Which column of a table holds what, by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccr_cli.data.formats.captions_csv import COLUMNS
from ccr_cli.errors import UsageError

ALIASES = {
    "media": ("image", "file", "path", "filename", "image_path", "file_name", "img", "photo"),
    "text": ("caption", "description", "title", "sentence", "query"),
    "lang": ("language",),
    "split": ("set", "subset"),
    "item_id": ("id", "item", "sku", "product_id"),
}
"""Other names of columns, the preferred ones first; a column's own name comes before them."""


def candidates(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the columns that may hold each of `COLUMNS`, the preferred one first; the user's `chosen` one alone."""
    free = [name for name in names if name and name not in chosen.values()]
    found = {}
    for ours in COLUMNS:
        known = (ours, *ALIASES.get(ours, ()))
        fitting = [name for alias in known for name in free if name.strip().lower() == alias]
        found[ours] = [chosen[ours]] if ours in chosen else fitting
    return found


def match(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Returns the column of each of `COLUMNS` that a table with these names has."""
    return {ours: fitting[0] for ours, fitting in candidates(names, chosen).items() if fitting and fitting[0]}


def role(name: str) -> str:
    """Returns our name of a column that a user may call by another of its names; UsageError if it is unknown."""
    for ours in COLUMNS:
        if name.lower() in (ours, *ALIASES.get(ours, ())):
            return ours
    raise UsageError(f"--columns {name}=…: there is no column {name!r}", hint=f"columns: {', '.join(COLUMNS)}")
