"""Extraction: pictures that cannot be had, pictures from elsewhere, stopping and going on."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from PIL import Image
from toy import Chain, Outcome

from ccr_cli.artifacts import base, features
from ccr_cli.data.video import MAX_PIXELS
from ccr_cli.stages.extract import write_features

EXTRACT = ("extract", *toy.ENCODER)


class Source:
    """A data set whose pictures a test may damage."""

    def __init__(self, folder: toy.Folder, place: Path) -> None:
        self.media, self.root = place / "toy" / "media", place / "workspace"
        self.data = toy.ok("data", "import", folder.write(place / "toy"), workspace=self.root).made

    def extract(self, *options: str) -> Outcome:
        return toy.ccr(*EXTRACT, *options, workspace=self.root)

    def failures(self, made: base.Artifact) -> list[dict[str, Any]]:
        return [json.loads(line) for line in made.file(base.FAILURES).read_text().splitlines()]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(toy.toy(), tmp_path)


def rows_of(made: base.Artifact) -> dict[str, bytes]:
    """The vector of every item that has one."""
    block = np.load(made.file("00000.npy"), allow_pickle=False)
    index = features.read_index(made)
    good = index[index["n_rows"] == 1]
    return {item: block[row].tobytes() for item, row in zip(good["item_id"], good["first_row"], strict=True)}


def assert_alike(ours: base.Artifact, theirs: base.Artifact) -> None:
    """Equal up to the rounding that batches of another size bring."""
    first, second = rows_of(ours), rows_of(theirs)
    assert first.keys() == second.keys()
    for item, row in first.items():
        a, b = (np.frombuffer(raw, dtype=np.float16).astype(float) for raw in (row, second[item]))
        assert a @ b >= 0.99999 * np.linalg.norm(a) * np.linalg.norm(b), item
        np.testing.assert_allclose(a, b, atol=0.01)


def test_every_item_has_its_own_row(sources: Chain) -> None:
    made = sources.find("features")
    names = {f.path for f in made.files}
    assert names == {"00000.npy", "index.parquet", "encoder.json"}
    rows = rows_of(made)
    assert len(rows) == made.counts["items"] == 48 and len(set(rows.values())) == 48
    about = set(base.read_json(made.file("encoder.json")))
    assert about >= {"model", "preprocessing"} and not about & {*features.OF_VIDEOS}, "of pictures nothing is sampled"


def test_a_damaged_picture_is_recorded_and_tried_again(source: Source, sources: Chain) -> None:
    good = (source.media / "red-ring.png").read_bytes()
    (source.media / "red-ring.png").write_bytes(good[:60])
    (source.media / "blue-bar.png").unlink()
    done = source.extract()
    assert done.code == 3 and "2 failed" in done.err and "--retry-failed" in done.err
    first = done.made
    assert (first.counts["failed"], first.counts["rows"]) == (2, 46) and base.verify(first) == []
    found = {f["id"]: f for f in source.failures(first)}
    assert set(found) == {"red-ring", "blue-bar"}
    assert all(f["stage"] == "extract" and f["attempt"] == 1 for f in found.values())
    assert found["blue-bar"]["error"] == "FileNotFound" and found["red-ring"]["error"] != "FileNotFound"

    assert source.extract().code == 3, "without --retry-failed nothing is done again"
    (source.media / "red-ring.png").write_bytes(good)
    kept = {item: row for item, row in rows_of(first).items() if item not in found}
    for item in kept:
        (source.media / f"{item}.png").unlink()
    done = source.extract("--retry-failed")
    assert done.code == 3
    second = done.made
    assert [(f["id"], f["attempt"]) for f in source.failures(second)] == [("blue-bar", 2)]
    rows = rows_of(second)
    assert {item: rows[item] for item in kept} == kept and set(rows) - set(kept) == {"red-ring"}

    toy.draw("blue-bar").save(source.media / "blue-bar.png")
    third = source.extract("--retry-failed")
    assert third.code == 0 and not third.made.has(base.FAILURES)
    assert_alike(third.made, sources.find("features"))
    assert list(features.read_index(third.made)["item_id"]) == list(
        features.read_index(sources.find("features"))["item_id"]
    )


def test_retry_without_failures_does_no_work(workspace: Chain) -> None:
    made = workspace.find("features")
    stamp = (made.path / base.RECORD).stat().st_mtime_ns
    assert toy.ok(*EXTRACT, "--retry-failed", workspace=workspace.root).made.id == made.id
    assert (made.path / base.RECORD).stat().st_mtime_ns == stamp


def test_retry_of_other_options_is_refused(source: Source) -> None:
    (source.media / "red-ring.png").unlink()
    assert source.extract("--name", "mine").code == 3
    done = source.extract("--name", "mine", "--retry-failed", "--set", "image_size=64")
    assert done.code == 4 and "image_size: 32 there, 64 in this request" in done.err


def test_too_many_failures_stop_and_what_succeeded_is_kept(source: Source, sources: Chain) -> None:
    away = source.media.with_name("away")
    shutil.copytree(source.media, away)
    for picture in sorted(source.media.iterdir())[:20]:
        picture.write_bytes(b"")
    done = source.extract()
    assert (done.code, done.out) == (1, "")
    assert "20 of 48 items failed, more than --max-failed 0.2" in done.err
    for picture in away.iterdir():
        shutil.copy(picture, source.media)
    done = source.extract()
    assert done.code == 0 and done.made.counts["failed"] == 0
    assert rows_of(done.made).keys() == rows_of(sources.find("features")).keys()
    assert source.extract("--max-failed", "1").made.id == done.made.id


@pytest.mark.parametrize("how", ["dots", "absolute", "link"])
def test_a_picture_outside_of_the_media_root_is_refused(how: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    toy.draw("red-ring").save(secret)
    folder = toy.toy()
    row = next(item for item in folder.items if item[0] == "red-ring")
    row[3] = {"dots": "../../secret.png", "absolute": str(secret), "link": "link.png"}[how]
    source = Source(folder, tmp_path / "in") if how == "link" else _outside(folder, tmp_path)
    if how == "link":
        (source.media / "link.png").unlink()
        (source.media / "link.png").symlink_to(secret)
    done = source.extract()
    assert done.code == 3
    (found,) = source.failures(done.made)
    assert (found["id"], found["error"]) == ("red-ring", "OutsideMediaRoot")
    assert toy.ccr(*EXTRACT, "--name", "wider", "--media-root", tmp_path, workspace=source.root).code in (1, 3)


def _outside(folder: toy.Folder, tmp_path: Path) -> Source:
    """Draws the pictures that lie inside, and leaves the one outside as it is."""
    (tmp_path / "in").mkdir()
    place = folder.write(tmp_path / "drawn", pictures=False)
    for item in folder.items:
        if item[0] != "red-ring":
            toy.draw(item[0]).save(place / "media" / item[3])
    source = Source.__new__(Source)
    source.media, source.root = place / "media", tmp_path / "in" / "workspace"
    source.data = toy.ok("data", "import", place, workspace=source.root).made
    return source


def test_the_pixel_limit(source: Source) -> None:
    Image.new("1", (9000, 8000)).save(source.media / "red-ring.png")
    assert MAX_PIXELS < 9000 * 8000
    done = source.extract()
    assert done.code == 3
    (found,) = source.failures(done.made)
    assert (found["id"], found["error"]) == ("red-ring", "TooLarge")
    assert found["message"].startswith("9000 x 8000 pixels")


def test_kinds_of_pictures_that_have_no_frame_to_read(source: Source) -> None:
    """Text, an empty file, a folder, a pipe, and one that is not what its name says (which is fine)."""
    (source.media / "red-ring.png").write_text("<svg/>")
    (source.media / "red-bar.png").write_bytes(b"")
    (source.media / "red-cross.png").unlink()
    (source.media / "red-cross.png").mkdir()
    (source.media / "red-square.png").unlink()
    os.mkfifo(source.media / "red-square.png")
    toy.draw("red-circle").convert("L").save(source.media / "red-circle.png", format="JPEG")
    done = source.extract()
    assert done.code == 3
    found = {f["id"]: f for f in source.failures(done.made)}
    unread = "UnidentifiedImageError"
    wanted = {"red-ring": unread, "red-bar": unread, "red-cross": "NoFile", "red-square": "NoFile"}
    assert {item: f["error"] for item, f in found.items()} == wanted
    assert found["red-ring"]["message"] == "red-ring.png: cannot identify image file 'red-ring.png'"
    assert all(str(source.media) not in f["message"] for f in found.values())


def test_media_that_are_elsewhere(source: Source, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    source.media.rename(moved)
    done = source.extract()
    assert (done.code, done.out) == (4, "") and "--media-root FOLDER" in done.err
    assert source.extract("--media-root", str(moved)).code == 0


def test_bytes_do_not_depend_on_batches_beyond_rounding(workspace: Chain) -> None:
    made = toy.ok(*EXTRACT, "--batch-size", "5", "--name", "fives", workspace=workspace.root).made
    again = toy.ok(*EXTRACT, "--batch-size", "5", "--name", "again", workspace=workspace.root).made
    assert made.files == again.files
    assert_alike(made, workspace.find("features", "lite0"))


SMALL_SHARDS = """
from ccr_cli.artifacts import features
from ccr_cli.stages.extract import write_features
features.SHARD_ITEMS, write_features.PICTURES = 8, 4
from ccr_cli.cli import main
main()
"""


@pytest.mark.slow
def test_killed_and_gone_on_with(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of four pictures; the process is killed once some of them are there."""
    options = (*EXTRACT, "--set", "image_size=128", "--name")
    parts = source.root / "features" / "toy" / "mine.parts"
    process = toy.python(SMALL_SHARDS, *options, "mine", workspace=source.root)
    while len(list(parts.glob("*.piece"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.kill()
    process.communicate()
    reached = sorted(int(path.stem) for path in parts.glob("*.piece"))
    assert 2 <= len(reached) < 12 and not parts.with_name("mine").exists()

    monkeypatch.setattr(features, "SHARD_ITEMS", 8)
    monkeypatch.setattr(write_features, "PICTURES", 4)
    items = features.read_index(toy.ok(*options, "whole", workspace=source.root).made)["item_id"]
    for number in [at for first in reached for at in range(first, first + 4)]:
        (source.media / f"{items[number]}.png").unlink()
    made = toy.ok(*options, "mine", workspace=source.root).made
    whole = base.load(made.path.with_name("whole"))
    assert len([f for f in whole.files if f.path.endswith(".npy")]) == 6
    assert made.files == whole.files
    assert sorted(os.listdir(made.path.parent)) == ["mine", "whole"]
