"""`ccr doctor` on packages that are optional: there, not there, and there without working."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
import tinydual

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


def test_dual_encoders_of_the_cache_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def place(name: str) -> Path:
        folder = tmp_path / "hub" / f"models--some--{name}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("0" * 40)
        return folder / "snapshots" / ("0" * 40)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    tinydual.save("clip", place("whole"))
    (tinydual.save("siglip", place("lacking")) / "preprocessor_config.json").unlink()
    for name, kind in (("any-shape", "siglip2"), ("regions", "clipseg"), ("text", "bert")):
        folder = place(name)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    rows = {what: (state, mend) for what, state, mend in examine(Workspace(tmp_path)) if "some/" in what}
    assert rows.keys() == {f"model some/{name}" for name in ("whole", "lacking", "any-shape", "regions")}
    assert rows["model some/whole"][0].startswith("usable")
    assert rows["model some/lacking"][0].endswith("preprocessor_config.json")
    assert rows["model some/lacking"][1] == "hf download some/lacking"
    assert "NaFlex" in rows["model some/any-shape"][0] and "regions" in rows["model some/regions"][0]
