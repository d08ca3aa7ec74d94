"""Help is for people who wait: it imports nothing heavy."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest
import typer

from ccr_cli.cli import app

HEAVY = ("torch", "transformers", "pandas", "numpy", "pyarrow", "matplotlib", "scipy", "sklearn")
CPU_SECONDS = 1.0
"""Far above the quarter of a second that it takes; heavy imports take several."""

_SCRIPT = """
import contextlib, io, json, sys
from ccr_cli.cli import app
commands, heavy = json.loads(sys.argv[1])
found = {}
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()) as page:
        try:
            app([*command, "--help"])
        except SystemExit as stop:
            assert not stop.code, (command, stop.code)
    assert "Usage" in page.getvalue(), command
    found[" ".join(command)] = [name for name in heavy if name in sys.modules]
print(json.dumps(found))
"""


def commands(group: object = None, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and group, the program itself first."""
    group = typer.main.get_command(app) if group is None else group
    found = [above]
    for name, command in getattr(group, "commands", {}).items():
        found += commands(command, (*above, name))
    return found


def test_help_of_every_command_imports_nothing_heavy() -> None:
    asked = json.dumps([commands(), HEAVY])
    done = subprocess.run([sys.executable, "-c", _SCRIPT, asked], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(commands()) >= 13
    assert {command: heavy for command, heavy in found.items() if heavy} == {}


def test_help_starts_at_once() -> None:
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "ccr_cli", "--help"], check=True, capture_output=True, timeout=120)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if spent[-1] < CPU_SECONDS:
            return
    pytest.fail(f"ccr --help took {min(spent):.2f} s of CPU time")
