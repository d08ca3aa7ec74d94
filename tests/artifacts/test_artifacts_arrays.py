"""Large new arrays."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from ccr_cli.artifacts import arrays


@pytest.mark.parametrize(
    ("folder", "shape", "mapped"), [(".", (3, 2), True), ("none", (3, 2), False), (".", (0, 2), False)]
)
def test_a_large_array_is_in_a_file_without_a_name_if_one_can_be_made(
    folder: str, shape: tuple[int, int], mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0)
    made = arrays.empty(shape, tmp_path / folder)
    made[:] = 1.5
    assert (isinstance(made, np.memmap), made.shape, made.dtype.name) == (mapped, shape, "float32")
    assert made.sum() == 1.5 * made.size and not list(tmp_path.iterdir())


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        made = arrays.empty((1 << 10, 1 << 4), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    made[:] = 0.5
    assert not isinstance(made, np.memmap) and made.sum() == 1 << 13


def test_only_a_large_array_is_moved_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(6, dtype=np.int32)
    assert arrays.moved(array, tmp_path) is array
    monkeypatch.setattr(arrays, "LARGE", 24)
    moved = arrays.moved(array, tmp_path)
    assert isinstance(moved, np.memmap) and moved.dtype == np.int32 and moved.tolist() == array.tolist()
