"""Small videos in which every frame says which one it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from ccr_cli.data.video import open_video

WIDTH, HEIGHT = 64, 48
BITS = 6
_CELL = 8


def painted(number: int, width: int = WIDTH, height: int = HEIGHT) -> npt.NDArray[np.uint8]:
    """A frame with its number in black and white cells along its upper edge, after a white one, on blue."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[:] = (40, 60, 200)
    for cell, bit in enumerate([1, *(number >> at & 1 for at in range(BITS))]):
        picture[:_CELL, cell * _CELL : (cell + 1) * _CELL] = 255 * bit
    return picture


def number_of(picture: npt.NDArray[np.uint8]) -> int:
    """Reads the number back; the frame must be the right way up."""
    inner = picture[2 : _CELL - 2].astype(int).mean(axis=(0, 2))
    cells = [inner[cell * _CELL + 2 : (cell + 1) * _CELL - 2].mean() > 128 for cell in range(BITS + 1)]
    assert cells[0], "not the right way up"
    return sum(bit << at for at, bit in enumerate(cells[1:]))


@dataclass(frozen=True)
class Frames:
    """Frames of a file, in the order of the request."""

    pixels_NHW3: npt.NDArray[np.uint8]
    expected: int
    """Different frames requested."""
    decoded: int
    """How many of them decode; neighbours stand in for the others."""

    @property
    def numbers(self) -> list[int]:
        """What is painted on them."""
        return [number_of(frame) for frame in self.pixels_NHW3]


def read_frames(path: Path, numbers: Sequence[int] | None = None, times_s: Sequence[float] = ()) -> Frames:
    """Decodes the frames of these numbers, or those shown at these times."""
    video = open_video(path)
    number_N = video.at(times_s) if numbers is None else np.array(numbers)
    distinct, place_N = np.unique(number_N, return_inverse=True)
    frames = list(video.stream(distinct))
    assert [frame.number for frame in frames] == distinct.tolist()
    pixels_NHW3 = np.stack([frames[place].pixels for place in place_N])
    return Frames(pixels_NHW3, len(distinct), sum(frame.decoded for frame in frames))


def write_video(
    path: Path,
    frames: int = 20,
    *,
    rate: int = 25,
    times_ms: Sequence[int] | None = None,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    size: tuple[int, int] = (WIDTH, HEIGHT),
    gop: int = 10,
    sound: bool = False,
    front: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """Writes painted frames, some of them B-frames.

    Args:
        path: Its suffix says which container.
        frames: How many.
        rate: Frames a second.
        times_ms: When each frame appears, in place of `rate`.
        codec: Encoder of FFmpeg.
        pixel_format: As FFmpeg calls it.
        size: Width and height.
        gop: Frames from one keyframe to the next.
        sound: With a second stream, of silence.
        front: MP4: the table of packets first, so that the rest can be cut off.
        options: More of the encoder's.
    """
    with av.open(str(path), "w", options={"movflags": "+faststart"} if front else {}) as out:
        stream = out.add_stream(codec, rate=1000 if times_ms else rate)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height = size
        stream.pix_fmt = pixel_format
        context = stream.codec_context
        context.gop_size, context.thread_count = gop, 1
        context.time_base = Fraction(1, 1000) if times_ms else Fraction(1, rate)
        context.options = {"bf": "2", "sc_threshold": "0", "b": "2000000"} if "264" not in codec else {"qp": "18"}
        context.options = context.options | (options or {})
        silence = out.add_stream("aac", rate=16000) if sound else None
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(painted(number, *size), format="rgb24")
            frame.pts, frame.time_base = times_ms[number] if times_ms else number, context.time_base
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        if silence is not None:
            write_silence(out, silence, frames / rate)
    return path


def write_silence(out: av.container.OutputContainer, stream: av.AudioStream, seconds: float) -> None:
    """Fills a stream of sound."""
    for at in range(0, int(seconds * 16000), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, at
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))


def write_sound(path: Path) -> Path:
    """Writes a second of silence and no picture."""
    with av.open(str(path), "w") as out:
        write_silence(out, out.add_stream("aac", rate=16000), 1.0)
    return path


def write_no_frames(path: Path) -> Path:
    """Writes an MP4 whose video has all but frames."""
    whole = write_video(path, 1, front=True).read_bytes()
    path.write_bytes(whole[: whole.index(b"mdat") + 4])
    return path


def turn(path: Path, quarters: int) -> Path:
    """Makes an MP4 ask players to turn it clockwise, by the matrix of its track header."""
    a, b = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters % 4]
    return show_by(path, a, b, -b, a)


def show_by(path: Path, a: int, b: int, c: int, d: int) -> Path:
    """Makes an MP4 ask players to show what is at (x, y) at (ax + cy, bx + dy), moved into view."""
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 4 + 40
    one = 1 << 16
    content[start : start + 36] = struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
    return path


def cut(path: Path, share: float) -> Path:
    """Leaves only the first part of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def spoil(path: Path, packet: int) -> Path:
    """Overwrites an MP4 with `front` from some packet on, in the order of the file."""
    with av.open(str(path)) as file:
        places = sorted(found.pos for found in file.demux(video=0) if found.pos is not None and found.size)
    content = bytearray(path.read_bytes())
    content[places[packet] :] = b"\xff" * (len(content) - places[packet])
    path.write_bytes(content)
    return path
