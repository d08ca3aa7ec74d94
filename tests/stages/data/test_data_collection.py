"""Importing a collection: what comes out, and what is refused with expected and found."""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import official
import pytest
import toy
from official import Collection, lines

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.data.options import ImportOptions
from ccr_cli.stages.data.stage import import_source


def run(manifest: Path, root: Path, *more: str, workspace: Path) -> toy.Outcome:
    return toy.ccr("data", "import", manifest, "--root", root, *more, workspace=workspace)


def failures(artifact: base.Artifact) -> list[dict[str, str]]:
    return [json.loads(line) for line in artifact.file("failures.jsonl").read_text(encoding="utf-8").splitlines()]


def test_official_files_become_a_data_set(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 0 and done.err == "", "media need not be there, and are not asked for"
    made = done.made
    read = dataset.read(made)
    assert (made.name, made.counts) == (
        "small",
        {"captions.de": 6, "captions.en": 6, "failed": 0, "items.test": 2, "items.train": 2, "items.val": 2},
    )
    assert list(read.items["item_id"]) == ["10.jpg", "11.jpg", "20.jpg", "21.jpg", "30.jpg", "31.jpg"]
    assert list(read.items["group"]) == [f"flickr:{i}" for i in (10, 11, 20, 21, 30, 31)]
    assert list(read.items["media"]) == list(read.items["item_id"])
    assert list(read.items["split"]) == ["train", "train", "val", "val", "test", "test"]
    assert set(read.items["kind"]) == {"image"} and read.items["label"].isna().all()
    german = read.captions[read.captions["lang"] == "de"]
    assert list(german["text"])[::5] == ["Bild 10 in train", "Bild 31 in test"]
    assert set(german["caption_id"]) == {f"{item}#de#0" for item in read.items["item_id"]} and set(
        german["caption_set"]
    ) == {"first"}
    assert set(read.captions["k"]) == {0}
    assert dataset.media_root(made) == root
    assert base.verify(made) == []


def test_its_manifest_has_what_evaluation_and_reports_read(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    about = dataset.read(run(manifest, root, workspace=tmp_path / "space").made).manifest
    assert about["protocols"] == [
        {"name": "small-test", "variants": ["task"], "split": "test", "captions": 1, "note": "Two pictures."}
        | {"evidence": "documented"}
    ]
    assert (about["collection"], about["variant"], about["id_space"]) == ("small", "task", ["flickr"])
    assert about["title"] == "Small: German" and about["query_langs"] == ["de"]
    assert about["evidence"]["licence"] == "documented" and about["counts"]["items"]["train"] == 2
    assert about["parallel"] == {"first": "first"} and "partial" not in about and "media" not in about
    assert about["translations"] == [{"source": "en", "target": "zh", "engine": "one", "file": "one-en-zh.tsv"}]
    checked = {entry["path"]: entry["checked"] for entry in about["files"]}
    assert checked["data/raw/train.de.gz"] == "sha256" and "czech/test.cs" not in checked
    other = dataset.read(run(manifest.with_name("small-czech.toml"), root, workspace=tmp_path / "space").made)
    assert (other.name, other.manifest["variant"], other.manifest["query_langs"]) == ("small-czech", "czech", ["cs"])
    assert "protocols" not in other.manifest and other.languages() == ["en", "cs"]
    assert list(other.captions["caption_set"].unique()) == ["human"]


def test_recorded_translations_are_replayed(tmp_path: Path) -> None:
    collection = official.small()
    collection.content["mt/two.txt"] = lines("10#zh2#0 ten", "11.jpg#zh2#0 eleven", "10.jpg#zh2#0 ten", "99#zh2#0 none")
    again = {"path": "mt/two.txt", "role": "translations", "format": "hashtag", "source": "en", "target": "zh"}
    collection.files.append({**again, "engine": "two", "variants": ["task"]})
    manifest, root = collection.write(tmp_path)
    space = tmp_path / "space"
    made = run(manifest, root, workspace=space).made
    assert made.has("translations/one-en-zh.tsv") and made.has("translations/two-en-zh.tsv")
    done = toy.ok(
        "translate", made.path, "--lang", "zh", "--engine", "recorded", "--set", "engine=one", workspace=space
    )
    texts = set(translation.read(done.made)["text"])
    assert "picture 10 in train A" in texts and len(texts) == 6
    card = dict(line.split("\t") for line in toy.ok("data", "describe", "small", workspace=space).out.splitlines())
    assert card["recorded translations"] == "en->zh (one), en->zh (two)"


def test_of_two_translations_of_one_text_the_first_is_kept_and_said(tmp_path: Path) -> None:
    collection = official.small()
    collection.content["data/raw/val.en.gz"] = gzip.compress(lines("picture 10 in train", "other"), mtime=0)
    manifest, root = collection.write(tmp_path)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 0
    assert "1 translation of mt/one.txt left out, as captions of the same text have another one" in done.err
    table = done.made.file("translations/one-en-zh.tsv").read_text(encoding="utf-8").splitlines()
    assert table[:2] == ["source\ttarget", "picture 10 in train\tpicture 10 in train A"]
    assert sum(line.startswith("picture 10 in train\t") for line in table) == 1


Change = Callable[[Path], object]


def swap(one: str, other: str) -> Change:
    def change(root: Path) -> None:
        first, second = (root / one).read_bytes(), (root / other).read_bytes()
        (root / one).write_bytes(second)
        (root / other).write_bytes(first)

    return change


def put(name: str, data: bytes) -> Change:
    return lambda root: (root / name).write_bytes(data)


GERMAN, ENGLISH = "data/raw/train.de.gz", "data/raw/train.en.gz"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (lambda root: (root / GERMAN).unlink(), [f"{GERMAN}: missing"]),
        (put(GERMAN, gzip.compress(lines("Bild 10 in train"), mtime=0)), [f"{GERMAN}: 2 lines expected, 1 found"]),
        (put(GERMAN, gzip.compress(lines("Bild 10 in traim", "Bild"), mtime=0)), [f"{GERMAN}: ", " bytes expected, "]),
        (
            put(GERMAN, gzip.compress(lines("Bild 10 in train", "Bild 12 in train"), mtime=0)),
            [f"{GERMAN}: other content (sha256 "],
        ),
        (put(GERMAN, b"\x1f\x8b\x08\x00no"), [f"{GERMAN}: is cut off or damaged"]),
        (
            swap(GERMAN, ENGLISH),
            [f"{GERMAN}: this is the content of {ENGLISH}", f"{ENGLISH}: this is the content of {GERMAN}"],
        ),
        (put("data/ids/train.txt", b"10.jpg\n"), ["data/ids/train.txt: 2 lines expected, 1 found"]),
    ],
    ids=["missing", "truncated", "resized", "changed", "damaged", "swapped", "list"],
)
def test_a_wrong_file_is_refused_with_expected_and_found(change: Change, messages: list[str], tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    change(root)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert (done.code, done.out) == (4, "")
    assert all(message in done.err for message in messages), done.err
    assert "Ask its makers. Or import what is there: --allow-partial" in done.err
    assert Workspace(tmp_path / "space").artifacts() == []
    found = toy.ccr("data", "verify", manifest, "--root", root)
    assert found.code == 4 and all(message.split(": ")[0] in found.out for message in messages)
    partial = run(manifest, root, "--allow-partial", workspace=tmp_path / "space")
    assert partial.code == 3 and "warning: small is partial: " in partial.err
    about = dataset.read(partial.made).manifest
    assert all(any(message in line for line in about["partial"]) for message in messages)
    assert len(failures(partial.made)) == len(about["partial"]) == partial.made.counts["failed"]
    again = run(manifest, root, workspace=tmp_path / "space")
    assert again.code == 4, "what is there in part is no answer where all of it is asked for"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"no tags here\n", "mt/one.txt, line 1: expected"), (lines("99#zh#0 x"), "mt/one.txt translates no en caption")],
)
def test_translations_that_cannot_be_read(content: bytes, message: str, tmp_path: Path) -> None:
    collection = official.small()
    collection.content["mt/one.txt"] = content
    manifest, root = collection.write(tmp_path)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 4 and message in done.err
    seen = toy.ccr("data", "verify", manifest, "--root", root)
    assert seen.code == 4 and message in seen.err
    partial = run(manifest, root, "--allow-partial", workspace=tmp_path / "space")
    assert partial.code == 3 and not partial.made.has("translations/one-en-zh.tsv")
    assert "translations" not in dataset.read(partial.made).manifest


