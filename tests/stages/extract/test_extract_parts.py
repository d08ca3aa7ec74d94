"""Many workers for one set of features: whatever their number and order, and however often they were stopped."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy
import videos
from torch import Tensor
from toy import Outcome

from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.build import PLAN
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.extract import write_features
from ccr_cli.stages.extract.write_features import Pieces
from ccr_cli.stages.shared.media import MediaReader, Medium

EXTRACT = ("extract", *toy.ENCODER)
SMALL_PIECES = """
import sys
from ccr_cli.artifacts import features
from ccr_cli.stages.extract import write_features
features.SHARD_ITEMS, write_features.PICTURES, write_features.VIDEOS = 24, 5, 2
from ccr_cli.cli import main
main()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(features, "SHARD_ITEMS", 24)
    monkeypatch.setattr(write_features, "PICTURES", 5)
    toy.ok("data", "import", toy.toy().write(tmp_path / "toy"), workspace=tmp_path / "workspace")
    return tmp_path / "workspace"


def single(root: Path) -> base.Artifact:
    """What one worker makes."""
    return toy.ok(*EXTRACT, "--name", "single", workspace=root).made


def beside(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "features" / "toy").iterdir())


@pytest.mark.parametrize(
    "order",
    [pytest.param((1,), marks=pytest.mark.slow), (2, 1), pytest.param((7, 2, 4, 6, 1, 3, 5), marks=pytest.mark.slow)],
)
def test_parts_in_any_order_make_one_artifact(order: tuple[int, ...], root: Path) -> None:
    wanted = single(root)
    for number in order:
        done = toy.ok(*EXTRACT, "--shard", f"{number}/{len(order)}", "--name", "mine", workspace=root)
        assert done.out == "" and f"part {number} of {len(order)}: " in done.err and "items are encoded" in done.err
        assert beside(root) == ["mine.parts", "single"]
    for picture in (root / "datasets" / "toy").rglob("*.png"):
        picture.unlink()  # nothing is left to encode
    media = root.parent / "toy" / "media"
    shutil.rmtree(media)
    media.mkdir()
    made = toy.ok(*EXTRACT, "--name", "mine", workspace=root).made
    assert made.files == wanted.files and made.id != "" and beside(root) == ["mine", "single"]
    done = toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    assert "mine" in done.err


def test_a_part_that_is_missing_is_made_up_for(root: Path) -> None:
    wanted = single(root)
    for number in (1, 3):
        toy.ok(*EXTRACT, "--shard", f"{number}/3", "--name", "mine", workspace=root)
    assert toy.ok(*EXTRACT, "--name", "mine", workspace=root).made.files == wanted.files


def test_what_a_part_says(root: Path) -> None:
    media = root.parent / "toy" / "media"
    (media / "red-ring.png").write_bytes(b"")
    done = toy.ok(*EXTRACT, "--shard", "1/1", "--json", workspace=root)
    told = json.loads(done.out)
    assert told["shard"] == "1/1" and told["extracted"] == {"items": 47, "failed": 1} and told["made"] == []
    done = toy.ok(*EXTRACT, "--shard", "40/40", workspace=root)
    assert "part 40 of 40: 0 items" in done.err and "10 groups of 5 items" in done.err
    made = toy.ccr(*EXTRACT, workspace=root)
    assert made.code == 3 and made.made.counts["failed"] == 1
    toy.draw("red-ring").save(media / "red-ring.png")
    mended = toy.ok(*EXTRACT, "--retry-failed", workspace=root).made
    assert mended.counts["failed"] == 0
    assert list(features.read_index(mended)["n_rows"]) == [1] * 48


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", ""])
def test_parts_that_are_none(shard: str, root: Path) -> None:
    done = toy.ccr(*EXTRACT, f"--shard={shard}", workspace=root)
    assert (done.code, done.out) == (2, "") and "--shard" in done.err


@pytest.mark.parametrize("option", ["--force", "--retry-failed"])
def test_what_does_not_go_with_parts(option: str, root: Path) -> None:
    done = toy.ccr(*EXTRACT, "--shard", "1/2", option, workspace=root)
    assert (done.code, done.out) == (2, "") and option in done.err


@pytest.mark.slow
def test_parts_of_other_options_do_not_mix(root: Path) -> None:
    toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    other = ("--set", "image_size=64", "--name", "mine")
    for more in ((), ("--shard", "2/2")):
        done = toy.ccr(*EXTRACT, *other, *more, workspace=root)
        assert done.code == 4 and "mine.parts" in done.err
    assert toy.ok(*EXTRACT, "--name", "mine", workspace=root).made.files == single(root).files


