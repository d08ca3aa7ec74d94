"""Plug-ins: the files of a folder, listed and described without an import, imported on demand."""

import ast
import functools
import hashlib
import importlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from ccr_cli.errors import CcrError, UsageError, did_you_mean

_ROOT = Path(__file__).parent
_NOT_PLUGINS = {"__init__", "base", "config"}
_EXPECTED = {
    "methods": ("Config", "Method"),
    "encoders": ("Config", "Encoder"),
    "translators": ("Config", "Translator"),
    "judges": ("JUDGE",),
}
"""Names that a plug-in of each group must define."""


BUNDLED = {
    group: frozenset(files.split())
    for group, files in {
        "methods": "__init__ base basic config decl disncl distil fume gsc infonce nrccr pretrained source_only tcl "
        "trine uml",
        "judges": "__init__ argmax base config fusion gmm lexical margin mutual none oracle osa rank scores "
        "structure translation triangle two_group",
        "losses": "__init__ contrastive credibility decl disncl distil evidential masks mutual nrccr precision "
        "structure triplet trust",
        "nets": "__init__ attention dual heads inception_i3d lora plain pooling ragged row_adam text text_transformer "
        "tower",
    }.items()
}
"""The files that train and belong to ccr, whose version stands for them; any other file is somebody's own."""


class BrokenError(UsageError):
    """A plug-in that does not load."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} does not load: {reason}", hint="fix or remove that file")
        self.path, self.reason = path, reason


def own_failure(error: BaseException) -> CcrError | None:
    """An error raised in, or below, somebody's own method, judge, loss or net: where, and what; else None."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if (path := Path(f.filename)).parent.parent == _ROOT and path.parent.name in BUNDLED]
    mine = [frame for frame in inside if own([Path(frame.filename)])]
    if not mine:
        return None
    shown = mine[-1:] + [frame for frame in frames[-1:] if frame is not mine[-1]]
    places = [f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}" for frame in shown]
    problem = "\n  ".join([*places, f"{type(error).__name__}: {error}"])
    return CcrError(problem, hint="correct it and repeat the command; -v shows the whole traceback")


def names(group: str) -> list[str]:
    """Lists the plug-ins of a group (a folder of the package), sorted; `two_group.py` is `two-group`."""
    stems = (path.stem for path in (_ROOT / group).glob("*.py"))
    return sorted({s.replace("_", "-") for s in stems if s not in _NOT_PLUGINS and not s.startswith("_")})


def summary(group: str, name: str) -> str:
    """The first line of a plug-in's docstring, read without an import; or the visible reason why it does not load."""
    path = plugin_file(group, name)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        return f"broken, {_reason(path, error)}"
    return (ast.get_docstring(tree) or "").split("\n", 1)[0]


def completion(group: str, *more: str) -> Callable[[str], list[str]]:
    """Completes the names of the plug-ins of a group, and `more`, on the command line."""
    return lambda incomplete: [name for name in (*more, *names(group)) if name.startswith(incomplete)]


@functools.cache
def summaries(group: str) -> str:
    """The plug-ins of a group with their one-line summaries, for `--help`."""
    return "; ".join(f"{name}: {summary(group, name).rstrip('.')}" for name in names(group))


@functools.cache
def noise_styles() -> str:
    """The functions of `data/mismatch.py` with the decorator `noise_style`, with their one-line summaries."""
    styles = []
    for node in ast.parse((_ROOT / "data" / "mismatch.py").read_bytes()).body:
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(ast.Name("noise_style"), [ast.Constant(str(name))])]):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                styles.append(f"{name}: {first.rstrip('.')}")
    return "; ".join(styles)


def check(group: str, name: str) -> None:
    """Raises UsageError if a group has no plug-in of a name, before anything is imported; the hint lists the known."""
    known = names(group)
    if name not in known:
        where = f"they are the files of {_ROOT / group}, with - for _"
        hint = f"{did_you_mean(name, known)}known {group}: {', '.join(known)}; {where}"
        raise UsageError(f"unknown {group[:-1]} {name!r}", hint)


def load(group: str, name: str) -> ModuleType:
    """Imports a plug-in that `check` knows; raises BrokenError if that fails, or if it lacks a required name."""
    check(group, name)
    path = plugin_file(group, name)
    try:
        module = importlib.import_module(f"ccr_cli.{group}.{path.stem}")
    except (CcrError, MemoryError):
        raise
    except Exception as error:
        raise BrokenError(path, _reason(path, error)) from error
    if missing := [name for name in _EXPECTED[group] if name not in vars(module)]:
        raise BrokenError(path, f"it defines no {' and no '.join(missing)}")
    return module


def sources(*plugins: tuple[str, str]) -> list[Path]:
    """Lists the files of some plug-ins (group and name), and of what they import from the folders in `BUNDLED`."""
    todo, found = [plugin_file(group, name) for group, name in plugins], set[Path]()
    while todo:
        path = todo.pop()
        if path not in found and path.is_file():
            found.add(path)
            todo += _imports(path, path.stat().st_mtime_ns)
    return sorted(found)


@functools.cache
def _imports(path: Path, changed: int) -> list[Path]:
    """The files in the folders in `BUNDLED` that a file, last changed at some time, may import."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["", f"ccr_cli.{path.parent.name}", "ccr_cli"][min(node.level, 2)]
            module = ".".join(filter(None, (above, node.module)))
            modules += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    parts = [module.split(".") for module in modules]
    return [_ROOT / p[1] / f"{p[2]}.py" for p in parts if len(p) == 3 and p[0] == "ccr_cli" and p[1] in BUNDLED]


def source_sha256(files: Sequence[Path]) -> str:
    """The sha256 of the names and code of some files of the package, without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in files:
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = [line for line in node.body if not _is_text(line)]
        digest.update(f"{path.parent.name}/{path.name}\n{ast.unparse(tree)}\n".encode())
    return digest.hexdigest()


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text that nothing reads: the docstring of a function or of a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def own(files: Sequence[Path]) -> list[Path]:
    """Those of some files that do not belong to ccr."""
    return [path for path in files if path.stem not in BUNDLED[path.parent.name]]


def loaded(group: str) -> tuple[dict[str, ModuleType], dict[str, BrokenError]]:
    """Imports all plug-ins of a group; returns those that load, and the errors of the others."""
    plugins, broken = {}, {}
    for name in names(group):
        try:
            plugins[name] = load(group, name)
        except BrokenError as error:
            broken[name] = error
    return plugins, broken


def plugin_file(group: str, name: str) -> Path:
    """The file of a plug-in: `two_group.py` or, if somebody wrote it so, `two-group.py`."""
    usual, literal = (_ROOT / group / f"{stem}.py" for stem in (name.replace("-", "_"), name))
    return literal if literal.is_file() and not usual.is_file() else usual


def _reason(path: Path, error: Exception) -> str:
    why = next(iter(str(error).splitlines()), "")
    if isinstance(error, SyntaxError):
        why = error.msg
        at = [error.lineno] if error.filename in (None, "<unknown>", str(path)) else []
        why = why if at else f"{error.filename}, line {error.lineno}: {why}"
    else:
        why = why if isinstance(error, ImportError) else f"{type(error).__name__}: {why}"
        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{f'line {at[-1]}: ' if at else ''}{why}"[:160]
