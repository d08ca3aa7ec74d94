"""Whether a run has seen the items that it is evaluated on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.signature import own_split_value
from ccr_cli.console import warn
from ccr_cli.data.manifests import spaces
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError

SELECTED = "selected-on"
UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Leak:
    """What a run has seen of the items that it is evaluated on."""

    value: str
    """The value of `leak` in the signature."""
    dropped: frozenset[str] = frozenset()
    """Items to be left out."""


def own_leak(own: dataset.Dataset, split: str, select: str) -> str:
    """The leak of an evaluation on the run's own data set.

    Args:
        own: The data set.
        split: What is evaluated.
        select: What chose the epoch; `last` where nothing did.

    Returns:
        What the signature says. Items that chose the epoch are warned about. Official splits may cut through a group
        (scenes of one video): how many items have one in training is said, and warned about.
    """
    if split == "train":
        return "trained-on"
    if split in ("val", "val-select") and select != "last":
        chose, whole = (len(items_of(own.items, each)) for each in ("val-select", split))
        warn(
            f"{chose} of {whole} {split} items of {own.name} chose the epoch: {SELECTED} (--split val-report has none)"
        )
        return SELECTED
    groups = items_of(own.items, split)["group"]
    shared = int(groups.isin(set(items_of(own.items, "train")["group"])).sum())
    if shared:
        warn(f"{shared} of {len(groups)} {split} items of {own.name} have a group that was trained on")
    return own_split_value(shared)


def other_leak(own: dataset.Dataset, other: dataset.Dataset, split: str, select: str, *, drop: bool = False) -> Leak:
    """Compares groups with those of another data set, where both manifests say that their ids mean the same things.

    Args:
        own: What the run was trained on.
        other: What it is evaluated on.
        split: Which items of it.
        select: As in `own_leak`.
        drop: Leave out what was trained on or chose the epoch.

    Returns:
        What the signature says, with the items to be left out; items that chose the epoch are warned about.

    Raises:
        ArtifactError: If an item to be tested was trained on and shall not be left out, or no other item remains.
    """
    items, trained = items_of(other.items, split), items_of(own.items, "train")
    id_V, trained_N = group_ids(other, items), group_ids(own, trained)
    chosen_S = group_ids(own, items_of(own.items, "val-select")) if select != "last" else []
    shared = _spaces(id_V) & _spaces([*trained_N, *chosen_S])
    leaked_V = _among(id_V, trained_N)
    chose_V = _among(id_V, chosen_S) & ~leaked_V
    by = f"by-{'+'.join(sorted(shared))}{_share(id_V, shared)}{_share(trained_N, shared, '-trained')}"
    if leaked_V.any() and not drop:
        groups = items.loc[leaked_V, "group"].unique()
        raise ArtifactError(
            f"{len(groups)} groups of {other.name} ({split}) were trained on in {own.name}, e.g. {min(groups)!r}",
            hint="--drop-leaks leaves them out; or evaluate on another split, or on a data set without them",
        )
    if drop and (leaked_V | chose_V).any():
        dropped = frozenset(items.loc[leaked_V | chose_V, "item_id"])
        told = f"{len(dropped)} of {len(items)} {split} items of {other.name}"
        seen = f"{leaked_V.sum()} were trained on in {own.name}, {chose_V.sum()} chose the epoch"
        if len(dropped) == len(items):
            raise ArtifactError(f"nothing would be left of {other.name} ({split}): {seen}")
        warn(f"{told} are left out: {seen}")
        left = base.sha256_text("\n".join(sorted(set(items["item_id"]) - dropped)))[:6]
        return Leak(f"dropped-{len(dropped)}-left{left}-{by}", dropped)
    if chose_V.any():
        number = items.loc[chose_V, "group"].nunique()
        warn(f"{number} groups of {other.name} ({split}) chose the epoch in {own.name}: {SELECTED}")
        return Leak(SELECTED)
    return Leak(f"none-{by}" if shared else UNCHECKED)


def group_ids(data: dataset.Dataset, items: pd.DataFrame) -> list[str | None]:
    """What each item's group is an id of, as `SPACE:ID`; None where the manifest names no space for it.

    `id_space` is a space, or a list of spaces. A group is written `SPACE:ID`; where there is one space, and that not
    in a list, groups may be written without it, all of them.
    """
    prefixes = tuple(f"{space}:" for space in spaces(data.manifest, data.name))
    alone = isinstance(data.manifest.get("id_space"), str)
    if alone and not any(group.startswith(prefixes) for group in data.items["group"]):
        return [prefixes[0] + group for group in items["group"]]
    return [group if group.startswith(prefixes) else None for group in items["group"]]


def _spaces(ids: Iterable[str | None]) -> set[str]:
    return {one.partition(":")[0] for one in ids if one is not None}


def _among(ids: Sequence[str | None], seen: Iterable[str | None]) -> npt.NDArray[np.bool_]:
    known = set(seen) - {None}
    return np.array([one in known for one in ids], dtype=bool)


def _share(ids: Sequence[str | None], shared: set[str], what: str = "-") -> str:
    """How many of the items have an id of a shared space, if it is not all of them."""
    within = sum(one is not None and one.partition(":")[0] in shared for one in ids)
    return "" if within == len(ids) else f"{what}{within}of{len(ids)}"
