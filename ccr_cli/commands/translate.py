"""ccr translate."""

import os
from contextlib import suppress
from pathlib import Path

import typer

from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.console import say
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.options import list_options
from ccr_cli.stages.translate.options import MismatchOptions, TranslateOptions


@c.guarded
def translate(
    *,
    options: TranslateOptions,
    division: c.Division,
    mismatch: MismatchOptions,
    cache: Path | None = None,
    call: c.BuildCall,
) -> None:
    """Machine-translate the captions of a data set.

    Reads a dataset and writes a translation for each --lang and --engine (and a noise artifact for each --noise).
    Captions that could not be translated are recorded in failures.jsonl and the exit code is 3.
    """
    engines = options.engines()
    if "help" in options.settings and (engines != ["auto"] or not options.lang):
        list_options("translators", "hf" if engines[0] == "auto" else engines[0])
    mismatch.check()
    noise = list(dict.fromkeys(mismatch.noise or []))
    if not noise:
        options.check()
    if cache:
        os.environ["CCR_CACHE"] = str(cache.absolute())
    inputs = call.inputs()
    if "help" in options.settings and len(inputs.all("dataset")) != 1:  # else the engine lists its own options
        list_options("translators", "hf")
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.shared.sharding import on_ray
    from ccr_cli.stages.train.sources import make_noise
    from ccr_cli.stages.translate.job import training_data
    from ccr_cli.stages.translate.stage import each_job, jobs_of, part_of, share, translate_part
    from ccr_cli.stages.translate.stage import translate as stage

    jobs = jobs_of(inputs, options)
    if options.name and len(jobs) + len(noise) != 1:
        hint = "leave --name out, or make each in a call of its own"
        if len(jobs) == len(noise) == 1:
            hint = f"make the mismatch in a call of its own: ccr translate --noise {noise[0]:g} --name NAME"
        raise UsageError(f"--name {options.name} names one artifact, but this command makes several", hint=hint)
    ray = on_ray(division.executor, division.parts, division.shard)
    if ray and options.only is not None:
        raise UsageError("--only translates few captions, which a cluster does not share", hint="leave --executor out")
    part = part_of(division.shard, jobs, noise=bool(noise))
    if part is not None and not call.dry_run:
        translated: dict[str, dict[str, int]] = {}

        def work(job: TranslateOptions) -> None:
            key = job.lang if len(engines) == 1 else f"{job.lang} {job.engine}"
            translated[key] = translate_part(inputs, job, part)

        error = each_job(jobs, work)
        if call.json:
            c.show_part(inputs, division, translated=translated)
        if error is not None:
            raise error
        return
    if not share(inputs, jobs):
        return
    made = []
    for ratio in noise:
        data = training_data(inputs)
        with suppress(Planned):
            made.append(make_noise(inputs.workspace, data, ratio, mismatch, name=options.name, force=options.force))
    signatures: set[str] = set()

    def make(job: TranslateOptions) -> None:
        with suppress(Planned):
            if ray:
                from ccr_cli.stages.ray_executor import translate_on_ray

                translate_on_ray(inputs, job, division.parts)
            made.append(stage(inputs, job, part))
            show_summary(made[-1], signatures)
            if job.only is not None:
                say(f"  train on it: ccr train {inputs.workspace.relative(made[-1].path)}")

    error = each_job(jobs, make)
    if error is None and not call.dry_run:
        c.emit(inputs, made, call.json)
    elif error is None:
        raise inputs.workspace.planned[-1]
    else:
        if inputs.workspace.planned:
            c.show_plans(inputs.workspace.planned, as_json=call.json)
        elif made:
            with suppress(typer.Exit):  # the exit code of failed captions: the error counts more
                c.emit(inputs, made, call.json)
        raise error


EPILOG = c.examples(
    "ccr translate --lang es",
    "ccr translate --lang es --back --with-queries --noise 0.4",
    "ccr translate datasets/mine --lang zh --engine hf --set model=Helsinki-NLP/opus-mt-en-zh",
    "ccr translate --lang fr --engine apertium | ccr extract -",
    "ccr translate --lang es --engine ct2 --engine apertium | ccr extract - | ccr train -",
    "ccr translate --lang de --engine hf --shard 3/64",
    "ccr translate --only pairs.csv",
    "ccr translate translations/mine/es-apertium --only pairs.csv --engine hf",
)
