"""`ccr compare`: whether one system is better than another on the same queries, and by how much."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, evaluation, run
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import (
    FILE,
    HUMAN,
    KEYS,
    LABELLED,
    MT,
    TRANSLATE_TEST,
    Signature,
    read_fusion,
    read_noise,
)
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics import bootstrap, paired
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.report.tables import chance, retrieval
from ccr_cli.report.tables.comparable import BASELINE, HEADLINES, RECALLS, base_label, is_oracle, method_order
from ccr_cli.report.tables.differences import galleries
from ccr_cli.report.tables.table import PREAMBLE, Cell, Column, Row, Table, to_latex
from ccr_cli.report.tables.variants import variant_labels
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import decimal, ends, metric, percent
from ccr_cli.stages.shared.inputs import Inputs, made_from, without_orphans
from ccr_cli.stages.shared.load_run import default_options, method_label, translations_of
from ccr_cli.stages.shared.references import LOW_IS_GOOD

MUST_AGREE = ("data", "split", "lang", "caption_set", "q", "gallery", "dir", "protocol", "pos", "ties")
"""Keys of the signature in which compared results must agree: the same queries, galleries and rules."""
_TELLING = ("pos", "caption_set", "ties", "gallery", "q", "data")
"""Keys that distinguish comparisons of the same data, split, protocol and language."""
FIGURES = ("SumR", "mAP", *(f"{d}.{name}" for d in DIRECTIONS for name in ("R@1", "R@5", "R@10", "MedR", "mAP")))
_SEEDED = ("seed", "triplets", "dropped", "validation")
"""Keys of a run's configuration that may differ between its repetitions."""
Setting = tuple[str, ...]
"""What two results must agree in to be compared: `MUST_AGREE` of the signature, whether they are fused, the reading."""


@dataclass(frozen=True)
class RunResult:
    """One result of one run."""

    evaluation: base.Artifact
    number: int
    """Its position in `metrics.json`."""
    result: Mapping[str, Any]

    @cached_property
    def fields(self) -> dict[str, str]:
        """The fields of the signature; `protocol` without the training data, in which compared runs may differ."""
        signature: Signature = self.result["signature"]
        return signature.fields | {"protocol": str(replace(signature.rules, trained_on=""))}

    @property
    def noise(self) -> str:
        """The synthetic noise of training in words, without its seed."""
        ratio, kind = self.result["noise"], read_noise(self.fields["noise"])
        if not ratio:
            return "no noise"
        other = signature_words.unusual_noise(kind[0]) if kind else ""
        return f"{percent(ratio)} noise{f' ({other})' if other else ''}"

    @property
    def fused(self) -> bool:
        """Whether the queries are fused with their translations; in translate-test these search alone."""
        return bool(self.result["fusion"] != "none") and self.engine is None

    @property
    def engine(self) -> str | None:
        """The engine that translated the queries of a translate-test; None for other queries."""
        name, engine, _ = read_fusion(self.fields["fusion"])
        return engine.replace(":", " ") if name == TRANSLATE_TEST else None

    @property
    def reading(self) -> str:
        """The reading of the model; empty for the usual one."""
        return self.result.get("reading") or ""

    @property
    def kind(self) -> str:
        """The kind of the queries."""
        return str(self.result["signature"].queries)

    @property
    def is_own_task(self) -> bool:
        """Whether the queries are in a target language, not `fused`, and scored by the usual reading."""
        return self.result["role"] == "target" and not (self.fused or self.reading)

    @property
    def setting(self) -> Setting:
        """What results must agree in to be compared with this one."""
        return (*(self.fields[key] for key in MUST_AGREE), str(self.fused), self.reading)


@dataclass(frozen=True)
class System:
    """Runs that differ only in their seeds, with their results by setting."""

    label: str
    runs: Sequence[Mapping[Setting, RunResult]]

    @property
    def is_translate_test(self) -> bool:
        """Whether translated queries search; there are then results in target languages only."""
        return any(result.engine is not None for run in self.runs for result in run.values())

    def signature(self, setting: Setting) -> str:
        """The signature of the results; if a value differs between seeds, all of its values."""
        signatures = [run[setting].result["signature"].fields for run in self.runs]
        return str(Signature(**{key: "+".join(dict.fromkeys(fields[key] for fields in signatures)) for key in KEYS}))


