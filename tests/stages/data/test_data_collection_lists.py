"""Importing a collection whose splits are lists of ids: what they name and what they do not."""

from __future__ import annotations

from pathlib import Path

import official
import pytest
import toy
from official import Collection, lines

from ccr_cli.artifacts import base, dataset
from ccr_cli.data import collections
from ccr_cli.stages.data.folder import absent_media

SPLITS = {"train": ("10.jpg", "11.jpg"), "test": ("30.jpg",)}
NOTE = "1 item without a caption in en, the source language, e.g. '11.jpg'"


def listed(*captions: str, header: str = "item_id,text,lang") -> Collection:
    """Two training items and a test item by lists, and a table of captions."""
    made = official.small()
    made.variants = [{"name": "a", "title": "a", "counts": {"items": {s: len(ids) for s, ids in SPLITS.items()}}}]
    made.content = {f"{split}.txt": lines(*ids) for split, ids in SPLITS.items()}
    made.content["c.csv"] = lines(header, *captions)
    made.files = [{"path": f"{split}.txt", "role": "splits", "split": split} for split in SPLITS]
    made.files.append({"path": "c.csv", "role": "captions", "format": "captions-csv"})
    made.protocols = []
    return made


def run(collection: Collection, folder: Path, *more: str) -> toy.Outcome:
    manifest, root = collection.write(folder)
    return toy.ccr("data", "import", manifest, "--root", root, *more, workspace=folder / "space")


def test_listed_items_without_captions_are_counted(tmp_path: Path) -> None:
    collection = listed("10.jpg,one,en", "11.jpg,eins,de", "30.jpg,three,en")
    collection.variants[0]["captions_per_item"] = {"en": 1}
    refused = run(collection, tmp_path)
    assert refused.code == 4
    assert "items with another number of captions in en than 1: 0 expected, 1 found" in refused.err
    seen = toy.ccr("data", "verify", tmp_path / "small.toml", "--root", tmp_path / "files")
    assert seen.code == 4 and f"note\t{NOTE}" in seen.out.splitlines()
    del collection.variants[0]["captions_per_item"]
    done = run(collection, tmp_path)
    assert done.code == 0 and NOTE in done.err, "where no number is fixed, it is said"


def test_a_language_may_be_of_one_split(tmp_path: Path) -> None:
    collection = listed("10.jpg,one,en", "11.jpg,two,en", "30.jpg,three,en", "30.jpg,drei,de")
    collection.variants[0]["captions_per_item"] = {"en": 1, "de": 1}
    done = run(collection, tmp_path)
    assert (done.code, done.err) == (0, "")
    assert dataset.read(done.made).languages() == ["en", "de"]


def splits(made: base.Artifact) -> dict[str, str]:
    items = dataset.read(made).items
    return dict(zip(items["item_id"], items["split"], strict=True))


SPLIT = "item_id,text,lang,split"


@pytest.mark.parametrize("lists", [["train.txt", "test.txt"], ["test.txt"]], ids=["all lists", "one list"])
def test_without_the_lists_the_files_own_splits_do_not_count(lists: list[str], tmp_path: Path) -> None:
    """The table calls the test picture a training picture, as Karpathy's splits do with pictures of other tests."""
    collection = listed("10.jpg,one,en,train", "11.jpg,two,en,train", "30.jpg,three,en,train", header=SPLIT)
    collection.variants[0]["unlisted"] = ["train"]
    whole = run(collection, tmp_path)
    assert splits(whole.made) == {"10.jpg": "train", "11.jpg": "train", "30.jpg": "test"}
    for name in lists:
        del collection.content[name]
        (tmp_path / "files" / name).unlink()
    done = run(collection, tmp_path, "--allow-partial", "--name", "part")
    if len(lists) == len(SPLITS):
        assert done.code == 4 and "small has no items: 3 captions of items that no list of a split" in done.err
    else:
        assert done.code == 3 and splits(done.made) == {"10.jpg": "train", "11.jpg": "train"}


def test_unlisted_items_stay_only_where_every_list_is_there(tmp_path: Path) -> None:
    collection = listed("10.jpg,one,en,train", "12.jpg,two,en,train", "30.jpg,three,en,test", header=SPLIT)
    collection.variants[0] |= {"unlisted": ["train"], "counts": {"items": {}}}
    assert splits(run(collection, tmp_path).made)["12.jpg"] == "train"
    del collection.content["train.txt"]
    (tmp_path / "files" / "train.txt").unlink()
    done = run(collection, tmp_path, "--allow-partial", "--name", "part")
    assert done.code == 3 and splits(done.made) == {"30.jpg": "test"}
    assert "2 captions of items that no list of a split names" in done.err


