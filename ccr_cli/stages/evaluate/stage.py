"""`ccr evaluate`: retrieval results of a run, on its own data set or on others, each with its signature."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from ccr_cli.artifacts import base, evaluation
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.signature import COMMON_PROTOCOLS, FILE, FULL, HUMAN, LABELLED, MT, ZERO_SHOT
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress
from ccr_cli.errors import UsageError
from ccr_cli.stages.evaluate.measure import Evaluator, measure_texts
from ccr_cli.stages.evaluate.options import EvaluationOptions, mixed_ood
from ccr_cli.stages.evaluate.targets import Target, other_targets, own_target
from ccr_cli.stages.evaluate.uncertainty import read_foreign_data
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.ensemble import Ensemble, Model, read_ensemble
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.text_encoders import GIVEN


def evaluate(
    inputs: Inputs,
    trained: base.Artifact | Sequence[base.Artifact],
    options: EvaluationOptions | None = None,
    *,
    foreign: base.Artifact | None = None,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Evaluates a run, or several as one ensemble whose similarities are averaged.

    There are results in the target language and in the source language, and with score fusion if the translation
    artifact holds translated queries. `foreign` is the data set that `options.ood` names.

    Raises:
        ArtifactError: If nothing can be evaluated, or a test item was trained on.
        UsageError: If options contradict each other, the data set has no such protocol, or runs make no ensemble.
    """
    options = options or EvaluationOptions()
    options.check()
    runs = [trained] if isinstance(trained, base.Artifact) else trained
    text = options.task == "text"
    fixed = {"lang": bool(options.langs), "protocol": bool(options.protocol) or text}
    ensemble = read_ensemble(inputs, runs, **fixed, own=not options.zero_shot)
    usual = LABELLED if not text and ensemble.settings.get("criterion") == "mAP" else FULL
    options = replace(options, protocol=options.protocol or usual)
    _check_runs(ensemble, options)
    targets = other_targets(inputs, ensemble, options) if options.zero_shot else [own_target(inputs, ensemble, options)]
    if not (options.queries or text) and any(kind == MT for target in targets for _, kind in target.queries):
        options = replace(options, queries=MT)
    if options.fusion_flag and (text or not any(target.fused for target in targets)):
        hint = "leave it out: only people's queries that ccr translate --with-queries translated are fused"
        problem = f"{options.fusion_flag} has no effect on {runs[0].name}: no query is fused with a translation"
        raise UsageError(problem, hint)
    outsiders = None
    if foreign:
        (target,) = targets
        if options.queries == MT:
            raise mixed_ood(options.ood, MT)
        outsiders = read_foreign_data(foreign, target)
        inputs.note(foreign)
        options = replace(options, ood=outsiders.data.name)
    request = options.request() | ({"ensemble": len(runs)} if ensemble.several else {})
    parents = [member.artifact for member in ensemble.members]
    for target in targets:
        parents += [target.data.artifact, *target.features, *target.translated_by]
    parents += [foreign] if foreign else []
    parents = list({artifact.id: artifact for artifact in parents}.values())

    def write(site: Build) -> dict[str, int]:
        model = Model(ensemble, choose_device(device))
        evaluator = Evaluator(model, options, outsiders)
        with progress(sum(len(target.queries) for target in targets), "evaluate", "query sets") as advance:
            for target in targets:
                measure_texts(evaluator, target, advance) if text else evaluator.measure(target, advance)
        site.environment |= model.speed
        base.write_json(site.folder / "metrics.json", {"results": evaluator.results})
        write_table(site.folder / "ranks.parquet", pd.concat(evaluator.ranks, ignore_index=True), evaluation.RANKS)
        if evaluator.outside:
            outside = pd.concat(evaluator.outside, ignore_index=True)
            write_table(site.folder / "outside.parquet", outside, evaluation.OUTSIDE)
        return {"results": len(evaluator.results), "queries": sum(map(len, evaluator.ranks))}

    name = name or _name(inputs, ensemble, targets, options, usual)
    return build_artifact(inputs.workspace, "evaluation", name, request, parents, write=write, force=force)


def _check_runs(ensemble: Ensemble, options: EvaluationOptions) -> None:
    """Checks the options that not every run allows."""
    wordless = [m.artifact.name for m in ensemble.members if m.settings["text_encoder"]["kind"] == GIVEN]
    if options.corrupt and options.corruption != "features" and wordless:
        problem = f"{wordless[0]} reads texts as features, which have no words to corrupt"
        raise UsageError(problem, hint="--corruption features")
    if options.ood and options.protocol == LABELLED:
        problem = "--ood does not go with --protocol labelled, where everything in the query's category is a match"
        raise UsageError(problem, hint="--protocol full; or train without some categories: --set left_out=3,8 of fume")


def _name(inputs: Inputs, ensemble: Ensemble, targets: Sequence[Target], options: EvaluationOptions, usual: str) -> str:
    """A name that a person can guess, with six hex digits for the options that differ from the defaults."""
    common, request = options.protocol in COMMON_PROTOCOLS, options.request()
    split = None if options.zero_shot else options.split
    protocol = usual if common else options.protocol
    queries = "" if options.file else options.queries
    defaults = EvaluationOptions(
        split, zero_shot=options.zero_shot, protocol=protocol, task=options.task, queries=queries
    ).request()
    parts = [ensemble.name] + [options.task] * (options.task != "visual")
    parts += [FILE if options.file else queries] * (queries != HUMAN and bool(options.queries))
    if ensemble.several:
        request["runs"] = [member.artifact.name for member in ensemble.members]
    if others := [a.name for target in targets for a in target.translated_by]:
        request["translated_by"] = others
    if options.zero_shot:
        parts.append(ZERO_SHOT)
        names = sorted(target.data.name for target in targets)
        if len(names) > 1 or any(a.name in names for a in inputs.of_kind("dataset")):
            request["targets"] = names
    elif common:
        parts.append(request["split"])
    return stem("-".join(parts + [options.protocol] * (not common)), request, defaults)
