"""The command line: registers the commands, nothing else."""

import importlib
import io
import os
import sys
from typing import Annotated

import typer

import ccr_cli
from ccr_cli.commands import data
from ccr_cli.commands.common import Command

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

app.add_typer(data.app, name="data", rich_help_panel="Pipeline")
_PANELS = {
    "Pipeline": ("translate", "extract", "train", "evaluate", "diagnose"),
    "Tools": ("compare", "report", "search", "index", "serve", "export", "demo", "show", "verify", "doctor"),
}
for panel, names in _PANELS.items():
    for name in names:
        module = importlib.import_module(f"ccr_cli.commands.{name}")
        app.command(cls=Command, rich_help_panel=panel, epilog=module.EPILOG)(getattr(module, name))


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
