"""compare: whether one system is better than another on the same queries, and by how much."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ccr_cli.artifacts import base, evaluation, run
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import KEYS, LABELLED, Signature
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics import bootstrap, paired
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.report.tables.differences import galleries
from ccr_cli.report.tables.variants import variant_labels
from ccr_cli.stages.shared.inputs import Inputs, made_from
from ccr_cli.stages.shared.labels import default_options, method_label

MUST_AGREE = ("data", "split", "lang", "caption_set", "q", "gallery", "dir", "protocol", "pos", "ties")
"""What two scores have in common if they are of the same queries, galleries and rules."""
_APART = ("pos", "caption_set", "ties", "gallery", "q", "data")
"""What tells comparisons apart that are of the same data, split, protocol and language."""
Place = tuple[object, ...]
"""What must agree of a result, with what one would not mix up."""
SHOWN = ("SumR", "mAP", *(f"{d}.{name}" for d in DIRECTIONS for name in ("R@1", "R@5", "R@10", "MedR", "mAP")))
LOW_IS_GOOD = ("MedR", "MeanR")
_SEEDED = ("seed", "triplets", "dropped", "validation")
"""What of a run's configuration may differ between repetitions."""


@dataclass(frozen=True)
class Answer:
    """One result of one run."""

    made: base.Artifact
    number: int
    result: Mapping[str, Any]

    @cached_property
    def fields(self) -> dict[str, str]:
        """The signature; without what `protocol` says of training, since runs may be trained on different data."""
        signed: Signature = self.result["signature"]
        return signed.fields | {"protocol": str(replace(signed.rules, trained_on=""))}

    @property
    def place(self) -> Place:
        """What must agree, and what one would not mix up: with or without fusion, and which reading."""
        must = tuple(self.fields[key] for key in MUST_AGREE)
        return (*must, self.result["fusion"] != "none", self.result.get("reading") or "")


@dataclass(frozen=True)
class System:
    """Runs that differ in their seeds alone, with their results by place."""

    label: str
    runs: Sequence[Mapping[Place, Answer]]

    def signature(self, place: Place) -> str:
        """That of its results; where seeds of the noise differ, all of them."""
        signatures = [run[place].result["signature"].fields for run in self.runs]
        return str(Signature(**{key: "+".join(dict.fromkeys(fields[key] for fields in signatures)) for key in KEYS}))


@dataclass(frozen=True)
class Value:
    """A figure of a system."""

    mean: float
    sd: float | None
    """over seeds; None for one"""
    seeds: int


@dataclass(frozen=True)
class Line:
    """A figure of two systems."""

    figure: str
    first: Value
    second: Value
    difference: paired.Difference
    p_holm: float | None
    """corrected for the number of systems that are held against the first"""

    @property
    def verdict(self) -> str:
        """What the second is: better or worse where interval and test agree on it, else undecided."""
        sure = self.difference.low > 0 or self.difference.high < 0
        if not sure or (self.p_holm is not None and self.p_holm >= paired.ALPHA):
            return "undecided"
        return "better" if (self.difference.estimate > 0) != self.figure.endswith(LOW_IS_GOOD) else "worse"


@dataclass(frozen=True)
class Comparison:
    """Two systems, asked the same."""

    what: str
    lang: str
    fusion: str
    first: str
    second: str
    lines: Sequence[Line]
    """the figure that stands for all is the first"""
    signatures: tuple[str, str]

    def words(self) -> str:
        """The verdict in a sentence."""
        line = self.lines[0]
        d, name = line.difference, line.figure
        sure = f"95% interval {d.low:.1f} to {d.high:.1f}, p = {line.p_holm:.2g}"
        if line.verdict == "undecided":
            return f"{self.second} and {self.first}: no certain difference, {name} {d.estimate:+.1f} ({sure})"
        return f"{self.second} is {line.verdict} than {self.first} by {abs(d.estimate):.1f} {name} ({sure})"


def compare(inputs: Inputs, *, every: bool = False) -> list[Comparison]:
    """Holds every system against the first, on all that every one of them answered.

    Takes the evaluations given, and those in the workspace of the runs given. Runs that differ in their seeds alone
    are one system, unless there is no other.

    Args:
        inputs: The artifacts given.
        every: Queries in the source language, fused ones and further readings of a model too.

    Raises:
        ArtifactError: If what is given was not asked the same, or a run has no evaluation.
        UsageError: If there are not two to compare.
    """
    answers = _answers(inputs)
    systems = _systems(inputs, answers)
    if len(systems) < 2:
        why = "there are not two to compare" + (": all that is given is of one run" if answers else "")
        raise UsageError(why, hint="ccr compare RUN RUN, or evaluations of two runs")
    runs = [each for system in systems for each in system.runs]
    places = [place for place in runs[0] if all(place in each for each in runs)]
    if not places:
        raise _apart(systems)
    chosen = places if every else _usual(places, runs[0])
    used = {each[place].made.path for each in runs for place in places}
    for artifact in inputs.given:
        if artifact.kind == "evaluation" and artifact.path not in used:
            warn(f"{artifact.name} is left out: the others were not asked the same")
    names = _names(chosen, runs[0])
    return [one for place in chosen for one in _at(place, systems, names[place])]


