"""Videos as RGB frames, chosen by the time at which they are shown.

PyAV decodes; its wheels bring FFmpeg along. It first reads the times of all packets without decoding them, to learn
which frames exist; then it decodes the frames that are needed.

    video = open_video(path)
    clip_CL = sampling.clips(video.duration_s, video.shown_F)
    number_CL = video.at(clip_CL)
    for clip in gather((prepare(frame.pixels) for frame in video.stream(np.unique(number_CL))), number_CL):
        ...  # L prepared frames

Times count from the first frame, whatever the file's clock starts at. Rotation and mirroring that the file requests
are applied; non-square pixels stay as they are. Sound is ignored.

Shape suffixes: F frames of the file, N requested frames, H height, W width, K keyframes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ccr_cli.errors import require_packages

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

MAX_PIXELS = 64_000_000
"""Most pixels in a picture or a frame."""
_LONGEST_S = 7 * 24 * 3600.0
_DEFAULT_RATE = Fraction(25)
_JUMP_S = 10.0
"""Largest step of a clock; a larger one is a jump."""
_FEW = 0.25
"""Largest fraction of frames that may have the time of another frame."""
_DISCONTINUOUS = ("mpegts", "mpeg")
_REORDERED = 32
"""Number of first frames that show whether presentation times are in the order of decoding."""
_WORTH_A_SEEK = 8
"""Fewest frames up to a keyframe ahead for which a seek is faster than decoding them."""
_OTHER_FILES = {"concat", "dash", "hls", "imf", "rtp", "rtsp", "sap", "sdp", "vobsub", "webm_dash_manifest"}
"""Formats that refer to other files or addresses."""


class VideoError(Exception):
    """A file that gives no frames; the class is the cause, the message has the details.

    Both are recorded in features artifacts, so changing the words changes their ids.
    """


class NoVideoStream(VideoError):
    """A media file without pictures: sound alone, at most with a cover."""


class NoFrames(VideoError):
    """A video without frames."""


class Undecodable(VideoError):
    """A file that is no video, is damaged from the start, or has a codec that FFmpeg lacks."""


class TooLarge(VideoError):
    """Too many pixels in a frame, or too many frames."""


@dataclass(frozen=True)
class _Packet:
    """A packet of video, which decodes to one frame."""

    pts: int | None
    dts: int | None
    duration: int
    key: bool
    discarded: bool


@dataclass(frozen=True, eq=False)
class Times:
    """When the frames of a file are shown."""

    pts_F: npt.NDArray[np.int64]
    """In units of `base`, ascending."""
    base: Fraction
    key_K: npt.NDArray[np.int64]
    """Presentation times of the keyframes."""
    last_s: float
    """How long the last frame is shown."""
    counted: bool
    """Whether the order in which the decoder returns frames identifies them, because its times do not."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One decoded frame."""

    number: int
    """Its number in the file, from 0 in the order of presentation."""
    pixels: npt.NDArray[np.uint8]
    """(H, W, 3), RGB."""
    decoded: bool
    """False where this frame does not decode and a neighbour stands in: the one before it, else the one after."""


@dataclass(frozen=True, eq=False)
class Video:
    """A video whose frames can be streamed, any number of times and from several threads."""

    path: Path
    stream_index: int
    times: Times
    frames_expected: int | None
    """Frames that the header promises, None where it has no count. More than `frames`: the file was cut off."""
    width: int
    """As stored, before rotation."""
    height: int
    mirrored: bool
    """Left and right are exchanged, before any turn."""
    turns: int
    """Quarter turns, counter-clockwise, that bring the picture upright."""

    @property
    def frames(self) -> int:
        """F, the frames in the file."""
        return len(self.times.pts_F)

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame to the end of the last."""
        return float(self.shown_F[-1]) + self.times.last_s

    @cached_property
    def shown_F(self) -> npt.NDArray[np.float64]:
        """When each frame appears, in seconds after the first."""
        pts_F, base = self.times.pts_F, self.times.base
        shown_F: npt.NDArray[np.float64] = (pts_F - pts_F[0]) * base.numerator / base.denominator
        return shown_F

    def at(self, times_s: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Numbers of the frames on screen at these times, in any shape; times outside give the first or last frame."""
        after = np.searchsorted(self.shown_F, np.asarray(times_s, dtype=np.float64), side="right")
        return np.maximum(np.asarray(after, dtype=np.int64) - 1, 0)

    def stream(self, numbers: npt.ArrayLike) -> Iterator[Frame]:
        """Decodes the frames of ascending numbers, holding one at a time; VideoError if the file has changed since."""
        number_N = np.asarray(numbers, dtype=np.int64)
        assert number_N.ndim == 1 and (np.diff(number_N) > 0).all(), "frame numbers must ascend"
        assert not len(number_N) or (number_N[0] >= 0 and number_N[-1] < self.frames), "no such frame"
        upright, done = _upright(self), 0
        for seeking in (not self.times.counted, False):  # from the start again where seeking fails
            with _open(self.path) as container:
                walk = _Walk(container, self, seeking)
                try:
                    for number in number_N[done:].tolist():
                        frame, exact = walk.shown_at(number if self.times.counted else int(self.times.pts_F[number]))
                        yield Frame(number, upright(frame), exact)
                        done += 1
                    return
                except _LostError:
                    continue


