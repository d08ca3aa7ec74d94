"""Items that one data set trains on and another tests on, found by what their groups are ids of."""

from __future__ import annotations

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import warn
from ccr_cli.data.manifests import spaces
from ccr_cli.stages.data.leaks import group_ids

CURE = "ccr evaluate --zero-shot --drop-leaks leaves them out"


def warn_of_overlap(workspace: Workspace, data: dataset.Dataset) -> None:
    """Compares a data set with the others of the workspace, both ways, and says what is trained on in one of them.

    Only data sets whose groups are ids of one space can be compared.
    """
    own = set(spaces(data.manifest, data.name))
    if not own:
        return
    for artifact in workspace.artifacts("dataset"):
        if artifact.id == data.artifact.id:
            continue
        other = dataset.read(artifact)
        if own & set(spaces(other.manifest, other.name)):
            _warn(data, other)
            _warn(other, data)


def _warn(tested: dataset.Dataset, trained: dataset.Dataset) -> None:
    """Warns of held-out groups of one data set that another trains on."""
    seen = _groups(trained, "train")
    found = []
    shared: list[str] = []
    for split in ("test", "val"):
        held = _groups(tested, split)
        both = sorted(held & seen)
        shared += both
        if both:
            found.append(f"{len(both):,} of {len(held):,} {split}")
    if found:
        warn(
            f"{' and '.join(found)} groups of {tested.name} are training data in {trained.name}, e.g. {shared[0]!r}; "
            f"{CURE}"
        )


def _groups(data: dataset.Dataset, split: str) -> set[str]:
    """The groups of a split that are ids of a space, as `SPACE:ID`."""
    return set(filter(None, group_ids(data, data.items[data.items["split"] == split])))
