"""Zero-shot evaluation, and what a run has seen of other data sets: refused, left out, or said in the signature."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.shared.leaks import Leak, other_leak, own_leak
from ccr_cli.stages.shared.splits import Split

CPU = ("--device", "cpu")


LEFT = re.compile("-left[0-9a-f]{6}")


def left(*items: str) -> str:
    """The digits of the items that are left."""
    return hashlib.sha256("\n".join(sorted(items)).encode()).hexdigest()[:6]


def of(data: dataset.Dataset, space: Any, groups: dict[str, Sequence[str]]) -> dataset.Dataset:
    """The same data set with other items: the groups of each split, an item each."""
    rows = [(f"i{n}", split, group) for split, all_of in groups.items() for n, group in enumerate(all_of)]
    items = data.items.iloc[: len(rows)].copy()
    items["item_id"], items["split"], items["group"] = zip(*[(f"{s}-{i}", s, g) for i, s, g in rows], strict=True)
    return replace(data, items=items, manifest={"id_space": space} if space is not None else {})


@pytest.fixture(scope="module")
def data(sources: Chain) -> dataset.Dataset:
    return dataset.read(sources.find("dataset"))


FLICKR = ["flickr:1", "flickr:2", "flickr:3"]


@pytest.mark.parametrize(
    ("spaces", "trained", "tested", "said"),
    [
        (("a", "a"), ["1", "2"], ["3", "4"], "none-by-a"),
        (("a", "b"), ["1", "2"], ["3", "4"], "unchecked"),
        ((None, "a"), ["1", "2"], ["1", "4"], "unchecked"),
        (("flickr", ["flickr"]), ["1", "2"], ["flickr:3"], "none-by-flickr"),
        ((["flickr"], "flickr"), FLICKR, ["flickr:4", "5"], "none-by-flickr-1of2"),
        ((["flickr"], ["flickr"]), ["1", "2"], ["1", "2"], "unchecked"),
        ((["flickr"], ["coco", "flickr"]), FLICKR, ["flickr:4", "coco:1", "coco:2"], "none-by-flickr-1of3"),
        ((["flickr", "coco"], ["coco", "flickr"]), FLICKR, ["coco:1", "coco:2"], "unchecked"),
        ((["youtube"], ["youtube"]), ["youtube:a", "video7", "video8"], ["youtube:b"], "none-by-youtube-trained1of3"),
        ((["a", "b"], ["b", "a"]), ["a:1", "b:1", "x"], ["b:2", "a:2", "y"], "none-by-a+b-2of3-trained2of3"),
    ],
)
def test_no_more_is_said_than_was_checked(
    spaces: tuple[Any, Any],
    trained: list[str],
    tested: list[str],
    said: str,
    data: dataset.Dataset,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = of(data, spaces[0], {"train": trained, "val": []})
    other = of(data, spaces[1], {"test": tested, "train": trained})
    for drop in (False, True):
        assert other_leak(own, Split.of(other, "test"), "mt", drop=drop) == Leak(said)
        assert ("id_space" in capsys.readouterr().err) == (said == "unchecked")


def test_ids_of_the_same_number_in_two_spaces_are_no_leak(data: dataset.Dataset) -> None:
    own = of(data, ["flickr", "coco"], {"train": ["flickr:1", "coco:2"]})
    other = of(data, ["coco", "flickr"], {"test": ["coco:1", "flickr:2"]})
    assert other_leak(own, Split.of(other, "test"), "mt").value == "none-by-coco+flickr"


@pytest.mark.parametrize(("space", "prefix"), [("coco", ""), (["coco"], "coco:"), ("coco", "coco:")])
def test_what_was_trained_on_is_refused_or_left_out(space: Any, prefix: str, data: dataset.Dataset) -> None:
    own = of(data, ["coco", "flickr"], {"train": ["coco:1", "coco:2", "flickr:7"], "val": []})
    tested = [f"{prefix}{n}" for n in (2, 3, 1, 7)]
    other = of(data, space, {"test": tested})
    with pytest.raises(ArtifactError, match=rf"\b2\b.*\btoy .test.*\btoy\b.*'{prefix}1'") as error:
        other_leak(own, Split.of(other, "test"), "mt")
    assert error.value.hint is not None and "--drop-leaks" in error.value.hint
    found = other_leak(own, Split.of(other, "test"), "mt", drop=True)
    digits = left("test-i1", "test-i3")
    assert found == Leak(f"dropped-2-left{digits}-by-coco-trained2of3", frozenset({"test-i0", "test-i2"}))
    for split in ("val", "train"):
        with pytest.raises(ArtifactError, match=r"\btoy .test.*\b3\b"):
            every = of(data, space, {"test": [f"{prefix}1", f"{prefix}2", f"{prefix}1"], split: [f"{prefix}9"]})
            other_leak(own, Split.of(every, "test"), "mt", drop=True)


def test_of_as_many_items_others_are_another_gallery(data: dataset.Dataset) -> None:
    other = of(data, ["c"], {"test": [f"c:{n}" for n in range(6)]})
    seen = (["c:0", "c:1"], ["c:1", "c:0", "c:9"], ["c:2", "c:3"])
    first, again, third = (
        other_leak(of(data, ["c"], {"train": groups}), Split.of(other, "test"), "last", drop=True).value
        for groups in seen
    )
    assert first == again != third and LEFT.sub("", first) == LEFT.sub("", third) == "dropped-2-by-c"


def test_what_chose_the_epoch_is_said_or_left_out(data: dataset.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [f"s:{n}" for n in range(12)]
    own = of(data, ["s"], {"train": ["s:100"], "val": groups})
    chose = set(items_of(own.items, "val-select")["group"])
    assert 0 < len(chose) < 12
    other = of(data, ["s"], {"test": [*groups, "s:100"]})
    seen = frozenset(items_of(other.items, "test").query("group in @chose or group == 's:100'")["item_id"])
    digits = left(*set(items_of(other.items, "test")["item_id"]) - seen)
    said = f"dropped-{len(chose) + 1}-left{digits}-by-s"
    assert other_leak(own, Split.of(other, "test"), "human", drop=True) == Leak(said, seen)
    assert f"1 were trained on in toy, {len(chose)} chose the epoch" in capsys.readouterr().err
    assert other_leak(own, Split.of(other, "test"), "last", drop=True).dropped == frozenset({"test-i12"})
    clean = of(data, ["s"], {"test": groups})
    assert other_leak(own, Split.of(clean, "test"), "mt").value == "selected-on"
    assert f"{len(chose)} groups of toy (test) chose the epoch" in capsys.readouterr().err
    assert other_leak(own, Split.of(clean, "test"), "last").value == "none-by-s"


@pytest.mark.parametrize("space", [3, ["a", 1], [""], "a:b", {"a": 1}])
def test_a_space_is_a_name(space: Any, data: dataset.Dataset) -> None:
    with pytest.raises(ArtifactError, match=f"toy: id_space .*{re.escape(repr(space))}"):
        other_leak(of(data, "a", {"train": ["1"]}), Split.of(of(data, space, {"test": ["1"]}), "test"), "mt")


@pytest.mark.parametrize(
    ("split", "select", "leak"),
    [
        ("train", "mt", "trained-on"),
        ("val", "mt", "selected-on"),
        ("val-select", "human", "selected-on"),
        ("val-select", "last", "own-split"),
        ("val-report", "mt", "own-split"),
        ("test", "mt", "own-split"),
    ],
)
def test_what_chose_the_epoch_is_no_own_split(
    split: str, select: str, leak: str, data: dataset.Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert own_leak(Split.of(data, split), select) == leak
    whole = {"val": 12, "val-select": 5}.get(split)
    said = f"warning: 5 of {whole} {split} items of toy chose the epoch: selected-on" if leak == "selected-on" else ""
    assert capsys.readouterr().err.startswith(said) if said else capsys.readouterr().err == ""


def test_a_group_that_an_official_split_cuts_through_is_said(
    data: dataset.Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = of(data, ["youtube"], {"train": ["youtube:a", "b"], "test": ["youtube:a", "youtube:c", "youtube:a", "b"]})
    assert own_leak(Split.of(cut, "test"), "mt") == "own-split-3trained"
    assert "3 of 4 test items of toy have a group that was trained on" in capsys.readouterr().err


def other_collection(workspace: Chain, folder: Path, *, name: str, space: str | None, shift: int) -> base.Artifact:
    """A copy of the toy data set under another name, its splits moved on by some colours."""
    other = toy.toy(name)
    other.extra = "" if space is None else f'id_space = "{space}"'
    splits = [item[1] for item in other.items]
    for item, split in zip(other.items, splits[shift:] + splits[:shift], strict=True):
        item[1] = split
    made = toy.ok("data", "import", other.write(folder / name), workspace=workspace.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=workspace.root)
    return made


def test_zero_shot_on_what_chose_the_epoch_is_said(finished: Chain, tmp_path: Path) -> None:
    own = dataset.read(finished.find("dataset", "toy")).items
    other = toy.toy("chosen")
    other.extra = 'id_space = "toy-shapes"'
    for item in other.items:
        item[1] = {"val": "test"}.get(item[1], "train")
    made = toy.ok("data", "import", other.write(tmp_path / "chosen"), workspace=finished.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    done = toy.ok("evaluate", finished.find("run", "uml").path, "--zero-shot", *CPU, workspace=finished.root)
    assert f"{len(items_of(own, 'val-select'))} groups of chosen (test) chose the epoch in toy" in done.err
    assert {r["signature"].leak for r in evaluation.results(done.made)} == {"selected-on"}


def test_zero_shot_refuses_what_was_trained_on(finished: Chain, tmp_path: Path) -> None:
    other = other_collection(finished, tmp_path, name="leaky", space="toy-shapes", shift=1)
    trained = set(items_of(dataset.read(finished.find("dataset", "toy")).items, "train")["group"])
    tested = set(items_of(dataset.read(other).items, "test")["group"])
    assert trained & tested
    done = finished.ccr("evaluate", finished.find("run", "uml").path, "--zero-shot", *CPU)
    assert (done.code, done.out) == (4, "")
    assert f"{len(trained & tested)} groups of leaky (test) were trained on in toy" in done.err
    assert sorted(trained & tested)[0] in done.err


@pytest.mark.parametrize(
    ("space", "leak"), [("toy-shapes", "none-by-toy-shapes"), ("x", "unchecked"), (None, "unchecked")]
)
def test_zero_shot_says_what_was_checked(space: str | None, leak: str, finished: Chain, tmp_path: Path) -> None:
    other = other_collection(finished, tmp_path, name="other", space=space, shift=0)
    trained = finished.find("run", "uml")
    done = toy.ok("evaluate", trained.path, "--zero-shot", *CPU, workspace=finished.root)
    assert {other.path, trained.path} <= set(done.paths)
    found = evaluation.results(done.made)
    assert [(r["data"], r["lang"], r["zero_shot"]) for r in found] == [("other", "en", True), ("other", "es", True)]
    for result in found:
        fields = result["signature"].fields
        assert (fields["leak"], fields["data"]) == (leak, f"other@{other.id[:8]}")
        assert fields["protocol"] == f"zero-shot-from:toy@{own_id(finished)}"
    usual = evaluation.results(toy.ok("evaluate", trained.path, *CPU, workspace=finished.root).made)
    own = {r["lang"]: r["SumR"] for r in usual if r["fusion"] == "none"}
    assert {r["lang"]: r["SumR"] for r in found} == own, "the same pictures and captions"


def test_an_import_finds_ids_however_they_are_written(workspace: Chain, tmp_path: Path) -> None:
    """The toy's groups are plain ids of one space; those of the other are written with it."""
    other = toy.toy("listed")
    other.extra = 'id_space = ["toy-shapes", "others"]'
    train = items_of(dataset.read(workspace.find("dataset")).items, "train")["group"]
    for item in other.items:
        item[1] = "test"
    for number, group in enumerate(train[:6]):
        other.items[number][5] = f"toy-shapes:{group}" if number < 5 else group
    done = toy.ok("data", "import", other.write(tmp_path / "listed", pictures=False), workspace=workspace.root)
    assert f"5 of 5 test groups of listed are training data in toy, e.g. 'toy-shapes:{min(train[:5])}'" in done.err


