"""Frames of small videos, written here: the right ones, the right way up, whatever decodes them."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import videos

from ccr_cli.data import video, video_decode, video_index
from ccr_cli.data.sampling import Sampling, gather

HERE = video.backends()
needs_torchcodec = pytest.mark.skipif("torchcodec" not in HERE, reason="torchcodec does not import here")
BACKENDS: list[video.Backend] = ["auto", "av"]


def numbers(frames: npt.NDArray[np.uint8]) -> list[int]:
    return [videos.number_of(frame) for frame in frames]


@pytest.mark.parametrize("backend", BACKENDS)
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
def test_every_frame_can_be_read_from_every_kind_of_file(
    tmp_path: Path, name: str, codec: str, backend: video.Backend
) -> None:
    path = videos.write_video(tmp_path / name, 30, codec=codec)
    facts = video.probe(path)
    assert (facts.frames, facts.width, facts.height, facts.rotation) == (30, 64, 48, 0)
    assert facts.frames_expected in (30, None)
    assert facts.duration_s == pytest.approx(1.2, abs=0.002)
    assert facts.fps == pytest.approx(25, rel=0.002)
    frames = video.read_frames(path, numbers=range(30), backend=backend)
    assert numbers(frames.pixels_NHW3) == list(range(30))
    assert (frames.frames_expected, frames.frames_decoded) == (30, 30)
    assert frames.pixels_NHW3.dtype == np.uint8


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.264"])
def test_few_frames_are_those_of_a_full_pass(tmp_path: Path, name: str, backend: video.Backend) -> None:
    path = videos.write_video(tmp_path / name, 60, gop=7)
    whole = video.read_frames(path, numbers=range(60), backend=backend).pixels_NHW3
    for chosen in ([59], [0, 59], [3, 25, 26, 50], [20, 21, 22], [58, 2, 2, 30], list(range(0, 60, 11))):
        few = video.read_frames(path, numbers=chosen, backend=backend)
        np.testing.assert_array_equal(few.pixels_NHW3, whole[chosen])
        assert few.number_N.tolist() == chosen


def test_little_is_decoded_where_little_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 60, gop=10)
    seen = []
    whole = video_index.decode_packets

    def counting(*given: object) -> object:
        for frame in whole(*given):  # type: ignore[arg-type]
            seen.append(frame.pts)
            yield frame

    monkeypatch.setattr(video_decode, "decode_packets", counting)
    found = video.read_frames(path, numbers=[0, 52], backend="av")
    assert numbers(found.pixels_NHW3) == [0, 52]
    assert len(seen) < 15


@needs_torchcodec
@pytest.mark.parametrize(
    ("codec", "pixel_format"),
    [
        ("libx264", "yuv420p"),
        ("libx264", "yuvj420p"),
        ("libx264", "yuv422p"),
        ("libx264", "yuv444p"),
        ("libvpx-vp9", "yuv420p"),
    ],
)
@pytest.mark.parametrize("turned", [0, 1])
def test_torchcodec_and_pyav_give_the_same_bits(tmp_path: Path, codec: str, pixel_format: str, turned: int) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 20, codec=codec, pixel_format=pixel_format, size=(66, 50))
    videos.turn(path, turned)
    index = video_index.read_index(path)
    number_N = np.arange(20)
    ours = [pixels for pixels, _ in video_decode.by_av(index, number_N)]
    theirs = list(video_decode.by_torchcodec(index, number_N))
    np.testing.assert_array_equal(np.stack(theirs), np.stack(ours))


def test_without_torchcodec_nothing_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 20)
    monkeypatch.setitem(sys.modules, "torchcodec", None)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    video_decode.torchcodec_decoder.cache_clear()
    try:
        assert list(video_decode.by_torchcodec(video_index.read_index(path), np.arange(20))) == []
        assert numbers(video.read_frames(path, numbers=range(20)).pixels_NHW3) == list(range(20))
        assert "torchcodec" not in video.backends()
        assert video.missing() is None
    finally:
        video_decode.torchcodec_decoder.cache_clear()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_time_stamps_count_and_not_the_rate(tmp_path: Path, name: str, backend: video.Backend) -> None:
    times_ms = [500, 540, 580, 1500, 1510, 1520, 3000, 3040]
    path = videos.write_video(tmp_path / name, len(times_ms), times_ms=times_ms)
    opened = video.open_video(path)
    np.testing.assert_allclose(opened.shown_F, [0, 0.04, 0.08, 1, 1.01, 1.02, 2.5, 2.54], atol=2e-3)
    asked = [0.0, 0.5, 0.99, 1.015, 2.0, 2.52, 99.0, -1.0]
    found = video.read_frames(path, times_s=asked, backend=backend)
    assert numbers(found.pixels_NHW3) == [0, 2, 2, 4, 5, 6, 7, 0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_frames_are_the_right_way_up(tmp_path: Path, quarters: int, backend: video.Backend) -> None:
    upright = videos.write_video(tmp_path / "a.mp4", 6)
    expected = video.read_frames(upright, numbers=range(6), backend=backend).pixels_NHW3
    turned = videos.turn(videos.write_video(tmp_path / "b.mp4", 6), quarters)
    facts = video.probe(turned)
    assert facts.rotation == (360 - 90 * quarters) % 360
    assert (facts.width, facts.height) == ((64, 48) if quarters % 2 == 0 else (48, 64))
    found = video.read_frames(turned, numbers=range(6), backend=backend).pixels_NHW3
    np.testing.assert_array_equal(found, np.rot90(expected, -quarters, axes=(1, 2)))


def test_sound_plays_no_part(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 12, sound=True)
    assert video.probe(path).frames == 12
    assert numbers(video.read_frames(path, numbers=range(12)).pixels_NHW3) == list(range(12))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_video_of_one_frame(tmp_path: Path, backend: video.Backend) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 1)
    opened = video.open_video(path)
    assert opened.facts.duration_s == pytest.approx(0.04)
    clip_CL = Sampling(fps=25, clip_frames=16).clips(opened.facts.duration_s, opened.shown_F)
    assert clip_CL.shape == (1, 16)
    assert numbers(video.read_frames(path, times_s=clip_CL[0], backend=backend).pixels_NHW3) == [0] * 16


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_left_of_a_file_that_was_cut_off_is_read(tmp_path: Path, backend: video.Backend) -> None:
    path = videos.cut(videos.write_video(tmp_path / "a.mp4", 40, gop=5, front=True), 0.7)
    facts = video.probe(path)
    assert facts.frames_expected == 40
    assert 5 < facts.frames < 39
    found = video.read_frames(path, numbers=range(facts.frames), backend=backend)
    assert facts.frames - 2 <= found.frames_decoded <= found.frames_expected == facts.frames
    shown = numbers(found.pixels_NHW3)
    assert shown[: found.frames_decoded - 4] == list(range(found.frames_decoded - 4))
    assert shown == sorted(shown)


@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbours_stand_in_for_a_damaged_tail(tmp_path: Path, backend: video.Backend) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 40, gop=40, front=True)
    videos.spoil(path, packet=20)
    facts = video.probe(path)
    assert facts.frames == facts.frames_expected == 40
    found = video.read_frames(path, numbers=range(40), backend=backend)
    assert found.frames_expected == 40
    assert 15 < found.frames_decoded < 25
    np.testing.assert_array_equal(found.pixels_NHW3[-1], found.pixels_NHW3[-2])
    assert numbers(found.pixels_NHW3)[:15] == list(range(15))


def test_damage_looks_the_same_to_both(tmp_path: Path) -> None:
    path = videos.cut(videos.write_video(tmp_path / "a.mp4", 40, gop=5, front=True), 0.7)
    frames = range(video.probe(path).frames)
    ours, theirs = (video.read_frames(path, numbers=frames, backend=backend) for backend in BACKENDS)
    np.testing.assert_array_equal(ours.pixels_NHW3, theirs.pixels_NHW3)
    assert ours.frames_decoded == theirs.frames_decoded


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
    ("make", "cause", "message"),
    [
        (videos.write_sound, video.NoVideoStream, "holds audio, no video"),
        (videos.write_no_frames, video.NoFrames, "1 promised"),
        (no_index, video.Undecodable, "not a video that FFmpeg can read"),
        (all_damaged, video.Undecodable, "none of its 20 frames decodes"),
        (text, video.Undecodable, "not a video that FFmpeg can read"),
        (empty, video.Undecodable, "empty"),
        (folder, video.Undecodable, "not a regular file"),
        (concat, video.Undecodable, "a list of other files"),
        (hls, video.Undecodable, "a list of other files"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_files_without_frames_say_why(tmp_path: Path, make: object, cause: type, message: str) -> None:
    path = make(tmp_path / "a.mp4")  # type: ignore[operator]
    for read in (video.probe, lambda path: video.read_frames(path, numbers=[0])):
        with pytest.raises(cause, match=message):
            read(path)
    assert issubclass(cause, video.VideoError)


@pytest.mark.parametrize("make", [concat, hls])
def test_what_a_list_names_is_not_read(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path / "a.mp4")
    inner = tmp_path / "inner.ts"
    os.utime(inner, ns=(0, inner.stat().st_mtime_ns))  # older than its time of change: reading it would set it
    with pytest.raises(video.Undecodable):
        video.probe(path)
    untouched = inner.stat().st_atime_ns
    inner.read_bytes()
    if inner.stat().st_atime_ns == 0:
        pytest.skip("this file system keeps no times of reading")
    assert untouched == 0


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        video.probe(tmp_path / "none.mp4")


def test_frames_of_too_many_pixels_are_refused(tmp_path: Path) -> None:
    path = videos.write_video(tmp_path / "a.mp4")
    assert video.probe(path, max_pixels=64 * 48).width == 64
    with pytest.raises(video.TooLarge, match="64 x 48 pixels, at most 3071"):
        video.probe(path, max_pixels=64 * 48 - 1)


def test_names_that_ffmpeg_would_take_for_addresses_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("concat:a.mp4", "-i.mp4", "a %d ü 狗.mp4", "http:b.mp4"):
        path = Path(name)
        videos.write_video(tmp_path / "plain.mp4", 3).rename(path)
        assert numbers(video.read_frames(path, numbers=range(3)).pixels_NHW3) == [0, 1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_holds_few_frames(tmp_path: Path, backend: video.Backend) -> None:
    path = videos.write_video(tmp_path / "a.mp4", 60, size=(640, 480))
    opened = video.open_video(path)
    tracemalloc.start()
    try:
        count = sum(1 for _ in opened.stream(range(60), backend))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 60
    assert peak < 8 * 640 * 480 * 3


@needs_torchcodec
@pytest.mark.parametrize(("room", "most"), [(3 * 64 * 48 * 3 + 1, 3), (1, 1), (1 << 26, 16)])
def test_torchcodec_decodes_as_many_frames_at_once_as_there_is_room_for(
    room: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = video_decode.torchcodec_decoder()
    asked: list[int] = []

    class Recording(decoder):  # type: ignore[misc,valid-type]
        def get_frames_at(self, indices: list[int]) -> object:
            asked.append(len(indices))
            return super().get_frames_at(indices)

    monkeypatch.setattr(video_decode, "torchcodec_decoder", lambda: Recording)
    monkeypatch.setattr(video_decode, "_PART_BYTES", room)
    path = videos.write_video(tmp_path / "a.mp4", 20)
    assert numbers(video.read_frames(path, numbers=range(20)).pixels_NHW3) == list(range(20))
    assert sum(asked) == 20 and max(asked) == most


def test_threads_read_one_video_at_the_same_time(tmp_path: Path) -> None:
    opened = video.open_video(videos.write_video(tmp_path / "a.mp4", 40))
    asked = [range(start, 40, 3) for start in range(6)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda some: [videos.number_of(frame.pixels) for frame in opened.stream(some)], asked))
    assert found == [list(some) for some in asked]


def test_clips_of_a_stream_as_of_single_frames(tmp_path: Path) -> None:
    opened = video.open_video(videos.write_video(tmp_path / "a.mp4", 37))
    clip_CL = Sampling(fps=25, clip_frames=16, clip_stride=8).clips(opened.facts.duration_s, opened.shown_F)
    number_CL = opened.at(clip_CL)
    stream = (videos.number_of(frame.pixels) for frame in opened.stream(np.unique(number_CL)))
    clips = list(gather(stream, number_CL))
    assert clips == number_CL.tolist()
    assert clips[0] == list(range(16))
    assert clips[-1] == [*range(24, 37), 36, 36, 36]
