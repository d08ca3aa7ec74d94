"""Protocols of a manifest: what is read, what is refused, and which captions and folds they choose."""

from __future__ import annotations

import tomllib
from typing import Any

import pandas as pd
import pytest

from ccr_cli.data.manifests import bundled_root
from ccr_cli.data.protocols import Protocol, first_captions, fold_of, read_protocols
from ccr_cli.errors import ArtifactError

TWO = """
[[protocols]]
name = "coco-1k-5fold"
variants = ["karpathy"]
items = 5000
folds = 5
captions = 5
langs = ["en", "ja"]
note = "what the papers do"
evidence = "documented"

[[protocols]]
name = "val-1k-single"
split = "val"
caption_set = "human"
positives = "single"
"""


def test_protocols_are_read_in_the_manifests_order() -> None:
    found = read_protocols(tomllib.loads(TWO), "the manifest")
    assert list(found.values()) == [
        Protocol("coco-1k-5fold", "test", 5000, 5, 5, None, "all", ("en", "ja")),
        Protocol("val-1k-single", "val", None, 1, None, "human", "single", None),
    ]
    assert read_protocols({"name": "toy"}, "the manifest") == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "full"}, "'full'"),
        ({"name": "val-select"}, "'val-select'"),
        ({"name": "zero-shot-x"}, "'zero-shot-x'"),
        ({"name": "a b"}, "'a b'"),
        ({"name": None}, "None"),
        ({"folds": 0}, r"folds .*\'mine\'.*\b0$"),
        ({"items": -1}, "items .*'mine'.*-1$"),
        ({"folds": True}, "folds .*'mine'.*True$"),
        ({"captions": "5"}, "captions .*'mine'.*'5'$"),
        ({"split": "restval"}, "split .*'mine'.*train, val, test.*'restval'$"),
        ({"split": ["test"]}, r"split .*\'mine\'.*train, val, test.*\[\'test\'\]$"),
        ({"positives": "any"}, "positives .*'mine'.*all, single.*'any'$"),
        ({"langs": "en"}, "langs .*'mine'.*'en'$"),
        ({"langs": []}, r"langs .*\'mine\'.*\[\]$"),
        ({"caption_set": 1}, r"caption_set .*\'mine\'.*\b1$"),
        ({"fold": 5}, "'mine'.*'fold'"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=rf"manifest\.toml of toy: .*{message}"):
        read_protocols({"protocols": [{"name": "mine"} | change]}, "manifest.toml of toy")


@pytest.mark.parametrize("entries", [{"name": "mine"}, ["mine"], "mine"])
def test_protocols_are_tables(entries: Any) -> None:
    with pytest.raises(ArtifactError, match=r"\[\[protocols\]\]"):
        read_protocols({"protocols": entries}, "the manifest")


def test_a_name_stands_for_one_protocol() -> None:
    with pytest.raises(ArtifactError, match="'mine'"):
        read_protocols({"protocols": [{"name": "mine"}, {"name": "mine"}]}, "the manifest")


def test_the_first_captions_are_those_of_the_lowest_numbers() -> None:
    rows = [("a", 1), ("b", 0), ("a", 0), ("c", 7), ("a", 2), ("b", 0), ("c", 3), ("b", 1)]
    captions = pd.DataFrame(rows, columns=["item_id", "k"], index=[9, 3, 4, 1, 0, 7, 8, 2])
    for number, kept in ((1, [3, 4, 8]), (2, [9, 3, 4, 1, 7, 8]), (3, list(captions.index))):
        assert list(first_captions(captions, number).index) == kept


@pytest.mark.parametrize(("items", "folds"), [(12, 1), (12, 3), (5, 5), (0, 1)])
def test_folds_are_consecutive_and_equal(items: int, folds: int) -> None:
    ids = [f"v{(7 * n) % 13}" for n in range(items)]
    found = fold_of(pd.DataFrame({"item_id": ids}), Protocol("mine", folds=folds), "toy")
    assert list(found) == ids
    assert list(found.values()) == [n for n in range(folds) for _ in range(items // folds)]


def test_the_first_items_are_folded() -> None:
    ids = [f"v{n}" for n in range(11)]
    frame = pd.DataFrame({"item_id": ids})
    assert fold_of(frame, Protocol("mine", items=4), "toy") == dict.fromkeys(ids[:4], 0)
    found = fold_of(frame, Protocol("mine", items=9, folds=3), "toy")
    assert found == dict(zip(ids[:9], (0, 0, 0, 1, 1, 1, 2, 2, 2), strict=True))
    with pytest.raises(ArtifactError, match=r"mine .*\b12\b.*toy .*\b11\b"):
        fold_of(frame, Protocol("mine", items=12, folds=3), "toy")
    with pytest.raises(ArtifactError, match=r"mine .*\b3\b.*toy .*\b10\b"):
        fold_of(frame, Protocol("mine", items=10, folds=3), "toy")


@pytest.mark.parametrize("name", sorted(path.stem for path in bundled_root().glob("*.toml")))
def test_protocols_of_collections_can_be_read(name: str) -> None:
    about = tomllib.loads((bundled_root() / f"{name}.toml").read_text(encoding="utf-8"))
    for variant in about["variants"]:
        entries = [p for p in about.get("protocols", []) if variant["name"] in p.get("variants", [variant["name"]])]
        assert len(read_protocols({"protocols": entries}, name)) == len(entries)


@pytest.mark.parametrize("items", [11, 13, 2])
def test_unequal_folds_are_refused(items: int) -> None:
    frame = pd.DataFrame({"item_id": [f"v{n}" for n in range(items)]})
    with pytest.raises(ArtifactError, match=rf"mine .*\b3\b.*toy .*\b{items} val\b"):
        fold_of(frame, Protocol("mine", split="val", folds=3), "toy")
