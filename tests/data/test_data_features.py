"""Readers of ready-made features: files that the tests write, right and wrong, and the join with items."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr_cli.data import features
from ccr_cli.data.features import FeatureTable, half_precision, join
from ccr_cli.errors import ArtifactError, CcrError, UnavailableError, UsageError

IDS = ["-Ptf_2V_000122", "katze", "Straße 7", "狗"]
RAGGED = {name: np.arange(n * 3, dtype=np.float32).reshape(n, 3) + n for n, name in enumerate(IDS, 1)}


def listed(path: Path, ids: Sequence[str]) -> Path:
    """Writes a list of ids."""
    path.write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    return path


def big(path: Path, rows: npt.NDArray[np.float32], ids: Sequence[str], frames: str | None = None) -> Path:
    """Writes a BigFile."""
    path.mkdir()
    rows.astype("<f4").tofile(path / "feature.bin")
    (path / "shape.txt").write_text(f"{len(rows)} {rows.shape[1]}")
    (path / "id.txt").write_text(" ".join(ids), encoding="utf-8")
    if frames is not None:
        (path / "video2frames.txt").write_text(frames, encoding="utf-8")
    return path


def read(source: Path, ids: Path | None = None) -> dict[str, npt.NDArray[Any]]:
    """All of a source."""
    ((path, names),) = features.with_lists([source], [ids] if ids else [])
    with features.opened(path, names) as table:
        assert table.path == source
        return {name: np.array(table.rows(i)) for i, name in enumerate(table.ids)}


def same(found: dict[str, npt.NDArray[Any]], wanted: dict[str, npt.NDArray[Any]]) -> None:
    """Equal, the order of the ids apart."""
    assert found.keys() == wanted.keys()
    for name, rows in wanted.items():
        np.testing.assert_array_equal(found[name], rows)


def refused(source: Path, message: str, ids: Path | None = None) -> CcrError:
    """The error that reading ends with."""
    with pytest.raises(ArtifactError, match=message) as caught:
        read(source, ids)
    return caught.value


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "<i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_with_a_list(dtype: str, order: Any, tmp_path: Path) -> None:
    rows = np.arange(12, dtype=dtype).reshape(4, 3)
    np.save(tmp_path / "f.npy", np.asarray(rows, order=order))
    found = read(tmp_path / "f.npy", listed(tmp_path / "ids.txt", IDS))
    assert list(found) == IDS
    same(found, {name: rows[i : i + 1] for i, name in enumerate(IDS)})


def test_a_list_may_have_other_line_ends_and_a_mark(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.eye(2))
    (tmp_path / "ids.txt").write_bytes("\ufeffé\r\nb".encode())
    assert list(read(tmp_path / "f.npy", tmp_path / "ids.txt")) == ["é", "b"]
    (tmp_path / "ids.txt").write_bytes("é\nb\n".encode("latin-1"))
    assert list(read(tmp_path / "f.npy", tmp_path / "ids.txt")) == ["é", "b"]
    (tmp_path / "ids.txt").write_text("a\n\nb\n")
    refused(tmp_path / "f.npy", "line 2", tmp_path / "ids.txt")


def test_regions_stay_regions(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((4, 36, 8), dtype=np.float32)
    np.save(tmp_path / "test_ims.npy", rows)
    same(read(tmp_path / "test_ims.npy", listed(tmp_path / "ids", IDS)), dict(zip(IDS, rows, strict=True)))


@pytest.mark.parametrize("regions", [False, True])
def test_five_rows_an_image_where_the_list_says_so(regions: bool, tmp_path: Path) -> None:
    once = np.random.default_rng(0).standard_normal((4, 6, 8) if regions else (4, 8), dtype=np.float32)
    wanted = {name: once[i] if regions else once[i : i + 1] for i, name in enumerate(IDS)}
    names = listed(tmp_path / "ids", [name for name in IDS for _ in range(5)])
    np.save(tmp_path / "five.npy", np.repeat(once, 5, axis=0))
    np.save(tmp_path / "once.npy", once)
    same(read(tmp_path / "five.npy", names), wanted)
    same(read(tmp_path / "once.npy", names), wanted)

    other = np.repeat(once, 5, axis=0)
    other[7] += 1
    np.save(tmp_path / "other.npy", other)
    refused(tmp_path / "other.npy", r"\'katze\' 5\b", names)
    refused(tmp_path / "five.npy", r"\b20\b.*\b4\b", listed(tmp_path / "four", IDS))
    refused(tmp_path / "once.npy", r"\b4\b.*\b19\b", listed(tmp_path / "nineteen", (IDS * 5)[1:]))


def test_an_id_twice_in_a_list_is_left_to_the_join(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.eye(3))
    ids = listed(tmp_path / "ids", ["a", "a", "b"])
    with (
        features.opened(tmp_path / "f.npy", ids) as table,
        pytest.raises(ArtifactError, match=r"'a' .*f\.npy"),
    ):
        join(["a"], [table])


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.zeros(4), r"\(4,\)"), (np.zeros((4, 2, 2, 2)), r"\(4, 2, 2, 2\)"), (np.array([["a"]] * 4), "<U1")],
)
def test_other_arrays_are_refused(value: npt.NDArray[Any], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", value)
    refused(tmp_path / "f.npy", message, listed(tmp_path / "ids", IDS))


class Bomb:
    """Would leave a file behind if it were unpickled."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("unpickled",))


