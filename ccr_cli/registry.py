"""Plug-ins: files of ccr's folders, and modules that installed distributions name as entry points.

They are listed and described without being imported, and imported on demand. A distribution provides one by an entry
point of the group `ccr.methods`, or another of `GROUPS`: a name, and the module that holds what the file would. To find
a plug-in by its name, distributions are searched only if no file has it.
"""

import ast
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from types import ModuleType
from typing import Any

from ccr_cli.errors import CcrError, UsageError, did_you_mean

_ROOT = Path(__file__).parent
_NOT_PLUGINS = {"__init__", "base", "config"}
_EXPECTED = {
    "methods": ("Config", "Method"),
    "judges": ("JUDGE",),
    "encoders": ("Config", "Encoder"),
    "translators": ("Config", "Translator"),
    "noise": ("givers",),
}
"""Names that a plug-in of each group must define."""
GROUPS = tuple(_EXPECTED)
SOURCE = "source"
"""Key of a request: the sha256 of the source of a plug-in that does not belong to ccr."""
KINDS = {group: group.removesuffix("s") for group in GROUPS} | {"noise": "noise style", "translators": "engine"}
"""What messages call a plug-in of each group."""
_LIST = re.compile(rf"\{{({'|'.join(GROUPS)})\}}")


BUNDLED = {
    group: frozenset(files.split())
    for group, files in {
        "methods": "__init__ _coteaching base basic config cream decl disncl distil fume gsc in2r infonce l2rm ncr "
        "nrccr pretrained source_only tcl trine uml",
        "judges": "__init__ argmax base beta config fusion gmm hinge lexical margin mutual nce none oracle osa rank "
        "scores structure translation triangle two_group",
        "losses": "__init__ contrastive cream credibility decl disncl distil evidential in2r masks mutual ncr nrccr "
        "precision structure transport triplet trust",
        "encoders": "__init__ _transformers base clip efficientnet_lite0 efficientnet_lite1 efficientnet_lite2 i3d "
        "video vision",
        "translators": "__init__ _conversion _http _seq2seq _tagger apertium base ct2 deep_translator hf "
        "openai recorded",
        "nets": "__init__ attention dual heads inception_i3d lora mean_bag plain pooling ragged row_adam text "
        "text_transformer tower",
    }.items()
}
"""The files that belong to ccr and are identified by its version; any other file is the user's."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in, whether it loads or not."""

    group: str
    name: str
    path: Path | None
    """Its file; None if there is none."""
    module: str
    distribution: str = ""
    """Name and version of the distribution that provides it; empty for a file of ccr's folders."""
    problem: str = ""
    """Why it cannot be imported, as far as can be told without importing it; empty if nothing is wrong."""

    @property
    def remedy(self) -> str:
        """What to do if it is broken."""
        if not self.distribution:
            return f"fix {self.path}"
        return f"pip install --upgrade {self.distribution.rpartition(' ')[0]}, or pip uninstall it"


class BrokenError(UsageError):
    """A plug-in that does not load."""

    def __init__(self, plugin: Plugin, reason: str) -> None:
        what, hint = str(plugin.path), "fix or remove that file"
        if plugin.distribution:
            place = f" ({plugin.path})" if plugin.path else ""
            what = f"{KINDS[plugin.group]} {plugin.name} of {plugin.distribution}{place}"
            hint = f"{plugin.remedy}; `ccr plugins` lists all"
        super().__init__(f"{what} does not load: {reason}", hint)
        self.plugin, self.reason = plugin, reason