@dataclass(frozen=True)
class Value:
    """A figure of a system."""

    mean: float
    sd: float | None
    """Over seeds; None for one seed."""
    seeds: int


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of two systems."""

    figure: str
    first: Value
    second: Value
    difference: bootstrap.Estimate
    p_holm: float | None
    """Corrected for the number of systems that are compared with the first."""

    @property
    def verdict(self) -> str:
        """Whether the second is better or worse; undecided unless interval and test agree."""
        sure = self.difference.low > 0 or self.difference.high < 0
        if not sure or (self.p_holm is not None and self.p_holm >= paired.ALPHA):
            return "undecided"
        return "better" if (self.difference.estimate > 0) != self.figure.endswith(LOW_IS_GOOD) else "worse"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same queries."""

    what: str
    condition: str
    """The training condition that both share, such as `40% noise`; empty if all systems are compared."""
    lang: str
    fusion: str
    first: str
    second: str
    lines: Sequence[ComparedFigure]
    """The headline figure first."""
    signatures: tuple[str, str]
    chance: float | None
    """The SumR of a random ranking; None for results by category."""

    def cells(self, line: ComparedFigure) -> dict[str, Any]:
        """A line as the cells of a row that programs read."""
        d, both = line.difference, {"first": line.first, "second": line.second}
        cells: dict[str, Any] = {"data": self.what, "figure": line.figure, "first": self.first, "second": self.second}
        for name, value in both.items():
            cells |= {f"{name}_mean": value.mean, f"{name}_sd": value.sd, f"{name}_seeds": value.seeds}
        cells |= {"difference": d.estimate, "low": d.low, "high": d.high}
        cells |= {"p": d.p, "p_holm": line.p_holm, "verdict": line.verdict}
        return cells | {f"{name}_signature": text for name, text in zip(both, self.signatures, strict=True)}

    def words(self) -> str:
        """The verdict in a sentence."""
        line, d, name = self.lines[0], self.lines[0].difference, self.lines[0].figure
        interval = f"95% interval {ends(d.low, d.high)}, p = {line.p_holm:.2g}"
        interval += "" if self.chance is None else f"; chance: {metric(self.chance)}"
        if line.verdict == "undecided":
            if line.p_holm is not None and line.p_holm < paired.ALPHA:
                interval += "; the interval contains 0"
            difference = decimal(d.estimate, sign=True)
            minus = f"{self.second} minus {self.first}: {name} {difference} ({interval})"
            return f"no certain difference; {minus}"
        return f"{self.second} is {line.verdict} than {self.first} by {metric(abs(d.estimate))} {name} ({interval})"


CONDITIONS: dict[str, Callable[[RunResult], str]] = {
    "noise": lambda result: result.noise,
    "mt": lambda result: f"mt {result.fields['mt']}",
}
"""What a system was trained on, in words, by key of `--by`."""
NO_CONDITION = "none"
"""The value of `--by` that compares all systems."""


def compare(inputs: Inputs, *, every: bool = False, by: Sequence[str] = ()) -> list[Comparison]:
    """Compares systems with the first one trained under the same condition, in all settings that they share.

    Uses the evaluations on the command line, and those in the workspace of the runs on the command line; without any,
    the evaluations in the workspace that share the most common setting, `infonce` first, then other methods that ignore
    noise. Runs that differ only in their seeds are one system, unless there is no other. `every` also compares queries
    in the source language, fused queries, and further readings of a model. `by` has keys of `CONDITIONS`, or `none`;
    the default is noise, unless systems differ in nothing else.

    Raises:
        ArtifactError: If systems were evaluated in different settings, a run has no evaluation, or one that is stale.
        UsageError: If there are not two systems, or not two of one condition.
    """
    if unknown := [key for key in by if key not in (*CONDITIONS, NO_CONDITION)]:
        problem = f"--by {unknown[0]}: there is no such condition"
        raise UsageError(problem, hint=f"--by {' or '.join((*CONDITIONS, NO_CONDITION))}")
    if not inputs.named:
        inputs = replace(inputs, named=_fitting(inputs))
    results = _results(inputs)
    blocks = _systems(inputs, results, by)
    every_one = [system for systems in blocks.values() for system in systems]
    if len(every_one) < 2:
        if inputs.named and not results:
            kinds = " and ".join(f"{inputs.workspace.relative(a.path)} ({a.kind})" for a in inputs.named)
            raise UsageError(f"only runs and evaluations are compared, not {kinds}", hint="ccr compare RUN RUN")
        message = "there are not two to compare" + (": all artifacts are of one run" if results else "")
        raise UsageError(message, hint="ccr compare RUN RUN, or evaluations of two runs")
    if all(len(systems) < 2 for systems in blocks.values()):
        those = " and ".join(f"{systems[0].label} ({condition})" for condition, systems in blocks.items())
        hint = f"name runs of one condition, or compare them nevertheless: --by {NO_CONDITION}"
        raise UsageError(f"no two systems were trained under the same condition: {those}", hint=hint)
    head = every_one[0].label
    if alone := [f"{systems[0].label} ({condition})" for condition, systems in blocks.items() if len(systems) < 2]:
        warn(f"left out, because no other system was trained under the same condition: {', '.join(alone)}")
    comparisons = []
    for condition, systems in blocks.items():
        if len(systems) < 2:
            continue
        ordered = sorted(systems, key=lambda system: system.label != head)
        comparisons += _compare_block(inputs, ordered, condition, every=every)
    return comparisons


