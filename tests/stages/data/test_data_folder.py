"""Importing a folder: what is taken over, and what is refused with file and line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import SPLITS, items_of
from ccr_cli.errors import UsageError


def test_everything_is_taken_over(sources: Chain) -> None:
    made = sources.find("dataset")
    read, folder = dataset.read(made), toy.toy()
    assert read.items["item_id"].to_list() == [item[0] for item in folder.items]
    assert read.captions["text"].to_list() == [caption[4] for caption in folder.captions]
    assert read.languages() == ["en", "es"]
    assert made.counts == {
        "captions.en": 96,
        "captions.es": 24,
        "failed": 0,
        "items.test": 12,
        "items.train": 24,
        "items.val": 12,
    }
    assert made.has("translations/hand-en-es.tsv") and not made.parents
    assert dataset.media_root(made) == sources.folder / "media"


def test_bundled_pictures_are_copied_and_move_with_the_workspace(tmp_path: Path) -> None:
    made = toy.ok("data", "import", "twemoji", workspace=tmp_path / "first").made
    (tmp_path / "first").rename(tmp_path / "second")
    moved = base.load(tmp_path / "second" / "datasets" / made.name)
    root = dataset.media_root(moved)
    assert root == moved.path / "media" and base.verify(moved) == []
    assert all((root / media).is_file() for media in dataset.read(moved).items["media"])


def test_name_and_media_root(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    call = ("data", "import", folder, "--name", "Mine and/yours", "--media-root", tmp_path / "pictures")
    made = toy.ok(*call, workspace=tmp_path / "workspace").made
    assert made.name == "Mine-and--yours" and dataset.media_root(made) == tmp_path / "pictures"


def test_a_changed_folder_is_another_data_set(folder: Path, tmp_path: Path) -> None:
    source, root = tmp_path / "toy", tmp_path / "workspace"
    shutil.copytree(folder, source)
    first = toy.ok("data", "import", source, workspace=root).made
    captions = source / "captions.tsv"
    captions.write_text(captions.read_text().replace("red circle", "crimson circle"))
    done = toy.ccr("data", "import", source, workspace=root)
    assert done.code == 4 and "captions.tsv" in done.err and "--force" in done.err
    second = toy.ok("data", "import", source, "--force", workspace=root).made
    assert second.path == first.path and second.id != first.id


def replace(file: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) >= 1
        (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8", newline="")

    return change


def raw(file: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_bytes(content)


ITEM = "red-circle\ttrain\timage\tred-circle.png\t0\tred-circle"
CAPTION = "red-circle-en0\tred-circle\ten\t0\tred circle\tmain"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "manifest.toml").unlink(), "manifest.toml is missing"),
        (lambda folder: (folder / "items.tsv").unlink(), "items.tsv"),
        (lambda folder: (folder / "captions.tsv").unlink(), "captions.tsv"),
        (raw("manifest.toml", b"name = "), "manifest.toml is not valid TOML"),
        (raw("manifest.toml", b'name = "toy"\n'), "lacks the key 'source_lang'"),
        (raw("manifest.toml", b'name = "toy"\nsource_lang = "English"\n'), "'English'"),
        (raw("items.tsv", b""), "items.tsv, line 1: the header is"),
        (raw("captions.tsv", b"\xff\xfe"), "captions.tsv, line 1: not UTF-8"),
        (replace("items.tsv", "label", "class"), "items.tsv, line 1: the header is"),
        (replace("items.tsv", ITEM, ITEM + "\tmore"), "items.tsv, line 2: 7 fields, expected 6"),
        (replace("items.tsv", ITEM, f"{ITEM}\n{ITEM}"), "items.tsv, line 3: item_id 'red-circle' is a duplicate"),
        (replace("items.tsv", ITEM, ITEM.replace("train", "dev")), "items.tsv, line 2: split 'dev'"),
        (replace("items.tsv", ITEM, ITEM.replace("\timage\t", "\taudio\t")), "kind 'audio'"),
        (replace("items.tsv", ITEM, ITEM.replace("\t0\t", "\tone\t")), "items.tsv, line 2: label 'one'"),
        (
            replace("items.tsv", ITEM, ITEM.replace("\tred-circle", "\tred-square")),
            "'red-square' lies in more than one",
        ),
        (replace("captions.tsv", CAPTION, f"{CAPTION}\n{CAPTION}"), "captions.tsv, line 3: caption_id"),
        (
            replace("captions.tsv", CAPTION, CAPTION.replace("\tred-circle\t", "\tpink-circle\t")),
            "unknown item 'pink-circle'",
        ),
        (
            replace("captions.tsv", CAPTION, CAPTION.replace("\ten\t", "\tenglish!\t")),
            "'english!' is not a language tag",
        ),
        (replace("captions.tsv", CAPTION, CAPTION.replace("\t0\t", "\t-1\t")), "k is a whole number"),
        (replace("manifest.toml", "default", "[counts.items]\ntrain = 25\n#"), "25 items in train expected, 24 found"),
        (replace("manifest.toml", "default", 'parallel.main = "human"\n#'), "the caption set 'human'"),
        (replace("manifest.toml", "default", 'parallel = ["main"]\n#'), "[parallel] maps"),
        (
            replace("manifest.toml", "default", '[[files]]\npath = "items.tsv"\nsha256 = "0"\n#'),
            "items.tsv differs from the manifest: sha256 0 expected",
        ),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[Path], object], message: str, folder: Path, tmp_path: Path) -> None:
    source, root = tmp_path / "toy", tmp_path / "workspace"
    shutil.copytree(folder, source)
    change(source)
    for command in ("import", "verify", "show"):
        done = toy.ccr("data", command, source, workspace=None if command == "verify" else root)
        assert (done.code, done.out) == (4, ""), command
        assert message in done.err, done.err
    assert Workspace(root).artifacts() == []


def test_spaces_line_ends_and_composed_letters(tmp_path: Path) -> None:
    """A byte order mark and CRLF do no harm; captions are brought into one form of Unicode."""
    folder = toy.toy()
    folder.captions[0][4] = "a cafe\u0301 \\ in\tred\nand blue"
    place = folder.write(tmp_path / "toy")
    for file in ("items.tsv", "captions.tsv"):
        text = (place / file).read_text(encoding="utf-8")
        (place / file).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    made = toy.ok("data", "import", place, workspace=tmp_path / "workspace").made
    assert dataset.read(made).captions["text"].iloc[0] == "a café \\ in\tred\nand blue"


def test_optional_columns_may_be_missing(folder: Path, tmp_path: Path) -> None:
    whole, short = tmp_path / "whole", tmp_path / "short"
    for place, kept in ((whole, 6), (short, 5)):
        shutil.copytree(folder, place)
        rows = [line.split("\t") for line in (place / "captions.tsv").read_text(encoding="utf-8").splitlines()]
        emptied = [rows[0], *([*row[:5], ""] for row in rows[1:])]
        (place / "captions.tsv").write_text("".join("\t".join(row[:kept]) + "\n" for row in emptied), "utf-8")
        rows = [line.split("\t") for line in (place / "items.tsv").read_text(encoding="utf-8").splitlines()]
        emptied = [rows[0], *([*row[:4], "", ""] for row in rows[1:])]
        (place / "items.tsv").write_text("".join("\t".join(row[: 2 * kept - 6]) + "\n" for row in emptied), "utf-8")
    one, two = (toy.ok("data", "import", path, workspace=tmp_path / f"of-{path.name}").made for path in (whole, short))
    for table in ("items.parquet", "captions.parquet"):
        assert one.file(table).read_bytes() == two.file(table).read_bytes()
    assert set(dataset.read(two).captions["caption_set"]) == {"human"}
    assert dataset.read(two).items["label"].isna().all()


def test_halves_of_validation(sources: Chain) -> None:
    items = dataset.read(sources.find("dataset")).items
    parts = {split: set(items_of(items, split)["item_id"]) for split in SPLITS}
    assert parts["val-select"] | parts["val-report"] == parts["val"]
    assert not parts["val-select"] & parts["val-report"] and all(parts.values())
    assert parts["train"] | parts["val"] | parts["test"] == set(items["item_id"])
    shuffled = items.sample(frac=1.0, random_state=1)
    assert set(items_of(shuffled, "val-select")["item_id"]) == parts["val-select"]
    grouped = items.assign(group="one group")
    assert {len(items_of(grouped, half)) for half in ("val-select", "val-report")} == {0, 12}
    with pytest.raises(UsageError, match="'dev'"):
        items_of(items, "dev")