def open_video(path: Path) -> Video:
    """Reads the times of all frames of a local file and decodes the first one.

    Raises:
        FileNotFoundError: If there is no such file.
        VideoError: If it gives no frames, or they have more than `MAX_PIXELS`.
        UnavailableError: If PyAV is not installed.
    """
    with _open(path) as container:
        stream = _video_stream(container)
        _check_size(stream.width, stream.height)
        time_base = stream.time_base or Fraction(1, 1000)
        promised, rate = stream.frames, stream.average_rate or stream.guessed_rate or _DEFAULT_RATE
        packets = _packets(container, stream)
        number, reorders, kind = stream.index, stream.codec_context.has_b_frames, container.format.name
    shown = [packet for packet in packets if not packet.discarded]
    if not shown:
        raise NoFrames(f"the file has a video of no frames ({promised} promised)" if promised else "no frames")
    first = _first_frames(path, number, len(shown), 1)[0]
    _check_size(first.width, first.height)
    if kind == "avi" and len(packets) <= (packets[-1].dts or 0):  # its header also counts places without a frame
        promised = 0
    # whether presentation times are in the order of decoding, as in AVI with H.264's B-frames
    misordered = reorders and _ascend([packet.pts for packet in shown]) and _ascend([packet.dts for packet in shown])
    if misordered:
        misordered = not _ascend([frame.pts for frame in _first_frames(path, number, len(shown), _REORDERED)])
    times = _times_of(shown, time_base, rate, misordered=misordered, discontinuous=kind in _DISCONTINUOUS)
    if (span := float(int(times.pts_F[-1] - times.pts_F[0]) * times.base) + times.last_s) > _LONGEST_S:
        raise Undecodable(f"its time stamps span {span / 86400:.0f} days")
    matrix: Any = first.side_data.get("DISPLAYMATRIX")
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(matrix)) if matrix is not None else (1, 0, 0, 0, 1)
    mirrored = a * d < b * c
    quarters = round(first.rotation / 90) + 2 * mirrored  # FFmpeg's rotation of a mirrored frame is half a turn off
    return Video(
        path=path,
        stream_index=number,
        times=times,
        frames_expected=promised - (len(packets) - len(shown)) if promised else None,
        width=first.width,
        height=first.height,
        mirrored=mirrored,
        turns=quarters % 4,
    )


@contextmanager
def _open(path: Path) -> Iterator[InputContainer]:
    """Opens a local media file, which cannot make FFmpeg open another file or a network address."""
    require_packages("reading videos", "video", "av")
    import av

    if not path.stat().st_size:
        raise Undecodable("the file is empty")
    if not path.is_file():
        raise Undecodable("not a regular file")
    try:
        formats = ",".join(sorted(av.format.formats_available - _OTHER_FILES))
        options = {"protocol_whitelist": "file", "format_whitelist": formats}
        container = av.open(str(path.absolute()), options=options, metadata_errors="replace", mode="r")
    except FileNotFoundError:
        raise
    except av.error.ArgumentError as error:  # FFmpeg's answer to formats outside the list
        raise Undecodable(f"a list of other files, or no video that FFmpeg can read: {_reason(error)}") from None
    except (av.FFmpegError, ValueError) as error:
        raise Undecodable(f"not a video that FFmpeg can read: {_reason(error)}") from None
    with container:
        yield container