def _compare_block(inputs: Inputs, systems: Sequence[System], condition: str, *, every: bool) -> list[Comparison]:
    """Compares every system of a condition with the first."""
    runs = [run for system in systems if not system.is_translate_test for run in system.runs]
    shared = [setting for setting in runs[0] if all(setting in run for run in runs)]
    _refuse_other_queries(inputs, systems)
    if not shared:
        raise _nothing_shared(systems)
    settings, first = shared, runs[0]
    if not every:  # the plain queries in the target language; where there are none, those in the source language
        plain = [setting for setting in shared if not first[setting].fused and not first[setting].reading]
        settings = [setting for setting in plain if first[setting].is_own_task] or plain or shared
    used = {run[setting].evaluation.path for run in runs for setting in shared}
    having = {s: [system for system in systems if all(s in run for run in system.runs)] for s in settings}
    own = {result.evaluation.path for run in runs for result in run.values()}
    for artifact in inputs.named:
        if artifact.path in own - used:
            warn(f"{artifact.name} is left out: the other systems were not evaluated in the same setting")
    names = _names(settings, first)
    for setting in settings:
        if few := evaluation.few_queries(first[setting].result):
            warn(f"{names[setting]}: {signature_words.too_few(few)}")
    return [each for setting in settings for each in _compare(setting, having[setting], names[setting], condition)]


def _fitting(inputs: Inputs) -> list[base.Artifact]:
    """The evaluations in the workspace that share the most common setting of a target language."""
    by_setting: dict[Setting, dict[str, base.Artifact]] = {}
    order: dict[str, tuple[object, ...]] = {}
    known = without_orphans(inputs, inputs.workspace.artifacts("evaluation"))
    artifacts = [a for a in known if inputs.current_runs(a) is not None]
    for artifact in artifacts:
        results = [RunResult(artifact, n, result) for n, result in enumerate(evaluation.results(artifact))]
        label = str(results[0].result["label"])
        order[artifact.id] = (base_label(label) != BASELINE, *method_order(label), artifact.name)
        for one in results:
            if one.is_own_task:
                by_setting.setdefault(one.setting, {}).setdefault(evaluation.run_id(artifact), artifact)
    found = max(by_setting.values(), key=len, default={})
    if len(artifacts) > 1 and len(found) < 2:
        problem = f"of {len(artifacts)} evaluations in {inputs.workspace.root} no two runs have the same queries"
        own = [RunResult(a, 0, evaluation.results(a)[0]) for a in artifacts]
        alike = [one for one in own if (one.kind, *one.setting[:3]) == (MT, *own[0].setting[:3])]  # data, split, lang
        hint = _same_queries(inputs, alike) if len(alike) > 1 else "ccr evaluate RUN RUN"
        raise ArtifactError(problem, hint=f"evaluate the runs in the same way: {hint}")
    if found:
        say(f"compares {len(found)} of {len(artifacts)} evaluations in {inputs.workspace.root}")
    return sorted(found.values(), key=lambda artifact: order[artifact.id])


