"""The artifacts of a workspace, each with its main options and its outcome, for `ccr show`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ccr_cli.artifacts import base, diagnosis, evaluation, index, run
from ccr_cli.artifacts.base import FOLDERS
from ccr_cli.artifacts.build import unfinished
from ccr_cli.artifacts.description import short
from ccr_cli.artifacts.signature import HUMAN, signature_of
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import counted, tally
from ccr_cli.errors import ArtifactError
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.artifact_summaries import headlines, is_plain
from ccr_cli.report.words.numbers import metric, probability, similarity
from ccr_cli.stages.shared.inputs import gone_runs


@dataclass(frozen=True)
class Outcome:
    """What an artifact contains or reached."""

    words: str
    figure: str = ""
    """The name of its headline figure, if any."""
    value: float | None = None


@dataclass(frozen=True)
class Entry:
    """An artifact of a workspace."""

    kind: str
    path: Path
    artifact: base.Artifact | None
    """None if it cannot be read."""
    options: str
    """Its data set and main options."""
    outcome: Outcome
    """Its outcome, or why it cannot be read."""

    @property
    def created(self) -> str:
        """When it was made."""
        return str((self.artifact.about.get("created") if self.artifact else None) or "")


def contents(workspace: Workspace, chosen: Sequence[base.Artifact] | None) -> list[Entry]:
    """Lists the artifacts of a workspace, unfinished ones included, or only those that were chosen.

    The order is that of the pipeline, the newest first within each kind.
    """
    entries: list[Entry] = []
    artifacts: list[base.Artifact] = []
    for kind, path in workspace.places():
        try:
            artifacts.append(base.load(path, kind))
        except ArtifactError as error:
            entries.append(Entry(kind, path, None, "", Outcome(f"cannot be read: {error.message}")))
    known, stale = {artifact.id: artifact for artifact in artifacts}, workspace.stale(artifacts)
    for kind, path, further in unfinished(workspace):
        entries.append(Entry(kind, path, None, "", Outcome(f"unfinished: {further}")))
    if chosen is not None:
        entries, artifacts = [], list(chosen)
    for a in artifacts:
        outcome = _outcome(a)
        if gone := gone_runs(workspace, a):
            outcome = replace(outcome, words=f"{outcome.words}; {' and '.join(gone)} is gone")
        outcome = replace(outcome, words=f"stale; {outcome.words}") if a.id in stale else outcome
        entries.append(Entry(a.kind, a.path, a, _options(a, known), outcome))
    entries.sort(key=lambda entry: entry.created, reverse=True)
    return sorted(entries, key=lambda entry: list(FOLDERS).index(entry.kind))


def _options(artifact: base.Artifact, known: Mapping[str, base.Artifact]) -> str:
    """The data set, the options of the run for an artifact made from one, and the artifact's own options."""

    def dataset(made: base.Artifact) -> list[str]:
        return [PurePosixPath(parent.path).name for parent in made.parents if parent.kind == "dataset"][:1]

    runs = [parent for parent in artifact.parents if parent.kind == "run"]
    number = [counted(len(runs), "run")]
    if artifact.kind == "report":
        source = number if len(runs) != 1 else []
    elif len(runs) == 1 and runs[0].id in known:
        trained = known[runs[0].id]
        source = [*dataset(trained), short(trained)]
    else:
        source = [*dataset(artifact), *(number if len(runs) > 1 else [])]
    if artifact.kind == "diagnosis" and not runs:
        source.append(PurePosixPath(artifact.parent("translation").path).name)
    options = [text for text in [short(artifact)] if text]
    if artifact.kind == "run":  # name the translations if there are others into the same language
        links = [parent for parent in artifact.parents if parent.kind == "translation" and parent.id in known]
        langs = {known[link.id].request.get("lang") for link in links}
        if sum(a.kind == "translation" and a.request.get("lang") in langs for a in known.values()) > len(links):
            options += [PurePosixPath(link.path).name for link in links]
    if runs and source and options:
        return f"{', '.join(source)}: {', '.join(options)}"
    return ", ".join([*source, *options])


def _outcome(artifact: base.Artifact) -> Outcome:
    counts = artifact.counts
    try:
        match artifact.kind:
            case "dataset":
                items = sum(n for what, n in counts.items() if what.startswith("items."))
                langs = [what.removeprefix("captions.") for what in counts if what.startswith("captions.")]
                return Outcome(f"{counted(items, 'item')}, captions in {', '.join(langs)}")
            case "noise":
                return Outcome(f"{counts['mismatched']:,} of {counts['triplets']:,} triplets mismatched")
            case "run":
                return _run(artifact)
            case "evaluation":
                return _evaluation(artifact)
            case "diagnosis":
                summary = diagnosis.summary(artifact)
                called = "mismatched" if diagnosis.of_run(artifact) else "wrong"
                words = f"{summary['called_noisy']:,} of {summary['pairs']:,} pairs called {called}"
                auroc = (summary["detection"] or {}).get("auroc")
                if auroc is None:
                    return Outcome(words)
                return Outcome(f"{words}, AUROC {probability(auroc)}", "AUROC", auroc)
            case "index":
                recall = index.about(artifact)["recall"]
                words = f"{counts['entries']:,} entries, recall@{recall['at']} {probability(recall['value'])}"
                return Outcome(words, f"recall@{recall['at']}", recall["value"])
    except ArtifactError as error:
        return Outcome(f"cannot be read: {error.message}")
    return Outcome(tally({what: n for what, n in counts.items() if n}))


def _run(artifact: base.Artifact) -> Outcome:
    counts = artifact.counts
    stopped = ", stopped early" if counts.get("stopped") else ""
    epoch = f"epoch {counts['best_epoch']} of {counts['epochs']}{stopped}" if counts["epochs"] else "nothing trained"
    name = str(run.config(artifact).get("criterion", "SumR"))
    history = run.history(artifact)
    values = history.loc[history["epoch"] == counts["best_epoch"]].get(f"val.{name}")
    if values is None or values.dropna().empty:
        return Outcome(epoch)
    value = float(values.iloc[0])
    return Outcome(f"{name} {metric(value)} on validation, {epoch}", name, value)


def _evaluation(artifact: base.Artifact) -> Outcome:
    """The headline figure in the target language, also of corrupted queries, and out-of-distribution detection."""
    results = evaluation.results(artifact)
    plain = [r for r in results if is_plain(r)]
    shown = [r for r in plain if r["role"] == "target"] or plain or results
    several = len({r["data"] for r in shown}) > 1
    name, values = headlines(shown)
    kinds = {result.get("queries", HUMAN) for result in shown}
    several_kinds = len(kinds) > 1
    if not several_kinds and kinds != {HUMAN}:
        name = f"{name} of {signature_words.queries(*kinds)}"
    parts = []
    for result, value in zip(shown, values, strict=True):
        if value is not None:
            words = [result["data"]] if several else []
            kind = [result["queries"]] if result.get("queries") and several_kinds else []
            words += [str(result["lang"]), *kind, metric(value), *(["corrupted"] if result.get("corrupt") else [])]
            if result.get("task"):
                signature = signature_of(result)
                words.append(f"by {'item' if signature and signature.pos == 'item' else 'caption'}")
            parts.append(" ".join(words))
        auroc = ((result.get("ood") or {}).get("t2v") or {}).get("auroc")
        if auroc is not None:
            parts.append(f"out of distribution: T2V AUROC {similarity(auroc)}")
    return Outcome(f"{name} {', '.join(parts)}", name, None if values[0] is None else float(values[0]))