def _reason(error: Exception) -> str:
    """Returns FFmpeg's message without error number and path."""
    return str(getattr(error, "strerror", None) or error)


def _video_stream(container: InputContainer, number: int | None = None) -> VideoStream:
    """Returns a stream by number, else the one a player shows; on one thread. NoVideoStream for none or a cover."""
    from av.stream import Disposition

    best = container.streams.best("video") if number is None else container.streams[number]
    if best is None or best.disposition & Disposition.attached_pic:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise NoVideoStream(f"the file holds {kinds}, no video")
    stream: VideoStream = best  # type: ignore[assignment]
    if stream.codec_context is None:
        raise Undecodable("its codec is not known")
    stream.codec_context.thread_count = 1
    return stream


def _packets(container: InputContainer, stream: VideoStream) -> list[_Packet]:
    """The packets of a stream, up to the first damage to the container."""
    import av

    packets: list[_Packet] = []
    with suppress(av.FFmpegError):
        for packet in container.demux(stream):
            if packet.size:
                times = packet.pts, packet.dts, packet.duration or 0
                packets.append(_Packet(*times, packet.is_keyframe, packet.is_discard))
    return packets


def _decode(container: InputContainer, stream: VideoStream, key: int | None = None) -> Iterator[VideoFrame]:
    """Yields every frame that decodes from here on, in the order of presentation; damaged packets are skipped.

    With `key`, yields nothing unless the first packet is the keyframe with this presentation time.
    """
    import av

    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:
            packet = None
        if key is not None and packet is not None and packet.size:
            if packet.pts != key or not packet.is_keyframe:
                return
            key = None
        with suppress(av.FFmpegError):
            yield from stream.decode(packet)
        if packet is None:
            return


def _first_frames(path: Path, number: int, count: int, most: int) -> list[VideoFrame]:
    with _open(path) as container:
        frames = list(islice(_decode(container, _video_stream(container, number)), most))
    if not frames:
        raise Undecodable(f"none of its {count} frames decodes")
    return frames


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise TooLarge(f"{width} x {height} pixels, at most {MAX_PIXELS}")


class _LostError(Exception):
    """Seeking did not lead to the keyframe."""


class _Walk:
    """Reads a file frame by frame, seeking keyframes to skip frames that are not needed."""

    def __init__(self, container: InputContainer, video: Video, seeking: bool) -> None:
        self._container, self._times, self._seeking = container, video.times, seeking
        self._stream = _video_stream(container, video.stream_index)
        self._frames = self._timed(None)
        self._before: tuple[int, VideoFrame] | None = None
        self._ahead: tuple[int, VideoFrame] | None = None

    def shown_at(self, pts: int) -> tuple[VideoFrame, bool]:
        """Returns the frame of a time, or a neighbour, and whether it is exact; times must ascend between calls."""
        if self._seeking:
            self._leap(pts)
        while self._before is None or self._before[0] < pts:
            self._ahead = self._ahead or next(self._frames, None)
            if self._ahead is None or self._ahead[0] > pts:
                break
            self._before, self._ahead = self._ahead, None
        if (nearest := self._before or self._ahead) is None:
            raise Undecodable("no frame decodes")
        return nearest[1], nearest[0] == pts

    def _leap(self, pts: int) -> None:
        """Seeks the last keyframe before a time if it lies well ahead."""
        number = int(np.searchsorted(self._times.key_K, pts, side="right")) - 1
        if number < 0:
            return
        key = int(self._times.key_K[number])
        reached = self._ahead or self._before
        here: int = reached[0] if reached else int(self._times.pts_F[0])
        key_at, here_at = np.searchsorted(self._times.pts_F, [key, here])
        if key_at - here_at < _WORTH_A_SEEK:
            return
        try:
            self._container.seek(key, stream=self._stream)
        except (OSError, ValueError):
            raise _LostError from None
        self._frames = self._timed(key)
        self._ahead = next(self._frames, None)
        if self._ahead is None or self._ahead[0] != key:  # a recovery point: pictures are complete only later
            raise _LostError

    def _timed(self, key: int | None) -> Iterator[tuple[int, VideoFrame]]:
        """Yields frames with their times, without those before `key`, which may depend on frames that were skipped."""
        for number, frame in enumerate(_decode(self._container, self._stream, key)):
            pts = number if self._times.counted else frame.pts
            if pts is not None and (key is None or pts >= key):
                yield pts, frame


