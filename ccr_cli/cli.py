"""The command line: registers the commands, nothing else."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

import ccr_cli
from ccr_cli.commands import (
    compare,
    data,
    demo,
    diagnose,
    doctor,
    evaluate,
    export,
    extract,
    index,
    report,
    search,
    serve,
    show,
    train,
    translate,
    verify,
)

app = typer.Typer(
    name="ccr",
    help="Cross-lingual cross-modal retrieval under noisy translation.\n\n"
    "ccr data import noto-emoji\n\n"
    "ccr translate --lang es | ccr extract - | ccr train - --method uml | ccr evaluate - | ccr diagnose -",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PIPELINE = "Pipeline"
_TOOLS = "Tools"

app.add_typer(data.app, name="data", rich_help_panel=_PIPELINE)
app.command(rich_help_panel=_PIPELINE, epilog=translate.EPILOG)(translate.translate)
app.command(rich_help_panel=_PIPELINE, epilog=extract.EPILOG)(extract.extract)
app.command(rich_help_panel=_PIPELINE, epilog=train.EPILOG)(train.train)
app.command(rich_help_panel=_PIPELINE, epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(rich_help_panel=_PIPELINE, epilog=diagnose.EPILOG)(diagnose.diagnose)
app.command(rich_help_panel=_TOOLS, epilog=compare.EPILOG)(compare.compare)
app.command(rich_help_panel=_TOOLS, epilog=report.EPILOG)(report.report)
app.command(rich_help_panel=_TOOLS, epilog=search.EPILOG)(search.search)
app.command(rich_help_panel=_TOOLS, epilog=index.EPILOG)(index.index)
app.command(rich_help_panel=_TOOLS, epilog=serve.EPILOG)(serve.serve)
app.command(rich_help_panel=_TOOLS, epilog=export.EPILOG)(export.export)
app.command(rich_help_panel=_TOOLS, epilog=demo.EPILOG)(demo.demo)
app.command(rich_help_panel=_TOOLS, epilog=show.EPILOG)(show.show)
app.command(rich_help_panel=_TOOLS, epilog=verify.EPILOG)(verify.verify)
app.command(rich_help_panel=_TOOLS, epilog=doctor.EPILOG)(doctor.doctor)


def _version(value: bool) -> None:
    if value:
        print(ccr_cli.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Cross-lingual cross-modal retrieval under noisy translation."""


def main() -> None:
    """Runs the program. A closed standard output or error is not an error; paths and data are UTF-8 everywhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # keeps paths that are not UTF-8
    app()