def test_nothing_is_taken_of_a_table_that_goes_wrong_in_the_middle(tmp_path: Path) -> None:
    """The label of an item contradicts itself after good rows; the other table has other numbers of them."""
    collection = listed("10.jpg,one,en,1", "", "11.jpg,two,en,1", "10.jpg,three,en,2", header="item_id,text,lang,label")
    collection.content["d.csv"] = lines("item_id,text,lang", "10.jpg,ten,en", "30.jpg,thirty,en")
    collection.files.append({"path": "d.csv", "role": "captions", "format": "captions-csv"})
    assert "the label of '10.jpg' is 2, and before 1" in run(collection, tmp_path).err
    done = run(collection, tmp_path, "--allow-partial")
    assert done.code == 3 and "is partial: c.csv: " in done.err
    read = dataset.read(done.made)
    assert list(zip(read.captions["caption_id"], read.captions["text"], strict=True)) == [
        ("10.jpg#en#0", "ten"),
        ("30.jpg#en#0", "thirty"),
    ]
    assert read.items["label"].isna().all()


def test_nothing_is_taken_of_a_list_that_goes_wrong_in_the_middle(tmp_path: Path) -> None:
    collection = listed("10.jpg,one,en", "11.jpg,two,en", "30.jpg,three,en")
    collection.content["train.txt"] = lines("10.jpg", "11.jpg", "11.jpg")
    done = run(collection, tmp_path, "--allow-partial")
    assert done.code == 3 and "the lists name '11.jpg' twice" in done.err
    assert splits(done.made) == {"30.jpg": "test"}


def test_an_own_split_and_a_part_are_said_in_the_manifest(tmp_path: Path) -> None:
    collection = listed("10.jpg,one,en", "11.jpg,two,en", "30.jpg,three,en")
    about = dataset.read(run(collection, tmp_path).made).manifest
    assert not {"own_split", "partial"} & set(about)
    collection.variants[0]["own_split"] = True
    collection.content["c.csv"] = lines("item_id,text,lang", "10.jpg,one,en", "30.jpg,three,en")
    collection.variants[0]["captions_per_item"] = {"en": 1}
    done = run(collection, tmp_path, "--allow-partial", "--name", "part")
    about = dataset.read(done.made).manifest
    assert about["own_split"] is True and len(about["partial"]) == 1
    own = {name for name, variant in collections.variants().items() if variant.own_split}
    assert own == {"pascal", "vatex-halves-seed0", "wikipedia"}
    assert own == {name for name, v in collections.variants().items() if v.halve or v.validation}


def test_media_that_lie_outside_are_not_there(tmp_path: Path) -> None:
    rows = ("10.jpg,one,en,../out.jpg", "11.jpg,two,en,in.jpg", f"30.jpg,three,en,{tmp_path / 'out.jpg'}")
    collection = listed(*rows, header="item_id,text,lang,media")
    (tmp_path / "out.jpg").touch()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "in.jpg").touch()
    made = run(collection, tmp_path).made
    shown = toy.ok("data", "describe", made.path, workspace=tmp_path / "space").out.splitlines()
    assert f"missing media\t2 of 3 below {tmp_path / 'files'}" in shown
    absent = absent_media(dataset.read(made).items, tmp_path / "files")
    assert absent == [tmp_path / "files" / "../out.jpg", tmp_path / "out.jpg"]


def translated(*translations: str, second: str = "human") -> Collection:
    """Three captions, of which the second is of another set if asked for, and translations of them."""
    rows = ("10.jpg,one,en,human,0", f"10.jpg,two,en,{second},{int(second == 'human')}", "30.jpg,three,en,human,0")
    made = listed(*rows, header="item_id,text,lang,caption_set,k")
    made.content["mt.txt"] = lines(*translations)
    made.files.append({"path": "mt.txt", "role": "translations", "format": "hashtag", "source": "en", "target": "zh"})
    made.files[-1]["engine"] = "one"
    return made


def test_captions_without_a_recorded_translation_are_said(tmp_path: Path) -> None:
    done = run(translated("10.jpg#zh#0 A", "30.jpg#zh#0  "), tmp_path)
    assert done.code == 0 and "1 translation of mt.txt " in done.err
    assert "2 of 3 captions in en have no translation in one-en-zh.tsv" in done.err
    table = done.made.file("translations/one-en-zh.tsv").read_text(encoding="utf-8")
    assert table.splitlines() == ["source\ttarget", "one\tA"]


def test_which_of_two_caption_sets_is_translated_must_be_said(tmp_path: Path) -> None:
    collection = translated("10.jpg#zh#0 A", second="machine")
    done = run(collection, tmp_path)
    assert done.code == 4 and "captions are of several sets (human, machine)" in done.err
    collection.files[-1]["caption_set"] = "human"
    table = run(collection, tmp_path).made.file("translations/one-en-zh.tsv").read_text(encoding="utf-8")
    assert table.splitlines() == ["source\ttarget", "one\tA"]
