"""ccr doctor."""

from pathlib import Path

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import common as c


@c.guarded
def doctor(workspace: Path | None = None, json: bool = False) -> None:
    """Check this machine: versions, devices, engines, encoders, and how to get what is missing."""
    from ccr_cli.stages.doctor import examine

    rows = examine(Workspace((workspace or Path(".")).absolute()))
    c.show_rows("checks", ("what", "state", "mend"), rows, json)


EPILOG = c.examples("ccr doctor", "ccr doctor --json")
