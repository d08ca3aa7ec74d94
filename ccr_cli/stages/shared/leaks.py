"""Items that a run or a data set trains on and another data set tests on, found by the ids of their groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.signature import SELECTED, own_split_value
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import warn
from ccr_cli.data.manifests import spaces
from ccr_cli.data.splits import ALL, items_of
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.shared.splits import Split

UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Leak:
    """Whether an evaluation tests on items that the run has seen."""

    value: str
    """The signature's `leak`."""
    dropped: frozenset[str] = frozenset()
    """Items to leave out."""


def own_leak(tested: Split, select: str) -> str:
    """The signature's `leak` of an evaluation on the run's own data set; warns if some items selected the epoch.

    Official splits may divide a group (scenes of one video); the value counts the items whose group is also in
    training. `select` names the validation queries that selected the epoch; `last` if none did.
    """
    own, groups = tested.data, tested.items["group"]
    whole = f"{len(groups)} {tested.name} items of {own.name}"
    if tested.name == "train":
        return "trained-on"
    if tested.name in ("val", "val-select") and select != "last":
        chose = len(items_of(tested.items, "val-select"))
        warn(f"{chose} of {whole} chose the epoch: {SELECTED} (--split val-report has none)")
        return SELECTED
    shared = int(groups.isin(set(items_of(own.items, "train")["group"])).sum())
    if shared and tested.name != ALL:
        warn(f"{shared} of {whole} have a group that was trained on")
    return own_split_value(shared)


def other_leak(own: dataset.Dataset, tested: Split, select: str, *, drop: bool = False) -> Leak:
    """Finds test items that a run has seen, by the groups of both data sets if their manifests name the same id space.

    Warns about items that selected the epoch (`select`, as in `own_leak`), or if nothing could be compared. `drop`
    leaves these items out, and those that were trained on. ArtifactError if an item was trained on and `drop` is off,
    or if no item is left.
    """
    items, of_other = tested.items, f"{tested.data.name} ({tested.name})"
    trained, chosen = (group_ids(own, items_of(own.items, split)) for split in ("train", "val-select"))
    chosen = chosen if select != "last" else []
    id_V = group_ids(tested.data, items)
    shared = _spaces(id_V) & _spaces([*trained, *chosen])
    known = {*trained} - {None}, {*chosen} - {None}
    leaked_V, chose_V = (np.array([group in ids for group in id_V], dtype=bool) for ids in known)
    chose_V &= ~leaked_V
    by = f"by-{'+'.join(sorted(shared))}{_share(id_V, shared)}{_share(trained, shared, '-trained')}"
    if leaked_V.any() and not drop:
        groups = items.loc[leaked_V, "group"].unique()
        problem = f"{len(groups)} groups of {of_other} were trained on in {own.name}, e.g. {min(groups)!r}"
        hint = "--drop-leaks leaves them out; or evaluate on another split, or on a data set without them"
        raise ArtifactError(problem, hint=hint)
    if drop and (leaked_V | chose_V).any():
        dropped = frozenset(items.loc[leaked_V | chose_V, "item_id"])
        left_out = f"{len(dropped)} of {len(items)} {tested.name} items of {tested.data.name}"
        reasons = f"{leaked_V.sum()} were trained on in {own.name}, {chose_V.sum()} chose the epoch"
        if len(dropped) == len(items):
            raise ArtifactError(f"nothing would be left of {of_other}: {reasons}")
        warn(f"{left_out} are left out: {reasons}")
        left = base.sha256_text("\n".join(sorted(set(items["item_id"]) - dropped)))[:6]
        return Leak(f"dropped-{len(dropped)}-left{left}-{by}", dropped)
    if chose_V.any():
        number = items.loc[chose_V, "group"].nunique()
        warn(f"{number} groups of {of_other} chose the epoch in {own.name}: {SELECTED}")
        return Leak(SELECTED)
    if not shared:
        warn(f"whether {own.name} trained on items of {of_other} is not known: their manifests name no common id_space")
        return Leak(UNCHECKED)
    return Leak(f"none-{by}")


def group_ids(data: dataset.Dataset, items: pd.DataFrame) -> list[str | None]:
    """Returns the group of every item as `SPACE:ID`; None if the manifest names no space for it.

    If `id_space` is a string, not a list, all groups may be written without it.
    """
    prefixes = tuple(f"{space}:" for space in spaces(data.manifest, data.name))
    alone = isinstance(data.manifest.get("id_space"), str)
    if alone and not any(group.startswith(prefixes) for group in data.items["group"]):
        return [prefixes[0] + group for group in items["group"]]
    return [group if group.startswith(prefixes) else None for group in items["group"]]


def _spaces(ids: Iterable[str | None]) -> set[str]:
    return {group.partition(":")[0] for group in ids if group is not None}


def _share(ids: Sequence[str | None], shared: set[str], what: str = "-") -> str:
    """How many items have an id of a shared space; empty if all have."""
    within = sum(group is not None and group.partition(":")[0] in shared for group in ids)
    return "" if within == len(ids) else f"{what}{within}of{len(ids)}"


def warn_of_overlap(workspace: Workspace, data: dataset.Dataset) -> None:
    """Warns about held-out groups of a data set that another one in the workspace trains on, and vice versa."""
    own = set(spaces(data.manifest, data.name))
    if not own:
        return
    for artifact in workspace.artifacts("dataset"):
        if artifact.id == data.artifact.id:
            continue
        other = dataset.read(artifact)
        if own & set(spaces(other.manifest, other.name)):
            _warn_of_shared_groups(data, other)
            _warn_of_shared_groups(other, data)


def _warn_of_shared_groups(tested: dataset.Dataset, trained: dataset.Dataset) -> None:
    def groups(data: dataset.Dataset, split: str) -> set[str]:
        return set(filter(None, group_ids(data, data.items[data.items["split"] == split])))

    held_out = {split: groups(tested, split) for split in ("test", "val")}
    shared = {split: sorted(held_out[split] & groups(trained, "train")) for split in held_out}
    counts = [f"{len(shared[s]):,} of {len(held_out[s]):,} {s}" for s in shared if shared[s]]
    if counts:
        warn(
            f"{' and '.join(counts)} groups of {tested.name} are training data in {trained.name}, "
            f"e.g. {next(filter(None, shared.values()))[0]!r}; ccr evaluate --zero-shot --drop-leaks leaves them out"
        )
