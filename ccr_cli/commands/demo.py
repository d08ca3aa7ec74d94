"""ccr demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.commands import common as c


@c.guarded
def demo(
    full: Annotated[
        bool, typer.Option("--full", help="0, 20, 40, 60 % noise and three seeds (within 30 minutes).")
    ] = False,
    workspace: c.WorkspaceOption = Path("demo"),
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Run the whole chain on the bundled pictures and translations.

    About three minutes on two CPU cores.
    """
    c.setup(quiet, verbose)


EPILOG = c.examples("ccr demo", "ccr demo --full --workspace demo-full")