def test_pickles_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ids = listed(tmp_path / "ids", ["a"])
    np.save(tmp_path / "dict.npy", np.array({"a": Bomb()}, dtype=object), allow_pickle=True)
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Bomb()))
    np.savez(tmp_path / "in.npz", a=np.array([Bomb()], dtype=object))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.npy").write_bytes((tmp_path / "dict.npy").read_bytes())
    for name in ("dict.npy", "plain.npy", "in.npz", "folder"):
        error = refused(tmp_path / name, re.escape(str(tmp_path / name)), ids if name.endswith(".npy") else None)
        assert error.hint and "np.savez" in error.hint
    assert not (tmp_path / "unpickled").exists()


def test_damaged_npy_files_are_refused(tmp_path: Path) -> None:
    ids = listed(tmp_path / "ids", ["a"])
    np.save(tmp_path / "f.npy", np.zeros((1, 1000)))
    whole = (tmp_path / "f.npy").read_bytes()
    for damaged in (whole[:-1], whole[:60], b"", b"PK\x03\x04" + whole, whole.replace(b"1000", b"9000")):
        (tmp_path / "f.npy").write_bytes(damaged)
        refused(tmp_path / "f.npy", r"f\.npy", ids)


def test_a_folder_of_files_named_by_item(tmp_path: Path) -> None:
    """As the official I3D features of VATEX: (1, T, D), ids that begin with a dash or hold dots."""
    folder = tmp_path / "val"
    folder.mkdir()
    shapes = {"-4wsuPCjDBc_5_15": (1, 7, 4), "G9z.x": (3, 4), "狗": (4,)}
    wanted = {}
    for number, (name, shape) in enumerate(shapes.items()):
        value = np.full(shape, number, dtype=np.float32)
        np.save(folder / f"{name}.npy", value)
        wanted[name] = value.reshape(-1, 4)
    np.save(folder / "none.npy", np.zeros((0, 4), dtype=np.float32))
    (folder / "._G9z.x.npy").write_bytes(b"what a Mac leaves behind")
    (folder / "readme.txt").write_text("no features")
    same(read(folder), wanted | {"none": np.zeros((0, 4), dtype=np.float32)})
    np.save(folder / "odd.npy", np.zeros((2, 3, 4)))
    refused(folder, r"odd\.npy .*\(2, 3, 4\)")


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **RAGGED)  # type: ignore[arg-type]
    same(read(tmp_path / "f.npz"), RAGGED)
    np.savez_compressed(tmp_path / "g.NPZ", **{name: rows[None] for name, rows in RAGGED.items()})  # type: ignore[arg-type]
    (tmp_path / "g.NPZ.npz").rename(tmp_path / "g.NPZ")
    same(read(tmp_path / "g.NPZ"), RAGGED)


def test_damaged_npz_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).standard_normal((50, 8)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, re.escape(str(path)))
    path.write_bytes(whole[:100] + bytes(40) + whole[140:])
    refused(path, r"'a' .*f\.npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"what?")
    refused(path, r"'a' .*f\.npz")


def test_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        for name, rows in RAGGED.items():
            file[name] = rows
        file.create_dataset("in/group", data=RAGGED["狗"][None], compression="gzip")
    same(read(tmp_path / "f.hdf5"), RAGGED | {"in/group": RAGGED["狗"]})


def test_hdf5_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["text"] = ["a"]
    refused(path, r"'text' .*\bobject\b")
    with h5py.File(path, "w") as file:
        file["nothing"] = h5py.Empty("f4")
    refused(path, r"'nothing' .*f\.h5")
    (tmp_path / "other.bin").write_bytes(bytes(16))
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (2, 2), "f4", external=[("other.bin", 0, 16)])
    refused(path, r"'a' .*f\.h5")
    path.write_bytes(path.read_bytes()[:100])
    refused(path, re.escape(str(path)))


