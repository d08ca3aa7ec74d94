"""ccr train."""

from pathlib import Path

import typer

from ccr_cli import registry
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.options import option
from ccr_cli.stages.train.options import TrainingOptions


@c.guarded
def train(
    context: typer.Context,
    *,
    options: TrainingOptions,
    sweep: list[str] | None = option(
        None,
        "Train one run per value, e.g. seed=0,1,2 or noise=0,0.4 or any option of --set; repeat for a grid.",
        metavar="KEY=VALUE,...",
        show_default=False,
    ),
    shard: str | None = option(
        None,
        "With --sweep: train runs I, I+N, I+2N, ... (I counts from 1), to divide a sweep among machines.",
        metavar="I/N",
        show_default=False,
    ),
    config: Path | None = option(
        None,
        "Settings from a TOML file, which flags override; ccr show RUN --config writes one.",
        metavar="FILE.toml",
        show_default=False,
    ),
    call: c.BuildCall,
) -> None:
    """Train a method on visual items, captions and their translations.

    Reads a dataset, its translations and features, and with --noise a synthetic mismatch; writes a run. The same
    command resumes a stopped run from its last saved step. Without --noise no pairs are mismatched on purpose. With
    --sweep it trains a run for each combination of values and skips those that are complete.
    """
    with c.first_speaks():
        options.check()
        registry.check("methods", options.method)
    inputs = call.inputs()
    from ccr_cli.commands.show import show_summary
    from ccr_cli.commands.sweep import train_sweep
    from ccr_cli.stages.shared.options import list_options, list_presets
    from ccr_cli.stages.train.stage import train_together
    from ccr_cli.stages.train.sweep import read_axes

    if "help" in options.settings:
        list_options("methods", options.method)
    if options.preset == "help":
        list_presets(options.method)
    if sweep:
        fixed = {key: f"--set {key}" for key in options.settings} | c.flags_given(context)
        with c.first_speaks():
            train_sweep(inputs, options, read_axes(sweep, fixed), shard, call.json)
        return
    if shard is not None:
        raise UsageError("--shard goes with --sweep: one run is not divided", hint="ccr train --sweep seed=0,1,2")
    trained = train_together(inputs, options)
    if trained is not None:  # only the first of torchrun's processes prints
        show_summary(trained)
        c.emit(inputs, [trained], call.json)


EPILOG = c.examples(
    "ccr train --method uml",
    "ccr train --method infonce --noise 0.4 --seed 1",
    "ccr train --method infonce --noise 0.4 --set judge=oracle",
    "ccr train --method decl --preset paper",
    "ccr train --method uml --sweep noise=0,0.2,0.4,0.6 --sweep seed=0,1,2 | ccr evaluate -",
    "ccr translate --lang es | ccr extract - | ccr train - --method uml",
    "ccr train --method uml --lang es --lang fr",
    "ccr train --method infonce --verdicts pairs.csv --weigh-verdicts",
)
