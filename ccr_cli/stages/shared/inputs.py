"""Which artifacts a stage works on: those given, their parents, or the one in the workspace that fits."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.description import apart
from ccr_cli.artifacts.workspace import FOLDERS, Workspace
from ccr_cli.errors import ArtifactError, UsageError

_DATA = ("dataset", "translation", "noise", "features")


@dataclass
class Inputs:
    """The artifacts given on the command line, and what was read in the end."""

    workspace: Workspace
    given: list[base.Artifact] = field(default_factory=list)
    read: list[base.Artifact] = field(default_factory=list)
    repeated: list[base.Artifact] = field(default_factory=list)
    """Those that were given more than once, or beside another one of the same content."""

    @classmethod
    def from_paths(cls, workspace: Workspace, paths: Iterable[str]) -> Inputs:
        """Loads the artifacts at the given paths, told apart by their kind; a path twice counts once.

        Raises:
            ArtifactError: If one of them is no artifact.
        """
        inputs = cls(workspace)
        for path, times in Counter(paths).items():
            place = _find(workspace, path)
            _refuse_other(workspace, place, path)
            artifact = base.load(place)
            again = artifact.id in {a.id for a in inputs.given}
            if not again:
                inputs.given.append(artifact)
            if again or times > 1:
                inputs.repeated.append(artifact)
        return inputs

    def one(
        self,
        kind: str,
        asked: str,
        fits: Callable[[base.Artifact], bool] = lambda artifact: True,
        hint: str | None = None,
        better: Callable[[base.Artifact], bool] = lambda artifact: True,
    ) -> base.Artifact:
        """Takes the one artifact of a kind that fits.

        Looks among those given; if none of the kind was given, in the workspace. Where one that was given was made
        from others that were given too (features, joined in the same pipe), it stands for these.

        Args:
            kind: Its kind.
            asked: What was asked for, for messages, e.g. `of multi30k in de`.
            fits: Whether an artifact fits.
            hint: The command that would make it.
            better: Of several that fit, which come alone into question, if there are any.

        Raises:
            ArtifactError: If none fits, or several do (they are listed).
        """
        found = self.maybe(kind, asked, fits, better)
        if found is None:
            given = [a for a in self.given if a.kind == kind]
            if given:
                raise ArtifactError(f"{given[0].path} is no {kind} {asked}".rstrip(), hint=hint)
            none = "there are no features" if kind == "features" else f"there is no {kind}"
            raise ArtifactError(f"{none} {asked}".rstrip() + f" in {self.workspace.root}", hint=hint)
        return found

    def maybe(
        self,
        kind: str,
        asked: str,
        fits: Callable[[base.Artifact], bool] = lambda artifact: True,
        better: Callable[[base.Artifact], bool] = lambda artifact: True,
    ) -> base.Artifact | None:
        """Like `one`, but None where nothing fits."""
        given = [a for a in self.given if a.kind == kind]
        found = [a for a in (given or self.workspace.artifacts(kind)) if fits(a)]
        if given:
            found = [a for a in found if not any(made_from(a)(other) for other in found)]
        if len(found) > 1:
            found = [a for a in found if better(a)] or found
        if len(found) > 1:
            paths = [self.workspace.relative(a.path) for a in found]
            width = max(map(len, paths))
            lines = [f"\n  {path:{width}}  {told}".rstrip() for path, told in zip(paths, apart(found), strict=True)]
            raise ArtifactError(
                f"several {kind} artifacts fit {asked}".rstrip() + f":{''.join(lines)}",
                hint=f"name the one you mean: {self.workspace.relative(found[-1].path)} for one",
            )
        if found:
            self.note(found[0])
        return found[0] if found else None

    def all(self, kind: str, fits: Callable[[base.Artifact], bool] = lambda artifact: True) -> list[base.Artifact]:
        """Takes every artifact of a kind that fits: those given, else those of the workspace."""
        given = [a for a in self.given if a.kind == kind]
        found = [a for a in (given or self.workspace.artifacts(kind)) if fits(a)]
        for artifact in found:
            self.note(artifact)
        return found

    def parent(self, artifact: base.Artifact, kind: str) -> base.Artifact:
        """Takes an artifact's parent, as it was when the artifact was made."""
        parent = self.workspace.parent(artifact, kind)
        self.note(parent)
        return parent

    def note(self, artifact: base.Artifact) -> None:
        """Remembers that an artifact was read, for the list that the stage prints."""
        if artifact.id not in {a.id for a in self.read}:
            self.read.append(artifact)


