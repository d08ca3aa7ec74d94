"""Reading files with libraries written in C, in a process that may crash."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from ccr_cli import trial
from ccr_cli.data.features import read_hdf5
from ccr_cli.errors import ArtifactError


@pytest.mark.parametrize(("program", "ending"), [("os.abort()", "SIGABRT"), ("os.kill(os.getpid(), 11)", "SIGSEGV")])
def test_a_crash_ends_only_the_other_process(
    program: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_reader", None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(f"#!/usr/bin/env python3\nimport os\ninput()\n{program}\n")
    os.chmod(tmp_path / "python", 0o755)
    savemat(tmp_path / "a.mat", {"x": np.eye(3)})
    with pytest.raises(ArtifactError, match=rf"a\.mat.*{ending}"):
        trial.read_matlab(tmp_path / "a.mat")
    monkeypatch.undo()
    np.testing.assert_array_equal(trial.read_matlab(tmp_path / "a.mat")["x"], np.eye(3))


def test_a_file_that_needs_too_much_memory_or_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", shape=(1 << 40,), dtype="f4", chunks=(8,))
    with pytest.raises(ArtifactError, match=r"a\.h5.*GiB"):
        trial.try_reading(tmp_path / "a.h5", read_hdf5)
    monkeypatch.setattr(trial, "SECONDS", 0.0)
    monkeypatch.setattr(trial, "_reader", None)
    savemat(tmp_path / "a.mat", {"x": np.eye(3)})
    with pytest.raises(ArtifactError, match=r"a\.mat.* 0 s"):
        trial.read_matlab(tmp_path / "a.mat")
