"""Files of weights that the user names."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ccr_cli.encoders.i3d import read_weights
from ccr_cli.errors import ArtifactError

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run",)


@pytest.mark.parametrize("form", ["plain", "state_dict", "model", "safetensors"])
def test_tensors_come_back_by_name(tmp_path: Path, form: str) -> None:
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file(STATE, path)
    else:
        torch.save(STATE if form == "plain" else {form: STATE, "epoch": 3}, path)
    found = read_weights(path)
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


def test_nothing_in_a_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a": Evil()}, tmp_path / "new.pt")
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"a": Evil()}, protocol=2))
    for name in ("new.pt", "old.pt"):
        with pytest.raises(ArtifactError):
            read_weights(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name in ("text.pt", "text.safetensors"):
        (tmp_path / name).write_text("no weights")
        with pytest.raises(ArtifactError):
            read_weights(tmp_path / name)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ArtifactError):
        read_weights(tmp_path / "list.pt")
