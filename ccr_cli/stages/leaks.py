"""Whether a run has seen the items that it is evaluated on."""

from __future__ import annotations

from ccr_cli.artifacts import dataset
from ccr_cli.console import warn
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError

SELECTED = "selected-on"


def own_leak(split: str, select: str) -> str:
    """The leak of an evaluation on the run's own data set.

    Args:
        split: What is evaluated.
        select: What chose the epoch; `last` where nothing did.
    """
    if split == "train":
        return "trained-on"
    return SELECTED if split in ("val", "val-select") and select != "last" else "own-split"


def other_leak(own: dataset.Dataset, other: dataset.Dataset, split: str, select: str) -> str:
    """Compares groups with those of another data set, where both manifests say that their ids mean the same things.

    Args:
        own: What the run was trained on.
        other: What it is evaluated on.
        split: Which items of it.
        select: As in `own_leak`.

    Returns:
        What the signature says; items that chose the epoch are warned about.

    Raises:
        ArtifactError: If an item to be tested was trained on.
    """
    space = own.manifest.get("id_space")
    if space is None or space != other.manifest.get("id_space"):
        return "unchecked"
    tested = set(items_of(other.items, split)["group"])
    leaked = sorted(set(items_of(own.items, "train")["group"]) & tested)
    if leaked:
        raise ArtifactError(
            f"{len(leaked)} groups of {other.name} ({split}) were trained on in {own.name}, e.g. {leaked[0]!r}",
            hint="evaluate on another split, or on a data set without them",
        )
    chosen = set(items_of(own.items, "val-select")["group"]) & tested if select != "last" else set()
    if chosen:
        warn(f"{len(chosen)} groups of {other.name} ({split}) chose the epoch in {own.name}: {SELECTED}")
        return SELECTED
    return f"none-by-{space}"
