"""Extraction of videos: which frames become rows, what damage becomes of, media that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import toy
import transformers
import videos
from toy import Outcome

from ccr_cli.artifacts import base, features
from ccr_cli.data import video
from ccr_cli.nets.inception_i3d import InceptionI3d
from ccr_cli.stages.shared import media

EXTRACT = ("extract", *toy.ENCODER)


class Videos:
    """A data set of videos that a test puts together, file by file."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place / "clips", place / "workspace"
        self.media = self.place / "media"
        self.folder = toy.Folder("clips")
        self.media.mkdir(parents=True)

    def add(self, item: str, media: str, kind: str = "video") -> Path:
        """Adds an item, and returns where its file goes."""
        self.folder.items.append([item, "train", kind, media, "", item])
        self.folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
        return self.media / media

    def extract(self, *options: str | Path) -> Outcome:
        if not (self.root / "datasets").is_dir():
            (self.media).rename(self.place.with_name("kept"))
            self.place.rmdir()
            self.folder.write(self.place, pictures=False)
            (self.place / "media").rmdir()
            self.place.with_name("kept").rename(self.media)
            toy.ok("data", "import", self.place, workspace=self.root)
        return toy.ccr(*(options if options and options[0] == "extract" else (*EXTRACT, *options)), workspace=self.root)


@pytest.fixture
def source(tmp_path: Path) -> Videos:
    return Videos(tmp_path)


def rows_of(made: base.Artifact) -> dict[str, npt.NDArray[np.float32]]:
    """All rows of every item that has some."""
    index = features.read_index(made)
    items = list(index.loc[index["n_rows"] > 0, "item_id"])
    rows, offsets, kept = features.read_rows(made, items, pooled=False)
    return {item: rows[offsets[at] : offsets[at + 1]] for at, item in enumerate(kept)}


def failures(made: base.Artifact) -> dict[str, dict[str, Any]]:
    return {found["id"]: found for found in map(json.loads, made.file(base.FAILURES).read_text().splitlines())}


