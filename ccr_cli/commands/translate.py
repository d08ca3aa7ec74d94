"""ccr translate."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError


@c.guarded
def translate(
    artifacts: c.Artifacts = None,
    lang: Annotated[
        list[str] | None,
        typer.Option("--lang", help="Target language (BCP 47); repeat for several.", show_default=False),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="auto takes recorded translations where the data set's tables answer what is wanted, else hf. "
            "--set help lists an engine's options. " + c.option_help("translators"),
        ),
    ] = "auto",
    back: Annotated[bool, typer.Option("--back", help="Translate the result back too.")] = False,
    queries: Annotated[
        bool,
        typer.Option("--queries", help="Translate human val and test captions into the source language too."),
    ] = False,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, max=9, help="2: into the language, back, and into it again: noisier."),
    ] = 1,
    split: Annotated[str | None, typer.Option("--split", help="Only this split.", show_default="all")] = None,
    only: Annotated[
        Path | None,
        typer.Option(
            "--only",
            help="Translate again what this list (.parquet, .csv) calls noisy, and take the rest over from the "
            "translation that is there; ccr diagnose --export writes one.",
            show_default=False,
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Translate part I of N (from 1) into the cache, for many machines; the command without it then makes "
            "the artifact.",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        list[float] | None,
        typer.Option(
            "--noise",
            help="Also draw a synthetic mismatch of this ratio; repeat for several.",
            show_default=False,
        ),
    ] = None,
    noise_style: c.NoiseStyle = "caption",
    noise_target: c.NoiseTarget = "translation",
    noise_seed: c.NoiseSeed = None,
    seed: c.Seed = 0,
    options: c.Set = None,
    device: c.Device = "auto",
    max_failed: c.MaxFailed = 0.2,
    name: c.Name = None,
    force: c.Force = False,
    retry_failed: c.RetryFailed = False,
    executor: c.Executor = "local",
    parts: c.Parts = None,
    cache: c.Cache = None,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Neither take sentences from the cache of translations nor keep any there."),
    ] = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Machine-translate the captions of a data set.

    Reads a dataset and writes a translation for each --lang (and a noise artifact for each --noise). Captions that
    could not be translated are recorded in failures.jsonl and the exit code is 3.
    """
    c.setup(quiet, verbose)
    if not lang and not noise and only is None:
        raise UsageError("which language? give --lang", hint=f"ccr translate --lang es{' --back' if back else ''}")
    if cache:
        os.environ["CCR_CACHE"] = str(cache.absolute())
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.shared.sharding import on_ray
    from ccr_cli.stages.train.sources import make_noise
    from ccr_cli.stages.translate.job import TranslateOptions, training_data
    from ccr_cli.stages.translate.retranslate import languages
    from ccr_cli.stages.translate.stage import each_language
    from ccr_cli.stages.translate.stage import translate as stage
    from ccr_cli.stages.translate.workers import part_of, share, translate_part

    langs = list(dict.fromkeys(lang or languages(inputs, only)))
    if not langs and not noise:
        raise UsageError("which language? give --lang, or the translation to mend", hint="ccr translate --lang es")
    if name and len(langs) + len(set(noise or [])) != 1:
        _refuse_name(name, langs, noise or [])
    wanted = [
        TranslateOptions(
            each,
            engine=engine,
            options=c.parse_set(options),
            back=back,
            queries=queries,
            rounds=rounds,
            split=split,
            only=only,
            name=name,
            device=device,
            max_failed=max_failed,
            force=force,
            retry_failed=retry_failed,
            cache=not no_cache,
        )
        for each in langs
    ]
    ray = on_ray(executor, parts, shard)
    if ray and only is not None:
        raise UsageError("--only is of few captions: they are not shared on a cluster", hint="leave --executor out")
    part = part_of(shard, wanted, noise=bool(noise))
    if part is not None and dry_run:
        wanted = [replace(each, part=part) for each in wanted]
    elif part is not None:
        done: dict[str, dict[str, int]] = {}

        def work(each: TranslateOptions) -> None:
            done[each.lang] = translate_part(inputs, each, part)

        error = each_language(wanted, work)
        if json:
            c.show_json({"read": [*map(c._facts, inputs.read)], "made": [], "shard": shard, "translated": done})
        if error is not None:
            raise error
        return
    if not share(inputs, wanted):
        return
    made = []
    for ratio in dict.fromkeys(noise or []):
        data = training_data(inputs)
        style = {"style": noise_style, "target": noise_target}
        drawn = seed if noise_seed is None else noise_seed
        with suppress(Planned):
            made.append(make_noise(inputs.workspace, data, ratio, **style, seed=drawn, name=name, force=force))
    said: set[str] = set()

    def make(each: TranslateOptions) -> None:
        with suppress(Planned):
            if ray:
                from ccr_cli.stages.ray_executor import translate_on_ray

                translate_on_ray(inputs, each, parts)
            made.append(stage(inputs, each))
            show_summary(made[-1], said)

    error = each_language(wanted, make)
    if error is None and not dry_run:
        c.emit(inputs, made, json)
    elif error is None:
        raise inputs.workspace.planned[-1]
    else:
        if inputs.workspace.planned:
            c.show_plans(inputs.workspace.planned, as_json=json)
        elif made:
            with suppress(typer.Exit):  # of captions that failed: what is not made at all counts more
                c.emit(inputs, made, json)
        raise error


def _refuse_name(name: str, lang: list[str], noise: list[float]) -> NoReturn:
    hint = "leave --name out, or make each in a call of its own"
    if len(set(lang)) == len(set(noise)) == 1:
        hint = f"draw the mismatch in a call of its own: ccr translate --noise {noise[0]:g} --name NAME"
    raise UsageError(f"--name {name} names one artifact, and more than one is asked for", hint=hint)


EPILOG = c.examples(
    "ccr translate --lang es",
    "ccr translate --lang es --back --queries --noise 0.4",
    "ccr translate datasets/mine --lang zh --engine hf --set model=Helsinki-NLP/opus-mt-en-zh",
    "ccr translate --lang fr --engine apertium | ccr extract -",
    "ccr translate --lang de --engine hf --shard 3/64",
    "ccr translate translations/mine/es-apertium --only pairs.csv --engine hf",
)
