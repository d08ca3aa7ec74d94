"""ccr report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


@c.guarded
def report(
    artifacts: c.Artifacts = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.")] = None,
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Make tables, figures and one self-contained HTML page from evaluations and diagnoses.

    With none named, from all of the workspace.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.stages.report import report as stage

    c.emit(inputs, [stage(inputs, name=name, title=title, force=force)], json)


EPILOG = c.examples("ccr report", "ccr report evaluations/a evaluations/b diagnoses/a --title 'Two methods'")