def test_a_wrong_space_is_refused_at_the_import(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.extra = "id_space = 3"
    done = toy.ccr("data", "verify", folder.write(tmp_path / "toy", pictures=False))
    assert done.code == 4 and "manifest.toml: id_space is a name without a colon" in done.err


def own_id(chain: Chain) -> str:
    return chain.find("dataset", "toy").id[:8]


def zero_shot(chain: Chain, *options: str | Path) -> toy.Outcome:
    return chain.ccr("evaluate", chain.find("run", "uml").path, "--zero-shot", *options, *CPU)


def leaking(chain: Chain, folder: Path, name: str = "leaky") -> base.Artifact:
    """The toy data set; of its test items six were trained on in the toy's run, and two chose its epoch."""
    own = dataset.read(chain.find("dataset", "toy")).items
    tested = {
        *items_of(own, "test")["item_id"][3:],
        *items_of(own, "train")["item_id"][:6],
        *items_of(own, "val-select")["item_id"][:2],
    }
    other = toy.toy(name)
    for item in other.items:
        item[1] = "test" if item[0] in tested else "train"
    made = toy.ok("data", "import", other.write(folder / name), workspace=chain.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=chain.root)
    return made


def pruned(chain: Chain, folder: Path, leaky: base.Artifact, name: str, seen: set[str]) -> base.Artifact:
    """The same data set, of which the items were never there."""
    other = toy.toy(name)
    for item, split in zip(other.items, dataset.read(leaky).items["split"], strict=True):
        item[1] = split
    other.items = [item for item in other.items if item[0] not in seen]
    other.captions = [caption for caption in other.captions if caption[1] not in seen]
    made = toy.ok("data", "import", other.write(folder / name), workspace=chain.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=chain.root)
    return made


def test_leaked_items_are_left_out_of_gallery_and_queries(finished: Chain, tmp_path: Path) -> None:
    leaky = leaking(finished, tmp_path)
    own = dataset.read(finished.find("dataset", "toy")).items
    seen = {*items_of(own, "train")["item_id"], *items_of(own, "val-select")["item_id"]}
    tested = items_of(dataset.read(leaky).items, "test")["item_id"]
    gone = set(tested) & seen
    assert (len(gone), len(tested)) == (8, 17)
    made = zero_shot(finished, "--drop-leaks")
    assert made.code == 0 and f"{len(gone)} of {len(tested)} test items of leaky are left out" in made.err, made.err
    found, ranks = evaluation.results(made.made), evaluation.read_ranks(made.made)
    assert made.made.request["drop_leaks"] is True
    without = pruned(finished, tmp_path, leaky, "without", gone)
    done = zero_shot(finished, without.path)
    assert done.code == 0, done.err
    wanted = evaluation.results(done.made)
    assert [r["lang"] for r in found] == [r["lang"] for r in wanted] == ["en", "es"]
    for mine, theirs in zip(found, wanted, strict=True):
        for key in ("t2v", "v2t", "SumR", "intervals", "calibration"):
            assert mine[key] == theirs[key]
        told, same = (r["signature"].fields for r in (mine, theirs))
        said = f"dropped-{len(gone)}-left{left(*set(tested) - gone)}-by-toy-shapes"
        assert (told["leak"], same["leak"]) == (said, "none-by-toy-shapes")
        assert told["gallery"] == same["gallery"] == str(len(tested) - len(gone)) and told["q"] == same["q"]
    assert not set(ranks["query_id"]) & gone


@pytest.mark.slow
def test_a_collection_that_leaks_does_not_stop_the_others(finished: Chain, tmp_path: Path) -> None:
    leaky = leaking(finished, tmp_path)
    clean = other_collection(finished, tmp_path, name="clean", space="toy-shapes", shift=0)
    done = zero_shot(finished)
    assert done.code == 0, done.err
    assert {r["data"] for r in evaluation.results(done.made)} == {"clean"}
    assert "left out: " in done.err and "groups of leaky (test) were trained on in toy" in done.err
    assert leaky.path not in done.paths and clean.path in done.paths
    named = zero_shot(finished, leaky.path, clean.path)
    assert (named.code, named.out) == (4, "") and "groups of leaky (test) were trained on" in named.err
    assert "--drop-leaks" in named.err
    both = zero_shot(finished, "--drop-leaks")
    assert both.code == 0, both.err
    told = {r["data"]: r["signature"].leak for r in evaluation.results(both.made)}
    assert told["clean"] == "none-by-toy-shapes" and LEFT.sub("", told["leaky"]) == "dropped-8-by-toy-shapes"


def test_where_all_leaks_all_is_refused(finished: Chain, tmp_path: Path) -> None:
    own = dataset.read(finished.find("dataset", "toy")).items
    split_of = {"train": "test", "val": "val", "test": "train"}
    for name in ("one", "two"):
        other = toy.toy(name)
        for item, split in zip(other.items, own["split"], strict=True):
            item[1] = split_of[split]
        made = toy.ok("data", "import", other.write(tmp_path / name), workspace=finished.root).made
        toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    done = zero_shot(finished)
    assert (done.code, done.out) == (4, "")
    for name in ("one", "two"):
        assert f"24 groups of {name} (test) were trained on in toy" in done.err
    done = zero_shot(finished, "--drop-leaks")
    assert (done.code, done.out) == (4, "")
    assert "nothing would be left of one (test): 24 were trained on in toy" in done.err


def test_folds_keep_their_rivals_where_others_are_left_out(finished: Chain, tmp_path: Path) -> None:
    """Folds are cut first: two of the first fourteen items leak, so five and seven are left; others do not count."""
    other = toy.toy("folded")
    other.extra = 'id_space = "toy-shapes"\n[[protocols]]\nname = "halves"\nfolds = 2\nitems = 14'
    own = dataset.read(finished.find("dataset", "toy")).items
    tested, trained = (list(items_of(own, split)["item_id"]) for split in ("test", "train"))
    row = {item[0]: item for item in other.items}
    other.items = [row[item] for item in (*trained[:2], *tested, *trained[2:5])]
    for item in other.items:
        item[1] = "test"
    other.captions = [caption for caption in other.captions if row[caption[1]] in other.items]
    made = toy.ok("data", "import", other.write(tmp_path / "folded"), workspace=finished.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    done = zero_shot(finished, "--protocol", "halves", "--drop-leaks")
    assert done.code == 0, done.err
    for result in evaluation.results(done.made):
        told = result["signature"].fields
        digits = left(*tested)
        assert (told["gallery"], told["leak"]) == ("2x5-7", f"dropped-2-left{digits}-by-toy-shapes")
        assert (told["protocol"], told["split"]) == (f"zero-shot-halves-from:toy@{own_id(finished)}", "test")