def test_an_attempt_that_came_to_nothing_leaves_nothing(root: Path) -> None:
    away = root.parent / "toy" / "media"
    away.rename(away.with_name("away"))
    assert toy.ccr(*EXTRACT, workspace=root).code == 4
    assert beside(root) == []
    assert toy.ccr(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root).code == 4
    away.with_name("away").rename(away)
    assert toy.ok(*EXTRACT, "--set", "image_size=64", "--name", "mine", workspace=root).made.counts["items"] == 48


def test_parts_of_another_encoder_do_not_mix(root: Path) -> None:
    toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    about = root / "features" / "toy" / "mine.parts" / "encoder.json"
    told = base.read_json(about)
    about.write_text(json.dumps({**told, "weights_sha256": "other"}))
    for more in ((), ("--shard", "2/2")):
        done = toy.ccr(*EXTRACT, "--name", "mine", *more, workspace=root)
        assert done.code == 4 and "weights_sha256: 'other' there" in done.err
    assert toy.ok(*EXTRACT, "--name", "mine", "--force", workspace=root).made.files == single(root).files


def test_a_part_at_work_keeps_others_out(root: Path) -> None:
    toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    pieces = root / "features" / "toy" / "mine.parts"
    job = write_features.Pieces(pieces, pieces.with_name("mine"), [], 5)
    with job.claim_part("2-of-2"):
        for more in (("--shard", "2/2"), ()):
            done = toy.ccr(*EXTRACT, "--name", "mine", *more, workspace=root)
            assert done.code == 7 and "part-2-of-2" in done.err, done.err
    toy.ok(*EXTRACT, "--name", "mine", workspace=root)
    assert beside(root) == ["mine"]


def test_force_leaves_a_part_at_work_alone(root: Path) -> None:
    toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    pieces = root / "features" / "toy" / "mine.parts"
    there = toy.digests(pieces)
    with write_features.Pieces(pieces, pieces.with_name("mine"), [], 5).claim_part("2-of-2"):
        done = toy.ccr(*EXTRACT, "--name", "mine", "--force", workspace=root)
        assert done.code == 7 and "part-2-of-2" in done.err, done.err
        assert there.items() <= toy.digests(pieces).items() and (pieces / "part-2-of-2.lock").is_file()
    assert toy.ok(*EXTRACT, "--name", "mine", "--force", workspace=root).made.files == single(root).files


@pytest.mark.parametrize(("purpose", "goes"), [("", True), ("force", False), ("retry", False), ("force 0", True)])
def test_a_complete_artifact_leaves_a_rebuild_alone(purpose: str, goes: bool, root: Path) -> None:
    made = single(root)
    pieces = write_features.Pieces(made.path.with_name("single.parts"), made.path, [], 5)
    pieces.prepare({}, purpose if goes else pieces.replacing(purpose))
    with pieces.opening():
        assert single(root) == made and pieces.folder.is_dir(), "another process is at work"
    with pieces.claim_part("1-of-2"):
        assert single(root) == made and pieces.folder.is_dir()
    assert single(root) == made and pieces.folder.is_dir() != goes, "a rebuild that was stopped resumes"


def test_of_encoders_that_begin_at_once_one_is_noted(root: Path) -> None:
    """Both ask before either has made a piece; what slips through nevertheless is found in the pieces."""
    place = root / "pieces"
    pieces = write_features.Pieces(place, root / "mine", ["a", "b"], 1)
    pieces.prepare({})
    first = pieces.by({"revision": "1", "dim": 2})
    with pytest.raises(ArtifactError, match=r"revision: '1' .*'2'"):
        pieces.by({"revision": "2", "dim": 2})
    assert pieces.about()["revision"] == "1"
    assert sorted(path.name for path in place.iterdir()) == [".plan.json", "encoder.json"], "no draft is left"
    for number, own in enumerate((first, replace(first, encoder="of another"))):
        writer = own.begin(number)
        own.end(number, writer, [writer.add(np.ones((1, 2), np.float16))], [None])
    with pytest.raises(ArtifactError, match=r"000000001\.piece$"):
        pieces.write_shards(root)
    assert not list(root.glob("*.npy"))
    shutil.rmtree(place)
    with pytest.raises(FileNotFoundError):
        pieces.by({"revision": "1", "dim": 2})
    assert not place.exists(), "pieces in a folder without its plan would pass for those of any"


def test_a_part_that_gives_up_leaves_the_others_theirs(root: Path) -> None:
    media = root.parent / "toy" / "media"
    items = sorted(media.iterdir())
    for picture in items:
        picture.rename(picture.with_suffix(".away"))
    toy.ok(*EXTRACT, "--shard", "1/2", "--name", "mine", "--max-failed", "1", workspace=root)
    pieces = root / "features" / "toy" / "mine.parts"
    theirs = sorted(pieces.glob("*.piece"))
    done = toy.ccr(*EXTRACT, "--shard", "2/2", "--name", "mine", workspace=root)
    assert done.code == 1 and len(theirs) == len(list(pieces.glob("*.again"))) == 5
    assert sorted(pieces.glob("*.piece")) == theirs


