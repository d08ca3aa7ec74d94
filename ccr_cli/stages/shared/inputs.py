"""The artifacts that a stage works on: those named, their parents, or the one in the workspace that fits."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.description import apart
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import counted, warn
from ccr_cli.errors import ArtifactError, UsageError, nearest
from ccr_cli.stages.shared.options import KINDS, MANY
from ccr_cli.stages.shared.references import BEST, LATEST, common_home, find_all

_DATA = ("dataset", "translation", "noise", "features")
_UNFINISHED = (".partial", ".lock")
Fits = Callable[[base.Artifact], bool]


def _any(artifact: base.Artifact) -> bool:
    return True


@dataclass
class Inputs:
    """The artifacts named on the command line, and the ones that the stage has read."""

    workspace: Workspace
    named: list[base.Artifact] = field(default_factory=list)
    read: list[base.Artifact] = field(default_factory=list)
    repeated: list[base.Artifact] = field(default_factory=list)
    """Artifacts named more than once, or together with another one of the same content."""
    many: bool = False
    """Whether several artifacts of a kind may be named."""

    @classmethod
    def open(
        cls, command: str, words: Sequence[str], root: Path | None = None, *, makes: bool = True, dry_run: bool = False
    ) -> "Inputs":
        """Loads the artifacts that words on a command line refer to; arguments and errors as for `from_paths`.

        The workspace is `root`, else that of the artifacts given by path, else the current folder. It must exist,
        unless an artifact is given by path and the command `makes` artifacts.
        """
        home = common_home(words)
        place = root or home or Path(".")
        if home is None or not makes:
            existing(place)
        workspace = Workspace(place.absolute(), dry_run)
        return cls.from_paths(workspace, words, KINDS.get(command, ()), many=command in MANY)

    @classmethod
    def from_paths(
        cls, workspace: Workspace, words: Iterable[str], kinds: Sequence[str] = (), *, many: bool = False
    ) -> "Inputs":
        """Loads the artifacts that words refer to, each once; arguments and errors as for `references.find_all`.

        An unfinished artifact given with others of its folder, as by `runs/*`, is left out with a warning.
        """
        inputs, counts = cls(workspace, many=many), Counter(words)
        finished = {Path(word).parent for word in counts if not word.rstrip("/").endswith(_UNFINISHED)}
        for word, times in counts.items():
            if word.rstrip("/").endswith(_UNFINISHED) and len(Path(word).parts) > 1 and Path(word).parent in finished:
                warn(f"{word} is left out: it is unfinished")
                continue
            for path in find_all(workspace, word, kinds, many=many):
                artifact = base.load(path)
                again = artifact.id in {a.id for a in inputs.named}
                inputs.named += [] if again else [artifact]
                inputs.repeated += [artifact] if again or times > 1 else []
        return inputs

    def of_kind(self, *kinds: str) -> list[base.Artifact]:
        """The named artifacts of some kinds."""
        return [a for a in self.named if a.kind in kinds]

    def one(
        self, kind: str, described: str, fits: Fits = _any, hint: str | None = None, better: Fits = _any
    ) -> base.Artifact:
        """Returns the one artifact of a kind that fits; ArtifactError if none does, or several (they are listed).

        Looks among the named artifacts, or in the workspace if none of the kind is named. A named artifact that was
        made from other named ones replaces them (`latest`); if several fit, those that are `better` are preferred.
        `described` is for messages, e.g. `of multi30k in de`; `hint` is the command that would make the artifact.
        """
        match = self.maybe(kind, described, fits, better)
        if match is None:
            named, features = self.of_kind(kind), kind == "features"
            if named:
                what = f"{'' if features else 'a '}{kind} {described}".rstrip()
                raise ArtifactError(f"{named[0].path} is not {what}", hint=hint)
            none = f"there are no features {described}" if features else f"there is no {kind} {described}"
            raise ArtifactError(f"{none.rstrip()} in {self.workspace.root}", hint=hint)
        return match

    def maybe(self, kind: str, described: str, fits: Fits = _any, better: Fits = _any) -> base.Artifact | None:
        """Like `one`, but returns None if nothing fits."""
        matches = self._matches(kind, fits)
        if self.of_kind(kind):
            matches = latest(matches)
        if len(matches) > 1:
            matches = [a for a in matches if better(a)] or matches
        if len(matches) < 2:
            self.note(*matches)
            return matches[0] if matches else None
        paths = [self.workspace.relative(a.path) for a in matches]
        width = max(map(len, paths))
        lines = [f"\n  {path:{width}}  {text}".rstrip() for path, text in zip(paths, apart(matches), strict=True)]
        problem = f"several {kind} artifacts fit {described}".rstrip() + f":{''.join(lines)}"
        words = [LATEST, *([f"{BEST}SumR"] if kind == "run" else [])]
        every = ["runs/* for all"] if kind == "run" and self.many else []
        raise ArtifactError(problem, hint=f"name one, such as {paths[-1]}; or {', '.join([*words, *every])}")

    def all(self, kind: str, fits: Fits = _any) -> list[base.Artifact]:
        """Returns every artifact of a kind that fits: the named ones, or else those of the workspace."""
        matches = self._matches(kind, fits)
        self.note(*matches)
        return matches

    def _matches(self, kind: str, fits: Fits) -> list[base.Artifact]:
        return [a for a in self.of_kind(kind) or self.workspace.artifacts(kind) if fits(a)]

    def parent(self, artifact: base.Artifact, kind: str) -> base.Artifact:
        """Returns an artifact's parent; ArtifactError if it is gone, or was rebuilt since the artifact was made."""
        parent = self.workspace.parent(artifact, kind)
        self.note(parent)
        return parent

    def current_runs(self, artifact: base.Artifact) -> list[base.Artifact] | None:
        """Returns the runs that an artifact was made from; None, with a warning, if one of them was rebuilt since.

        A deleted run leaves the artifact valid, and is not returned.

        Raises:
            ArtifactError: If the artifact is stale, and was named.
        """
        runs = []
        for link in [link for link in artifact.parents if link.kind == "run"]:
            try:
                runs.append(self.workspace.linked(artifact, link))
                self.note(runs[-1])
            except ArtifactError as error:
                if not self.workspace.place_of(artifact, link).exists():
                    continue
                if artifact.id in {a.id for a in self.named}:
                    raise
                warn(f"{artifact.name} is left out: {error.message}; {error.hint}")
                return None
        return runs

    def note(self, *artifacts: base.Artifact) -> None:
        """Records that artifacts were read, for the list that the stage prints."""
        for artifact in artifacts:
            if artifact.id not in {a.id for a in self.read}:
                self.read.append(artifact)