def test_hdf5_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.h5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UnavailableError, match="h5py") as caught:
        read(tmp_path / "f.h5")
    assert caught.value.hint == "pip install 'ccr-cli[hdf5]'"


def test_bigfile_of_images(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 5), dtype=np.float32)
    ids = ["-a", "b.jpg", "狗"]
    same(read(big(tmp_path / "f", rows, ids)), {name: rows[i : i + 1] for i, name in enumerate(ids)})


def test_bigfile_of_videos_joins_frames_in_their_order(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((6, 5), dtype=np.float32)
    ids = ["v1_0", "v1_1", "v2_0", "v2_1", "v2_2", "it's"]
    frames = {"v2": ["v2_0", "v2_1", "v2_2"], "v1": ["v1_1", "v1_0", "v1_1"], "-x": ["it's"], "none": []}
    found = read(big(tmp_path / "f", rows, ids, str(frames)))
    same(found, {"v2": rows[2:5], "v1": rows[[1, 0, 1]], "-x": rows[5:], "none": rows[:0]})


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.lists(st.text(max_size=4), max_size=3), max_size=4))
def test_the_quick_way_reads_dicts_as_python_does(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "dict.txt"
    for text in (repr(value), json.dumps(value, ensure_ascii=False), f" {value!r}\n"):
        path.write_bytes(text.encode())
        assert dict(features.read_dict(path)) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('run')",
        "{'v': [__import__('os').mkdir('run')]}",
        "{'v': ['a' for _ in 'a']}",
        "{**{'v': ['a']}}",
        "{'v', 'a'}",
        "['v', ['a']]",
        "[['v', ['a']]]",
        "{'v': ['a'",
        "",
        "(" * 5000,
        "-" * 100_000 + "1",
        "{'v': 'a'}",
        "{'v': {'a': 1}}",
        "{'v': [1]}",
        "{1: ['a']}",
        "{'v': None}",
        "{'v': NaN}",
    ],
)
def test_dicts_that_are_none_are_refused_and_never_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(big(tmp_path / "f", np.eye(2, dtype=np.float32), ["a", "b"], text), "video2frames.txt")
    assert not (tmp_path / "run").exists()


def test_bigfiles_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    path = big(tmp_path / "f", np.eye(3, dtype=np.float32), ["a", "b", "c"], "{'v': ['a', 'd']}")
    refused(path, r"'v'.*'d'.*id\.txt")
    (path / "video2frames.txt").write_text("{'v': ['a'], 'w': ['b'], 'v': ['c']}")
    with features.opened(path, None) as table, pytest.raises(ArtifactError, match="'v'"):
        join(["v"], [table])
    (path / "id.txt").write_text("a b a")
    refused(path, r"'a' .*id\.txt")
    (path / "id.txt").write_text("a b")
    refused(path, r"\b2\b.*\b3\b")
    (path / "id.txt").write_text("a b c")
    whole = (path / "feature.bin").read_bytes()
    (path / "feature.bin").write_bytes(whole[:-1])
    refused(path, r"feature\.bin .*\b35\b.*\b3 x 3\b.*\b36\b")
    for shape in ("3", "3 3 3", "3 x", "0 3", "-3 3", "3 " + "9" * 5000):
        (path / "shape.txt").write_text(shape)
        refused(path, rf"shape\.txt: .*{re.escape(repr(shape[:40]))}")
    (path / "shape.txt").unlink()
    refused(path, r"shape\.txt")


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_by_columns_or_rows(compressed: bool, tmp_path: Path) -> None:
    rows = np.arange(20.0).reshape(4, 5)
    wanted = {name: rows[i : i + 1] for i, name in enumerate(IDS)}
    ids = listed(tmp_path / "ids", IDS)
    others = {"label": np.arange(4)[:, None], "name": "a text", "other": np.zeros((3, 7))}
    for name, matrix in (("columns", rows.T), ("rows", rows)):
        path = tmp_path / f"{name}.mat"
        scipy.io.savemat(path, {"feats": matrix, **others}, do_compression=compressed)
        same(read(path, ids), wanted)


