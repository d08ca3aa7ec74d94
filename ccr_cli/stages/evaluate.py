"""evaluate: a run's retrieval figures, on its own data set or on others, each with its signature.

Shape suffixes: V visual items, T texts, D embedding, Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ccr_cli.artifacts import base, dataset, evaluation, features, run, translation
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.tables import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress, warn
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.ranks import TIES
from ccr_cli.stages.embed import choose_device
from ccr_cli.stages.leaks import other_leak, own_leak
from ccr_cli.stages.load import load_method
from ccr_cli.stages.measure import Measuring, Options, Target, asked_for
from ccr_cli.stages.select import Inputs, made_from


def evaluate(
    inputs: Inputs,
    trained: base.Artifact,
    options: Options | None = None,
    *,
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Evaluates a run.

    The source language is reported beside the target language, and score fusion beside the plain scores where
    the translation artifact holds translated queries.

    Args:
        inputs: Where to look for other collections (zero-shot).
        trained: The run.
        options: What to measure.
        device: `auto`, `cpu` or `cuda`.
        name: Name of the artifact.
        force: Evaluate again.

    Returns:
        The evaluation.

    Raises:
        ArtifactError: If nothing can be evaluated, or an item to be tested was trained on.
    """
    options = options or Options()
    if options.ties not in TIES or options.fusion not in ("raw", "minmax") or not 0 <= options.beta <= 1:
        raise UsageError("--ties is mid, optimistic or pessimistic; --fusion raw or minmax; --beta lies in 0..1")
    settings = run.config(trained)
    usual = "labelled" if settings.get("criterion") == "mAP" else "full"
    options = replace(options, protocol=options.protocol or usual)
    if options.protocol not in ("full", "labelled"):
        raise UsageError(f"--protocol is full or labelled, not {options.protocol!r}")
    targets = (
        _others(inputs, trained, settings, options) if options.zero_shot else [_own(inputs, trained, settings, options)]
    )
    request = {**vars(options), "langs": list(options.langs)}
    split = Options.split if options.zero_shot else options.split
    defaults = {**vars(Options()), "langs": [], "split": split, "zero_shot": options.zero_shot, "protocol": usual}
    readable = f"{trained.name}-{'zero-shot' if options.zero_shot else options.split}"
    parents = [trained, *(p for t in targets for p in (t.data.artifact, t.features))]
    chosen = _chosen(inputs, targets) if options.zero_shot else []
    name = name or stem(readable, {**request, "targets": chosen}, {**defaults, "targets": []})
    with building(inputs.workspace, "evaluation", name, request, _unique(parents), force=force) as build:
        if build.done is None:
            on = choose_device(device)
            method, tokenizer = load_method(trained, on)
            job = Measuring(
                method,
                tokenizer,
                on,
                options,
                settings,
                trained,
                inputs.workspace.parent(trained, "translation") if trained.has_parent("translation") else None,
            )
            total = sum(len(t.langs) for t in targets)
            with progress(total, "evaluate", "languages") as advance:
                for target in targets:
                    job.target(target, advance)
            base.write_json(build.folder / "metrics.json", {"results": job.results})
            write_table(build.folder / "ranks.parquet", pd.concat(job.ranks, ignore_index=True), evaluation.RANKS)
            build.finish({"results": len(job.results), "queries": sum(len(r) for r in job.ranks)})
        assert build.done is not None
        return build.done


def _chosen(inputs: Inputs, targets: Sequence[Target]) -> list[str]:
    """The names of the data sets, unless it is the only one that there is: what a name must tell apart."""
    names = sorted(t.data.name for t in targets)
    given = {a.name for a in inputs.given if a.kind == "dataset"}
    return [] if len(names) == 1 and not given & {*names} else names


def _unique(artifacts: Sequence[base.Artifact]) -> list[base.Artifact]:
    return list({a.id: a for a in artifacts}.values())


def _own(inputs: Inputs, trained: base.Artifact, settings: dict[str, Any], options: Options) -> Target:
    data = dataset.read(inputs.parent(trained, "dataset"))
    for given in inputs.given:
        if given.kind == "dataset" and given.id != data.artifact.id:
            raise UsageError(f"{given.name} is not what {trained.name} was trained on", hint="add --zero-shot")
    feats = inputs.parent(trained, "features")
    translations = None
    if trained.has_parent("translation"):
        translations = translation.read(inputs.parent(trained, "translation"))
    langs = _with_source(options.langs or (settings["lang"],), data.source_lang)
    for lang in langs:
        if lang not in data.languages():
            shown = ", ".join(data.languages())
            raise ArtifactError(f"{data.name} has no human captions in {lang!r}", hint=f"it has: {shown}")
    return Target(data, feats, translations, langs, own_leak(options.split, settings["select"]))


def _others(inputs: Inputs, trained: base.Artifact, settings: dict[str, Any], options: Options) -> list[Target]:
    """Every other collection with features of the run's encoder; leaks are refused."""
    own = dataset.read(inputs.parent(trained, "dataset"))
    feats = inputs.parent(trained, "features")
    encoder = base.read_json(feats.file("encoder.json"))
    targets = []
    given = [a for a in inputs.given if a.kind == "dataset" and a.id != own.artifact.id]
    for artifact in given or inputs.workspace.artifacts("dataset"):
        if artifact.id == own.artifact.id:
            continue
        fitting = [
            f
            for f in inputs.workspace.artifacts("features")
            if made_from(artifact)(f) and base.read_json(f.file("encoder.json")) == encoder
        ]
        if not fitting:
            todo = features.command(feats, artifact.path)
            warn(f"{artifact.name} is left out, as it has no features of the run's encoder; make them with: {todo}")
            continue
        data = dataset.read(artifact)
        leak = other_leak(own, data, options.split, settings["select"])
        langs = options.langs or tuple(lang for lang in data.languages() if asked_for(data, lang, options))
        inputs.note(artifact)
        inputs.note(fitting[0])
        found = tuple(lang for lang in _with_source(langs, data.source_lang) if lang in data.languages())
        targets.append(Target(data, fitting[0], None, found, leak))
    if not targets:
        raise ArtifactError(
            f"no other data set in {inputs.workspace.root} has features of the run's encoder",
            hint=f"ccr data import twemoji; {features.command(feats, inputs.workspace.place('dataset', 'twemoji'))}",
        )
    return targets


def _with_source(langs: Sequence[str], source: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*langs, source]))
