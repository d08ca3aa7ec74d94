"""ccr report."""

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.stages.report.options import ReportOptions


@c.guarded
def report(*, options: ReportOptions, call: c.BuildCall) -> None:
    """Summarise evaluations, diagnoses and translations in tables, figures and one self-contained HTML page.

    Without arguments, the report covers the whole workspace. ccr also prints the tables on standard error. The example
    queries of --searches are human captions, drawn with a fixed seed.
    """
    inputs = call.inputs()
    from ccr_cli.commands.show import show_report
    from ccr_cli.stages.report.stage import report as stage

    made, overview = stage(inputs, options)
    show_report(overview)
    c.emit(inputs, [made], call.json)
    console.say(f"the page: {made.path / 'report.html'}")


EPILOG = c.examples(
    "ccr report --searches 3",
    "ccr report evaluations/a evaluations/b diagnoses/a --title 'Two methods'",
    "ccr report translations/noto-emoji/es-recorded",
    "ccr report --searches 3 --map 20 --split val",
    "ccr report --published",
)
