"""ccr train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import registry
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError, no_share


@c.guarded
def train(
    context: typer.Context,
    artifacts: c.Artifacts = None,
    method: Annotated[str, typer.Option("--method", "-m", help=c.option_help("methods"))] = "uml",
    lang: Annotated[
        list[str] | None,
        typer.Option(
            "--lang",
            help="Target language; repeat for one run on several.",
            show_default="those of the translations given, else that of the only one",
        ),
    ] = None,
    langs: Annotated[
        str,
        typer.Option(
            "--langs",
            help="Of several languages: all (an epoch has every caption in each) or draw (in one, drawn anew).",
        ),
    ] = "all",
    noise: Annotated[
        float | None,
        typer.Option("--noise", help="Share of mismatched triplets, such as 0.4.", show_default="none"),
    ] = None,
    noise_style: c.NoiseStyle = "caption",
    noise_target: c.NoiseTarget = "translation",
    noise_seed: c.NoiseSeed = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Named settings of the method, e.g. paper; help: lists them.")
    ] = None,
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
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            help="Train on the pairs of this list (.parquet, .csv) that it does not call noisy; "
            "ccr diagnose --export writes one.",
            show_default="all pairs",
        ),
    ] = None,
    pairs_weight: Annotated[
        bool,
        typer.Option("--pairs-weight", help="Leave none of these out: its probabilities weight them from the start."),
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="KEY=VALUE,...",
            help="Make a run for each value of an option: noise=0,0.4, seed=0,1,2, any of --set; repeat for a grid.",
            show_default=False,
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="With --sweep: make every N-th run, from the I-th on (from 1), for many machines.",
            show_default=False,
        ),
    ] = None,
    report_to: Annotated[
        str | None,
        typer.Option("--report-to", help="Show curves meanwhile: tensorboard.", show_default="nobody"),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Let torch.compile make a transformers encoder faster; takes a minute first."),
    ] = False,
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
    any moment, the same command goes on from the step that was saved last. Without --noise training is clean. With
    --sweep a run for each combination of values; those that are there are not made again.
    """
    c.setup(quiet, verbose)
    if noise is not None and not 0 <= noise <= 1:
        raise no_share("--noise ", noise)
    registry.check("methods", method)  # before anything is read
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_training
    from ccr_cli.commands.sweep import make_all
    from ccr_cli.stages.shared.options import list_options, list_presets
    from ccr_cli.stages.train.stage import Wanted, make_together
    from ccr_cli.stages.train.sweep import read_axes

    settings = c.parse_set(options)
    if "help" in settings:
        list_options("methods", method)
    if preset == "help":
        list_presets(method)
    once = {key: f"--set {key}" for key in settings} | _named(context)
    settings |= {k: str(v) for k, v in (("epochs", epochs), ("batch_size", batch_size)) if v is not None}
    wanted = Wanted(
        method=method,
        lang="+".join(lang) if lang else None,
        langs=langs,
        noise=noise,
        noise_style=noise_style,
        noise_target=noise_target,
        noise_seed=noise_seed,
        preset=preset,
        options=settings,
        seed=seed,
        select_on=select_on,
        pairs=pairs,
        pairs_weight=pairs_weight,
        device=device,
        dtype=dtype,
        name=name,
        force=force,
        report_to=report_to,
        compiled=compiled,
    )
    if sweep:
        with c.first_speaks():
            make_all(inputs, wanted, read_axes(sweep, once), shard, json)
        return
    if shard is not None:
        raise UsageError("--shard goes with --sweep: one run is not divided", hint="ccr train --sweep seed=0,1,2")
    made = make_together(inputs, wanted)
    if made is not None:  # of torchrun's processes the first one prints
        show_training(made)
        c.emit(inputs, [made], json)


def _named(context: typer.Context) -> dict[str, str]:
    """The options that stand on the command line, by what they set."""
    sources = {each: context.get_parameter_source(str(each.name)) for each in context.command.params}
    return {str(each.name): each.opts[0] for each, source in sources.items() if source and source.name == "COMMANDLINE"}


EPILOG = c.examples(
    "ccr train --method uml",
    "ccr train --method infonce --noise 0.4 --seed 1",
    "ccr train --method infonce --noise 0.4 --set judge=oracle",
    "ccr train --method uml --preset paper --set text_encoder=ngram",
    "ccr train --method uml --sweep noise=0,0.2,0.4,0.6 --sweep seed=0,1,2 | ccr evaluate -",
    "ccr translate --lang es | ccr extract - | ccr train - --method uml",
    "ccr train --method uml --lang es --lang fr",
    "ccr train --method infonce --pairs pairs.csv --pairs-weight",
)
