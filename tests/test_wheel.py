"""What is installed: every folder and data set is in the wheel, and the wheel works elsewhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "ccr_cli"
MANIFESTS = CHECKOUT / "data_manifests"
BUILT_FROM = ("ccr_cli", "data_manifests", "LICENSES", "LICENSE", "README.md", "pyproject.toml")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_folder_is_packaged(project: dict[str, Any]) -> None:
    folders = sorted(p.parent.relative_to(CHECKOUT) for p in PACKAGE.rglob("__init__.py"))
    found = {".".join(folder.parts) for folder in folders} | {"ccr_cli.data_manifests"}
    assert set(project["tool"]["setuptools"]["packages"]) == found


def test_every_import_is_a_declared_dependency(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    declared = [*project["project"]["dependencies"]]
    declared += [each for extra, own in extras.items() if extra not in ("dev", "efficientnet") for each in own]
    known = {normal(re.split(r"[<>=!~ \[]", requirement)[0]) for requirement in declared}
    distributions = packages_distributions()
    missing = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in {name.split(".")[0] for name in names} - {"ccr_cli", ""} - sys.stdlib_module_names:
                if not {normal(d) for d in distributions.get(name, [name])} & known:
                    missing[name] = str(path.relative_to(CHECKOUT))
    assert not missing


def test_constraints_pin_what_pyproject_names_and_nothing_else_is_in_them(project: dict[str, Any]) -> None:
    lines = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)
    pinned = {normal(pin.split("==")[0]) for pin in pins}
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["demo"], *extras["dev"]]
    assert {normal(re.split(r"[<>=!~ \[]", requirement)[0]) for requirement in wanted} <= pinned


@pytest.mark.slow
def test_the_wheel_carries_the_data_sets_and_works_elsewhere(tmp_path: Path) -> None:
    source, empty = tmp_path / "source", tmp_path / "empty"
    for name in BUILT_FROM:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(CHECKOUT / name, source / name)
    # by way of the source distribution, as a release is made
    for kind, at in (("--sdist", source), ("--wheel", tmp_path / "unpacked")):
        run(sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", tmp_path / "dist", at)
        if kind == "--sdist":
            (archive,) = (tmp_path / "dist").glob("*.tar.gz")
            shutil.unpack_archive(archive, tmp_path, filter="data")
            (tmp_path / archive.name.removesuffix(".tar.gz")).rename(tmp_path / "unpacked")
    (wheel,) = (tmp_path / "dist").glob("*.whl")

    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = [p for p in MANIFESTS.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc", ".md")]
    assert len(shipped) > 1600
    missing = {f"ccr_cli/data_manifests/{p.relative_to(MANIFESTS).as_posix()}" for p in shipped} - names
    assert not missing
    assert "ccr_cli/py.typed" in names
    page = PACKAGE / "report" / "page"
    templates = [*(page / "templates").iterdir(), *(page / "static").iterdir()]
    templates += [PACKAGE / "stages" / "export" / "model_card.md.j2", PACKAGE / "report" / "words" / "words.toml"]
    assert {path.suffix for path in templates} == {".j2", ".css", ".js", ".toml"}
    assert {f"ccr_cli/{path.relative_to(PACKAGE).as_posix()}" for path in templates} <= names
    licences = {name.split("/licenses/")[1] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", *(f"LICENSES/{p.name}" for p in (CHECKOUT / "LICENSES").iterdir())}
    assert not [
        name for name in names if name.split("/")[0] not in ("ccr_cli", wheel.name.split("-py3")[0] + ".dist-info")
    ]

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    outer = [path for path in sys.path if path.endswith("site-packages")]
    # dependencies come from outside, ccr from the wheel; .pth files out there are not read
    (site / "outer.pth").write_text("\n".join(outer) + "\n", encoding="utf-8")
    empty.mkdir()
    listed = run(tmp_path / "venv" / "bin" / "ccr", "data", "list", at=empty)
    states = dict(line.split("\t")[:2] for line in listed.splitlines()[1:])
    assert {name for name, state in states.items() if state == "bundled"} == {"noto-emoji", "twemoji"}
    assert {"multi30k", "multi30k-task2", "vatex"} <= {name for name, state in states.items() if state == "collection"}
    checked = run(tmp_path / "venv" / "bin" / "ccr", "data", "verify", "noto-emoji", at=empty)
    assert str(site / "ccr_cli" / "data_manifests" / "noto-emoji") in checked
    load = "from ccr_cli.report.page.rendering import served"
    assert "<title>Search</title>" in run(
        python, "-c", f"{load}; print(served('search_page', 'Search', 'search_page.css'))", at=empty
    )
    assert not list(empty.iterdir())


def run(*command: object, at: Path | None = None) -> str:
    """Runs a program that must succeed; returns its standard output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=at, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
