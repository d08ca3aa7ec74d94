"""The readers on the official files themselves, where they are."""

from __future__ import annotations

import re
from collections import Counter

import machine
import pytest

from ccr_cli.data.formats.base import stem
from ccr_cli.data.formats.text_files import hashtag, parallel, read_ids
from ccr_cli.errors import ArtifactError

SPLITS = {
    "train": 29_000,
    "val": 1014,
    "test_2016_flickr": 1000,
    "test_2017_flickr": 1000,
    "test_2017_mscoco": 461,
    "test_2018_flickr": 1071,
}
FLICKR8K = {"train": 6000, "val": 1000, "test": 1000}


@pytest.mark.needs("data/multi30k")
@pytest.mark.parametrize("lang", ["en", "de", "fr", "cs"])
@pytest.mark.parametrize("split", SPLITS)
def test_multi30k_task_1(split: str, lang: str) -> None:
    folder = machine.DATA.joinpath("multi30k", "task1")
    path, ids = folder / "raw" / f"{split}.{lang}.gz", folder / "image_splits" / f"{split}.txt"
    if lang == "cs" and "2017" in split:
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            list(parallel(path, ids=ids))
        return
    read = list(parallel(path, ids=ids))
    assert [r.item for r in read] == read_ids(ids) and len(read) == len({r.item for r in read}) == SPLITS[split]
    assert all(r.text.strip() for r in read)


@pytest.mark.needs("data/multi30k")
def test_multi30k_keeps_what_stands_in_a_line() -> None:
    """Its German training captions have 47 non-breaking spaces."""
    folder = machine.DATA.joinpath("multi30k", "task1")
    read = list(parallel(folder / "raw" / "train.de.gz", ids=folder / "image_splits" / "train.txt"))
    assert read[0].item == "1000092795.jpg" and sum(r.text.count("\u00a0") for r in read) == 47
    mscoco = read_ids(folder / "image_splits" / "test_2017_mscoco.txt")
    assert Counter(name.split("_")[1] for name in mscoco) == {"train2014": 267, "val2014": 194}


@pytest.mark.needs("data/multi30k")
def test_multi30k_refuses_the_ids_of_another_split() -> None:
    folder = machine.DATA.joinpath("multi30k", "task1")
    with pytest.raises(ArtifactError, match=r"\b1014\b.*\b1000\b"):
        list(parallel(folder / "raw" / "val.de.gz", ids=folder / "image_splits" / "test_2016_flickr.txt"))


@pytest.mark.needs("data/multi30k")
@pytest.mark.parametrize(
    ("split", "name"),
    [pytest.param("train", "train", marks=pytest.mark.slow), ("val", "val"), ("test_2016_flickr", "test_2016")],
)
def test_multi30k_task_2(split: str, name: str) -> None:
    folder = machine.DATA.joinpath("multi30k", "task2")
    ids = folder / "image_splits" / f"{name}_images.txt"
    for lang in ("en", "de"):
        for k in range(1, 6):
            assert sum(1 for _ in parallel(folder / "raw" / f"{name}.{k}.{lang}.gz", ids=ids)) == SPLITS[split]


@pytest.mark.needs("data/flickr8kcn")
@pytest.mark.parametrize("tag", ["enc", "zhb", "zhg"])
def test_flickr8kcn(tag: str) -> None:
    path = machine.DATA.joinpath("flickr8kcn", "official", f"flickr8k{tag}.caption.txt")
    read = list(hashtag(path, tag=tag))
    assert len(read) == 40_460 and Counter(r.k for r in read) == dict.fromkeys(range(5), 8092)
    assert len({(r.item, r.k) for r in read}) == len(read)
    items = {stem(r.item) for r in read}
    for split, count in FLICKR8K.items():
        ids = read_ids(path.parent / f"flickr8k{split}.txt")
        assert len(ids) == count and items.issuperset(ids)