def own_failure(error: BaseException) -> CcrError | None:
    """Locates an error raised in, or below, a plug-in, loss or net that is not ccr's; None for any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    folders = [*(_ROOT / group for group in BUNDLED), *_packages().values()]
    inside = [f for f in frames if any(Path(f.filename).is_relative_to(folder) for folder in folders)]
    mine = [frame for frame in inside if own([Path(frame.filename)])]
    if not mine:
        return None
    shown = mine[-1:] + [frame for frame in frames[-1:] if frame is not mine[-1]]
    places = [f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}" for frame in shown]
    problem = "\n  ".join([*places, f"{type(error).__name__}: {error}"])
    return CcrError(problem, hint="correct it and repeat the command; -v shows the whole traceback")


def file_names(group: str) -> list[str]:
    """Lists the plug-ins that are files of a folder of the package, sorted; `two_group.py` is `two-group`."""
    stems = (path.stem for path in (_ROOT / group).glob("*.py"))
    return sorted({s.replace("_", "-") for s in stems if s not in _NOT_PLUGINS and not s.startswith("_")})


def names(group: str) -> list[str]:
    """Lists the plug-ins of a group, files and those of installed distributions, sorted."""
    return sorted({*file_names(group), *(plugin.name for plugin in installed() if plugin.group == group)})


def has(group: str, name: str) -> bool:
    """Whether a group has a plug-in of this name; distributions are searched only if no file has it."""
    return name in file_names(group) or name in names(group)


@functools.cache
def installed() -> tuple[Plugin, ...]:
    """The plug-ins that installed distributions name as entry points of `ccr.GROUP`; imports none of them."""
    from importlib import metadata

    plugins: list[Plugin] = []
    seen = set()
    for distribution in metadata.distributions():
        try:
            if "[ccr." not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.metadata["Name"]
        except Exception:  # unreadable metadata, so no plug-in
            continue
        if name in seen:  # the first on the path is the one that is imported
            continue
        seen.add(name)
        label = f"{name} {distribution.version}"
        try:
            points = [(entry.group, entry.name, entry.value) for entry in distribution.entry_points]
        except Exception:
            plugins.append(Plugin("", "", None, "", label, "its entry_points.txt is malformed"))
            continue
        for group, point, value in points:
            if group.startswith("ccr."):
                plugins.append(_entry_point(label, group.removeprefix("ccr."), point.replace("_", "-"), value))
    return tuple(_alone(plugin, plugins) for plugin in plugins)


def _alone(plugin: Plugin, plugins: Sequence[Plugin]) -> Plugin:
    """The plug-in, with a `problem` if several distributions provide its name, so that none is chosen by chance."""
    same = [p.distribution for p in plugins if (p.group, p.name) == (plugin.group, plugin.name) and p is not plugin]
    problem = f"{' and '.join(same)} provides it too; uninstall all but one" if same else ""
    return replace(plugin, problem=plugin.problem or problem)


def _entry_point(distribution: str, group: str, name: str, module: str) -> Plugin:
    path, problem = None, ""
    if group not in GROUPS:
        problem = f"there is no group ccr.{group}; groups: {', '.join(f'ccr.{each}' for each in GROUPS)}"
    elif wrong := bad_name(group, name):
        problem = wrong
    elif not all(part.isidentifier() for part in module.split(".")):
        problem = f"it names {module!r}, which is no module"
    else:
        path = _locate(module)
        problem = "" if path else f"there is no file of the module {module}"
    return Plugin(group, name, path, module, distribution, problem)


def bad_name(group: str, name: str) -> str:
    """Why a name is invalid in a group; empty if it is valid. In signatures, `-` ends the name of a noise style."""
    pattern, marks = r"[A-Za-z0-9][A-Za-z0-9_-]*", "letters, digits, - and _"
    if group == "noise":
        pattern, marks = "[A-Za-z0-9]+", "letters and digits"
    return "" if re.fullmatch(pattern, name) else f"{name!r} has characters other than {marks}"


def _locate(module: str) -> Path | None:
    """Finds the source file of a module without importing its parent packages; None if there is none."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
        for part in parts:
            if spec is None:
                return None
            above = spec.submodule_search_locations
            spec = importlib.machinery.PathFinder.find_spec(f"{spec.name}.{part}", above) if above else None
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _packages() -> dict[str, Path]:
    """The top-level packages of installed plug-ins: name and folder, or file for a module outside any package."""
    packages = {}
    for plugin in installed():
        if plugin.path and not plugin.path.is_relative_to(_ROOT):
            place = plugin.path.parent if plugin.path.name == "__init__.py" else plugin.path
            packages[plugin.module.split(".")[0]] = [place, *place.parents][plugin.module.count(".")]
    return packages


def find(group: str, name: str) -> Plugin:
    """Finds a plug-in: a file in ccr's folder, else one of a distribution, else the path where its file would be."""
    usual, literal = (_ROOT / group / f"{stem}.py" for stem in (name.replace("-", "_"), name))
    path = literal if isfile(literal) and not isfile(usual) else usual  # `isfile` accepts a name of any length
    file = Plugin(group, name, path, f"ccr_cli.{group}.{path.stem}")
    provided = () if isfile(path) else (p for p in installed() if (p.group, p.name) == (group, name))
    return next(iter(provided), file)


def summary(group: str, name: str) -> str:
    """The first line of a plug-in's docstring, read without importing it; or why it does not load, as far as known."""
    plugin = find(group, name)
    if plugin.problem or plugin.path is None:
        return f"broken, {plugin.problem}"
    try:
        tree = ast.parse(plugin.path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        return f"broken, {_reason(plugin.path, error)}"
    return (ast.get_docstring(tree) or "").split("\n", 1)[0]


def completion(group: str, *more: str) -> Callable[[str], list[str]]:
    """Returns a function that completes the plug-in names of a group, and `more`, on the command line."""
    return lambda incomplete: [name for name in (*more, *names(group)) if name.startswith(incomplete)]


@functools.cache
def summaries(group: str) -> str:
    """The plug-ins of a group with their one-line summaries."""
    bundled = [noise_styles()] if group == "noise" else []
    return "; ".join([*bundled, *(f"{name}: {summary(group, name).rstrip('.')}" for name in names(group))])


@functools.cache
def noise_styles() -> str:
    """The functions decorated with `noise_style` in `data/mismatch.py`, with their one-line summaries."""
    styles = []
    for node in ast.parse((_ROOT / "data" / "mismatch.py").read_bytes()).body:
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(ast.Name("noise_style"), [ast.Constant(str(name))])]):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                styles.append(f"{name}: {first.rstrip('.')}")
    return "; ".join(styles)


