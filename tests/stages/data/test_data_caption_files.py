"""Files of one's own in each format, with the fewest options; and what must be said is asked for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import toy
from official import lines

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace

LISTS = ("--split", "train=train.txt", "--split", "test=test.txt")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of each format about the same two or three items; the current folder."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "captions.csv": "item_id,text,split,lang\n-1,a dog,train,en\nb,a cat,test,en\nb,eine Katze,test,de\n",
        "plain.tsv": "-1\ta dog\thttps://example.org\n",
        "own.csv": "key,video,said\n0,-1,a dog\n",
        "train.caption.txt": "-1.jpg#en#0 a dog\nb.jpg#en#0 a cat\n",
        "zh.caption.txt": "b.jpg#zh#0 猫\n",
        "train.txt": "-1.jpg\n",
        "test.txt": "b.jpg",
        "all.txt": "-1.jpg\nb.jpg\n",
        "train.en": "a dog\n",
        "test.en": "a cat",
        "test.de": "eine Katze",
        "all.en": "a dog\na cat\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8", newline="")
    values: dict[str, object] = {
        "karpathy.json": {
            "images": [
                {"filename": "-1.jpg", "split": "train", "sentences": [{"raw": "a dog", "sentid": 0}]},
                {"filename": "b.jpg", "split": "test", "sentences": [{"raw": "a cat", "sentid": 1}]},
            ]
        },
        "coco.json": {"annotations": [{"id": 7, "image_id": 42, "caption": "a dog"}]},
        "vatex.json": [{"videoID": "-xGskbsBgI0_000055_000065", "enCap": ["a dog"], "chCap": ["狗"]}],
    }
    for name, value in values.items():
        Path(name).write_text(json.dumps(value), encoding="utf-8")
    rows: list[dict[str, object]] = [
        {"item_id": "-1", "text": ["a dog", "one dog"], "split": "train"},
        {"item_id": "b", "text": "a cat"},
    ]
    Path("rows.jsonl").write_text(
        "".join(json.dumps({"split": "test", **row}) + "\n" for row in rows), encoding="utf-8"
    )
    return tmp_path


def run(form: str, *arguments: str) -> toy.Outcome:
    return toy.ccr("data", "import", "--format", form, *arguments, workspace=Path("space"))


@pytest.mark.parametrize(
    ("form", "arguments", "items", "texts"),
    [
        ("captions-csv", ("captions.csv",), {"-1": "train", "b": "test"}, ["a dog", "a cat", "eine Katze"]),
        ("karpathy", ("karpathy.json", "--lang", "en"), {"-1.jpg": "train", "b.jpg": "test"}, ["a dog", "a cat"]),
        ("karpathy", ("en=karpathy.json",), {"-1.jpg": "train", "b.jpg": "test"}, ["a dog", "a cat"]),
        ("coco", ("train.en=coco.json",), {"42": "train"}, ["a dog"]),
        ("coco", ("train=coco.json", "--lang", "en"), {"42": "train"}, ["a dog"]),
        ("jsonl", ("rows.jsonl", "--lang", "en"), {"-1": "train", "b": "test"}, ["a dog", "one dog", "a cat"]),
        (
            "hashtag",
            ("en=train.caption.txt", "zh=zh.caption.txt", *LISTS),
            {"-1.jpg": "train", "b.jpg": "test"},
            ["a dog", "a cat", "猫"],
        ),
        ("vatex", ("train=vatex.json",), {"-xGskbsBgI0_000055_000065": "train"}, ["a dog", "狗"]),
        (
            "parallel",
            ("train.en=train.en", "test.en=test.en", "test.de=test.de", *LISTS),
            {"-1.jpg": "train", "b.jpg": "test"},
            ["a dog", "a cat", "eine Katze"],
        ),
        (
            "parallel",
            ("all.en", "--lang", "en", "--ids", "all.txt", *LISTS),
            {"-1.jpg": "train", "b.jpg": "test"},
            ["a dog", "a cat"],
        ),
    ],
)
def test_a_format_is_imported(
    form: str, arguments: tuple[str, ...], items: dict[str, str], texts: list[str], files: Path
) -> None:
    done = run(form, *arguments)
    assert done.code == 0, done.err
    read = dataset.read(done.made)
    assert dict(zip(read.items["item_id"], read.items["split"], strict=True)) == items
    assert list(read.captions["text"]) == texts and read.source_lang == "en"
    assert set(read.items["group"]) == set(items) and set(read.items["kind"]) == {
        "video" if form == "vatex" else "image"
    }
    assert not {"collection", "partial", "evidence", "protocols"} & set(read.manifest)


@pytest.mark.parametrize(
    ("form", "arguments", "code", "messages"),
    [
        ("pickle", ("captions.csv",), 2, ["there is no format 'pickle'", "captions-csv"]),
        ("captions-csv", ("plain.tsv", "--set", "columns=item_id,text,"), 4, ["1 item", "train=FILE"]),
        ("coco", ("coco.json", "--lang", "en"), 4, ["1 item", "train=FILE", "--split train=IDS"]),
        ("coco", ("train=coco.json", "rows.jsonl"), 4, ["rows.jsonl"]),
        ("hashtag", ("train=train.caption.txt", "zh=zh.caption.txt"), 2, ["zh.caption.txt", "train=zh.caption.txt"]),
        ("karpathy", ("karpathy.json", "--columns", "text=raw"), 2, ["--columns", "captions-csv", "karpathy.json"]),
        ("captions-csv", ("captions.csv", "--columns", "text=texts"), 4, ["'texts'", "--columns text=text"]),
        ("captions-csv", ("captions.csv", "--columns", "words=said"), 2, ["'words'", "caption_set"]),
        ("captions-csv", ("captions.csv", "--columns", "text=text,lang"), 2, ["lang", "OURS=YOURS"]),
        ("jsonl", ("rows.jsonl", "--columns", "media,text"), 2, ["OURS=YOURS"]),
        ("captions-csv", ("own.csv", "--columns", "text=said", "--set", "header=text:said"), 2, ["--columns", "--set"]),
        ("hashtag", ("en=train.caption.txt", "--split", "auto", "--split", "test=a"), 2, ["auto"]),
        ("hashtag", ("en=train.caption.txt", "--split", "auto:x"), 2, ["auto:SEED", "auto:x"]),
        ("parallel", ("train.en=train.en",), 2, ["train.en", "--ids FILE"]),
        ("parallel", ("test.en=test.en", "--split", "test=all.txt"), 4, ["test.en has 1 lines, and", "2 ids"]),
        ("parallel", ("test.en=test.en", "--ids", "none.txt"), 2, ["none.txt"]),
        ("karpathy", ("none.json", "--lang", "en"), 2, ["there is no none.json"]),
        ("karpathy", ("karpathy.json", "--lang", "English!"), 2, ["'English!'"]),
        (
            "karpathy",
            ("karpathy.json", "--lang", "en", "--ids", "all.txt"),
            2,
            ["--ids", "karpathy"],
        ),
        (
            "karpathy",
            ("karpathy.json", "--lang", "en", "--split", "dog=all.txt"),
            2,
            ["dog=all.txt", "NAME=IDS", "train, val"],
        ),
        ("hashtag", ("en=train.caption.txt", "--split", "test=a", "--split", "test=b"), 2, ["names a split twice"]),
        ("karpathy", ("karpathy.json", "--lang", "en", "--set", "colour=red"), 2, ["has no option 'colour'", "item"]),
        ("captions-csv", ("captions.csv", "--set", "quoted=perhaps"), 2, ["quoted is true or false, not 'perhaps'"]),
        ("captions-csv", ("captions.csv", "--set", "encoding=foo"), 2, ["encoding=foo", "--set encoding=cp1252"]),
        ("captions-csv", ("captions.csv", "--set", "encoding=hex"), 2, ["encoding=hex", "--set encoding=cp1252"]),
        ("captions-csv", ("captions.csv", "--set", "encoding=IDNA"), 2, ["encoding=IDNA", "--set encoding=cp1252"]),
        ("captions-csv", ("captions.csv", "--set", "encoding=punycode"), 2, ["there is no text encoding of that name"]),
        ("captions-csv", ("own.csv", "--set", "header=item_id"), 2, ["expected OURS:THEIRS"]),
        ("karpathy", ("karpathy.json", "--root", "."), 2, ["--root", "--format"]),
        ("captions-csv", ("captions.csv", "--lang", "fr"), 4, ["has no captions in fr, the source language"]),
        (
            "hashtag",
            ("en=train.caption.txt", "--split", "test=zh.caption.txt"),
            4,
            ["train.caption.txt: no list of a split names an item of it"],
        ),
        (
            "hashtag",
            ("en=train.caption.txt", "--split", "train=train.txt", "--split", "test=all.txt"),
            4,
            ["all.txt, line 1: the lists name '-1.jpg' in train and in test"],
        ),
    ],
)
def test_what_is_missing_is_asked_for(
    form: str, arguments: tuple[str, ...], code: int, messages: list[str], files: Path
) -> None:
    done = run(form, *arguments)
    assert (done.code, done.out) == (code, ""), done.err
    for message in messages:
        assert message in done.err, done.err
    assert Workspace(Path("space")).artifacts() == []


def test_columns_media_and_the_media_root(files: Path) -> None:
    more = ("--lang", "en", "--media", "{id}.mp4", "--name", "mine")
    done = run("captions-csv", "train=own.csv", *more, "--set", "header=item_id:video,text:said")
    read = dataset.read(done.made)
    assert done.made.name == "mine" and list(read.items["media"]) == ["-1.mp4"] and set(read.items["kind"]) == {"video"}
    assert dataset.media_root(done.made) == files
    other = run(
        "captions-csv", "train=plain.tsv", "--lang", "en", "--set", "columns=item_id,text,", "--media-root", "/"
    )
    assert other.made.name == "plain" and dataset.media_root(other.made) == Path("/")


def test_what_an_item_is(files: Path) -> None:
    rows = ["a,one,train,a.MP4,", "b,two,train,b.jpg,", "c,three,train,c.jpg,video", "d,four,train,d.mov,image"]
    Path("kinds.csv").write_text("\n".join(["item_id,text,split,media,kind", *rows]), encoding="utf-8")
    made = run("captions-csv", "kinds.csv", "--lang", "en").made
    assert list(dataset.read(made).items["kind"]) == ["video", "image", "video", "image"]
    shown = toy.ccr("data", "describe", "kinds", workspace=Path("space"))
    assert [line.split()[1:] for line in shown.out.splitlines() if line.startswith("kind")] == [
        ["video", "(2),", "image", "(2)"]
    ]
    Path("kinds.jsonl").write_text('{"item_id": "a", "text": "x", "split": "val", "kind": "video"}', encoding="utf-8")
    made = run("jsonl", "kinds.jsonl", "--lang", "en", "--name", "other").made
    assert list(dataset.read(made).items["kind"]) == ["video"]
    Path("films.csv").write_text("item_id,text,split,kind\na,x,val,film\n", encoding="utf-8")
    done = run("captions-csv", "films.csv", "--lang", "en")
    assert done.code == 4 and "films.csv, line 2: kind is image or video, not 'film'" in done.err
    Path("twice.csv").write_text("item_id,text,split,kind\na,x,val,image\na,y,val,video\n", encoding="utf-8")
    done = run("captions-csv", "twice.csv", "--lang", "en")
    assert done.code == 4 and "twice.csv, line 3: the kind of 'a' is video, and before image" in done.err


def test_the_ending_of_a_media_file_does_not_keep_ids_apart(files: Path) -> None:
    Path("de.csv").write_text("item_id,text,lang\n-1,ein Hund,de\nb,eine Katze,de\n", encoding="utf-8")
    Path("en.csv").write_text("item_id,text,lang\n-1.jpg,a dog,en\nb.jpg,a cat,en\nc.jpg,an owl,en\n", encoding="utf-8")
    done = run("captions-csv", "en.csv", "de.csv", *LISTS)
    read = dataset.read(done.made)
    assert done.code == 0 and list(read.items["item_id"]) == ["-1.jpg", "b.jpg"]
    assert sorted(zip(read.captions["item_id"], read.captions["lang"], strict=True)) == [
        (item, lang) for item in ("-1.jpg", "b.jpg") for lang in ("de", "en")
    ]
    assert "1 caption of items that no list" in done.err
    assert "'c.jpg'" in done.err and "'-1.jpg'" in done.err


@pytest.mark.parametrize(
    ("listed", "captions", "message"),
    [
        (("a.jpg", "a.png"), ("a",), "its first id is 'a', the lists' is 'a.jpg'"),
        (("a.jpg",), ("a.png",), "its first id is 'a.png', the lists' is 'a.jpg'"),
        (("a",), ("a.jpg", "a.png"), "'a.jpg' and 'a.png' of the captions would both be 'a' of the lists"),
        (("x",), ("y", "z"), "other.csv: no list of a split names an item of it: its first id is 'y'"),
    ],
)
def test_a_file_that_no_list_names_an_item_of_is_refused(
    listed: tuple[str, ...], captions: tuple[str, ...], message: str, files: Path
) -> None:
    Path("train.txt").write_text("\n".join([*listed, "q"]), encoding="utf-8")
    Path("en.csv").write_text("item_id,text\nq,a dog\n", encoding="utf-8")
    Path("other.csv").write_text("item_id,text\n" + "".join(f"{each},a cat\n" for each in captions), encoding="utf-8")
    done = run("captions-csv", "en=en.csv", "de=other.csv", "--split", "train=train.txt")
    assert done.code == 4 and message in done.err, done.err


def test_media_that_are_not_there_are_said(files: Path) -> None:
    Path("one.csv").write_text("item_id,text,split,media\na,x,train,a.png\nb,y,train,b.png\n", encoding="utf-8")
    Path("pictures").mkdir()
    Path("pictures/a.png").write_bytes(b"")
    done = run("captions-csv", "one.csv", "--lang", "en", "--media-root", "pictures")
    assert done.code == 0 and "1 picture or video is missing" in done.err and str(files / "pictures/b.png") in done.err
    shown = toy.ccr("data", "describe", "one", workspace=Path("space"))
    assert "missing media" in shown.out and "1 of 2 below" in shown.out
    Path("nowhere").mkdir()
    lost = run("captions-csv", "one.csv", "--lang", "en", "--media-root", "nowhere", "--name", "lost")
    assert "2 pictures or videos are missing" in lost.err
    Path("pictures/a.png").unlink()
    done = toy.ccr("extract", "datasets/one", *toy.ENCODER, workspace=Path("space"))
    assert done.code == 1 and "2 of 2 media" in done.err
    assert "a.png" in done.err and str(files / "pictures") in " ".join(done.err.split())


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "x" * 300 + "/b.png"])
def test_a_name_that_no_file_can_have_fails_alone(name: str, files: Path) -> None:
    Path("one.csv").write_text(f"item_id,text,split,media\na,x,train,a.png\nb,y,train,{name}\n", encoding="utf-8")
    toy.draw("red-ring").save("a.png")
    done = run("captions-csv", "one.csv", "--lang", "en")
    assert done.code == 0 and "1 picture or video is missing" in done.err
    assert toy.ccr("data", "describe", "one", workspace=Path("space")).code == 0
    extract = ("extract", "datasets/one", *toy.ENCODER)
    done = toy.ccr(*extract, workspace=Path("space"))
    assert done.code == 1 and "1 of 2 media" in done.err
    done = toy.ccr(*extract, "--max-failed", "0.5", workspace=Path("space"))
    assert done.code == 3 and done.made.counts["failed"] == 1


def test_where_files_lie_is_not_part_of_what_was_asked_for(files: Path) -> None:
    first = run("karpathy", "karpathy.json", "--lang", "en").made
    Path("other").mkdir()
    Path("karpathy.json").rename("other/karpathy.json")
    again = run("karpathy", str(files / "other/karpathy.json"), "--lang", "en", "--media-root", ".")
    assert again.code == 0 and again.made.id == first.id and "keeps its media root" not in again.err
    assert str(files) not in first.file("manifest.toml").read_text(encoding="utf-8")
    changed = run("karpathy", "val=other/karpathy.json", "--lang", "en", "--media-root", ".")
    assert changed.code == 4 and "of karpathy.json" in changed.err


def test_a_name_with_an_equals_sign_is_a_path(files: Path) -> None:
    Path("train=x.json").write_bytes(Path("coco.json").read_bytes())
    done = run("coco", "train=x.json", "--lang", "en", "--split", "train=all.txt")
    assert done.code == 4 and "nothing" not in done.err, "its item is in no list"
    assert run("coco", "train=train=x.json", "--lang", "en").code == 0


def test_options_are_explained(files: Path) -> None:
    done = run("captions-csv", "captions.csv", "--set", "help")
    rows = {line.split("\t")[0]: line.split("\t")[2] for line in done.out.splitlines()}
    assert done.code == 0 and rows["delimiter"].startswith("Separator of fields")
    assert run("vatex", "vatex.json", "--set", "help").code == 0


def test_gzip_line_ends_and_blank_captions(files: Path) -> None:
    text = "\ufeffa dog\r\n \u00a0\na\u00a0cat\u2028or two"
    Path("odd.en.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    Path("odd.txt").write_bytes(lines("1", "2", "3", end=""))
    done = run("parallel", "train.en=odd.en.gz", "--ids", "odd.txt")
    assert done.code == 3 and done.made.counts["failed"] == 1
    failed = json.loads(done.made.file("failures.jsonl").read_text(encoding="utf-8"))
    assert failed["message"] == "empty caption (odd.en.gz, line 2)" and failed["id"] == "2#en#0"
    assert list(dataset.read(done.made).captions["text"]) == ["a dog", "a\u00a0cat\u2028or two"]


def test_another_encoding_is_named_with_file_and_line(files: Path) -> None:
    Path("latin.en").write_bytes("a dog\neine K\u00e4tze\n".encode("latin-1"))
    done = run("parallel", "train.en=latin.en", "--ids", "all.txt")
    assert done.code == 4 and "latin.en, line 2: not UTF-8 at byte 7" in done.err


@pytest.mark.parametrize("name", ["utf-16", "UTF-16", "utf16"])
def test_utf_16_may_be_written_in_several_ways(name: str, files: Path) -> None:
    Path("own.csv").write_text("item_id,text,split,lang\na,ein Käfig,train,en\n", encoding="utf-16")
    done = run("captions-csv", "own.csv", "--set", f"encoding={name}")
    assert done.code == 0 and list(dataset.read(done.made).captions["text"]) == ["ein Käfig"]


def test_two_captions_of_one_number_are_refused(files: Path) -> None:
    Path("twice.txt").write_text("a#en#0 one\na#en#1 two\na#en#0 three\n", encoding="utf-8")
    done = run("hashtag", "train.en=twice.txt")
    assert done.code == 4
    assert "'a' has two captions of number 0 in en: twice.txt, line 1 and twice.txt, line 3" in done.err


def test_an_item_is_in_one_split_alone(files: Path) -> None:
    done = run("hashtag", "train.en=train.caption.txt", "test.en=train.caption.txt")
    assert done.code == 4 and "train.caption.txt, line 1: '-1.jpg' is in test, and in train" in done.err


def test_a_split_may_be_called_as_files_call_it(files: Path) -> None:
    done = run("hashtag", "dev.en=train.caption.txt")
    items = dataset.read(done.made).items
    assert done.code == 0 and set(items["split"]) == {"val"}
    listed = run("hashtag", "en=train.caption.txt", "--split", "Validation=train.txt", "--name", "listed")
    assert list(dataset.read(listed.made).items["split"]) == ["val"] * len(Path("train.txt").read_text().split())