def _results(inputs: Inputs) -> dict[str, list[RunResult]]:
    """The results of each run or ensemble by id, in the order of the command line; those of translate-test are apart.

    If an evaluation of a run is on the command line, only that one is used; otherwise all in the workspace.
    """
    named = inputs.of_kind("evaluation")
    with_evaluation = {evaluation.run_id(a) for a in named}
    found: dict[str, list[RunResult]] = {}
    for artifact in inputs.named:
        own = [artifact] if artifact.kind == "evaluation" else []
        if artifact.kind == "run" and artifact.id not in with_evaluation:
            own = [a for a in inputs.workspace.artifacts("evaluation") if evaluation.run_id(a) == artifact.id]
            if not own and not any(made_from(artifact)(a) for a in named):
                path = inputs.workspace.relative(artifact.path)
                if any(link.path == path for a in inputs.workspace.artifacts("evaluation") for link in a.parents):
                    problem = f"{path} was rebuilt since it was evaluated, so its evaluation is stale"
                    raise ArtifactError(problem, hint=f"ccr evaluate {path} --force")
                raise ArtifactError(f"{path} was not evaluated yet", hint=f"ccr evaluate {path}")
        for a in own:
            inputs.current_runs(a)
            inputs.note(a)
            results = [RunResult(a, n, result) for n, result in enumerate(evaluation.results(a))]
            engines = "+".join(dict.fromkeys(one.engine for one in results if one.engine is not None))
            for one in results:
                key = evaluation.run_id(a) + (f" {TRANSLATE_TEST} by {engines}" if one.engine is not None else "")
                found.setdefault(key, []).append(one)
    return found


def _systems(inputs: Inputs, results: Mapping[str, Sequence[RunResult]], by: Sequence[str]) -> dict[str, list[System]]:
    """The runs by condition, grouped where they differ only in their seeds."""
    configs: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    without_noise: set[str] = set()
    for run_id, own in results.items():
        result = own[0].result
        identity: list[Any] = [result["label"], own[0].fields["mt"]]
        with suppress(ArtifactError):  # a run that is gone
            trained = None if result.get("ensemble") else inputs.parent(own[0].evaluation, "run")
            if trained:
                configs[run_id] = run.config(trained)
                kept = {key: value for key, value in configs[run_id].items() if key not in _SEEDED}
                identity = [kept | {"noise": None}, sorted(p.id for p in trained.parents if p.kind != "noise")]
        identity.append(run_id.partition(" ")[2])
        without_noise.add(base.canonical_json(identity))
        groups.setdefault(base.canonical_json([*identity, own[0].noise, result["noise"]]), []).append(run_id)
    members = list(groups.values())
    by_setting: dict[str, dict[Setting, RunResult]] = {}
    for run_id, own in results.items():
        for one in own:
            by_setting.setdefault(run_id, {}).setdefault(one.setting, one)
    if len(members) == 1 and len(members[0]) > 1:
        say("these runs differ only in their seeds, so each is a system of its own")
        return {"": [System(str(results[i][0].result["run"]), [by_setting[i]]) for i in members[0]]}
    heads = {ids[0]: results[ids[0]][0] for ids in members}
    differs = len({head.noise for head in heads.values()}) > 1 and len(without_noise) > 1
    keys = [key for key in by or (["noise"] if differs else []) if key != NO_CONDITION]
    blocks: dict[str, list[list[str]]] = {}
    for ids in members:
        blocks.setdefault(", ".join(CONDITIONS[key](heads[ids[0]]) for key in keys), []).append(ids)
    systems = {}
    for condition, block in blocks.items():
        labels = _labels([(ids[0], heads[ids[0]]) for ids in block], configs)
        named = zip(labels, block, strict=True)
        systems[condition] = [System(label, [by_setting[i] for i in ids]) for label, ids in named]
    return systems