def with_summaries(help: str) -> str:
    """Replaces each group in braces in a flag's help, such as `{methods}`, by its plug-ins and their summaries."""
    return _LIST.sub(lambda match: summaries(match[1]), help)


def check(group: str, name: str) -> None:
    """Raises UsageError, with the known names, if a group has no plug-in of this name; imports no plug-in."""
    if has(group, name):
        return
    known = names(group)
    where = f"they are the files of {_ROOT / group}, with - for _, and those of installed packages (ccr plugins)"
    hint = f"{did_you_mean(name, known)}known {group}: {', '.join(known)}; {where}"
    raise UsageError(f"unknown {KINDS[group]} {name!r}", hint)


def load(group: str, name: str) -> ModuleType:
    """Imports a plug-in that `check` knows; raises BrokenError if that fails, or if it lacks a required name."""
    check(group, name)
    plugin = find(group, name)
    if plugin.problem:
        raise BrokenError(plugin, plugin.problem)
    try:
        module = importlib.import_module(plugin.module)
    except (CcrError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise BrokenError(plugin, _reason(plugin.path, error)) from error
    if missing := [name for name in _EXPECTED[group] if name not in vars(module)]:
        raise BrokenError(plugin, f"it defines no {' and no '.join(missing)}")
    return module


def sources(*plugins: tuple[str, str]) -> list[Path]:
    """Lists the source files that determine what some plug-ins (group and name) produce.

    These are the files of the plug-ins, and of everything they import directly or indirectly, in the folders of
    `BUNDLED` and in packages with an installed plug-in. The order does not depend on where they are installed.
    """
    todo, found = [find(group, name).module for group, name in plugins], set[Path]()
    while todo:
        module = todo.pop()
        for end, path in _files(module):
            if path not in found and path.is_file():
                found.add(path)
                package = end if path.name == "__init__.py" else end.rpartition(".")[0]
                todo += _imports(path, package, path.stat().st_mtime_ns)
    return sorted(found, key=lambda path: (path.parts[-2:], path))


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """Yields a module and the parent packages that importing it runs, with their files, if `sources` covers them."""
    parts = module.split(".")
    if parts[0] == "ccr_cli":
        if len(parts) == 3 and parts[1] in BUNDLED:
            yield module, _ROOT / parts[1] / f"{parts[2]}.py"
    elif parts[0] in _packages():
        for end in range(1, len(parts) + 1):
            if path := _locate(above := ".".join(parts[:end])):
                yield above, path


@functools.cache
def _imports(path: Path, package: str, changed: int) -> list[str]:
    """The modules, and names that may be modules, that a file of `package` imports; read again if `changed` differs."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            modules += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return modules


def installed_source(group: str, name: str) -> dict[str, Any]:
    """What a request records about a distribution's plug-in: its source checksum; empty for a file in ccr's folders."""
    if not find(group, name).distribution:
        return {}
    return {SOURCE: {"sha256": source_sha256(own(sources((group, name))))}}


def source_sha256(files: Sequence[Path]) -> str:
    """The sha256 of the names and code of some files, without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.parent.name}/{path.name}\n{_code(path.read_bytes())}\n".encode())
    return digest.hexdigest()


@functools.cache
def _code(source: bytes) -> str:
    """Python source without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in node.body if not _is_text(line)]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a bare string, such as the docstring of a function or of a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def own(files: Sequence[Path]) -> list[Path]:
    """Selects the files that do not belong to ccr."""
    return [p for p in files if p.parent.parent != _ROOT or p.stem not in BUNDLED.get(p.parent.name, ())]


def loaded(group: str) -> tuple[dict[str, ModuleType], dict[str, BrokenError]]:
    """Imports all plug-ins of a group; returns those that load, and the errors of the others."""
    plugins, broken = {}, {}
    for name in names(group):
        try:
            plugins[name] = load(group, name)
        except BrokenError as error:
            broken[name] = error
        except CcrError as error:
            broken[name] = BrokenError(find(group, name), error.message)
    return plugins, broken


def _reason(path: Path | None, error: BaseException) -> str:
    why = next(iter(str(error).splitlines()), "")
    if isinstance(error, SyntaxError):
        why = error.msg
        at = [error.lineno] if error.filename in (None, "<unknown>", str(path)) else []
        why = why if at else f"{error.filename}, line {error.lineno}: {why}"
    else:
        why = why if isinstance(error, ImportError) else f"{type(error).__name__}: {why}"
        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{f'line {at[-1]}: ' if at else ''}{why}"[:160]