def alike(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    """Equal up to the rounding that batches of another size bring."""
    return a.shape == b.shape and bool(np.allclose(a, b, atol=0.01))


def test_videos_give_a_row_a_frame_and_pictures_one(source: Videos) -> None:
    videos.write_video(source.add("long", "long.mp4"), 50)
    toy.draw("red-ring").save(source.add("still", "still.png", "image"))
    videos.write_video(source.add("short", "short.mkv"), 10)
    made = source.extract("--set", "fps=5").made
    assert made.request["fps"] == 5 and made.request["frames"] == 0 and "pool" not in made.request
    assert made.counts == {"items": 3, "rows": 13, "failed": 0}
    rows = rows_of(made)
    assert {item: len(found) for item, found in rows.items()} == {"long": 10, "still": 1, "short": 2}
    every = rows_of(source.extract("--set", "fps=0").made)
    assert alike(rows["long"], every["long"][2::5]), "the frame in the middle of each fifth of a second"
    frames = source.extract("--set", "frames=4").made
    assert {item: len(found) for item, found in rows_of(frames).items()} == {"long": 4, "still": 1, "short": 4}
    assert alike(rows_of(frames)["still"], rows["still"])


def test_the_mean_of_the_rows(source: Videos) -> None:
    videos.write_video(source.add("a", "a.mp4"), 50)
    single, mean = source.extract("--set", "fps=5").made, source.extract("--set", "fps=5", "--pool", "mean").made
    assert mean.request == {**single.request, "pool": "mean"} and mean.name != single.name
    assert rows_of(mean)["a"].shape == (1, 1280)
    np.testing.assert_allclose(rows_of(mean)["a"][0], rows_of(single)["a"].mean(axis=0), atol=2e-3)
    assert " --pool mean " in features.command(mean, Path("datasets/other"))
    about = [base.read_json(made.file("encoder.json")) for made in (single, mean)]
    assert [told["pool"] for told in about] == ["none", "mean"]
    assert all(told["sampling"] == {"fps": 5.0, "frames": 0, "clip_frames": 1, "clip_stride": 0} for told in about)
    assert not features.comparable(single, mean)
    done = source.extract("--pool", "max")
    assert done.code == 2 and "--pool is one of none, mean" in done.err


def damage(path: Path, way: str) -> None:
    """Writes a file that gives no frames, or none."""
    if way == "sound":
        videos.write_sound(path)
    elif way == "frameless":
        videos.write_no_frames(path)
    elif way != "nothing":
        path.write_text("no video at all" if way == "text" else "")


@pytest.fixture
def encoders(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Options of encoders with random weights."""
    torch.manual_seed(0)
    torch.save(InceptionI3d(7).state_dict(), tmp_path / "i3d.pt")
    small: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.VideoMAEConfig(**small, num_attention_heads=2, image_size=32, patch_size=16, num_frames=2)
    transformers.VideoMAEModel(config).save_pretrained(tmp_path / "videomae")
    said = {"image_processor_type": "VideoMAEImageProcessor", "size": {"shortest_edge": 32}, "crop_size": 32}
    (tmp_path / "videomae" / "preprocessor_config.json").write_text(json.dumps(said))
    return {
        "efficientnet-lite0": toy.ENCODER,
        "i3d": ("--encoder", "i3d", "--set", f"weights={tmp_path / 'i3d.pt'}", "--set", "clip_frames=2"),
        "video": ("--encoder", "video", "--set", f"model={tmp_path / 'videomae'}"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "each"),
    [("efficientnet-lite0", 2), ("i3d", 1), ("video", 1)],
)
def test_twenty_damaged_files_of_two_hundred_are_named(
    encoder: str, each: int, source: Videos, encoders: dict[str, tuple[str, ...]]
) -> None:
    whole = videos.write_video(source.place / "whole.mp4", 12, front=True).read_bytes()
    other = videos.write_video(source.place / "other.mp4", 9).read_bytes()
    (source.place / "whole.mp4").unlink()
    (source.place / "other.mp4").unlink()
    causes: dict[str, str] = {}
    for number in range(200):
        path = source.add(f"v{number:03d}", f"v{number:03d}.mp4")
        if number % 10 == 7:
            way = ("sound", "text", "empty", "nothing", "frameless")[number // 10 % 5]
            damage(path, way)
            causes[f"v{number:03d}"] = {
                "sound": "NoVideoStream", "text": "Undecodable", "empty": "Undecodable",
                "nothing": "FileNotFound", "frameless": "NoFrames",
            }[way]  # fmt: skip
        else:
            path.write_bytes(whole if number % 2 else other)
    call = ("extract", *encoders[encoder], "--device", "cpu", "--set", "frames=2")
    done = source.extract(*call)
    assert done.code == 3 and "20 failed" in done.err, done.err
    assert {item: found["error"] for item, found in failures(done.made).items()} == causes
    assert done.made.counts == {"items": 200, "rows": 180 * each, "failed": 20}
    assert str(source.root) not in done.made.file(base.FAILURES).read_text()

    videos.write_video(source.media / "v007.mp4", 12, front=True)
    again = source.extract(*call, "--retry-failed")
    assert again.code == 3 and again.made.counts == {"items": 200, "rows": 181 * each, "failed": 19}
    assert {found["attempt"] for found in failures(again.made).values()} == {2}
    before, after = rows_of(done.made), rows_of(again.made)
    assert all(np.array_equal(after[item], rows) for item, rows in before.items())
    assert alike(after["v007"], after["v001"])


def test_what_decodes_of_a_damaged_video_is_there(source: Videos) -> None:
    videos.write_video(source.add("whole", "whole.mp4"), 40, gop=10, front=True)
    videos.spoil(videos.write_video(source.add("spoilt", "spoilt.mp4"), 40, gop=10, front=True), 25)
    videos.cut(videos.write_video(source.add("cut", "cut.mp4"), 40, gop=5, front=True), 0.7)
    done = source.extract("--set", "fps=5")
    assert done.code == 0 and "2 videos are damaged" in done.err, done.err
    assert done.made.counts["damaged"] == 2 and done.made.counts["failed"] == 0
    index = features.read_index(done.made).set_index("item_id")
    assert list(index["status"]) == ["ok", "damaged", "damaged"]
    assert "frames_expected=8 frames_decoded=" in str(index.loc["spoilt", "error"])
    assert " of 40 frames are there" in str(index.loc["cut", "error"])
    rows = rows_of(done.made)
    assert len(rows["whole"]) == len(rows["spoilt"]) == 8 > len(rows["cut"]) > 0
    assert alike(rows["spoilt"][:4], rows["whole"][:4])


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(source: Videos) -> None:
    for number in range(7):
        videos.write_video(source.add(f"v{number}", f"v{number}.mp4"), 5 + 7 * number)
    options = ("--set", "fps=10", "--batch-size", "4")
    made = [source.extract(*options, "--workers", str(n), "--name", f"of{n}").made for n in (1, 2, 5)]
    assert made[0].files == made[1].files == made[2].files


def test_a_file_of_several_items_is_decoded_once(source: Videos, monkeypatch: pytest.MonkeyPatch) -> None:
    videos.write_video(source.add("a", "a.mp4"), 20)
    source.add("b", "a.mp4")
    videos.write_video(source.add("c", "c.mp4"), 10)
    opened: list[str] = []
    really = video.open_video

    def counting(path: Path) -> Any:
        opened.append(path.name)
        return really(path)

    monkeypatch.setattr(media, "open_video", counting)
    rows = rows_of(source.extract("--set", "fps=5").made)
    assert sorted(opened) == ["a.mp4", "c.mp4"]
    assert np.array_equal(rows["a"], rows["b"]) and len(rows["a"]) == 4


def test_options_of_frames_are_for_videos(workspace: toy.Chain) -> None:
    done = toy.ccr(*EXTRACT, "--set", "fps=2", workspace=workspace.root)
    assert (done.code, done.out) == (2, "") and "fps is for videos, and toy has none" in done.err
    made = toy.ok(*EXTRACT, workspace=workspace.root).made
    assert not {"fps", "frames"} & set(made.request)


def test_values_that_cannot_be(source: Videos) -> None:
    videos.write_video(source.add("a", "a.mp4"), 5)
    for option, message in (("fps=-1", "fps=-1"), ("frames=-2", "frames=-2"), ("fps=nan", "expected a number")):
        done = source.extract("--set", option)
        assert (done.code, done.out) == (2, "") and message in done.err
    for size in ("0", "-3", "many", "1.5"):
        done = source.extract("--batch-size", size)
        assert (done.code, done.out) == (2, "") and "--batch-size" in done.err
