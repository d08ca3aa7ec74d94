"""ccr report."""

from __future__ import annotations

from pathlib import Path

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.stages.report.options import ReportOptions


@c.guarded
@c.takes(ReportOptions)
def report(
    artifacts: c.Artifacts = None,
    *,
    options: ReportOptions,
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
    from ccr_cli.stages.report.stage import report as stage

    made, overview = stage(inputs, options)
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
