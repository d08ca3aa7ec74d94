"""What is in a video file: the times of its frames, read from the packets with PyAV, and its first frame decoded."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli.data.video_times import Packet, Times, ascend, times_of
from ccr_cli.errors import UnavailableError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

MAX_PIXELS = 64_000_000
_LONGEST_S = 7 * 24 * 3600.0
_USUAL_RATE = Fraction(25)
_DISCONTINUOUS = ("mpegts", "mpeg")
_REORDERED = 32
"""Frames among which the order shows, where packets say nothing of it."""
_OTHER_FILES = {"concat", "dash", "hls", "imf", "rtp", "rtsp", "sap", "sdp", "vobsub", "webm_dash_manifest"}
"""Formats that name other files or addresses."""


class VideoError(Exception):
    """A file that gives no frames; the class says why, the message says more."""


class NoVideoStream(VideoError):
    """A media file without pictures: sound alone, a cover at most."""


class NoFrames(VideoError):
    """A video of no frames at all."""


class Undecodable(VideoError):
    """A file that is no video, or damaged from the start, or of a codec that FFmpeg lacks."""


class TooLarge(VideoError):
    """Frames of more pixels than allowed, or more frames."""


@dataclass(frozen=True, eq=False)
class Index:
    """Where the frames of a file are, and what is needed to decode them."""

    path: Path
    stream: int
    times: Times
    expected: int | None
    """Frames that the header promises."""
    sound: bool
    """Nothing amiss so far: as many packets as promised, none damaged."""
    width: int
    """As stored, before any rotation."""
    height: int
    codec: str
    """FFmpeg's name of it, as of the pixel format."""
    pixel_format: str
    interlaced: bool
    """The first frame is made of two fields."""
    mirrored: bool
    """Left and right are exchanged, before any turn."""
    turns: int
    """Quarter turns, counter-clockwise, that bring the picture upright."""

    @property
    def shape_HW(self) -> tuple[int, int]:
        """Height and width as shown."""
        return (self.width, self.height) if self.turns % 2 else (self.height, self.width)


@contextmanager
def opened(path: Path) -> Iterator[InputContainer]:
    """Opens a local media file; it can make FFmpeg open no other file, nor an address of a network.

    Raises:
        FileNotFoundError: If it is not there.
        Undecodable: If FFmpeg cannot make anything of it.
        UnavailableError: If PyAV is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise UnavailableError(
            f"reading videos needs a package that is not installed: {error.name}", hint="pip install 'ccr-cli[video]'"
        ) from error
    if not path.stat().st_size:
        raise Undecodable("the file is empty")
    if not path.is_file():
        raise Undecodable("not a regular file")
    try:
        options = {"protocol_whitelist": "file", "format_whitelist": _formats()}
        container = av.open(str(path.absolute()), options=options, metadata_errors="replace", mode="r")
    except FileNotFoundError:
        raise
    except av.error.ArgumentError as error:  # what FFmpeg says of formats that are not in the list
        raise Undecodable(f"a list of other files, or no video that FFmpeg can read: {_short(error)}") from None
    except (av.FFmpegError, ValueError) as error:
        raise Undecodable(f"not a video that FFmpeg can read: {_short(error)}") from None
    with container:
        yield container


@cache
def _formats() -> str:
    """What may be opened, as FFmpeg takes it: everything but lists."""
    from av.format import formats_available

    return ",".join(sorted(formats_available - _OTHER_FILES))


def video_stream(container: InputContainer, number: int | None = None) -> VideoStream:
    """The stream of that number, or the one that a player would show; decoding takes one thread.

    Raises:
        NoVideoStream: If there is none; the cover of a piece of music is none.
        Undecodable: If there is no decoder for it.
    """
    from av.stream import Disposition

    found = container.streams.best("video") if number is None else container.streams[number]
    if found is None or found.disposition & Disposition.attached_pic:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise NoVideoStream(f"the file holds {kinds}, no video")
    stream: VideoStream = found  # type: ignore[assignment]
    if stream.codec_context is None:
        raise Undecodable("its codec is not known")
    stream.codec_context.thread_count = 1
    return stream


def decode_packets(container: InputContainer, stream: VideoStream, key: int | None = None) -> Iterator[VideoFrame]:
    """Every frame that decodes, from where the container stands; damaged packets are passed over.

    Args:
        container: The file.
        stream: The video in it.
        key: What must come first: the presentation time of a keyframe.

    Yields:
        Frames in the order of presentation; none if another packet than `key` comes first.
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