def _answers(inputs: Inputs) -> dict[str, list[Answer]]:
    """The results of each run or ensemble, by its id, in the order in which they are given.

    Of a run that comes with an evaluation nothing else is taken; beside one of an ensemble what it has by itself, if
    anything.

    Raises:
        ArtifactError: If a run has none.
    """
    given = [a for a in inputs.given if a.kind == "evaluation"]
    alone = {evaluation.run_id(a) for a in given}
    found: dict[str, list[base.Artifact]] = {}
    for artifact in inputs.given:
        if artifact.kind == "evaluation":
            found.setdefault(evaluation.run_id(artifact), []).append(artifact)
        elif artifact.kind == "run" and artifact.id not in alone:
            own = [a for a in inputs.workspace.artifacts("evaluation") if evaluation.run_id(a) == artifact.id]
            if own:
                found[artifact.id] = own
            elif not any(made_from(artifact)(a) for a in given):
                shown = inputs.workspace.relative(artifact.path)
                raise ArtifactError(f"{shown} was not evaluated yet", hint=f"ccr evaluate {shown}")
    for artifact in itertools.chain(*found.values()):
        inputs.note(artifact)
    return {
        run_id: [Answer(a, n, each) for a in made for n, each in enumerate(evaluation.results(a))]
        for run_id, made in found.items()
    }


def _systems(inputs: Inputs, answers: Mapping[str, Sequence[Answer]]) -> list[System]:
    """The runs, put together where nothing but seeds tells them apart."""
    configs: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    for run_id, found in answers.items():
        result = found[0].result
        what: list[Any] = [result["label"], result["noise"], found[0].fields["mt"]]
        with suppress(ArtifactError):  # a run that is gone
            trained = None if result.get("ensemble") else inputs.parent(found[0].made, "run")
            if trained:
                configs[run_id] = run.config(trained)
                kept = {key: value for key, value in configs[run_id].items() if key not in _SEEDED}
                noise = {k: v for k, v in (kept.get("noise") or {}).items() if k in ("style", "target", "ratio")}
                parents = sorted(p.id for p in trained.parents if p.kind != "noise")
                what = [kept | {"noise": noise}, parents]
        groups.setdefault(base.canonical_json(what), []).append(run_id)
    members = list(groups.values())
    by_place: dict[str, dict[Place, Answer]] = {}
    for run_id, found in answers.items():
        for answer in found:
            by_place.setdefault(run_id, {}).setdefault(answer.place, answer)
    if len(members) == 1 and len(members[0]) > 1:
        say("these differ in their seeds alone: each stands for itself")
        return [System(str(answers[i][0].result["run"]), [by_place[i]]) for i in members[0]]
    labels = _labels([(ids[0], answers[ids[0]][0]) for ids in members], configs)
    return [System(label, [by_place[i] for i in ids]) for label, ids in zip(labels, members, strict=True)]