def test_mat_files_that_are_refused(tmp_path: Path) -> None:
    ids, path = listed(tmp_path / "ids", IDS), tmp_path / "f.mat"
    scipy.io.savemat(path, {"a": np.zeros((4, 4))})
    refused(path, r"f\.mat: a ", ids)
    scipy.io.savemat(path, {"a": np.zeros((4, 5)), "b": np.zeros((5, 4))})
    refused(path, r"\b4\b.* a, b", ids)
    scipy.io.savemat(path, {"a": np.zeros((3, 5)), "s": {"X1": np.zeros((4, 5))}})
    refused(path, r"\b4\b", ids)
    scipy.io.savemat(path, {"a": np.zeros((4, 5), dtype=complex)})
    refused(path, "complex128", ids)
    path.write_bytes(path.read_bytes()[:150])
    refused(path, re.escape(str(path)), ids)


def test_ids_are_never_guessed(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.eye(4))
    np.savez(tmp_path / "f.npz", a=np.eye(2))
    ids = listed(tmp_path / "ids", IDS)
    with pytest.raises(UsageError, match=r"f\.npy"):
        features.with_lists([tmp_path / "f.npy"], [])
    with pytest.raises(UsageError):
        features.with_lists([tmp_path / "f.npz"], [ids])
    sources = [tmp_path / "f.npz", tmp_path / "f.npy"]
    assert features.with_lists(sources, [ids]) == [(sources[0], None), (sources[1], ids)]
    with pytest.raises(UsageError, match=r"--ids: .*ids2"):
        features.with_lists(sources, [tmp_path / "ids2"])


def test_what_is_of_no_known_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").touch()
    (tmp_path / "empty").mkdir()
    path = big(tmp_path / "big", np.eye(2, dtype=np.float32), ["a", "b"])
    with pytest.raises(UsageError, match=r"none\.npy"):
        features.with_lists([tmp_path / "none.npy"], [])
    cases = {"f.csv": r"f\.csv", "empty": r"empty\b.*feature\.bin"}
    for name, message in cases.items():
        refused(tmp_path / name, message)
    error = refused(path / "feature.bin", r"feature\.bin")
    assert str(path) in str(error.hint)


def table(*ids: str, path: str = "f") -> FeatureTable:
    """A table of these ids."""
    return FeatureTable(Path(path), ids, lambda i: np.zeros((1, 1)))


def test_join_is_exact_first_and_then_without_endings() -> None:
    tables = [table("b.mp4", "a.jpg", "e", "c"), table("a", "z", path="g")]
    places, left = join(["a.jpg", "b", "c.PNG", "d", "e.x"], tables)
    assert places == [(0, 1), (0, 0), (0, 3), None, None]
    assert left == ["e", "a", "z"]
    assert join(["a.jpg", "a.png"], [table("a.png", "a.jpg")])[0] == [(0, 1), (0, 0)]
    assert join(["é"], [table("e\u0301")])[1] == ["e\u0301"], "no other spelling is taken for the same"


def test_join_refuses_what_could_be_two() -> None:
    with pytest.raises(ArtifactError, match=r"'a' .*\bf\b.*\bg\b"):
        join(["b"], [table("a"), table("a", path="g")])
    with pytest.raises(ArtifactError, match=r"'a\.jpg'.*'a\.mp4'.*'a'$"):
        join(["a"], [table("a.jpg", "a.mp4")])
    with pytest.raises(ArtifactError, match=r"'a' .*'a\.jpg'.*'a\.png'"):
        join(["a.jpg", "a.png"], [table("a")])
    assert join(["b"], [table("a.jpg", "a.mp4", "b")])[0] == [(0, 2)], "of no item, so of no matter"


def test_a_map_is_not_read_before_it_is_asked_for(tmp_path: Path) -> None:
    """An array of 4 GB that is almost all hole: opened at once, and one row of it read."""
    path = tmp_path / "f.npy"
    with path.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": "<f4", "fortran_order": False, "shape": (4, 1 << 28)})
        handle.truncate(handle.tell() + (4 << 30))
    with features.opened(path, listed(tmp_path / "ids", IDS)) as opened:
        assert opened.rows(2).shape == (1, 1 << 28) and opened.rows(3)[0, -1] == 0


def test_rows_that_would_all_become_zero_are_refused() -> None:
    small = np.array([[0.0, -2e-8], [1e-9, 0.0]])
    with pytest.raises(
        ArtifactError, match="'katze' holds at most 2e-08, but half precision starts at 6e-08"
    ) as raised:
        half_precision("katze", small)
    assert "one factor" in str(raised.value.hint)
    for rows in (np.zeros((2, 2)), np.zeros((0, 2)), np.vstack([small, [1.0, 0.0]])):
        np.testing.assert_array_equal(half_precision("katze", rows), np.round(rows, 7))
