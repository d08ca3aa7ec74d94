"""One direction of dependency: the table of layers, held by reading the imports.

A layer is a line of the table; a module may import from lines below its own, and from its own folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ccr_cli
from ccr_cli import registry

PACKAGE = Path(ccr_cli.__file__).parent
CHECKOUT = Path(__file__).resolve().parents[1]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("api",),
    ("results",),
    ("stages",),
    ("methods", "encoders", "translators", "report"),
    ("losses", "judges", "nets", "data", "metrics"),
    ("artifacts",),
    ("hub", "transformers_loading", "cache_folder", "trial"),
    ("registry", "console"),
    ("errors", "process_memory"),
    ("__init__",),
)
FORBIDDEN = {
    "losses": {"artifacts", "data"},
    "judges": {"artifacts", "data"},
    "nets": {"artifacts", "data"},
    "metrics": {"artifacts", "data", "losses", "judges", "nets", "methods"},
    "report": {"methods"},
}
"""What a folder may not import whatever its line says: these know nothing of files, or of our torch modules."""
STAGES: tuple[tuple[str, ...], ...] = (
    ("report", "review", "export"),
    ("ray_executor", "doctor", "plugins", "verify"),
    ("evaluate", "diagnose", "search"),
    ("train",),
    ("data", "translate", "extract"),
    ("shared",),
)
"""The folders of `stages/`: each imports from its own folder and from lower lines."""
MOST_ARROWS = 40
"""How many imports lead from one command's folder of `stages/` into another command's."""
GROUPS = ("methods", "encoders", "translators", "judges")
PLUGINS = [(group, name) for group in GROUPS for name in registry.names(group)]
UNORDERED = re.compile(r"\.(index_(add|reduce)|scatter_(add|reduce))_?\(|accumulate=True")
ORDERLESS = {"metrics/ranks.py", "nets/row_adam.py"}
"""Where the order does not matter: whole numbers are added up, or no two to one row."""
LONGEST_SUMMARY = 79


def part(module: str) -> str:
    """`ccr_cli.nets.text` is of the part `nets`, `ccr_cli` itself of `__init__`."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def level(name: str) -> int:
    """The line of the table, from the top."""
    return next(number for number, line in enumerate(LAYERS) if name in line)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, root: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """Line and full name of every module of ccr that a file imports, wherever in the file."""
    package = ("ccr_cli", *path.relative_to(root).parts[:-1])
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found = [f"{origin}.{alias.name}" for alias in node.names] if is_folder(origin, root) else [origin]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] == "ccr_cli")


def is_folder(module: str, root: Path) -> bool:
    """Whether a module is one of ccr's folders, so that what is imported from it is a module too."""
    names = module.split(".")
    return names[0] == "ccr_cli" and root.joinpath(*names[1:]).is_dir()


def sources() -> list[Path]:
    """Every module of the package."""
    return sorted(p for p in PACKAGE.rglob("*.py") if "data_manifests" not in p.parts)


def test_every_module_has_a_line_of_the_table() -> None:
    known = {name for line in LAYERS for name in line}
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in sources()}
    assert found <= known, f"not in the table: {sorted(found - known)}"


def test_imports_lead_downwards() -> None:
    wrong = []
    for path in sources():
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for line, module in imports(path):
            other = part(module)
            if other == own:
                continue
            if level(other) <= level(own) or other in FORBIDDEN.get(own, ()):
                wrong.append(f"{path.relative_to(CHECKOUT)}:{line}: {own} must not import {module}")
    assert not wrong, "\n".join(wrong)


def stage_imports() -> Iterator[tuple[Path, int, str, str]]:
    """File, line, own folder and other folder of every import from one folder of `stages/` into another."""
    for path in sources():
        parts = path.relative_to(PACKAGE).parts
        if parts[0] == "stages" and parts[1] != "__init__.py":
            own = parts[1].removesuffix(".py")
            for line, module in imports(path):
                names = module.split(".")
                if names[1:2] == ["stages"] and len(names) > 2 and names[2] != own:
                    yield path.relative_to(CHECKOUT), line, own, names[2]


def test_folders_of_stages_import_downwards() -> None:
    order = {name: number for number, line in enumerate(STAGES) for name in line}
    assert set(order) == {
        path.stem for path in (PACKAGE / "stages").iterdir() if path.stem not in {"__init__", "__pycache__"}
    }
    wrong = [
        f"{path}:{line}: {own} must not import {other}"
        for path, line, own, other in stage_imports()
        if order[other] <= order[own]
    ]
    assert not wrong, "\n".join(wrong)


def test_few_imports_lead_from_one_command_to_another() -> None:
    arrows = {(path, other) for path, _, _, other in stage_imports() if other != "shared"}
    assert len(arrows) <= MOST_ARROWS


def test_no_circles() -> None:
    """Imports within functions count too: hiding one does not open a circle."""
    modules = {module_name(path): path for path in sources()}
    edges = {name: {module for _, module in imports(path) if module in modules} for name, path in modules.items()}
    circles = [name for name in edges if name in reachable(edges, name)]
    assert not circles, ", ".join(circles)


def module_name(path: Path) -> str:
    """`ccr_cli/nets/text.py` is `ccr_cli.nets.text`."""
    return ".".join(("ccr_cli", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """All that is imported from a module on, through others."""
    reached: set[str] = set()
    todo = [start]
    while todo:
        new = edges[todo.pop()] - reached
        reached |= new
        todo += new
    return reached


def test_public_class_names_are_unique() -> None:
    """Those that the contract of plug-ins fixes stand in a file each."""
    places: dict[str, list[str]] = {}
    for path in sources():
        if path.relative_to(PACKAGE).parts[0] in GROUPS:
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_the_reader_sees_all_forms_of_import(tmp_path: Path) -> None:
    package = tmp_path / "ccr_cli"
    (package / "nets").mkdir(parents=True)
    (package / "data").mkdir()
    module = package / "nets" / "text.py"
    module.write_text(
        "import os, ccr_cli.data.tokens\n"
        "from ccr_cli import registry\n"
        "from ..data import tsv\n"
        "from .heads import Projection\n"
        "def f():\n    from ccr_cli.stages.train.stage import train\n"
    )
    assert [name for _, name in imports(module, package)] == [
        "ccr_cli.data.tokens",
        "ccr_cli.registry",
        "ccr_cli.data.tsv",
        "ccr_cli.nets.heads",
        "ccr_cli.stages.train.stage",
    ]


@pytest.mark.parametrize(("group", "name"), PLUGINS, ids=[f"{group}-{name}" for group, name in PLUGINS])
def test_first_docstring_line_of_a_plugin_is_its_help(group: str, name: str) -> None:
    summary = registry.summary(group, name)
    assert summary, f"{group}/{name} has no docstring"
    assert len(summary) <= LONGEST_SUMMARY, f"{group}/{name}: {len(summary)} characters"
    assert summary.endswith("."), f"{group}/{name}: the first line is a sentence of its own"


def test_nothing_is_added_up_in_an_order_that_changes() -> None:
    """On a GPU these operations add up in the order in which its threads come: equal seeds would differ."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in sources()}
    assert {name for name, text in texts.items() if UNORDERED.search(text)} == ORDERLESS
