"""What a workspace holds: every artifact, what was asked of it in short, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ccr_cli.artifacts import base, diagnosis, evaluation, index, run
from ccr_cli.artifacts.description import short
from ccr_cli.artifacts.workspace import FOLDERS, Workspace
from ccr_cli.console import counted
from ccr_cli.errors import ArtifactError


@dataclass(frozen=True)
class Found:
    """What came of an artifact."""

    words: str
    figure: str = ""
    """The name of the figure that stands for it, if any."""
    value: float | None = None


@dataclass(frozen=True)
class Entry:
    """An artifact of a workspace."""

    kind: str
    path: Path
    artifact: base.Artifact | None
    """None where it cannot be read."""
    asked: str
    """What was asked of it, in short."""
    found: Found
    """What came of it; why it cannot be read."""

    @property
    def made(self) -> str:
        """When it was made."""
        return str((self.artifact.about.get("created") if self.artifact else None) or "")


def contents(workspace: Workspace, chosen: Sequence[base.Artifact] | None = None) -> list[Entry]:
    """Lists what a workspace holds, in the order of the chain; of a kind the newest first.

    Args:
        workspace: The folder.
        chosen: Only these.
    """
    read: list[tuple[str, Path, base.Artifact | None, str]] = []
    for kind, path in workspace.places():
        try:
            read.append((kind, path, base.load(path, kind), ""))
        except ArtifactError as error:
            read.append((kind, path, None, error.message))
    known = {artifact.id: artifact for _, _, artifact, _ in read if artifact}
    if chosen is not None:
        read = [(a.kind, a.path, a, "") for a in chosen]
    entries = []
    for kind, path, artifact, why in read:
        if artifact is None:
            entries.append(Entry(kind, path, None, "", Found(f"cannot be read: {why}")))
        else:
            entries.append(Entry(kind, path, artifact, _asked(artifact, known), _found(artifact)))
    order = list(FOLDERS)
    entries.sort(key=lambda entry: entry.made, reverse=True)
    return sorted(entries, key=lambda entry: order.index(entry.kind))


def _asked(artifact: base.Artifact, known: Mapping[str, base.Artifact]) -> str:
    """The data set, the run if it is of one, and what was asked of the artifact itself."""
    runs = [parent for parent in artifact.parents if parent.kind == "run"]
    told = []
    if artifact.kind == "report":
        told = [f"{len(runs)} runs"] if len(runs) != 1 else []
    elif len(runs) == 1 and runs[0].id in known:
        trained = known[runs[0].id]
        told = [*_data(trained), short(trained)]
    elif len(runs) > 1:
        told = [*_data(artifact), f"{len(runs)} runs"]
    else:
        told = _data(artifact)
    own = short(artifact)
    if artifact.kind == "run":  # of several translations into a language, which
        links = [parent for parent in artifact.parents if parent.kind == "translation" and parent.id in known]
        langs = {known[link.id].request.get("lang") for link in links}
        if sum(a.kind == "translation" and a.request.get("lang") in langs for a in known.values()) > len(links):
            own = ", ".join([own, *(PurePosixPath(link.path).name for link in links)])
    return ": ".join([", ".join(told), own] if runs and told and own else [", ".join([*told, *([own] if own else [])])])


def _data(artifact: base.Artifact) -> list[str]:
    return [PurePosixPath(parent.path).name for parent in artifact.parents if parent.kind == "dataset"][:1]


def _found(artifact: base.Artifact) -> Found:
    try:
        return _FOUND.get(artifact.kind, _counts)(artifact)
    except ArtifactError as error:
        return Found(f"cannot be read: {error.message}")


def _counts(artifact: base.Artifact) -> Found:
    """How many there are of what it holds."""
    told = [f"{n:,} {what.replace('.', ' ')}" for what, n in artifact.counts.items() if n]
    return Found(", ".join(told))


def _imported(artifact: base.Artifact) -> Found:
    items = sum(n for what, n in artifact.counts.items() if what.startswith("items."))
    langs = [what.removeprefix("captions.") for what in artifact.counts if what.startswith("captions.")]
    return Found(f"{counted(items, 'item')}, captions in {', '.join(langs)}")


def _mismatched(artifact: base.Artifact) -> Found:
    wrong, triplets = artifact.counts["mismatched"], artifact.counts["triplets"]
    return Found(f"{wrong:,} of {triplets:,} triplets mismatched")


def _trained(artifact: base.Artifact) -> Found:
    """The figure on validation that chose the epoch."""
    counts = artifact.counts
    ended = f"epoch {counts['best_epoch']} of {counts['epochs']}{', ended early' if counts.get('stopped') else ''}"
    name = str(run.config(artifact).get("criterion", "SumR"))
    history = run.history(artifact)
    value = history.loc[history["epoch"] == counts["best_epoch"]].get(f"val.{name}")
    if value is None or not len(value) or value.iloc[0] != value.iloc[0]:
        return Found(ended)
    return Found(f"{name} {value.iloc[0]:.1f} on validation, {ended}", name, float(value.iloc[0]))


def _evaluated(artifact: base.Artifact) -> Found:
    """The headline of what was asked in the target language; of what was corrupted or out of distribution beside."""
    results = evaluation.results(artifact)
    name = evaluation.headline(results[0])
    plain = [r for r in results if r["fusion"] == "none" and not r.get("reading")]
    mine = [r for r in plain if r["role"] == "target"] or plain or results
    told = []
    for result in mine:
        value = _headline(result, name)
        if value is not None:
            what = " corrupted" if result.get("corrupt") else ""
            what += f" by {result['signature'].pos}" if result.get("task") else ""
            where = [result["data"]] if len({r["data"] for r in mine}) > 1 else []
            told.append(" ".join([*where, str(result["lang"]), f"{value:.1f}{what}"]))
        auroc = ((result.get("ood") or {}).get("t2v") or {}).get("auroc")
        if auroc is not None:
            told.append(f"out of distribution: T2V AUROC {auroc:.2f}")
    return Found(f"{name} {', '.join(told)}", name, _headline(mine[0], name))


def _headline(result: Mapping[str, Any], name: str) -> float | None:
    value = evaluation.mean_ap(result) if name == "mAP" else result[name]
    return None if value is None else float(value)


def _diagnosed(artifact: base.Artifact) -> Found:
    told = diagnosis.summary(artifact)
    words = f"{told['called_noisy']:,} of {told['pairs']:,} pairs called mismatched"
    auroc = (told["detection"] or {}).get("auroc")
    return Found(words) if auroc is None else Found(f"{words}, AUROC {auroc:.3f}", "AUROC", float(auroc))


def _indexed(artifact: base.Artifact) -> Found:
    recall = index.about(artifact)["recall"]
    name = f"recall@{recall['at']}"
    return Found(f"{artifact.counts['entries']:,} entries, {name} {recall['value']:.3f}", name, recall["value"])


_FOUND: dict[str, Callable[[base.Artifact], Found]] = {
    "dataset": _imported,
    "noise": _mismatched,
    "run": _trained,
    "evaluation": _evaluated,
    "diagnosis": _diagnosed,
    "index": _indexed,
}
