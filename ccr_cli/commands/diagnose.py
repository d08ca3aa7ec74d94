"""ccr diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


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

    Reads a run and writes a diagnosis: evidence, belief, uncertainty and P(clean) of every training pair, the most
    suspicious translations first, and precision and recall where synthetic noise knows the truth.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_diagnosis
    from ccr_cli.stages.diagnose import diagnose as stage

    trained = inputs.one("run", "", hint="ccr train --method uml")
    made = stage(inputs, trained, judge=judge, judge_side=judge_side, device=device, name=name, force=force)
    for artifact in inputs.given:
        inputs.note(artifact)
    for parent in trained.parents:
        inputs.parent(trained, parent.kind)
    show_diagnosis(made)
    c.emit(inputs, [made], json)


EPILOG = c.examples(
    "ccr diagnose",
    "ccr diagnose runs/noto-emoji-es-uml-noise0.4-seed0 --judge gmm --judge-side both",
    "ccr evaluate runs/mine | ccr diagnose -",
)
