"""Collections of labelled features: their official rows become splits, and what fits no manifest is partial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import toy
from scipy.io import savemat

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.workspace import Workspace

RNG = np.random.default_rng(0)


def rows(count: int, width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RNG.normal(size=(count, width)).astype(np.float32)


def both(name: str, root: Path, workspace: Path) -> tuple[dataset.Dataset, base.Artifact]:
    """The dataset and the features that an import makes."""
    done = toy.ccr("data", "import", name, "--root", root, "--allow-partial", workspace=workspace)
    assert done.code in (0, 3), done.err
    data, feats = (base.load(path) for path in done.paths)
    assert feats.kind == "features" and feats.parent("dataset").id == data.id
    return dataset.read(data), feats


def test_wikipedia_deep_validates_on_the_first_231_test_rows(tmp_path: Path) -> None:
    test = rows(693, 4)
    content = {"train_imgs_deep": rows(2173, 4), "test_imgs_deep": test}
    content |= {"train_texts_doc": rows(2173, 3), "test_texts_doc": rows(693, 3)}
    labels = {"train_imgs_labels": np.arange(2173) % 10 + 1, "test_imgs_labels": np.arange(693) % 10 + 1}
    savemat(tmp_path / "wiki.mat", {**content, **labels})
    read, feats = both("wikipedia-deep", tmp_path, tmp_path / "space")
    assert dict(read.items["split"].value_counts()) == {"train": 2173, "val": 231, "test": 462}
    assert "partial" not in read.manifest and read.artifact.counts["failed"] == 0
    assert read.items["label"].min() == 0 and read.items["label"].max() == 9
    ids = list(read.items["item_id"][read.items["split"] == "val"])
    found, _, kept = features.read_rows(feats, ids, pooled=True)
    assert kept == ids
    np.testing.assert_allclose(found, test[:231], atol=2e-3)
    assert base.read_json(feats.file("encoder.json"))["encoder"] == features.GIVEN
    assert read.text_features() is not None and set(read.captions["lang"]) == {"und"}
    refused = toy.ccr("data", "import", "wikipedia", "--root", tmp_path, workspace=tmp_path / "space")
    assert refused.code == 4 and "wiki.mat: 3,846,773 bytes expected" in refused.err


def test_pascal_validates_on_a_hash_of_its_training_items(tmp_path: Path) -> None:
    content = {
        "img_train": rows(800, 4),
        "text_train": rows(800, 3),
        "img_test": rows(100, 4),
        "text_test": rows(100, 3),
    }
    labels = {"label_train": np.arange(800)[:, None] % 20, "label_test": np.arange(100)[:, None] % 20}
    savemat(tmp_path / "pascal.mat", {**content, **labels})
    done = toy.ok("data", "import", "pascal", "--root", tmp_path, workspace=tmp_path / "space")
    read = dataset.read(base.load(done.paths[0]))
    counts = dict(read.items["split"].value_counts())
    assert counts["test"] == 100 and counts["train"] + counts["val"] == 800 and 80 < counts["val"] < 160
    assert any("select on the test items" in quirk for quirk in read.manifest["quirks"])
    seen = toy.ccr("data", "verify", "pascal", "--root", tmp_path)
    lines = dict(line.split("\t") for line in seen.out.splitlines())
    assert seen.code == 0 and lines["items in train"] == "800; 800 expected (verified)"
    assert "training items for validation" in lines["note"]


def test_inria_xmedianet_and_nus_wide_have_rows_of_all_splits(tmp_path: Path) -> None:
    parts = {"tr": 6, "val": 4, "te": 5}
    content: dict[str, Any] = {f"{part}_img": rows(n, 4) for part, n in parts.items()}
    content |= {f"{part}_txt": rows(n, 3) for part, n in parts.items()}
    content |= {f"{part}_img_lab": np.arange(n)[:, None] % 3 + 1 for part, n in parts.items()}
    savemat(tmp_path / "INRIA-Websearch.mat", content)
    cells: dict[str, Any] = {}
    for part, n in (("train", 6), ("valid", 4), ("test", 5)):
        for key, values in ((part, (rows(n, 4), rows(n, 3))), (f"{part}_labels", (np.arange(n) % 3, np.arange(n) % 3))):
            cells[key] = np.empty((1, 2), dtype=object)
            cells[key][0, :] = values
    savemat(tmp_path / "XMediaNet5View_Doc2Vec.mat", cells)
    with h5py.File(tmp_path / "nus_wide-10k_deep_doc2vec-corr-ae.h5py", "w") as file:
        for part, n in (("train", 6), ("valid", 4), ("test", 5)):
            file[f"{part}_imgs_deep"], file[f"{part}_texts"] = rows(n, 4), rows(n, 3)
            file[f"{part}_imgs_labels"] = np.arange(n) % 3
    for name in ("inria-websearch", "xmedianet", "nus-wide-10k"):
        done = toy.ccr("data", "import", name, "--root", tmp_path, workspace=tmp_path / "space")
        assert done.code == 0, "its counts are from memory and only warn"
        assert f"warning: {name}: items in train: " in done.err and "is from memory" in done.err
        read = dataset.read(base.load(done.paths[0]))
        assert dict(read.items["split"].value_counts()) == {"train": 6, "test": 5, "val": 4}
        assert list(read.items["label"][:6]) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", ["pascal", "wikipedia", "nus-wide-10k", "inria-websearch", "xmedianet"])
def test_a_file_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    for more in ((), ("--allow-partial",)):
        done = toy.ccr("data", "import", name, "--root", tmp_path, *more, workspace=tmp_path / "space")
        assert done.code == 4 and ": missing" in done.err and done.out == ""
    assert toy.ccr("data", "verify", name, "--root", tmp_path).code == 4
    assert Workspace(tmp_path / "space").artifacts() == []


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "pascal.mat", {"img_train": rows(8, 4)})
    done = toy.ccr("data", "import", "pascal", "--root", tmp_path, workspace=tmp_path / "space")
    assert done.code == 4 and "has no 'text_train'" in done.err
    seen = toy.ccr("data", "verify", "pascal", "--root", tmp_path)
    assert seen.code == 4 and "has no 'text_train'" in seen.err