def _labels(heads: Sequence[tuple[str, RunResult]], configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A name for each system: its method and what distinguishes it; if that is not unique, also its run."""
    defaults, named = {}, {}
    for run_id, config in configs.items():
        named[run_id] = (Label.of(str(config["method"])), config)
        with suppress(UsageError):  # a method that is not installed here
            defaults[run_id] = default_options(config)
            named[run_id] = (method_label(config), config)
    engines = {head.engine for _, head in heads} - {None}
    for run_id, head in heads:
        if head.engine is not None and run_id in named:
            label, config = named[run_id]
            named[run_id] = (label.translate_test(head.engine if len(engines) > 1 else ""), config)
    known = variant_labels(named, defaults)
    labels = [str(known.get(run_id) or head.result["label"]) for run_id, head in heads]
    for extra in ([in_words(head) for _, head in heads] for in_words in CONDITIONS.values()):
        if len(set(labels)) < len(labels) and len(set(extra)) > 1:
            labels = [f"{label}, {more}" for label, more in zip(labels, extra, strict=True)]
    with_run = [f"{label} ({head.result['run']})" for label, (_, head) in zip(labels, heads, strict=True)]
    return [long if labels.count(label) > 1 else label for label, long in zip(labels, with_run, strict=True)]


def _refuse_other_queries(inputs: Inputs, systems: Sequence[System]) -> None:
    """Refuses systems that share a target language but no queries in it, unless all queries are human captions.

    They are not compared in the source language instead: a reader would take that for the target language.
    """
    runs = [(system, [one for one in run.values() if one.is_own_task]) for system in systems for run in system.runs]
    head, first = runs[0]
    for system, other in runs[1:]:
        for lang in dict.fromkeys(one.fields["lang"] for one in first):
            sides = [
                {one.fields["q"]: one.kind for one in ones if one.fields["lang"] == lang} for ones in (first, other)
            ]
            kinds = {kind for side in sides for kind in side.values()}
            if not sides[1] or sides[0].keys() & sides[1] or kinds == {HUMAN}:
                continue
            has = [f"{signature_words.queries(kind)} (q:{q})" for side in sides for q, kind in [*side.items()][:1]]
            problem = f"{head.label} and {system.label} were not measured with the same {lang} queries"
            usual = next(iter(sides[0].values()))
            queries = usual if len(kinds) > 1 and usual != FILE else "FILE"
            hint = f"ccr evaluate RUN --queries {queries}, for both runs"
            if kinds == {MT}:
                hint = _same_queries(
                    inputs, [next(o for o in ones if o.fields["lang"] == lang) for ones in (first, other)]
                )
            raise ArtifactError(f"{problem}: {has[0]} and {has[1]}", hint=hint)


def _same_queries(inputs: Inputs, ones: Sequence[RunResult]) -> str:
    """The command to compare runs on the same machine-translated queries, those of the last corrected translation."""
    runs, tables, lang = [], ["FILE"], ones[0].fields["lang"]
    for one in ones:
        with suppress(ArtifactError):  # an ensemble, or a run that is gone
            trained = inputs.workspace.parent(one.evaluation, "run")
            runs.append(inputs.workspace.relative(trained.path))
            made = translations_of(inputs.workspace, trained)[0].get(lang, [])
            tables += [
                shlex.quote(str(a.file("captions.parquet"))) for a in made if len(tables) == 1 or "only" in a.request
            ]
    named = " ".join(runs) or "RUN RUN"
    return f"ccr evaluate {named} --lang {lang} --queries {tables[-1]} && ccr compare {named}"


def _nothing_shared(systems: Sequence[System]) -> ArtifactError:
    """The error that says how the first system differs from one that shares no setting with it."""
    runs = [(system, run) for system in systems for run in system.runs]
    head, first = runs[0]
    system, other = next(((s, run) for s, run in runs if not set(first) & set(run)), runs[-1])
    one, rivals = next(iter(first.values())).fields, [rival.fields for rival in other.values()]
    least = min(({k: (one[k], its[k]) for k in MUST_AGREE if one[k] != its[k]} for its in rivals), key=len)
    problem = f"{head.label} and {system.label} were evaluated differently"
    hint = "evaluate them in the same way"
    if "data" in least:  # the other differences follow from it
        least = {"data": least["data"]}
        hint = (
            "ccr evaluate RUN DATASET --zero-shot measures the first with the human captions of the other's data set; "
        )
        hint += "corrections by ccr translate --only keep the data set"
    differences = ", ".join(f"{key} is {a} and {b}" for key, (a, b) in least.items())
    if LABELLED in least.get("protocol", ()):
        hint = "ccr evaluate RUN --protocol labelled, for the runs evaluated otherwise"
    return ArtifactError(f"{problem}: {differences or 'no setting is common to all'}", hint=hint)


def _names(settings: Sequence[Setting], first: Mapping[Setting, RunResult]) -> dict[Setting, str]:
    """What each comparison is about, in words, with as much of the signature as makes these unique."""
    parts: dict[Setting, list[str]] = {}
    for setting in settings:
        one, result, protocol = first[setting], first[setting].result, first[setting].fields["protocol"]
        parts[setting] = [f"{result['data']} {result['split']}"] + [protocol] * (protocol != "full")
        parts[setting] += [f"{signature_words.queries(one.kind)} in {result['lang']}"]
        parts[setting] += [f"fused {result['fusion']}"] * one.fused + [f"{one.reading} alone"] * bool(one.reading)
    for key in _TELLING:
        names = [", ".join(words) for words in parts.values()]
        for (setting, words), name in zip(parts.items(), names, strict=True):
            values = {first[s].fields[key] for s, other in zip(parts, names, strict=True) if other == name}
            words += [f"{key} {first[setting].fields[key]}"] * (len(values) > 1)
    return {setting: ", ".join(words) for setting, words in parts.items()}


def _compare(setting: Setting, systems: Sequence[System], what: str, condition: str) -> list[Comparison]:
    """Compares every other system with the first, in one setting."""
    ranked = [[galleries(_ranks(run[setting])) for run in system.runs] for system in systems]
    for system, runs in zip(systems, ranked, strict=True):
        if any(queries != ranked[0][0][1] for _, queries in runs):
            raise ArtifactError(f"{system.label} and {systems[0].label} were evaluated on different queries")
    folds = [[galleries for galleries, _ in runs] for runs in ranked]
    (first, *values), (head, *others) = map(_values, folds), systems
    differences = [paired.differences(folds[0], other) for other in folds[1:]]
    one = head.runs[0][setting]
    names = dict.fromkeys([evaluation.headline(one.result), *FIGURES])
    holm = {name: paired.holm([d[name].p for d in differences]) for name in names}
    level, comparisons = chance.level(one.result, _ranks(one)), []
    for n, (system, value) in enumerate(zip(others, values, strict=True)):
        lines = [ComparedFigure(name, first[name], value[name], differences[n][name], holm[name][n]) for name in names]
        signatures = (head.signature(setting), system.signature(setting))
        lang, fusion = str(one.result["lang"]), str(one.result["fusion"])
        name = ", ".join(filter(None, [what, condition]))
        pair = head.label, system.label
        comparisons.append(Comparison(name, condition, lang, fusion, *pair, lines, signatures, level))
    return comparisons


def _values(runs: Sequence[Sequence[bootstrap.RankedGallery]]) -> dict[str, Value]:
    """Every figure of a system, with its standard deviation over seeds."""
    run_SC = np.array([np.mean([fold.figures()[0] for fold in folds], axis=0) for folds in runs])
    sd_C = run_SC.std(axis=0, ddof=1).tolist() if len(runs) > 1 else [None] * len(bootstrap.FIGURES)
    columns = zip(bootstrap.FIGURES, run_SC.T, sd_C, strict=True)
    return {name: Value(float(run_S.mean()), sd, len(runs)) for name, run_S, sd in columns}


def _ranks(result: RunResult) -> pd.DataFrame:
    try:
        ranks = evaluation.read_ranks(result.evaluation)
    except ArtifactError as error:
        raise ArtifactError(error.message, hint="ccr evaluate RUN --force, with the options it was made with") from None
    return ranks[ranks["result"] == result.number]


def latex(comparisons: Sequence[Comparison]) -> str:
    """The `tables` in LaTeX (booktabs)."""
    return "\n".join([PREAMBLE, *(to_latex(table, preamble=False) for table in tables(comparisons))])


def tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Tables like those of a report, one per setting and condition: a row for each system, the baseline first."""
    shown: list[Table] = []
    for what, group in groupby(comparisons, key=lambda comparison: comparison.what):
        others = list(group)
        head, figure = others[0], others[0].lines[0].figure
        recalls = {f"{d}.{r}": (d, r) for d in retrieval.DIRECTION_TITLES for r in RECALLS}
        found = [Column(k, r, "high", group=retrieval.DIRECTION_TITLES[d]) for k, (d, r) in recalls.items()]
        columns = [retrieval.METHOD, retrieval.NUMBER, *found, Column(figure, HEADLINES[figure][0], "high")]
        columns += [Column("difference", "difference", signed=True), Column("interval", "95% interval", text=True)]
        columns.append(Column("p", "p"))
        rows = []
        for label, each in [(head.first, head), *((other.second, other) for other in others)]:
            values = {line.figure: line.first if label == head.first else line.second for line in each.lines}
            line, cells = each.lines[0], [Cell(values[name].mean, values[name].sd) for name in (*recalls, figure)]
            compared = [Cell(), Cell(), Cell()]
            if label != head.first:
                d, p = line.difference, "-" if line.p_holm is None else f"{line.p_holm:.2g}"
                compared = [Cell(d.estimate), Cell(ends(d.low, d.high, sign=True)), Cell(shown=p)]
            rows.append(Row([Cell(label), Cell(values[figure].seeds), *cells, *compared], ceiling=is_oracle(label)))
        notes = [*retrieval.NOTES, f"Differences are from {head.first}, paired over items."]
        notes += [] if head.chance is None else [f"A random ranking would reach SumR {metric(head.chance)}."]
        shown.append(Table(f"comparison-{len(shown) + 1}", what, columns, rows, notes))
    return shown
