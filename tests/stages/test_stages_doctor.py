"""`ccr doctor` on packages that are optional: there, not there, and there without working."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.doctor import examine

READERS = {"av": "video", "h5py": "hdf5"}


def optional(root: Path) -> dict[str, tuple[str, str]]:
    """State and remedy of every optional package."""
    rows = {what: (state, mend) for what, state, mend in examine(Workspace(root))}
    return {what.removeprefix("optional "): row for what, row in rows.items() if what.startswith("optional ")}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_that_is_there_has_its_version(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    assert optional(tmp_path)[name] == (importlib.metadata.version(name), "")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_that_is_not_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert optional(tmp_path)[name] == ("not installed", f"pip install 'ccr-cli[{READERS[name]}]'")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("raise RuntimeError('Could not load it.\\nLikely causes: FFmpeg')", "RuntimeError: Could not load it."),
        ("raise OSError", "OSError: "),
        ("raise ImportError('libx.so is missing')", "ImportError: libx.so is missing"),
        ("import no_such_part", "ModuleNotFoundError: No module named 'no_such_part'"),
    ],
)
def test_a_reader_that_does_not_import(
    name: str, line: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    state, mend = optional(tmp_path)[name]
    assert state.endswith(f", broken: {why}") and name in mend