def test_many_missing_files_are_listed_in_part(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    for path in root.rglob("*.*"):
        if path.name != "train.en.gz":
            path.unlink()
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 4 and done.err.count(": missing") == 9 and "Ask its makers." in done.err
    nothing = run(manifest, tmp_path / "nowhere", workspace=tmp_path / "space")
    assert nothing.code == 4 and "there is no folder" in nothing.err


def test_unequal_lines_without_a_hash(tmp_path: Path) -> None:
    collection = official.small()
    collection.content[GERMAN] = gzip.compress(lines("Bild 10 in train"), mtime=0)
    manifest, root = collection.write(tmp_path, hashes=False)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 4 and "train.de.gz has 1 lines, and" in done.err and "has 2 ids" in done.err
    partial = run(manifest, root, "--allow-partial", workspace=tmp_path / "space")
    assert partial.code == 3 and partial.made.counts["captions.de"] == 4, "nothing of such a file is taken"
    assert {row["error"] for row in failures(partial.made)} == {"UnreadableFile", "Count"}


def test_counts_are_checked_after_the_files(tmp_path: Path) -> None:
    collection = official.small()
    collection.variants[0]["counts"]["captions"] = {"en": 6, "de": 7}
    collection.variants[0]["captions_per_item"] = {"en": 2}
    manifest, root = collection.write(tmp_path)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 4 and "captions in de: 7 expected, 6 found" in done.err
    assert "items with another number of captions in en than 2: 0 expected, 6 found" in done.err
    assert run(manifest, root, "--allow-partial", workspace=tmp_path / "space").code == 3


def test_numbers_from_memory_warn_and_are_never_called_verified(tmp_path: Path) -> None:
    collection = official.small()
    collection.about["evidence"]["counts"] = "memory"
    collection.variants[0]["counts"]["captions"] = {"de": 7}
    manifest, root = collection.write(tmp_path, hashes=False)
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 0, done.err
    assert "captions in de: 7 expected, 6 found; the expected number is from memory" in done.err
    assert "the counts of small are from memory" in done.err and "verified" not in done.err
    seen = toy.ccr("data", "verify", manifest, "--root", root)
    assert seen.code == 0
    rows = dict(line.split("\t") for line in seen.out.splitlines())
    assert rows["captions in de"] == "6; 7 expected (memory)" and rows[GERMAN].startswith("there;")
    assert rows["evidence"].startswith("counts from memory, ") and "(verified)" not in seen.out


def test_verify_says_what_is_known(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    (root / "data/raw/train.de.gz").unlink()
    (root / "data/raw/train.de").write_bytes(lines("Bild 10 in train", "Bild 11 in train"))
    done = toy.ccr("data", "verify", manifest, "--root", root)
    assert (done.code, done.err) == (0, "")
    rows = dict(line.split("\t") for line in done.out.splitlines())
    assert rows[ENGLISH] == "right hash (verified)"
    assert rows[GERMAN] == "right number of lines (verified)", "unpacked, its hash is not known"
    assert rows["items in train"] == "2; 2 expected (verified)"
    assert rows["translations/one-en-zh.tsv"] == "6 texts"
    assert rows["evidence"].endswith("licence documented, citation verified")


def test_a_folder_further_down_will_do(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    done = run(manifest, root / "data", "--allow-partial", workspace=tmp_path / "space")
    assert done.code == 3 and dataset.read(done.made).manifest["partial"] == ["mt/one.txt: missing"]


def test_the_same_import_twice_and_a_changed_one(tmp_path: Path) -> None:
    collection = official.small()
    manifest, root = collection.write(tmp_path)
    first = run(manifest, root, workspace=tmp_path / "space").made
    assert run(manifest, root, workspace=tmp_path / "space").made.id == first.id
    collection.content[GERMAN] = gzip.compress(lines("ein Bild", "noch eines"), mtime=0)
    collection.write(tmp_path)
    other = run(manifest, root, workspace=tmp_path / "space")
    assert other.code == 4 and f"source.{GERMAN}: " in other.err and "--force" in other.err
    assert run(manifest, root, "--force", workspace=tmp_path / "space").made.id != first.id
    plan = run(manifest, root, "--dry-run", "--name", "other", workspace=tmp_path / "space")
    assert plan.code == 0 and "state\tto do" in plan.out
    assert [a.name for a in Workspace(tmp_path / "space").artifacts("dataset")] == ["small"]


def leaky(name: str, split: str) -> Collection:
    """A collection in which picture 30, a test picture of `small`, is of a split."""
    collection = official.small()
    collection.about["name"] = name
    collection.variants = [{"name": "one", "title": "one", "counts": {"items": {split: 1}}}]
    collection.content = {"x.en": lines("a picture"), "x.txt": lines("30.jpg")}
    entry = {"path": "x.en", "role": "captions", "format": "parallel", "split": split, "lang": "en"}
    collection.files = [{"path": "x.txt", "role": "ids"}, {**entry, "options": {"ids": "x.txt"}}]
    collection.protocols = []
    return collection


def test_leaks_are_counted_both_ways(tmp_path: Path) -> None:
    space = tmp_path / "space"
    for name, split in (("trains", "train"), ("tests", "test")):
        (tmp_path / name).mkdir()
        assert run(*leaky(name, split).write(tmp_path / name), workspace=space).code == 0
    done = run(*official.small().write(tmp_path), workspace=space)
    assert "1 of 2 test groups of small are training data in trains, e.g. 'flickr:30'" in done.err
    assert "--drop-leaks" in done.err and "tests" not in done.err
    again = toy.ccr(
        "data", "import", tmp_path / "trains/trains.toml", "--root", tmp_path / "trains/files", workspace=space
    )
    assert "1 of 2 test groups of small are training data in trains" in again.err
    apart = official.small()
    apart.about |= {"name": "apart", "id_space": ["coco"]}
    apart.ids[0]["space"] = "coco"
    (tmp_path / "apart").mkdir()
    assert run(*apart.write(tmp_path / "apart"), workspace=space).err == "", "other numbers, though they look alike"


def test_groups_that_cross_splits_are_counted_not_refused(tmp_path: Path) -> None:
    collection = official.small()
    collection.ids[0]["pattern"] = r"(?P<id>\d)\d\.jpg"
    collection.content["data/ids/val.txt"] = lines("12.jpg", "21.jpg")
    manifest, root = collection.write(tmp_path)
    collection.files = [f for f in collection.files if f["role"] != "translations"]
    done = run(manifest, root, workspace=tmp_path / "space")
    assert done.code == 0 and "1 groups of small lie in more than one split, e.g. 'flickr:1'" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("small.toml",), 2, "small is a collection"),
        (("noto-emoji", "--root", "."), 2, "noto-emoji is not one"),
        (("nothing",), 2, "'nothing' is neither a bundled data set, nor a collection, nor a folder"),
        (("photos/",), 2, "there is no photos"),
        (("empty",), 4, "empty is empty"),
        (("own.csv", "--media-root", "pictures"), 2, "'picture'"),
        (("small.toml", "--root", "files", "--lang", "en"), 2, "--format"),
        (("small.toml", "twemoji"), 2, "one data set at a time"),
        ((), 2, "which data set"),
        (("--format", "captions-csv", "--lang", "en"), 2, "ccr data import FILE"),
    ],
)
def test_options_that_do_not_fit(
    arguments: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official.small().write(tmp_path)
    for name in ("empty", "picture"):
        (tmp_path / name).mkdir()
    (tmp_path / "own.csv").write_text("image,text\na.jpg,one\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = toy.ccr("data", "import", *arguments, workspace=tmp_path / "space")
    assert (done.code, done.out) == (code, "") and message in done.err and "try: " in done.err


def test_cards_before_and_after(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    space = tmp_path / "space"
    before = toy.ok("data", "describe", manifest, workspace=space).out.splitlines()
    for row in (
        "state\tnot imported",
        "get it\tAsk its makers.",
        "items in train\t2 (verified)",
        "evidence\tcounts verified, splits verified, captions verified, licence documented, citation verified",
        "licence\tCC0-1.0 (documented)",
        "protocol\tsmall-test: Two pictures. (documented)",
        f"file\t{GERMAN}: captions train de; 2 lines and hash verified",
        "quirk\tThey do not exist.",
    ):
        assert row in before
    (root / GERMAN).unlink()
    run(manifest, root, "--allow-partial", workspace=space)
    after = toy.ok("data", "describe", "small", workspace=space).out.splitlines()
    for row in (
        "captions in de, expected\t6 (verified)",
        "captions in de\t4",
        f"partial\t{GERMAN}: missing",
        "protocol\tsmall-test: Two pictures. (documented)",
        f"missing media\t6 of 6 below {root}",
        "example 10.jpg#en#0\tpicture 10 in train",
    ):
        assert row in after
    listed = toy.ok("data", "list", workspace=space).out.splitlines()
    states = {line.split("\t")[0]: line.split("\t")[1] for line in listed}
    assert (states["small"], states["multi30k-task2"], states["twemoji"]) == (
        "imported in part",
        "collection",
        "bundled",
    )


def test_the_stage_by_itself(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    workspace = Workspace(tmp_path / "space")
    (made,) = import_source(workspace, [str(manifest)], ImportOptions(root=root, name="mine", media_root=tmp_path))
    assert made.name == "mine" and dataset.media_root(made) == tmp_path
    assert tomllib.loads(made.file("manifest.toml").read_text("utf-8"))["name"] == "mine"
    assert {"name", "collection", "manifest"} < set(made.request)


def test_a_file_that_is_another_ones_is_not_taken_for_it(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    swap(GERMAN, ENGLISH)(root)
    done = run(manifest, root, "--allow-partial", workspace=tmp_path / "space")
    assert done.code == 3 and f"this is the content of {ENGLISH}" in done.err
    captions = dataset.read(done.made).captions
    german = captions[captions["lang"] == "de"]["text"]
    assert not german.str.contains("picture").any(), "no English caption is called German"


def test_a_root_that_is_too_high_is_named(tmp_path: Path) -> None:
    manifest, root = official.small().write(tmp_path)
    (tmp_path / "above").mkdir()
    inner = tmp_path / "above" / "inner"
    root.rename(inner)
    done = run(manifest, tmp_path / "above", workspace=tmp_path / "space")
    assert done.code == 4 and f"--root {inner}" in done.err and "lie in" in done.err
