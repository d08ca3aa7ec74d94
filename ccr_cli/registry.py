"""Plug-ins are the files of a folder: listed by name, described without an import, imported on demand."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import traceback
from pathlib import Path
from types import ModuleType

from ccr_cli.errors import CcrError, UsageError

_ROOT = Path(__file__).parent
_NOT_PLUGINS = {"__init__", "base", "config"}
_EXPECTED = {
    "methods": ("Config", "Method"),
    "encoders": ("Config", "Encoder"),
    "translators": ("Config", "Translator", "pairs"),
    "judges": ("JUDGE",),
}
"""What a plug-in of each group must define."""


class BrokenError(UsageError):
    """A plug-in that does not load.

    Args:
        path: Its file.
        reason: Why, in a few words.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} does not load: {reason}", hint="mend that file, or take it away")
        self.path = path
        self.reason = reason


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
    """Returns the first line of a plug-in's docstring without importing it; why it does not load where that shows."""
    path = _file(group, name)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        return f"broken, {_reason(path, error)}"
    lacking = _lacking(group, _bound(tree))
    return f"broken, {lacking}" if lacking else (ast.get_docstring(tree) or "").split("\n", 1)[0]


@functools.cache
def summaries(group: str) -> str:
    """The plug-ins of a group with their one-line summaries, for `--help`."""
    return "; ".join(f"{name}: {summary(group, name).rstrip('.')}" for name in names(group))


def check(group: str, name: str) -> None:
    """Refuses a name that no plug-in has, before anything is imported.

    Raises:
        UsageError: If the group has no plug-in of that name; the known ones are listed.
    """
    known = names(group)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        meant = f"{near[0]}? " if near else ""
        raise UsageError(
            f"there is no {group[:-1]} named {name!r}",
            hint=f"{meant}known {group}: {', '.join(known)}; they are the files of {_ROOT / group}",
        )


def load(group: str, name: str) -> ModuleType:
    """Imports one plug-in.

    Raises:
        BrokenError: If its file cannot be imported, or lacks what its group must define.
        UsageError: As `check`.
    """
    check(group, name)
    path = _file(group, name)
    try:
        module = importlib.import_module(f"ccr_cli.{group}.{path.stem}")
    except (CcrError, MemoryError):
        raise
    except Exception as error:
        raise BrokenError(path, _reason(path, error)) from error
    lacking = _lacking(group, set(vars(module)))
    if lacking:
        raise BrokenError(path, lacking)
    return module


def loaded(group: str) -> tuple[dict[str, ModuleType], dict[str, BrokenError]]:
    """Imports all plug-ins of a group.

    Returns:
        Those that load, and what is wrong with each of the others.
    """
    found, broken = {}, {}
    for name in names(group):
        try:
            found[name] = load(group, name)
        except BrokenError as error:
            broken[name] = error
    return found, broken


def _file(group: str, name: str) -> Path:
    return _ROOT / group / f"{name.replace('-', '_')}.py"


def _lacking(group: str, there: set[str]) -> str:
    """What a plug-in does not define and must, as a reason; empty where nothing."""
    missing = [] if "*" in there else [name for name in _EXPECTED.get(group, ()) if name not in there]
    return f"it defines no {' and no '.join(missing)}" if missing else ""


def _bound(tree: ast.Module) -> set[str]:
    """Every name that a file gives to something, at whatever depth; `*` where it imports what it does not name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def _reason(path: Path, error: Exception) -> str:
    """Where a file fails and why, in a few words."""
    why = next(iter(str(error).splitlines()), "")
    if isinstance(error, SyntaxError):
        why = error.msg
        at = [error.lineno] if error.filename in (None, "<unknown>", str(path)) else []
        why = why if at else f"{error.filename}, line {error.lineno}: {why}"
    else:
        why = why if isinstance(error, ImportError) else f"{type(error).__name__}: {why}"
        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{f'line {at[-1]}: ' if at else ''}{why}"[:160]
