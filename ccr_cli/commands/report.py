"""ccr report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli import console
from ccr_cli.commands import common as c


@c.guarded
def report(
    artifacts: c.Artifacts = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.")] = None,
    searches: Annotated[
        int,
        typer.Option(
            "--searches",
            min=0,
            help="Number of example searches per language, by the run with the best validation.",
        ),
    ] = 0,
    map_: Annotated[
        int,
        typer.Option("--map", min=0, help="Number of items in a map of embeddings with their captions (t-SNE)."),
    ] = 0,
    inside: Annotated[
        int,
        typer.Option("--inside", min=0, help="Number of picture queries, soft targets and attention maps."),
    ] = 0,
    split: Annotated[
        str,
        typer.Option(
            "--split",
            help="Split of the items for --searches, --map and --inside: train, val, test, val-select, val-report.",
        ),
    ] = "test",
    published: Annotated[
        bool,
        typer.Option("--published", help="Compare the results with published ones, and list what differs."),
    ] = False,
    device: c.Device = "auto",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Make tables, figures and one self-contained HTML page from evaluations, diagnoses and translations.

    Without arguments, ccr reports on the whole workspace; translations alone make a page too. The tables also go to
    standard error. A fixed seed draws the example queries from the human captions.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_report
    from ccr_cli.stages.report.stage import ReportOptions
    from ccr_cli.stages.report.stage import report as stage

    options = ReportOptions(title, searches, map_, inside, split, published, device)
    made, overview = stage(inputs, options, name=name, force=force)
    show_report(overview)
    c.emit(inputs, [made], json)
    console.say(f"the page: {made.path / 'report.html'}")


EPILOG = c.examples(
    "ccr report --searches 3",
    "ccr report evaluations/a evaluations/b diagnoses/a --title 'Two methods'",
    "ccr report translations/noto-emoji/es-recorded",
    "ccr report --searches 3 --map 20 --split val",
    "ccr report --published",
)