def existing(workspace: Path | None) -> Path:
    """The folder of a workspace to read, by default the current one; ArtifactError if it does not exist."""
    root = Path(".") if workspace is None else workspace
    if not root.is_dir():
        above = next(parent for parent in root.absolute().parents if parent.is_dir())
        near = nearest(root.name, [path.name for path in above.iterdir() if path.is_dir()])
        hint = f"--workspace {above / near[0]}" if near else f"ccr data import FILE --workspace {root}, which makes it"
        raise ArtifactError(f"there is no workspace {root}", hint)
    return root


def gone_runs(workspace: Workspace, artifact: base.Artifact) -> list[str]:
    """Paths of the runs that an artifact was made from and that were deleted since."""
    return [p.path for p in artifact.parents if p.kind == "run" and not workspace.place_of(artifact, p).exists()]


def without_orphans(inputs: Inputs, artifacts: Sequence[base.Artifact]) -> list[base.Artifact]:
    """Leaves out artifacts whose runs were all deleted, unless they are named, with one warning."""
    runs = {a.id: {p.path for p in a.parents if p.kind == "run"} for a in artifacts}
    named = {a.id for a in inputs.named}
    others = (a for a in artifacts if runs[a.id] and a.id not in named)
    orphans = [a for a in others if runs[a.id] == set(gone_runs(inputs.workspace, a))]
    if orphans:
        command = shlex.join(inputs.workspace.relative(a.path) for a in orphans)
        warn(f"{counted(len(orphans), 'artifact')} left out, because the run was deleted\n  try: rm -r {command}")
    return [a for a in artifacts if a not in orphans]


def latest(artifacts: Sequence[base.Artifact]) -> list[base.Artifact]:
    """Leaves out artifacts that others were made from: parts of joined features, a translation before its repair."""
    return [a for a in artifacts if not any(made_from(a)(other) for other in artifacts)]


def made_from(*parents: base.Artifact) -> Fits:
    """Returns a filter for artifacts that were made from exactly this parent, or from one of several."""
    ids = {parent.id for parent in parents}
    return lambda artifact: any(link.id in ids for link in artifact.parents)


def require_parent(artifact: base.Artifact, parent: base.Artifact) -> None:
    """Checks that an artifact was made from exactly this parent; ArtifactError if not."""
    if not made_from(parent)(artifact):
        hint = "name artifacts of one data set; after importing it again, rebuild what was made from it"
        raise ArtifactError(f"{artifact.path} was not made from {parent.path} as it is now", hint=hint)


def refuse_unread(inputs: Inputs, trained: base.Artifact, *read: base.Artifact, hint: str | None = None) -> None:
    """Refuses named data that a stage would ignore because it reads a run with its own data (UsageError).

    Artifacts that only come along in a pipe are accepted: ancestors of what is read (the run, and `read`), and those
    made from the run. `hint` says what to type if a data set would be ignored.
    """
    there = [trained, *read, *inputs.named]
    known = {trained.id, *(a.id for a in read)}
    known |= {a.id for a in inputs.named if a.kind == "run" or made_from(trained)(a)}  # other runs are read in turn
    while more := {p.id for a in there if a.id in known for p in a.parents} - known:
        known |= more
    for artifact in inputs.named:
        if artifact.kind not in _DATA or artifact.id in known:
            continue
        own = ", ".join(p.path for p in trained.parents if p.kind == artifact.kind)
        but = f", but on {own}" if own else ""
        usual = hint if hint and artifact.kind == "dataset" else "leave it out: a run is read with its own data"
        problem = f"{trained.name} was not trained on {inputs.workspace.relative(artifact.path)}{but}"
        raise UsageError(problem, hint=usual)


def like(inputs: Inputs, own: base.Artifact, data: dataset.Dataset) -> base.Artifact:
    """Returns features of a data set, named or in the workspace, that a run trained on its `own` ones can read."""
    of_it = made_from(data.artifact)
    named = list(filter(of_it, inputs.of_kind("features")))
    described = f"{data.name} and the run's encoder"
    match = Inputs(inputs.workspace, named).maybe(
        "features", described, lambda f: of_it(f) and features.comparable(f, own)
    )
    if match is None:
        todo = features.command(own, data.artifact.path, videos=bool((data.items["kind"] == "video").any()))
        lacking = f"{named[0].path} does not come from" if named else f"{data.name} has no features of"
        raise ArtifactError(f"{lacking} the run's encoder", hint=f"make them: {todo}")
    inputs.note(match)
    return match
