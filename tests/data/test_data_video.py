"""Frames of small videos, written here: the right ones, the right way up."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import videos

from ccr_cli.data import video
from ccr_cli.data.sampling import Sampling, gather
from ccr_cli.errors import UnavailableError


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "libx264"),
        ("a.mkv", "libx264"),
        ("a.ts", "libx264"),
        ("a.264", "libx264"),
        ("a.avi", "mpeg4"),
        ("a.mp4", "mpeg4"),
        ("a.mpg", "mpeg2video"),
        ("a.webm", "libvpx-vp9"),
    ],
)
def test_every_frame_can_be_read_from_every_kind_of_file(tmp_path: Path, name: str, codec: str) -> None:
    path = videos.write_video(tmp_path / name, 30, codec=codec)
    opened = video.open_video(path)
    assert (opened.frames, opened.frames_expected in (30, None)) == (30, True)
    assert opened.duration_s == pytest.approx(1.2, abs=0.002)
    frames = videos.read_frames(path, range(30))
    assert frames.numbers == list(range(30))
    assert (frames.expected, frames.decoded) == (30, 30)
    assert frames.pixels_NHW3.dtype == np.uint8


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.264"])
def test_few_frames_are_those_of_a_full_pass(tmp_path: Path, name: str) -> None:
    path = videos.write_video(tmp_path / name, 60, gop=7)
    whole = videos.read_frames(path, range(60)).pixels_NHW3
    for chosen in ([59], [0, 59], [3, 25, 26, 50], [20, 21, 22], [58, 2, 2, 30], list(range(0, 60, 11))):
        few = videos.read_frames(path, chosen)
        np.testing.assert_array_equal(few.pixels_NHW3, whole[chosen])
        assert few.numbers == chosen


def test_little_is_decoded_where_little_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 60, gop=10)
    seen = []
    whole = video._decode

    def counting(*given: object) -> object:
        for frame in whole(*given):  # type: ignore[arg-type]
            seen.append(frame.pts)
            yield frame

    monkeypatch.setattr(video, "_decode", counting)
    found = videos.read_frames(path, [0, 52])
    assert found.numbers == [0, 52]
    assert len(seen) < 15


def test_without_pyav_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 2)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnavailableError) as caught:
        video.open_video(path)
    assert caught.value.hint == "pip install 'ccr-cli[video]'"


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_time_stamps_count_and_not_the_rate(tmp_path: Path, name: str) -> None:
    times_ms = [500, 540, 580, 1500, 1510, 1520, 3000, 3040]
    path = videos.write_video(tmp_path / name, len(times_ms), times_ms=times_ms)
    opened = video.open_video(path)
    np.testing.assert_allclose(opened.shown_F, [0, 0.04, 0.08, 1, 1.01, 1.02, 2.5, 2.54], atol=2e-3)
    asked = [0.0, 0.5, 0.99, 1.015, 2.0, 2.52, 99.0, -1.0]
    found = videos.read_frames(path, times_s=asked)
    assert found.numbers == [0, 2, 2, 4, 5, 6, 7, 0]


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_frames_are_the_right_way_up(tmp_path: Path, quarters: int) -> None:
    upright = videos.write_video(tmp_path / "a.mp4", 6)
    expected = videos.read_frames(upright, range(6)).pixels_NHW3
    turned = videos.turn(videos.write_video(tmp_path / "b.mp4", 6), quarters)
    opened = video.open_video(turned)
    assert (opened.width, opened.height, opened.mirrored) == (64, 48, False)
    assert opened.turns == -quarters % 4
    found = videos.read_frames(turned, range(6)).pixels_NHW3
    width, height = (64, 48) if quarters % 2 == 0 else (48, 64)
    assert found.shape == (6, height, width, 3)
    np.testing.assert_array_equal(found, np.rot90(expected, -quarters, axes=(1, 2)))


def test_sound_plays_no_part(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 12, sound=True)
    assert video.open_video(path).frames == 12
    assert videos.read_frames(path, range(12)).numbers == list(range(12))


def test_a_video_of_one_frame(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 1)
    opened = video.open_video(path)
    assert opened.duration_s == pytest.approx(0.04)
    clip_CL = Sampling(fps=25, clip_frames=16).clips(opened.duration_s, opened.shown_F)
    assert clip_CL.shape == (1, 16)
    assert videos.read_frames(path, times_s=clip_CL[0]).numbers == [0] * 16


def test_what_is_left_of_a_file_that_was_cut_off_is_read(tmp_path: Path) -> None:
    path = videos.cut(videos.write_video(tmp_path / "a.mp4", 40, gop=5, front=True), 0.7)
    opened = video.open_video(path)
    assert opened.frames_expected == 40
    assert 5 < opened.frames < 39
    found = videos.read_frames(path, range(opened.frames))
    assert opened.frames - 2 <= found.decoded <= found.expected == opened.frames
    shown = found.numbers
    assert shown[: found.decoded - 4] == list(range(found.decoded - 4))
    assert shown == sorted(shown)


def test_neighbours_stand_in_for_a_damaged_tail(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 40, gop=40, front=True)
    videos.spoil(path, packet=20)
    opened = video.open_video(path)
    assert opened.frames == opened.frames_expected == 40
    found = videos.read_frames(path, range(40))
    assert found.expected == 40
    assert 15 < found.decoded < 25
    np.testing.assert_array_equal(found.pixels_NHW3[-1], found.pixels_NHW3[-2])
    assert found.numbers[:15] == list(range(15))


def no_index(path: Path) -> Path:
    return videos.cut(videos.write_video(path), 0.5)


def all_damaged(path: Path) -> Path:
    return videos.spoil(videos.write_video(path, front=True), packet=0)


def text(path: Path) -> Path:
    path.write_text("nothing to see here\n" * 100)
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def concat(path: Path) -> Path:
    inner = videos.write_video(path.with_name("inner.ts"))
    path.write_text(f"ffconcat version 1.0\nfile {inner.name}\n")
    return path


def hls(path: Path) -> Path:
    inner = videos.write_video(path.with_name("inner.ts"))
    head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:10\n#EXTINF:0.8,\n"
    path = path.with_suffix(".m3u8")
    path.write_text(f"{head}{inner}\n#EXT-X-ENDLIST\n")
    return path


@pytest.mark.parametrize(
    ("make", "cause", "value"),
    [
        (videos.write_sound, video.NoVideoStream, "audio"),
        (videos.write_no_frames, video.NoFrames, "1 promised"),
        (no_index, video.Undecodable, ""),
        (all_damaged, video.Undecodable, "20"),
        (text, video.Undecodable, ""),
        (empty, video.Undecodable, ""),
        (folder, video.Undecodable, ""),
        (concat, video.Undecodable, ""),
        (hls, video.Undecodable, ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_files_without_frames_have_a_cause(tmp_path: Path, make: object, cause: type, value: str) -> None:
    path = make(tmp_path / "a.mp4")  # type: ignore[operator]
    with pytest.raises(cause) as caught:
        video.open_video(path)
    assert value in str(caught.value)
    assert issubclass(cause, video.VideoError)


@pytest.mark.parametrize("make", [concat, hls])
def test_what_a_list_names_is_not_read(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path / "a.mp4")
    inner = tmp_path / "inner.ts"
    os.utime(inner, ns=(0, inner.stat().st_mtime_ns))  # older than its time of change: reading it would set it
    with pytest.raises(video.Undecodable):
        video.open_video(path)
    untouched = inner.stat().st_atime_ns
    inner.read_bytes()
    if inner.stat().st_atime_ns == 0:
        pytest.skip("this file system keeps no times of reading")
    assert untouched == 0


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        video.open_video(tmp_path / "none.mp4")


def test_frames_of_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos.write_video(tmp_path / "a.mp4")
    monkeypatch.setattr(video, "MAX_PIXELS", 64 * 48)
    assert video.open_video(path).width == 64
    monkeypatch.setattr(video, "MAX_PIXELS", 64 * 48 - 1)
    with pytest.raises(video.TooLarge) as caught:
        video.open_video(path)
    assert "64 x 48" in str(caught.value) and "3071" in str(caught.value)


def test_names_that_ffmpeg_would_take_for_addresses_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("concat:a.mp4", "-i.mp4", "a %d ü 狗.mp4", "http:b.mp4"):
        path = Path(name)
        videos.write_video(tmp_path / "plain.mp4", 3).rename(path)
        assert videos.read_frames(path, range(3)).numbers == [0, 1, 2]


def test_a_stream_holds_few_frames(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 60, size=(640, 480))
    opened = video.open_video(path)
    tracemalloc.start()
    try:
        count = sum(1 for _ in opened.stream(range(60)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 60
    assert peak < 8 * 640 * 480 * 3


def test_threads_read_one_video_at_the_same_time(tmp_path: Path) -> None:
    opened = video.open_video(videos.write_video(tmp_path / "a.mp4", 40))
    asked = [range(start, 40, 3) for start in range(6)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda some: [videos.number_of(frame.pixels) for frame in opened.stream(some)], asked))
    assert found == [list(some) for some in asked]


def test_clips_of_a_stream_as_of_single_frames(tmp_path: Path) -> None:
    opened = video.open_video(videos.write_video(tmp_path / "a.mp4", 37))
    clip_CL = Sampling(fps=25, clip_frames=16, clip_stride=8).clips(opened.duration_s, opened.shown_F)
    number_CL = opened.at(clip_CL)
    stream = (videos.number_of(frame.pixels) for frame in opened.stream(np.unique(number_CL)))
    clips = list(gather(stream, number_CL))
    assert clips == number_CL.tolist()
    assert clips[0] == list(range(16))
    assert clips[-1] == [*range(24, 37), 36, 36, 36]
