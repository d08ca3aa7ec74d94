"""Labelled features in the layouts of FUME's five sets, and matrices that do not fit."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from scipy.io import savemat

from ccr_cli.data.labelled import LabelledItems, read_labelled
from ccr_cli.errors import ArtifactError

h5py = pytest.importorskip("h5py")

Array = npt.NDArray[Any]
PASCAL = {
    "train": {"image": "img_train", "text": "text_train", "label": "label_train"},
    "test": {"image": "img_test", "text": "text_test", "label": "label_test"},
}
INRIA = {
    split: {"image": f"{key}_img", "text": f"{key}_txt", "label": f"{key}_img_lab"}
    for split, key in (("train", "tr"), ("val", "val"), ("test", "te"))
}
WIKIPEDIA = {
    split: {
        "image": f"{key}_imgs_deep",
        "text": f"{key}_texts_doc",
        "label": f"{key}_imgs_labels",
        **({} if rows is None else {"rows": rows}),
    }
    for split, key, rows in (("train", "train", None), ("val", "test", [0, 2]), ("test", "test", [2, 6]))
}
NUSWIDE = {
    split: {"image": f"{key}_imgs_deep", "text": f"{key}_texts", "label": f"{key}_imgs_labels"}
    for split, key in (("train", "train"), ("val", "valid"), ("test", "test"))
}
XMEDIANET = {
    split: {"image": f"{key}[0]", "text": f"{key}[1]", "label": f"{key}_labels[0]"}
    for split, key in (("train", "train"), ("val", "valid"), ("test", "test"))
}


def rows(count: int, seed: int) -> tuple[Array, Array, Array]:
    """Image features, text features and categories from 0; every category is there."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 50, (count, 6)), rng.uniform(-1, 1, (count, 4)), np.arange(count) % 3


def cells(*values: Array) -> Array:
    """A cell array of MATLAB with one row."""
    made = np.empty((1, len(values)), dtype=object)
    made[0, :] = [*values]
    return made


def pascal(path: Path, **changes: Any) -> Path:
    (image, text, label), (image2, text2, label2) = rows(8, 0), rows(5, 1)
    content = {
        "img_train": image,
        "text_train": text,
        "label_train": label[:, None],
        "img_test": image2.astype(np.float32),
        "text_test": text2,
        "label_test": label2[:, None].astype(np.uint8),
    } | changes
    savemat(path, {name: value for name, value in content.items() if value is not None})
    return path


def splits(read: LabelledItems) -> dict[str, LabelledItems]:
    """The items of each split, in the order of the file."""
    names = np.array(read.split_V)
    return {
        split: LabelledItems(
            [split] * int((names == split).sum()),
            read.visual_VD[names == split],
            read.text_VE[names == split],
            read.label_V[names == split],
        )
        for split in dict.fromkeys(read.split_V)
    }


def test_pascal(tmp_path: Path) -> None:
    read = read_labelled(pascal(tmp_path / "pascal.mat"), PASCAL)
    assert list(splits(read)) == ["train", "test"]
    for part, (image, text, label) in zip(splits(read).values(), (rows(8, 0), rows(5, 1)), strict=True):
        assert [str(a.dtype) for a in (part.visual_VD, part.text_VE, part.label_V)] == ["float32", "float32", "int64"]
        np.testing.assert_array_equal(part.visual_VD, image.astype(np.float32))
        np.testing.assert_array_equal(part.text_VE, text.astype(np.float32))
        np.testing.assert_array_equal(part.label_V, label)


def test_wikipedia_takes_its_validation_from_the_test_rows(tmp_path: Path) -> None:
    (image, text, label), (image2, text2, label2) = rows(9, 0), rows(6, 1)
    content = {"train_imgs_deep": image, "train_texts_doc": text, "train_imgs_labels": label[None] + 1}
    content |= {"test_imgs_deep": image2, "test_texts_doc": text2, "test_imgs_labels": label2[None] + 1}
    savemat(tmp_path / "wiki.mat", content)
    read = read_labelled(tmp_path / "wiki.mat", WIKIPEDIA)
    assert {split: len(part.label_V) for split, part in splits(read).items()} == {"train": 9, "val": 2, "test": 4}
    np.testing.assert_array_equal(splits(read)["val"].visual_VD, image2[:2].astype(np.float32))
    np.testing.assert_array_equal(splits(read)["test"].text_VE, text2[2:].astype(np.float32))
    np.testing.assert_array_equal(splits(read)["test"].label_V, label2[2:])


