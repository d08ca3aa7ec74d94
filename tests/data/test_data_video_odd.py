"""Frames of videos that few players are asked to show: odd times, odd keyframes, fields, mirrors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import videos

from ccr_cli.data import video


def test_avi_that_gives_times_in_the_order_of_decoding(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.avi", 60, options={"bf": "3", "sc_threshold": "0"})
    opened = video.open_video(path)
    assert (opened.frames, opened.frames_expected in (60, None)) == (60, True)
    assert opened.duration_s == pytest.approx(2.4, abs=0.002)
    found = videos.read_frames(path, range(60))
    assert (found.numbers, found.decoded) == (list(range(60)), 60)
    found = videos.read_frames(path, times_s=[0.02, 0.5, 1.5, 2.39])
    assert found.numbers == [0, 12, 37, 59]
    for number in (7, 28, 42):
        assert videos.read_frames(path, [number]).numbers == [number]


@pytest.mark.parametrize("offset_s", [0, 3700])
def test_clocks_that_jump_are_joined(tmp_path: Path, offset_s: int) -> None:
    first = videos.write_video(tmp_path / "a.ts", 30)
    second = videos.write_video(tmp_path / "b.ts", 30, times_ms=[(offset_s + 5) * 1000 + 40 * at for at in range(30)])
    path = tmp_path / "both.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes() + first.read_bytes())
    assert video.open_video(path).frames == 90
    assert video.open_video(path).duration_s == pytest.approx(3.6 if offset_s else 3.6 + 3.8, abs=0.1)
    found = videos.read_frames(path, range(90))
    assert (found.numbers, found.decoded) == ([*range(30)] * 3, 90)
    assert videos.read_frames(path, [47]).numbers == [17]


def test_frames_of_one_time_are_all_there(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mpg", 60, codec="mpeg1video", gop=15)
    opened = video.open_video(path)
    np.testing.assert_allclose(opened.shown_F, np.arange(60) / 25, atol=1e-6)
    assert opened.duration_s == pytest.approx(2.4)
    for asked in (range(60), [58], [59], [3, 45, 58]):
        assert videos.read_frames(path, asked).numbers == list(asked)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts"])
def test_pictures_that_become_whole_step_by_step(tmp_path: Path, name: str) -> None:
    options = {"bf": "0", "x264-params": "intra-refresh=1:keyint=20"}
    path = videos.write_video(tmp_path / name, 60, options=options)
    for number in (21, 26, 42, 59):
        found = videos.read_frames(path, [number])
        assert (found.numbers, found.decoded) == ([number], 1)


@pytest.mark.parametrize(
    ("codec", "pixel_format", "size", "options"),
    [
        ("mpeg4", "yuv420p", (64, 48), {}),
        ("libx264", "yuvj420p", (66, 50), {}),
        ("libx264", "yuv422p", (66, 50), {}),
        ("libx264", "yuv444p", (66, 50), {}),
        ("libx264", "yuv420p10le", (64, 48), {}),
        ("libvpx-vp9", "yuv420p", (65, 49), {}),
        ("libx264", "yuv420p", (64, 64), {"x264-params": "tff=1"}),
    ],
)
def test_pixel_formats_odd_sizes_and_fields(
    tmp_path: Path, codec: str, pixel_format: str, size: tuple[int, int], options: dict[str, str]
) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 5, codec=codec, pixel_format=pixel_format, size=size, options=options)
    frames = videos.read_frames(path, range(5))
    assert (frames.numbers, frames.decoded) == (list(range(5)), 5)
    assert frames.pixels_NHW3.shape == (5, size[1], size[0], 3)
    np.testing.assert_allclose(frames.pixels_NHW3[0, -8:, -8:].mean(axis=(0, 1)), (40, 60, 200), atol=8)


@pytest.mark.parametrize(
    ("matrix", "shown"),
    [
        ((-1, 0, 0, 1), lambda frame: frame[:, ::-1]),
        ((1, 0, 0, -1), lambda frame: frame[::-1]),
        ((0, 1, 1, 0), lambda frame: frame.swapaxes(0, 1)),
        ((0, -1, -1, 0), lambda frame: frame[::-1, ::-1].swapaxes(0, 1)),
    ],
    ids=["left and right", "up and down", "diagonal", "other diagonal"],
)
def test_mirrored_frames(
    tmp_path: Path, matrix: tuple[int, int, int, int], shown: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]
) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 3)
    expected = videos.read_frames(path, range(3)).pixels_NHW3
    found = videos.read_frames(videos.show_by(path, *matrix), numbers=range(3)).pixels_NHW3
    np.testing.assert_array_equal(found, np.stack([shown(frame) for frame in expected]))
