"""MATLAB files of features, and what import makes of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import machine
import numpy as np
import pytest
import toy
from scipy import sparse
from scipy.io import savemat

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.data.labelled import read_svcl
from ccr_cli.errors import ArtifactError

ITEMS = 40


def layout(**changes: Any) -> dict[str, Any]:
    """The content of a small file of the layout; a change to None leaves the part out."""
    rng = np.random.default_rng(0)
    order = rng.permutation(ITEMS) + 1
    parts = {
        "X1": rng.normal(0, 50, (6, ITEMS)),
        "X2": rng.uniform(-1, 1, (4, ITEMS)),
        "Y": sparse.csc_matrix(np.eye(3)[np.arange(ITEMS) % 3].T.astype(bool)),
        "split": {"ind_train": order[:30], "ind_test": order[30:]},
    }
    return {name: value for name, value in {**parts, **changes}.items() if value is not None}


def write(path: Path, **changes: Any) -> Path:
    savemat(path, {"data": layout(**changes)})
    return path


def test_rows_labels_and_split_are_those_of_the_file(tmp_path: Path) -> None:
    parts = layout()
    read = read_svcl(write(tmp_path / "some.mat"))
    np.testing.assert_array_equal(read.visual_VD, parts["X1"].T.astype(np.float32))
    np.testing.assert_array_equal(read.text_VE, parts["X2"].T.astype(np.float32))
    np.testing.assert_array_equal(read.label_V, np.arange(ITEMS) % 3)
    assert set(np.flatnonzero(np.array(read.split_V) == "train") + 1) == set(parts["split"]["ind_train"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X2": None}, r"\bX2\b"),
        ({"split": None}, r"\bsplit\b"),
        ({"split": {"ind_train": np.arange(1, 31)}}, r"\bind_test\b"),
        ({"split": {"ind_train": np.arange(1, 41), "ind_test": []}}, r"\bind_test is empty"),
        ({"X2": np.ones((4, ITEMS - 1))}, r"\(6, 40\), .*\(4, 39\), .*\(3, 40\)"),
        ({"X1": np.full((6, ITEMS), np.nan)}, r"\bX1\b"),
        ({"X1": "a text"}, r"\bX1\b"),
        ({"Y": np.ones((3, ITEMS))}, r"\bY\b"),
        ({"Y": np.zeros((3, ITEMS))}, r"\bY\b"),
        ({"split": {"ind_train": np.arange(1, 31), "ind_test": np.arange(30, 41)}}, r"ind_train.*ind_test.*\b40\b"),
        ({"split": {"ind_train": np.arange(0, 30), "ind_test": np.arange(30, 40)}}, r"ind_train .*\b1\b.*\b40\b"),
        ({"split": {"ind_train": np.arange(1, 31), "ind_test": np.arange(31, 40)}}, r"ind_train.*ind_test.*\b40\b"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_svcl(write(tmp_path / "wrong.mat", **changes))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    for number, content in enumerate(
        (b"", b"no MATLAB", b"\x80\x04\x95", b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")
    ):
        path = tmp_path / f"{number}.mat"
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            read_svcl(path)


def test_import_makes_dataset_and_features(tmp_path: Path) -> None:
    parts = layout()
    write(tmp_path / "some.mat")
    done = toy.ok("data", "import", str(tmp_path / "some.mat"), workspace=tmp_path)
    data, feats = (base.load(Path(line)) for line in done.out.splitlines())
    read = dataset.read(data)
    assert data.name == "some" and (data.kind, feats.kind) == ("dataset", "features")
    assert read.items["item_id"].iloc[0] == "some-01" and set(read.items["kind"]) == {"features"}
    test = set(read.items["item_id"][read.items["split"] == "test"])
    assert test == {f"some-{number:02d}" for number in parts["split"]["ind_test"]}
    held_out = read.items["split"].value_counts()
    assert 0 < held_out["val"] < held_out["train"] and held_out["val"] + held_out["train"] == 30
    texts = read.text_features()
    assert texts is not None and len(texts) == len(read.captions)
    np.testing.assert_array_equal(texts, parts["X2"].T.astype(np.float32))
    rows, _, ids = features.read_rows(feats, ["some-07", "some-02"], pooled=True)
    assert ids == ["some-07", "some-02"]
    np.testing.assert_array_equal(rows, parts["X1"].T[[6, 1]].astype(np.float16))
    again = toy.ok("data", "import", str(tmp_path / "some.mat"), workspace=tmp_path)
    assert again.out == done.out


def test_features_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "large.mat", X1=np.full((6, ITEMS), 1e5))
    done = toy.ccr("data", "import", str(tmp_path / "large.mat"), workspace=tmp_path)
    assert done.code == 4 and "100000" in done.err


def test_a_missing_file_is_exit_2(tmp_path: Path) -> None:
    done = toy.ccr("data", "import", str(tmp_path / "no.mat"), workspace=tmp_path)
    assert done.code == 2 and str(tmp_path / "no.mat") in done.err


@pytest.mark.needs("data/wikipedia_svcl/wiki.mat")
def test_the_wikipedia_collection_reads_as_it_is_described() -> None:
    path = machine.DATA / "wikipedia_svcl" / "wiki.mat"
    read = read_svcl(path)
    assert (read.visual_VD.shape, read.text_VE.shape) == ((2866, 128), (2866, 100))
    assert read.split_V.count("train") == 2173
    # Rasiwasia et al., ACM MM 2010, Table 1: art 172, biology 360, ..., warfare 451
    assert np.bincount(read.label_V).tolist() == [172, 360, 340, 333, 267, 236, 237, 185, 285, 451]