def test_inria_one_hot_and_sparse(tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    for number, key in enumerate(("tr", "val", "te")):
        image, text, label = rows(7 - number, number)
        one_hot = np.eye(3, dtype=np.uint8)[label]
        content |= {f"{key}_img": image, f"{key}_txt": sparse.csc_matrix(text), f"{key}_img_lab": one_hot}
    savemat(tmp_path / "INRIA-Websearch.mat", content)
    read = read_labelled(tmp_path / "INRIA-Websearch.mat", INRIA)
    for number, part in enumerate(splits(read).values()):
        _, text, label = rows(7 - number, number)
        np.testing.assert_array_equal(part.text_VE, text.astype(np.float32))
        np.testing.assert_array_equal(part.label_V, label)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("ending", ["h5py", "h5", "hdf5"])
def test_nuswide(tmp_path: Path, ending: str, first: int) -> None:
    path = tmp_path / f"nus_wide-10k.{ending}"
    with h5py.File(path, "w") as file:
        for number, key in enumerate(("train", "valid", "test")):
            image, text, label = rows(8, number)
            file[f"{key}_imgs_deep"], file[f"{key}_texts"] = image, text.astype(np.float16)
            file[f"{key}_imgs_labels"] = label + first
    read = read_labelled(path, NUSWIDE)
    assert list(splits(read)) == ["train", "val", "test"]
    image, text, label = rows(8, 1)
    np.testing.assert_array_equal(splits(read)["val"].visual_VD, image.astype(np.float32))
    np.testing.assert_array_equal(splits(read)["val"].text_VE, text.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(splits(read)["val"].label_V, label)


def xmedianet(path: Path) -> Path:
    content: dict[str, Any] = {}
    for number, key in enumerate(("train", "valid", "test")):
        image, text, label = rows(8, number)
        content[key] = cells(image, text, np.ones((3, 2)))
        content[f"{key}_labels"] = cells(label[None], label[None], np.ones((1, 3)))
    savemat(path, content)
    return path


def test_xmedianet_keeps_its_media_in_cells(tmp_path: Path) -> None:
    read = read_labelled(xmedianet(tmp_path / "XMediaNet.mat"), XMEDIANET)
    for number, part in enumerate(splits(read).values()):
        image, text, label = rows(8, number)
        np.testing.assert_array_equal(part.visual_VD, image.astype(np.float32))
        np.testing.assert_array_equal(part.text_VE, text.astype(np.float32))
        np.testing.assert_array_equal(part.label_V, label)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("train[3]", r"train\[3\], train .*\b3\b"),
        ("train", "train .*list"),
        ("valid_labels[0][0]", r"'valid_labels\[0\]\[0\]'.*\btrain\b"),
        ("trained[0]", r"'trained'.*\btrain\b"),
        ("train[9999]", r"'train\[9999\]'"),
    ],
)
def test_cells_that_are_not_there(tmp_path: Path, key: str, message: str) -> None:
    path = xmedianet(tmp_path / "XMediaNet.mat")
    with pytest.raises(ArtifactError, match=message):
        read_labelled(path, {"train": {**XMEDIANET["train"], "image": key}})


