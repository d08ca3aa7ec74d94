"""Ready-made features in files that lead elsewhere or promise too much."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccr_cli.artifacts import parquet
from ccr_cli.data import features
from ccr_cli.errors import ArtifactError


def test_hdf5_datasets_have_every_name_that_a_link_gives_them(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = values
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["a"] = values
        file["b"] = file["a"]
        file["c"] = h5py.SoftLink("/a")
        file["nothing"] = h5py.SoftLink("/gone")
        file["in/d"] = values
        file["in/up"] = file["in"]
        file["out"] = h5py.ExternalLink("other.h5", "/x")
        file["through"] = h5py.SoftLink("/out")
    with features.opened(tmp_path / "f.h5", None) as table:
        assert table.ids == ["a", "b", "c", "in/d", "out", "through"]
        for i in range(4):
            np.testing.assert_array_equal(table.rows(i), values)
        for i in (4, 5):
            with pytest.raises(ArtifactError, match=rf"{table.ids[i]!r} .*f\.h5"):
                table.rows(i)


def test_arrays_that_claim_to_be_larger_than_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("a", shape=(1 << 46, 8), dtype="f4", chunks=(8, 8))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 46, 8)})
    with zipfile.ZipFile(tmp_path / "f.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue())
    for name in ("f.h5", "f.npz"):
        with pytest.raises(ArtifactError, match=name), features.opened(tmp_path / name, None) as table:
            table.rows(0)


def test_what_unpacks_to_far_more_than_a_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed array, and a Parquet file that says one long text often."""
    monkeypatch.setattr(features, "LARGEST_ITEM", 1 << 16)
    np.savez_compressed(tmp_path / "a.npz", small=np.zeros((2, 8)), large=np.zeros((2000, 8)))
    with features.opened(tmp_path / "a.npz", None) as table:
        assert table.rows(0).shape == (2, 8)
        with pytest.raises(ArtifactError, match=r"'large'.*a\.npz"):
            table.rows(1)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a" * 10_000] * 2048}), path)
    assert sum(len(batch) for batch in parquet.parquet_batches(path)) == 2048
    monkeypatch.setattr(parquet, "MOST_BYTES", 1 << 20)
    with pytest.raises(ArtifactError, match=r"a\.parquet"):
        list(parquet.parquet_batches(path))
    pq.write_table(pa.table({"text": ["a"] * 10**5}), path)
    with pytest.raises(ArtifactError, match=r"a\.parquet .*\b100,000 rows"):
        list(parquet.parquet_batches(path))