def _labels(heads: Sequence[tuple[str, Answer]], configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A name for each system: its method and what tells it apart; where that is not enough, its run."""
    usual = {}
    for run_id, config in configs.items():
        with suppress(UsageError):  # a method that is not installed here
            usual[run_id] = default_options(config)
    named = {
        i: (method_label(config) if i in usual else Label.of(str(config["method"])), config)
        for i, config in configs.items()
    }
    known = variant_labels(named, usual)
    labels = [str(known.get(run_id) or answer.result["label"]) for run_id, answer in heads]
    noise = [f"{100 * answer.result['noise']:g}% noise" for _, answer in heads]
    for extra in (noise, [f"mt {answer.fields['mt']}" for _, answer in heads]):
        if len(set(labels)) < len(labels) and len(set(extra)) > 1:
            labels = [f"{label}, {more}" for label, more in zip(labels, extra, strict=True)]
    twice = {label for label in labels if labels.count(label) > 1}
    return [
        f"{label} ({answer.result['run']})" if label in twice else label
        for label, (_, answer) in zip(labels, heads, strict=True)
    ]


def _apart(systems: Sequence[System]) -> ArtifactError:
    """What differs between the first system and one that shares nothing with it."""
    runs = [(system, each) for system in systems for each in system.runs]
    head, first = runs[0]
    system, other = next(((s, e) for s, e in runs if not set(first) & set(e)), runs[-1])
    one = next(iter(first.values()))
    rivals = [
        {k: (one.fields[k], a.fields[k]) for k in MUST_AGREE if one.fields[k] != a.fields[k]} for a in other.values()
    ]
    least = min(rivals, key=len)
    told = ", ".join(f"{key} is {a} and {b}" for key, (a, b) in least.items())
    return ArtifactError(
        f"{head.label} and {system.label} were not asked the same: {told or 'there is nothing that all have'}",
        hint="ccr evaluate RUN --protocol labelled, of those that were not"
        if LABELLED in least.get("protocol", ())
        else "evaluate them in the same way, on the same data",
    )


def _usual(places: Sequence[Place], first: Mapping[Place, Answer]) -> list[Place]:
    """The queries of the target language as they are; where there are none, those of the source language."""
    plain = [
        place for place in places if first[place].result["fusion"] == "none" and not first[place].result.get("reading")
    ]
    target = [place for place in plain if first[place].result["role"] == "target"]
    return target or plain or list(places)


def _names(places: Sequence[Place], first: Mapping[Place, Answer]) -> dict[Place, str]:
    """What each comparison is of, in words; so much of the signature that no two are called the same."""
    told: dict[Place, list[str]] = {}
    for place in places:
        result, protocol = first[place].result, first[place].fields["protocol"]
        told[place] = [f"{result['data']} {result['split']}"] + [protocol] * (protocol != "full")
        told[place] += [f"queries in {result['lang']}"]
        told[place] += [f"fused {result['fusion']}"] * (result["fusion"] != "none")
        told[place] += [f"{reading} alone" for reading in (result.get("reading"),) if reading]
    for key in _APART:
        shown = [", ".join(words) for words in told.values()]
        for (place, words), name in zip(told.items(), shown, strict=True):
            rivals = {first[p].fields[key] for p, other in zip(told, shown, strict=True) if other == name}
            words += [f"{key} {first[place].fields[key]}"] * (len(rivals) > 1)
    return {place: ", ".join(words) for place, words in told.items()}


def _at(place: Place, systems: Sequence[System], what: str) -> list[Comparison]:
    """Every other system against the first, in one place."""
    read = [[_galleries(each[place]) for each in system.runs] for system in systems]
    for system, runs in zip(systems, read, strict=True):
        if any(queries != read[0][0][1] for _, queries in runs):
            raise ArtifactError(f"{system.label} was asked other queries than {systems[0].label}, as many as they are")
    folds = [[found for found, _ in runs] for runs in read]
    values = [_values(runs) for runs in folds]
    found = [paired.differences(folds[0], other) for other in folds[1:]]
    answer = systems[0].runs[0][place]
    headline = evaluation.headline(answer.result)
    figures = [headline, *(name for name in SHOWN if name != headline)]
    out = []
    for n, system in enumerate(systems[1:]):
        lines = []
        for name in figures:
            p = [each[name].p for each in found]
            corrected = None if p[n] is None else paired.holm([x for x in p if x is not None])[n]
            lines.append(Line(name, values[0][name], values[n + 1][name], found[n][name], corrected))
        told = (systems[0].signature(place), system.signature(place))
        fusion = str(answer.result["fusion"])
        lang = str(answer.result["lang"])
        out.append(Comparison(what, lang, fusion, systems[0].label, system.label, lines, told))
    return out


def _values(runs: Sequence[Sequence[bootstrap.Gallery]]) -> dict[str, Value]:
    """Every figure of a system, with its deviation over seeds."""
    each_SC = np.array([np.mean([fold.figures()[0] for fold in folds], axis=0) for folds in runs])
    sd_C = each_SC.std(axis=0, ddof=1) if len(runs) > 1 else None
    return {
        name: Value(float(each_SC[:, c].mean()), None if sd_C is None else float(sd_C[c]), len(runs))
        for c, name in enumerate(bootstrap.FIGURES)
    }


def _galleries(answer: Answer) -> tuple[list[bootstrap.Gallery], list[list[str]]]:
    """The queries of each fold of a result, in the order of their ids, which come with them.

    Raises:
        ArtifactError: If an earlier ccr wrote the ranks.
    """
    try:
        ranks = evaluation.read_ranks(answer.made)
    except ArtifactError as error:
        raise ArtifactError(error.message, hint="ccr evaluate RUN --force, with the options it was made with") from None
    return galleries(ranks[ranks["result"] == answer.number])
