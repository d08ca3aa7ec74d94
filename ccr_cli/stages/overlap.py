"""Items that one data set trains on and another tests on, found by what their groups are ids of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import warn

CURE = "ccr evaluate --zero-shot --drop-leaks leaves them out"


def spaces(manifest: Mapping[str, Any]) -> set[str]:
    """What the groups of a data set are ids of: nothing, one space or several."""
    said = manifest.get("id_space") or []
    return {said} if isinstance(said, str) else {str(each) for each in said}


def warn_of_overlap(workspace: Workspace, data: dataset.Dataset) -> None:
    """Compares a data set with the others of the workspace, both ways, and says what is trained on in one of them.

    Only data sets whose groups are ids of one space can be compared.
    """
    own = spaces(data.manifest)
    if not own:
        return
    for artifact in workspace.artifacts("dataset"):
        if artifact.id == data.artifact.id:
            continue
        other = dataset.read(artifact)
        if own & spaces(other.manifest):
            _warn(data, other)
            _warn(other, data)


def _warn(tested: dataset.Dataset, trained: dataset.Dataset) -> None:
    """Warns of held-out groups of one data set that another trains on."""
    seen = set(trained.items.loc[trained.items["split"] == "train", "group"])
    found = []
    shared: list[str] = []
    for split in ("test", "val"):
        held = set(tested.items.loc[tested.items["split"] == split, "group"])
        both = sorted(held & seen)
        shared += both
        if both:
            found.append(f"{len(both):,} of {len(held):,} {split}")
    if found:
        warn(
            f"{' and '.join(found)} groups of {tested.name} are training data in {trained.name}, e.g. {shared[0]!r}; "
            f"{CURE}"
        )
