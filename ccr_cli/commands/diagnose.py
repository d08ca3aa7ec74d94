"""ccr diagnose."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError


@c.guarded
def diagnose(
    artifacts: c.Artifacts = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", help=c.option_help("judges"), show_default="the run's, else two-group"),
    ] = None,
    judge_side: Annotated[
        str | None,
        typer.Option("--judge-side", help="cross_lingual, cross_modal or both.", show_default="the run's"),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            help="Call this share of the pairs noisy, the most suspicious, such as 0.05.",
            show_default="P(clean) below 0.5",
        ),
    ] = None,
    device: c.Device = "auto",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Say which training pairs a run does not believe.

    Reads a run and writes a diagnosis: evidence, belief, uncertainty and P(clean) of every training pair, how it fared
    from epoch to epoch, the most suspicious translations first, and precision and recall where synthetic noise knows
    the truth; of several runs that are given, one each.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_diagnosis
    from ccr_cli.stages.diagnose import diagnose as stage

    runs = [artifact for artifact in inputs.given if artifact.kind == "run"]
    if len(runs) < 2:
        runs = [inputs.one("run", "", hint="ccr train --method uml")]
    elif name is not None:
        raise UsageError(f"--name {name} names one diagnosis, and {len(runs)} runs are given", hint="leave --name out")
    made = []
    for trained in runs:
        with suppress(Planned):
            asked = partial(stage, inputs, trained, judge=judge, judge_side=judge_side, share=share)
            made.append(asked(device=device, name=name, force=force))
            show_diagnosis(made[-1])
        for parent in trained.parents:
            inputs.parent(trained, parent.kind)
    if dry_run:
        raise inputs.workspace.planned[-1]
    for artifact in inputs.given:
        inputs.note(artifact)
    c.emit(inputs, made, json)


EPILOG = c.examples(
    "ccr diagnose",
    "ccr diagnose runs/noto-emoji-es-uml-noise0.4-seed0 --judge gmm --judge-side both",
    "ccr diagnose runs/mine --share 0.05",
    "ccr evaluate runs/mine | ccr diagnose -",
    "ccr train --method uml --sweep seed=0,1,2 | ccr diagnose -",
)
