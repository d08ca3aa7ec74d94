"""The collections whose official files are at hand, where they are."""

from __future__ import annotations

import gzip
from pathlib import Path

import machine
import pytest
import toy

from ccr_cli.artifacts import base, dataset, translation

MULTI30K, FLICKR8K, WIKIPEDIA = (
    machine.DATA / "multi30k",
    machine.DATA / "flickr8kcn" / "official",
    machine.DATA / "wikipedia_svcl",
)
pytestmark = [pytest.mark.slow, pytest.mark.needs("data/multi30k", "data/flickr8kcn", "data/wikipedia_svcl")]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("multi30k", {"items.train": 29000, "items.val": 1014, "items.test": 1000, "captions.cs": 31014}),
        ("multi30k-test2017", {"items.test": 1000, "captions.fr": 1000, "captions.en": 1000}),
        ("multi30k-test2017-coco", {"items.test": 461, "captions.de": 461}),
        ("multi30k-test2018", {"items.test": 1071, "captions.cs": 1071}),
    ],
)
def test_multi30k_is_what_its_manifest_says(name: str, counts: dict[str, int], tmp_path: Path) -> None:
    done = toy.ccr("data", "import", name, "--root", MULTI30K, workspace=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert {key: done.made.counts[key] for key in counts} == counts and done.made.counts["failed"] == 0
    read = dataset.read(done.made)
    assert {entry["checked"] for entry in read.manifest["files"]} == {"sha256"}
    space = "coco" if name.endswith("coco") else "flickr"
    assert read.items["group"].str.startswith(f"{space}:").all() and read.items["group"].is_unique
    if name == "multi30k":
        with gzip.open(MULTI30K / "task1" / "raw" / "train.de.gz", "rt", encoding="utf-8") as file:
            line = next(file).rstrip("\n")
        first = read.captions[read.captions["item_id"] == "1000092795.jpg"].set_index("lang")["text"]
        assert first["de"] == line
        german = read.captions[read.captions["lang"] == "de"]["text"]
        assert german.str.contains("\u00a0").any(), "spaces that do not break stay"


def test_multi30k_verifies_without_an_import(tmp_path: Path) -> None:
    done = toy.ccr("data", "verify", "multi30k-task2", "--root", MULTI30K)
    assert (done.code, done.err) == (0, "")
    rows = dict(line.split("\t") for line in done.out.splitlines())
    assert rows["captions in de"] == "155,070; 155,070 expected (verified)"
    assert rows["data/task2/raw/val.5.de.gz"] == "right hash (verified)"


def test_flickr8k_cn_is_cut_here_and_says_so(tmp_path: Path) -> None:
    toy.ok("data", "import", "multi30k", "--root", MULTI30K, workspace=tmp_path)
    cut = "flickr8kzhc.caption.txt: 40,455 lines expected, 5,000 found"
    refused = toy.ccr("data", "import", "flickr8k-cn", "--root", FLICKR8K, workspace=tmp_path)
    assert refused.code == 4 and cut in refused.err and "--allow-partial" in refused.err
    done = toy.ccr("data", "import", "flickr8k-cn", "--root", FLICKR8K, "--allow-partial", workspace=tmp_path)
    assert done.code == 3 and cut in done.err
    assert "871 of 1,000 test and 867 of 1,000 val groups of flickr8k-cn are training data in multi30k" in done.err
    made = done.made
    assert (made.counts["captions.en"], made.counts["captions.zh"]) == (40000, 5000)
    engines = {entry["engine"] for entry in dataset.read(made).manifest["translations"]}
    assert engines == {"baidu-2016", "google-2016"}, "the other two engines' files are not here"
    call = ("translate", made.path, "--lang", "zh", "--engine", "recorded", "--set", "engine=google-2016")
    translated = translation.read(toy.ok(*call, workspace=tmp_path).made)
    by_id = translated.set_index("source_caption_id")["text"]
    official = (FLICKR8K / "flickr8kzhg.caption.txt").read_text(encoding="utf-8").split("\n")
    assert f"1000268201_693b08cb0e.jpg#zhg#1 {by_id['1000268201_693b08cb0e#en#1']}" in official
    assert set(translated["status"]) == {"ok"}


def test_wikipedia_makes_a_data_set_and_its_features(tmp_path: Path) -> None:
    done = toy.ccr("data", "import", "wikipedia", "--root", WIKIPEDIA, workspace=tmp_path)
    assert (done.code, done.err) == (0, "")
    data, feats = (base.load(path) for path in done.paths)
    assert data.counts["items.train"] + data.counts["items.val"] == 2173 and data.counts["items.test"] == 693
    assert feats.counts["items"] == 2866
    seen = toy.ccr("data", "verify", "wikipedia", "--root", WIKIPEDIA)
    assert (seen.code, seen.err) == (0, "") and "wiki.mat\tright hash (verified)" in seen.out
    other = toy.ccr("data", "import", "wikipedia-deep", "--root", WIKIPEDIA, workspace=tmp_path)
    assert other.code == 4 and "has no 'train_imgs_deep'" in other.err
