"""The command line: registers the commands and starts the program."""

import contextlib
import importlib
import io
import os
import sys
from typing import Annotated

import typer

import ccr_cli
from ccr_cli.commands import data
from ccr_cli.commands.common import Command, Commands

app = typer.Typer(
    name="ccr",
    cls=Commands,
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
    "Tools": (
        *("compare", "review", "report", "search", "index", "serve", "export", "demo"),
        *("show", "verify", "rebuild", "doctor", "plugins"),
    ),
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
    """Runs the program. A closed standard stream counts as empty; paths and data are UTF-8 everywhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # keeps paths that are not UTF-8
    if os.environ.get("_CCR_COMPLETE") == "complete_bash" and {"COMP_WORDS", "COMP_CWORD"} <= {*os.environ}:
        complete_in_bash()
    else:
        app()


def complete_in_bash() -> None:
    """Prints completions without the part of a word up to : or =, where bash splits it (`best:SumR`, `judge=gmm`).

    Raises:
        SystemExit: Always, at the end.
    """
    parts, cursor = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    words, place, breaks = parts[:1], 0, (":", "=")
    for number, part in enumerate(parts[1:], 1):
        joined = part[:1] in breaks or words[-1][-1:] in breaks
        words[-1:] = [words[-1] + part] if joined else [words[-1], part]
        place = len(words) - 1 if number == cursor else place
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(place)}
    before = words[place][: max(map(words[place].rfind, breaks)) + 1]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            app(prog_name="ccr")
    finally:
        for line in out.getvalue().splitlines():
            print(line.removeprefix(before))