def _upright(video: Video) -> Callable[[VideoFrame], npt.NDArray[np.uint8]]:
    """Returns a function that turns decoded frames into pixels, all of one size and the right way up."""
    from av.video.reformatter import VideoReformatter

    reformatter = VideoReformatter()

    @lru_cache(maxsize=1)  # a frame may stand in for several
    def pixels(frame: VideoFrame) -> npt.NDArray[np.uint8]:
        size = {"width": video.width, "height": video.height}
        flat = reformatter.reformat(frame, **size, format="rgb24", interpolation="BILINEAR", threads=1)
        stored = flat.to_ndarray()[:, ::-1] if video.mirrored else flat.to_ndarray()
        return np.ascontiguousarray(np.rot90(stored, video.turns).astype(np.uint8))

    return pixels


def _times_of(
    packets: Sequence[_Packet], base: Fraction, rate: Fraction, *, misordered: bool, discontinuous: bool
) -> Times:
    """Computes the times of frames from their packets, in the order of the file.

    Args:
        packets: All packets that decode to frames.
        base: Unit of their times, in seconds.
        rate: Frames per second, for packets without a duration.
        misordered: Their presentation times are in the order of decoding, so their decoding times are used.
        discontinuous: Clocks may jump in this format (MPEG-TS, MPEG-PS). Jumps are closed, and frames with the time
            of the one before are spread evenly until the next.
    """
    if any(packet.pts is None for packet in packets):
        count = len(packets)
        return Times(np.arange(count), 1 / rate, np.zeros(1, dtype=np.int64), float(1 / rate), counted=True)
    counted = misordered
    if misordered:
        packets = [replace(packet, pts=packet.dts) for packet in packets]
    if discontinuous and (joined := _joined(packets, round(_JUMP_S / base))) is not None:
        packets, counted = joined, True
    pts_F = np.sort(np.array([packet.pts for packet in packets], dtype=np.int64))
    distinct_F = np.unique(pts_F)
    few_equal = 1 - _FEW < len(distinct_F) / len(pts_F) < 1  # if more were equal, they would be a frame's two fields
    counted = counted or (discontinuous and few_equal)
    pts_F = _spread(pts_F) if discontinuous and few_equal else distinct_F
    last = max(packets, key=lambda packet: packet.pts or 0)
    last_s = float(last.duration * base) if last.duration else float(1 / rate)
    if misordered:  # their durations belong to places, some of which are empty
        last_s = float(int(pts_F[-1] - pts_F[-2]) * base)
    key_K = np.unique(np.array([packet.pts for packet in packets if packet.key], dtype=np.int64))
    return Times(pts_F, base, key_K, last_s, counted)


def _ascend(times: Sequence[int | None]) -> bool:
    """Returns whether no time is None and they ascend strictly."""
    return None not in times and all(a < b for a, b in pairwise(times))  # type: ignore[operator]


def _joined(packets: Sequence[_Packet], most: int) -> list[_Packet] | None:
    """Returns the packets with jumps of the clock closed; None if it never goes back or ahead by more than `most`."""
    joined, shift, step = [], 0, 0
    before: int | None = None
    for packet in packets:
        if packet.dts is not None:
            passed = 0 if before is None else packet.dts - before
            if not 0 <= passed <= most:
                shift += (step or packet.duration or 1) - passed
            elif passed:
                step = passed
            before = packet.dts
        joined.append(replace(packet, pts=(packet.pts or 0) + shift))
    return joined if shift else None


def _spread(pts_F: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Spreads frames with equal times evenly until the next time; the last ones use the previous step."""
    distinct, first, count = np.unique(pts_F, return_index=True, return_counts=True)
    end = distinct[-1] + (count[-1] * (distinct[-1] - distinct[-2]) if count[-1] > 1 else 1)
    width_F = np.repeat(np.diff(distinct, append=end), count)
    place_F = np.arange(len(pts_F)) - np.repeat(first, count)
    return np.unique(pts_F + width_F * place_F // np.repeat(count, count))
