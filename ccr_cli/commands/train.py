"""ccr train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


@c.guarded
def train(
    artifacts: c.Artifacts = None,
    method: Annotated[str, typer.Option("--method", "-m", help=c.option_help("methods"))] = "uml",
    lang: Annotated[
        str | None,
        typer.Option("--lang", help="Target language.", show_default="that of the one translation"),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option("--noise", min=0.0, max=1.0, help="Share of mismatched triplets.", show_default="none"),
    ] = None,
    noise_style: c.NoiseStyle = "caption",
    noise_target: c.NoiseTarget = "translation",
    noise_seed: c.NoiseSeed = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Named settings of the method, e.g. paper.")] = None,
    options: c.Set = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Passes over the training triplets.", show_default="the method's"),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=2, help="Triplets a step.", show_default="the method's")
    ] = None,
    seed: c.Seed = 0,
    select_on: Annotated[
        str,
        typer.Option("--select-on", help="Validation queries that choose the best epoch: mt or human. Never test."),
    ] = "mt",
    device: c.Device = "auto",
    dtype: c.Dtype = "float32",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Train a method on visual items, captions and their translations.

    Reads a dataset, a translation, features and (with --noise) a synthetic mismatch, and writes a run. Stopped at
    any moment, the same command goes on after the last finished epoch. Without --noise training is clean.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_training
    from ccr_cli.stages.options import list_options
    from ccr_cli.stages.sources import find_sources, with_noise
    from ccr_cli.stages.train import train as stage

    wanted = c.parse_set(options)
    if "help" in wanted:
        list_options("methods", method)
    wanted |= {k: str(v) for k, v in (("epochs", epochs), ("batch_size", batch_size)) if v is not None}
    sources = find_sources(inputs, lang, method)
    sources = with_noise(
        inputs,
        sources,
        noise,
        style=noise_style,
        target=noise_target,
        seed=seed if noise_seed is None else noise_seed,
    )
    made = stage(
        inputs,
        sources,
        method,
        options=wanted,
        preset=preset,
        seed=seed,
        select_on=select_on,
        device=device,
        dtype=dtype,
        name=name,
        force=force,
    )
    show_training(made)
    c.emit(inputs, [made], json)


EPILOG = c.examples(
    "ccr train --method uml",
    "ccr train --method infonce --noise 0.4 --seed 1",
    "ccr train --method infonce --noise 0.4 --set judge=oracle",
    "ccr train --method uml --preset paper --set text_encoder=ngram",
    "ccr translate --lang es | ccr extract - | ccr train - --method uml",
)