def test_a_matrix_is_no_row_of_cells(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"img_train\[0\], img_train .*\b0\b"):
        read_labelled(pascal(tmp_path / "pascal.mat"), {"train": {**PASCAL["train"], "image": "img_train[0]"}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"img_train": None}, "'img_train'.* text_train, label_train"),
        ({"img_train": np.ones((7, 6))}, r"train: .*\(7, 6\), .*\(8, 4\), .*\(8,\)"),
        ({"text_train": np.ones((4, 8))}, r"train: .*\(8, 6\), .*\(4, 8\), .*\(8,\)"),
        ({"label_train": np.zeros((9, 1))}, r"train: .*\(8, 6\), .*\(8, 4\), .*\(9,\)"),
        ({"img_test": np.ones((5, 7))}, r"image .*\b6 in train, 7 in test"),
        ({"text_test": np.ones((5, 3))}, r"text .*\b4 in train, 3 in test"),
        ({"label_test": np.eye(5, 3)[[0, 1, 2, 0, 1]]}, "in train, one-hot in test"),
        ({"img_train": np.full((8, 6), np.nan)}, "img_train"),
        ({"img_train": np.full((8, 6), 1e300)}, "img_train"),
        ({"img_train": np.ones((8, 6, 2))}, r"img_train .*\(8, 6, 2\)"),
        ({"img_train": "some text"}, "img_train .*<U"),
        ({"img_train": np.ones((8, 6)) * 1j}, "img_train .*complex128"),
        ({"img_train": np.empty((0, 6))}, r"img_train .*\(0, 6\)"),
        ({"img_train": {"a": 1}}, r"img_train .*dict"),
        ({"label_train": np.full((8, 1), 0.5)}, "label_train"),
        ({"label_train": np.full((8, 1), -1)}, "label_train"),
        ({"label_train": np.full((8, 1), 2.0**40)}, "label_train"),
        ({"label_train": np.full((8, 1), np.inf)}, "label_train"),
        ({"label_train": np.ones((8, 3))}, r"label_train .*\(8, 3\)"),
        ({"label_train": np.zeros((8, 3))}, r"label_train .*\(8, 3\)"),
        ({"label_train": np.arange(8)[:, None] + 2, "label_test": np.full((5, 1), 2)}, r": .*\b2\b"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_labelled(pascal(tmp_path / "pascal.mat", **changes), PASCAL)


@pytest.mark.parametrize(
    "keys",
    [
        {"image": "img_train", "text": "text_train"},
        {**PASCAL["train"], "image_test": "img_test"},
        {**PASCAL["train"], "rows": [0]},
        {**PASCAL["train"], "rows": [2, 2]},
        {**PASCAL["train"], "rows": [-1, 2]},
        {**PASCAL["train"], "rows": [0, 2.0]},
        {**PASCAL["train"], "rows": 5},
    ],
)
def test_keys_that_say_too_little_or_too_much(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match=f"train: .*{re.escape(str(keys))}"):
        read_labelled(pascal(tmp_path / "pascal.mat"), {"train": keys})


def test_rows_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"train: .*\b4\b.*\b9\b.*\(8, 6\)"):
        read_labelled(pascal(tmp_path / "pascal.mat"), {"train": {**PASCAL["train"], "rows": [4, 9]}})


def test_files_that_are_none(tmp_path: Path) -> None:
    for name in ("a.mat", "a.h5py"):
        with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / name))):
            read_labelled(tmp_path / name, PASCAL)
        for content in (b"", b"no such file", b"\x80\x04\x95"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / name))):
                read_labelled(tmp_path / name, PASCAL)
    whole = pascal(tmp_path / "whole.mat").read_bytes()
    (tmp_path / "a.mat").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match=r"a\.mat"):
        read_labelled(tmp_path / "a.mat", PASCAL)
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        file["img_train"] = rows(500, 0)[0]
    whole = (tmp_path / "whole.h5").read_bytes()
    (tmp_path / "a.h5py").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match=r"a\.h5py"):
        read_labelled(tmp_path / "a.h5py", PASCAL)


def test_keys_of_hdf5_that_are_not_there_or_lie_elsewhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.ones((8, 6))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["valid_imgs_deep"] = np.ones((8, 6))
        file["train_imgs_deep"] = h5py.ExternalLink("other.h5", "secret")
    with pytest.raises(ArtifactError, match=r"'train_imgs_deep' .*a\.h5"):
        read_labelled(tmp_path / "a.h5", NUSWIDE)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("train_imgs_deep", (2, 2), "f8", external=[(str(tmp_path / "other.h5"), 0, 32)])
    with pytest.raises(ArtifactError, match=r"'train_imgs_deep' .*b\.h5"):
        read_labelled(tmp_path / "b.h5", NUSWIDE)


def test_matrices_that_are_not_asked_for_stay_on_disk(tmp_path: Path) -> None:
    """A file of five kinds of media is many times what is asked for."""
    path = pascal(tmp_path / "pascal.mat", video_train=np.zeros((2000, 4096)))
    tracemalloc.start()
    read_labelled(path, PASCAL)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
