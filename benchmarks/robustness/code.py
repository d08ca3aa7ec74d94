"""The state of the code that a row of results is from: the commit, and a hash of the sources of its method."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import ccr_cli
from ccr_cli import registry

CHECKOUT = Path(__file__).resolve().parents[2]
MEASURING = ("ccr_cli", "benchmarks/robustness", "benchmarks/*.py")
"""Where uncommitted changes make a row irreproducible."""
DIRTY = "-dirty"


@cache
def version() -> str:
    """The version, the commit where there is one, and `-dirty` if files of `MEASURING` differ from it.

    Of the first call, so that a process may call it before it measures: what it has imported does not change later.
    """
    commit = _git("describe", "--always", "--abbrev=12", "--exclude=*")
    if not commit:
        return ccr_cli.__version__
    changed = _git("status", "--porcelain", "--", *(f":(glob){each}" if "*" in each else each for each in MEASURING))
    return f"{ccr_cli.__version__}+{commit}{DIRTY if changed else ''}"


def reproducible(version: str) -> bool:
    """Whether a row's code is that of a commit."""
    return "+" in version and not version.endswith(DIRTY)


def _git(*words: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except OSError:
        return ""


@cache
def sources(judge: str, *methods: str) -> str:
    """A hash of the files of methods, losses, judges and nets that a method, its judge and its teacher import.

    Comments, docstrings and layout do not count. Of the first call too.
    """
    plugins = [("judges", judge), *(("methods", method) for method in methods)]
    return registry.source_sha256(registry.sources(*plugins))[:12]
