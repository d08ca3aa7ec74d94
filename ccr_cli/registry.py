"""Plug-ins are the files of a folder: listed by name, described without an import, imported on demand."""

from __future__ import annotations

import ast
import difflib
import importlib
from pathlib import Path
from types import ModuleType

from ccr_cli.errors import UsageError

_ROOT = Path(__file__).parent
_NOT_PLUGINS = {"__init__", "base", "config"}


def names(group: str) -> list[str]:
    """Lists the plug-ins of a group, e.g. `names("methods")`.

    Args:
        group: A folder of the package: methods, encoders, translators or judges.

    Returns:
        Sorted names; `two_group.py` is `two-group`.
    """
    stems = (path.stem for path in (_ROOT / group).glob("*.py"))
    return sorted(s.replace("_", "-") for s in stems if s not in _NOT_PLUGINS and not s.startswith("_"))


def summary(group: str, name: str) -> str:
    """Returns the first line of a plug-in's docstring without importing it."""
    source = (_ROOT / group / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").split("\n", 1)[0]


def check(group: str, name: str) -> None:
    """Refuses a name that no plug-in has, before anything is imported.

    Raises:
        UsageError: If the group has no plug-in of that name; the known ones are listed.
    """
    known = names(group)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"{near[0]}? " if near else ""
        raise UsageError(f"there is no {group[:-1]} named {name!r}", hint=f"{meant}known {group}: {', '.join(known)}")


def load(group: str, name: str) -> ModuleType:
    """Imports one plug-in.

    Raises:
        UsageError: As `check`.
    """
    check(group, name)
    return importlib.import_module(f"ccr_cli.{group}.{name.replace('-', '_')}")
