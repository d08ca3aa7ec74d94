"""Plug-ins that do not load: said where they are asked for by name, and passed over by all else."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy

from ccr_cli import registry
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.doctor import examine

BROKEN: dict[str, tuple[str | bytes, str, bool]] = {
    "syntax": ('"""Doc."""\ndef f(:\n', "line 2: invalid syntax", True),
    "nothing": ('"""Doc."""\nx = 1\n', "it defines no ", False),
    "wrong": ('"""Doc."""\nfrom ccr_cli.errors import nothing_there\n', "line 2: cannot import name ", False),
    "raises": ('"""Doc."""\nfrom os import *\n\nraise RuntimeError("why\\nand more")\n', "RuntimeError: why", False),
    "bytes": (b"\xff\n", "line 1: ", True),
}
"""By name: the file, the reason, and whether it shows without an import."""
GROUPS = ("methods", "judges", "encoders", "translators")


def write(folder: Path, name: str) -> Path:
    text = BROKEN[name][0]
    path = folder / f"zz_{name}.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plug-ins are looked for, in place of the package's: in each group every broken one, and nothing else."""
    monkeypatch.setattr(registry, "_ROOT", tmp_path / "plugins")
    for group in GROUPS:
        (tmp_path / "plugins" / group).mkdir(parents=True)
        package = importlib.import_module(f"ccr_cli.{group}")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / "plugins" / group)])
        for name in BROKEN:
            write(tmp_path / "plugins" / group, name)
    return tmp_path / "plugins"


@pytest.mark.parametrize("group", GROUPS)
def test_a_broken_plugin_says_why(group: str, folder: Path) -> None:
    found, broken = registry.loaded(group)
    assert not found and set(broken) == {f"zz-{name}" for name in BROKEN}
    for name, (_, reason, shows) in BROKEN.items():
        error = broken[f"zz-{name}"]
        assert error.exit_code == 2 and "\n" not in error.message and reason in error.reason
        assert error.message == f"{folder / group / f'zz_{name}.py'} does not load: {error.reason}"
        assert (registry.summary(group, f"zz-{name}") == f"broken, {error.reason}") is shows


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_method_that_is_named_is_one_line(name: str, folder: Path, tmp_path: Path) -> None:
    done = toy.ccr("train", "--method", f"zz-{name}", workspace=tmp_path)
    assert (done.code, done.out) == (2, "") and BROKEN[name][1] in done.err
    assert done.err.splitlines()[0].startswith(f"error: {folder / 'methods' / f'zz_{name}.py'} does not load: ")


def test_a_failure_of_somebodys_own_file_names_its_line(folder: Path) -> None:
    path = folder / "methods" / "mine.py"
    path.write_text("import json\n\ndef loss(x):\n    return json.loads(x)\n")
    namespace: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(ValueError) as caught:
        namespace["loss"]("no")
    failure = registry.own_failure(caught.value)
    assert failure is not None and failure.exit_code == 1
    lines = failure.message.splitlines()
    assert f"{path}, line 4, in loss" in lines[0] and "json" in lines[1] and "JSONDecodeError" in lines[2]
    assert registry.own_failure(ValueError("elsewhere")) is None


def test_where_plugins_are_looked_for_is_said(folder: Path, tmp_path: Path) -> None:
    done = toy.ccr("train", "--method", "sigmoid", workspace=tmp_path)
    assert done.code == 2 and f"they are the files of {folder / 'methods'}" in done.err


def test_a_file_may_have_hyphens(folder: Path) -> None:
    (folder / "methods" / "my-loss.py").write_text('"""Mine."""\nConfig = Method = None\n')
    assert registry.load("methods", "my-loss").__doc__ == registry.summary("methods", "my-loss") == "Mine."


def test_doctor_lists_broken_plugins_beside_the_others(folder: Path, tmp_path: Path) -> None:
    rows = {what: (state, mend) for what, state, mend in examine(Workspace(tmp_path))}
    for group, label in zip(GROUPS, ("method", "judge", "encoder", "engine"), strict=True):
        path = folder / group / "zz_syntax.py"
        assert rows[f"{label} zz-syntax"] == ("broken, line 2: invalid syntax", f"fix {path}")
    assert rows["methods"] == ("", "")


def test_help_goes_on_beside_a_broken_plugin(tmp_path: Path) -> None:
    package = tmp_path / "ccr_cli"
    shutil.copytree(Path(registry.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for group in GROUPS:
        write(package / group, "syntax")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "300"}
    call = [sys.executable, "-m", "ccr_cli", "train", "--help"]
    done = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "zz-syntax: broken, line 2: invalid syntax" in done.stdout and "uml: " in done.stdout


def test_the_source_of_a_plugin_is_what_it_imports(folder: Path) -> None:
    for path, text in {
        "methods/mine.py": "from ccr_cli.losses import far, ranks\nfrom .others import x\nimport torch",
        "methods/others.py": "def f():\n    from ccr_cli.nets.text import TextEncoder",
        "losses/far.py": "from ccr_cli.metrics import ranks",
        "nets/text.py": "",
        "judges/gmm.py": "",
    }.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    files = registry.sources(("methods", "mine"), ("judges", "gmm"))
    assert [path.relative_to(folder).as_posix() for path in files] == [
        *("judges/gmm.py", "losses/far.py", "methods/mine.py", "methods/others.py", "nets/text.py")
    ]
    assert [path.stem for path in registry.own(files)] == ["far", "mine", "others"]
    before = registry.source_sha256(files)
    (folder / "nets/text.py").write_bytes(b"x = 1\n")
    edited = registry.source_sha256(files)
    (folder / "nets/text.py").write_bytes(b'"""Text."""\r\nx  =  1  # one\r\n')
    assert before != edited == registry.source_sha256(files)


def test_what_belongs_to_ccr_is_what_the_repository_holds() -> None:
    root = Path(__file__).resolve().parents[1]
    for group, names in registry.BUNDLED.items():
        listed = subprocess.run(["git", "ls-files", f"ccr_cli/{group}"], cwd=root, capture_output=True, text=True)
        held = {Path(line).stem for line in listed.stdout.splitlines() if line.endswith(".py")}
        assert listed.returncode or held == names, f"registry.BUNDLED[{group!r}]"
