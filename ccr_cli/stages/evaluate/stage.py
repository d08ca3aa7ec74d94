"""evaluate: a run's retrieval figures, on its own data set or on others, each with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, evaluation
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.evaluation import CORRUPTIONS
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress
from ccr_cli.data.protocols import USUAL, ZERO_SHOT, Protocol
from ccr_cli.errors import UsageError, no_share
from ccr_cli.metrics.ranks import TIES
from ccr_cli.stages.evaluate.measure import Measuring, Options, Target
from ccr_cli.stages.evaluate.measure_text import measure_texts
from ccr_cli.stages.evaluate.ood import HALF, other_data
from ccr_cli.stages.evaluate.targets import other_targets, own_target
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.ensemble import Crew, Model, crew
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.text_encoders import GIVEN


def evaluate(
    inputs: Inputs,
    trained: base.Artifact | Sequence[base.Artifact],
    options: Options | None = None,
    *,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Evaluates a run, or several as one ensemble.

    The source language is reported beside the target language, and score fusion beside the plain scores where
    the translation artifact holds translated queries.

    Args:
        inputs: Where to look for other collections (zero-shot).
        trained: The run; or runs, whose similarities are averaged.
        options: What to measure.
        device: `auto`, `cpu` or `cuda`.
        name: Name of the artifact.
        force: Evaluate again.

    Returns:
        The evaluation.

    Raises:
        ArtifactError: If nothing can be evaluated, or an item to be tested was trained on.
        UsageError: If options contradict each other, the data set has no such protocol, or runs make no ensemble.
    """
    options = options or Options()
    runs = [trained] if isinstance(trained, base.Artifact) else trained
    lang, protocol = bool(options.langs), bool(options.protocol) or options.task == "text"
    who = crew(inputs, runs, lang=lang, protocol=protocol, own=not options.zero_shot)
    first, settings = who.first.artifact, who.settings
    if options.ties not in TIES or options.fusion not in ("raw", "minmax") or not 0 <= options.beta <= 1:
        raise UsageError("--ties is mid, optimistic or pessimistic; --fusion raw or minmax; --beta lies in 0..1")
    if options.task not in ("visual", "text"):
        raise UsageError(f"--task is visual or text, not {options.task!r}")
    if not 0 <= options.corrupt <= 1:
        raise no_share("--corrupt ", options.corrupt)
    if options.corrupt == 1:
        raise UsageError("--corrupt 1: the share lies below 1", hint="--corrupt 0.9 is 90 %")
    if options.corruption not in CORRUPTIONS:
        raise UsageError(f"--corruption is {', '.join(CORRUPTIONS)}, not {options.corruption!r}")
    wordless = [m.artifact.name for m in who.members if m.settings["text_encoder"]["kind"] == GIVEN]
    if options.corrupt and options.corruption != "features" and wordless:
        hint = "--corruption features"
        raise UsageError(f"{wordless[0]} reads texts as features, which have no words to corrupt", hint=hint)
    text = options.task == "text"
    if text and options.corrupt:
        raise UsageError("--corrupt goes with pictures, not with --task text")
    if text and options.protocol not in ("", "full"):
        raise UsageError(f"--task text is of sentences alone, and --protocol says {options.protocol}")
    if options.ood and (text or options.zero_shot):
        raise UsageError(f"--ood does not go with {'--task text' if text else '--zero-shot'}")
    usual = "labelled" if not text and settings.get("criterion") == "mAP" else "full"
    options = replace(options, protocol=options.protocol or usual)
    if options.ood and options.protocol == "labelled":
        raise UsageError(
            "--ood does not go with --protocol labelled, where whatever has the query's category belongs to it",
            hint="--protocol full; or train without some categories: --set left_out=3,8 of fume",
        )
    if options.drop_leaks and not options.zero_shot:
        raise UsageError("--drop-leaks goes with --zero-shot: on its own data set a run is measured by split")
    if options.zero_shot:
        targets = other_targets(inputs, first, settings, options)
    else:
        targets = [own_target(inputs, first, settings, options)]
    targets = [replace(target, beside=who.beside(inputs, target.data, target.features)) for target in targets]
    other = None
    if options.ood not in ("", HALF):
        (target,) = targets
        other = other_data(inputs, options.ood, target.data, target.langs, target.protocol.split)
        options = replace(options, ood=other.name)
    request = _request(options) | ({"ensemble": len(runs)} if who.several else {})
    parents = [*(m.artifact for m in who.members), *(p for t in targets for p in (t.data.artifact, *t.each))]
    parents += [other.artifact] if other else []
    name = name or _name(inputs, who, targets, options, usual)

    def write(site: Build) -> dict[str, int]:
        own = inputs.workspace.parent(first, "dataset")
        job = Measuring(Model(who, choose_device(device)), options, own, other)
        total = sum(len(t.langs) for t in targets)
        with progress(total, "evaluate", "languages") as advance:
            for target in targets:
                measure_texts(job, target, advance) if text else job.target(target, advance)
        base.write_json(site.folder / "metrics.json", {"results": job.results})
        write_table(site.folder / "ranks.parquet", pd.concat(job.ranks, ignore_index=True), evaluation.RANKS)
        if job.outside:
            outside = pd.concat(job.outside, ignore_index=True)
            write_table(site.folder / "outside.parquet", outside, evaluation.OUTSIDE)
        return {"results": len(job.results), "queries": sum(len(r) for r in job.ranks)}

    return build_artifact(inputs.workspace, "evaluation", name, request, _unique(parents), write=write, force=force)


def _request(options: Options) -> dict[str, Any]:
    """What can change the result. A protocol of a manifest decides on split and caption set, so these are not in it."""
    split = options.split or Protocol.split
    request = {**vars(options), "langs": list(options.langs), "split": split}
    if options.protocol not in USUAL:
        del request["split"], request["caption_set"]
    if not options.drop_leaks:
        del request["drop_leaks"]
    if options.task == "visual":
        del request["task"]
    if not options.corrupt:
        del request["corrupt"], request["corruption"]
    if not options.ood:
        del request["ood"]
    return request


def _name(inputs: Inputs, who: Crew, targets: Sequence[Target], options: Options, usual: str) -> str:
    """What a person can guess, and six digits of what differs from the usual."""
    named = options.protocol not in USUAL
    asked = _request(options)
    usually = _request(replace(Options(), zero_shot=options.zero_shot, protocol=options.protocol if named else usual))
    parts = [who.name]
    if who.several:
        asked["runs"], usually["runs"] = [member.artifact.name for member in who.members], []
    if options.task != "visual":
        parts.append(options.task)
        usually["task"] = options.task
    if options.zero_shot:
        parts.append(ZERO_SHOT)
        asked["targets"], usually["targets"] = _chosen(inputs, targets), []
    elif not named:
        usually["split"] = asked["split"]
        parts.append(asked["split"])
    if named:
        parts.append(options.protocol)
    return stem("-".join(parts), asked, usually)


def _chosen(inputs: Inputs, targets: Sequence[Target]) -> list[str]:
    """The names of the data sets, unless it is the only one that there is: what a name must tell apart."""
    names = sorted(t.data.name for t in targets)
    given = {a.name for a in inputs.given if a.kind == "dataset"}
    return [] if len(names) == 1 and not given & {*names} else names


def _unique(artifacts: Sequence[base.Artifact]) -> list[base.Artifact]:
    return list({a.id: a for a in artifacts}.values())