def read_index(path: Path, max_pixels: int = MAX_PIXELS) -> Index:
    """Reads the times of all packets and decodes the first frame.

    Raises:
        FileNotFoundError: If the file is not there.
        VideoError: If it gives no frames.
    """
    with opened(path) as container:
        stream = video_stream(container)
        _check_size(stream.width, stream.height, max_pixels)
        time_base = stream.time_base or Fraction(1, 1000)
        promised, rate = stream.frames, stream.average_rate or stream.guessed_rate or _USUAL_RATE
        packets, whole = _packets(container, stream)
        number, codec = stream.index, stream.codec_context.codec.canonical_name
        reorders, kind = stream.codec_context.has_b_frames, container.format.name
    shown = [packet for packet in packets if not packet.discarded]
    if not shown:
        raise NoFrames(f"the file has a video of no frames ({promised} promised)" if promised else "no frames")
    first = _first_frames(path, number, len(shown), 1)[0]
    _check_size(first.width, first.height, max_pixels)
    if kind == "avi" and len(packets) <= (packets[-1].dts or 0):  # its header counts places without a frame too
        promised = 0
    misordered = reorders and _misordered(path, number, shown)
    times = times_of(shown, time_base, rate, misordered=misordered, discontinuous=kind in _DISCONTINUOUS)
    if (span := float(int(times.pts_F[-1] - times.pts_F[0]) * times.base) + times.last_s) > _LONGEST_S:
        raise Undecodable(f"its time stamps span {span / 86400:.0f} days")
    return Index(
        path=path,
        stream=number,
        times=times,
        expected=promised - (len(packets) - len(shown)) if promised else None,
        sound=whole and promised in (0, len(packets)),
        width=first.width,
        height=first.height,
        codec=codec,
        pixel_format=first.format.name,
        interlaced=first.interlaced_frame,
        mirrored=(mirrored := _mirrored(first)),
        turns=(round(first.rotation / 90) + 2 * mirrored) % 4,
    )


def _packets(container: InputContainer, stream: VideoStream) -> tuple[list[Packet], bool]:
    """The packets of a stream, and whether they end where the file ends, none damaged."""
    import av

    found: list[Packet] = []
    whole = True
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return found, whole
        except av.FFmpegError:
            return found, False
        if packet.size:
            found.append(Packet(packet.pts, packet.dts, packet.duration or 0, packet.is_keyframe, packet.is_discard))
            whole = whole and not packet.is_corrupt


def _first_frames(path: Path, number: int, count: int, most: int) -> list[VideoFrame]:
    with opened(path) as container:
        frames = list(islice(decode_packets(container, video_stream(container, number)), most))
    if not frames:
        raise Undecodable(f"none of its {count} frames decodes")
    return frames


def _misordered(path: Path, number: int, shown: list[Packet]) -> bool:
    """Whether what the packets give as presentation times is the order of decoding, as in AVI with H.264's B-frames."""
    pts, dts = [packet.pts for packet in shown], [packet.dts for packet in shown]
    if not (ascend(pts) and ascend(dts)):
        return False
    return not ascend([frame.pts for frame in _first_frames(path, number, len(shown), _REORDERED)])


def _mirrored(frame: VideoFrame) -> bool:
    """Whether the matrix that says how a frame is shown turns it over; its angle then is half a turn off."""
    matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return False
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(matrix))
    return bool(a * d < b * c)


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise TooLarge(f"{width} x {height} pixels, at most {max_pixels}")


def _short(error: Exception) -> str:
    """FFmpeg's own words, without number and path."""
    return str(getattr(error, "strerror", None) or error)