def made_from(parent: base.Artifact) -> Callable[[base.Artifact], bool]:
    """A filter for artifacts that were made from exactly this parent."""
    return lambda artifact: any(p.id == parent.id for p in artifact.parents)


def require_parent(artifact: base.Artifact, parent: base.Artifact) -> None:
    """Checks that an artifact was made from exactly this parent.

    Raises:
        ArtifactError: If it was made from another one.
    """
    if not made_from(parent)(artifact):
        raise ArtifactError(
            f"{artifact.path} was not made from {parent.path} as it is now",
            hint="give artifacts of one data set; after importing it again, rebuild what was made from it",
        )


def refuse_unread(inputs: Inputs, trained: base.Artifact, *read: base.Artifact, hint: str | None = None) -> None:
    """Refuses data that were given and that a stage which reads a run would not read.

    What only comes along in a pipe is none of that: what the artifacts that are read were made from, or others that
    were made from the run.

    Args:
        inputs: The artifacts that were given.
        trained: The run, which says what it was made from.
        read: What is read beside that.
        hint: What to type where it is a data set.

    Raises:
        UsageError: If there is such a data set, translation, noise or features.
    """
    there = [trained, *read, *inputs.given]
    known = {trained.id, *(a.id for a in read)}
    known |= {a.id for a in inputs.given if a.kind == "run" or made_from(trained)(a)}  # other runs have their turn
    while more := {p.id for a in there if a.id in known for p in a.parents} - known:
        known |= more
    for given in inputs.given:
        if given.kind not in _DATA or given.id in known:
            continue
        own = ", ".join(p.path for p in trained.parents if p.kind == given.kind)
        raise UsageError(
            f"{inputs.workspace.relative(given.path)} is not what {trained.name} was trained on"
            + (f" ({own})" if own else ""),
            hint=hint if hint and given.kind == "dataset" else "leave it out: a run is read with its own",
        )


def like(inputs: Inputs, own: base.Artifact, data: dataset.Dataset) -> base.Artifact:
    """Takes the features of a data set that a run can read: those that were given, else the ones in the workspace.

    Args:
        inputs: The artifacts that were given.
        own: The features that the run was trained on.
        data: Another data set.

    Raises:
        ArtifactError: If none are by the run's encoder, or several are.
    """
    of_it = made_from(data.artifact)
    named = [a for a in inputs.given if a.kind == "features" and of_it(a)]
    found = Inputs(inputs.workspace, named).maybe(
        "features",
        f"{data.name} and the run's encoder",
        lambda f: of_it(f) and features.comparable(f, own),
    )
    if found is None:
        videos = bool((data.items["kind"] == "video").any())
        todo = features.command(own, data.artifact.path, videos=videos)
        if named:
            raise ArtifactError(f"{named[0].path} is not by the run's encoder", hint=f"make them: {todo}")
        raise ArtifactError(f"{data.name} has no features of the run's encoder", hint=f"make them: {todo}")
    inputs.note(found)
    return found


def _refuse_other(workspace: Workspace, place: Path, path: str) -> None:
    """Says what to do where a path leads to what is not imported yet, or nowhere.

    Raises:
        ArtifactError: If it does.
    """
    if (place / "captions.tsv").is_file() and not (place / base.RECORD).is_file():
        raise ArtifactError(
            f"{path} is a folder in the dataset format, not imported yet", hint=f"ccr data import {shlex.quote(path)}"
        )
    if not place.exists():
        folder = Path(path).parts[0] if Path(path).parts else ""
        places = [(FOLDERS[kind], found) for kind, found in workspace.places()]
        near = [found for _, found in places if Path(path).name in found.name]
        if folder in FOLDERS.values() or not near:
            near = [found for kind, found in places if kind == (folder if folder in FOLDERS.values() else "datasets")]
        shown = [workspace.relative(found) for found in near]
        if shown:
            more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
            raise ArtifactError(f"{place} does not exist", hint=f"there are: {', '.join(shown[:20])}{more}")


def _find(workspace: Workspace, path: str) -> Path:
    direct = Path(path)
    inside = workspace.root / path
    return direct if direct.exists() or not inside.exists() else inside