def test_a_folder_that_vanishes_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = root / "features" / "toy" / "mine.parts"
    read = MediaReader.read

    def removing(self: MediaReader, medium: Medium) -> Generator[Tensor, None, str | None]:
        shutil.rmtree(pieces, ignore_errors=True)
        return read(self, medium)

    monkeypatch.setattr(MediaReader, "read", removing)
    done = toy.ccr(*EXTRACT, "--shard", "1/2", "--name", "mine", workspace=root)
    assert done.code == 4 and "mine.parts was removed" in done.err


@pytest.mark.slow
def test_force_takes_nothing_of_before(root: Path) -> None:
    first = single(root)
    toy.draw("blue-bar").save(root.parent / "toy" / "media" / "red-ring.png")
    assert toy.ok(*EXTRACT, "--name", "single", workspace=root).made == first
    again = toy.ok(*EXTRACT, "--name", "single", "--force", workspace=root).made
    assert again.files != first.files and beside(root) == ["single"]


@pytest.mark.parametrize("left", [(), (PLAN,)])
def test_force_takes_nothing_of_a_rebuild_killed_at_its_end(
    left: tuple[str, ...], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its final name, and none of its pieces is removed, or their plan alone."""
    first, forced = single(root), (*EXTRACT, "--name", "single", "--force")
    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "remove", lambda pieces: [(pieces.folder / name).unlink(True) for name in left])
        assert toy.ok(*forced, workspace=root).made.files == first.files
    assert list((root / "features/toy/single.parts").glob("*.piece"))
    toy.draw("blue-bar").save(root.parent / "toy" / "media" / "red-ring.png")
    assert toy.ok(*forced, workspace=root).made.files != first.files and beside(root) == ["single"]


def test_no_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    done = toy.ccr(*EXTRACT, workspace=root)
    assert (done.code, done.out) == (6, "") and "0.2 MiB" in done.err


@pytest.mark.slow
def test_ranks_of_torchrun_share_the_work(root: Path, tmp_path: Path) -> None:
    wanted = single(root)
    program = tmp_path / "small_pieces.py"
    program.write_text(SMALL_PIECES)
    done = toy.torchrun(program, root, *EXTRACT, "--name", "mine")
    assert done.code == 0, done.err
    assert [path.name for path in done.paths] == ["toy", "mine"], "once"
    assert done.made.files == wanted.files and beside(root) == ["mine", "single"]
    again = toy.torchrun(program, root, *EXTRACT, "--name", "mine")
    assert again.code == 0 and again.made == done.made
    forced = toy.torchrun(program, root, *EXTRACT, "--name", "mine", "--force")
    assert forced.code == 0 and forced.made.files == wanted.files


@pytest.mark.slow
def test_killed_at_any_moment_and_gone_on_with(tmp_path: Path) -> None:
    """Videos, one part after the other killed, then the rest: the bytes of an undisturbed extraction."""
    folder = toy.Folder("clips")
    for number in range(16):
        item = f"v{number:02d}"
        folder.items.append([item, "train", "video", f"{item}.mp4", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
    place = folder.write(tmp_path / "clips", pictures=False)
    for number in range(16):
        path = videos.write_video(place / "media" / f"v{number:02d}.mp4", 20 + number, front=True)
        if number == 5:
            path.write_bytes(b"nothing")
    root = tmp_path / "workspace"
    toy.ok("data", "import", place, workspace=root)
    call = ("extract", "--encoder", "efficientnet-lite0", "--set", "image_size=128", "--set", "fps=10", "--name")

    def run(*options: str) -> Outcome:
        process = toy.python(SMALL_PIECES, *call, *options, workspace=root)
        out, err = process.communicate(timeout=300)
        return Outcome(process.returncode, out, err)

    undisturbed = run("undisturbed")
    assert undisturbed.code == 3, undisturbed.err
    pieces = root / "features" / "clips" / "mine.parts"
    dice = random.Random(3)
    reached = 0
    for shard in ((), ("--shard", "2/2"), (), ("--shard", "1/2")):
        process = toy.python(SMALL_PIECES, *call, "mine", *shard, workspace=root)
        while len(list(pieces.glob("*.piece"))) < reached + 1 and process.poll() is None:
            time.sleep(0.001)
        time.sleep(dice.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert len(list(pieces.glob("*.piece"))) >= reached, "nothing is lost"
        reached = len(list(pieces.glob("*.piece")))
    assert reached >= 2
    done = run("mine")
    assert done.code == 3, done.err
    assert done.made.files == undisturbed.made.files
    assert sorted(path.name for path in pieces.parent.iterdir()) == ["mine", "undisturbed"]
