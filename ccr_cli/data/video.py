"""Videos as RGB frames, chosen by the time at which they are shown.

PyAV, whose wheels bring FFmpeg along, reads the times of all packets without decoding them: they say which frames
there are. torchcodec, where it imports, then decodes the frames of files in which nothing is amiss; every frame must
come with the time that the packets gave it. Where it does not import, or stops, or gives another frame, PyAV decodes.
Both convert to RGB by the same routine (swscale, bilinear); the pixel formats in which they do not are left to
PyAV. So pixels do not depend on which of them is at work.

    video = open_video(path)
    clip_CL = sampling.clips(video.facts.duration_s, video.shown_F)
    number_CL = video.at(clip_CL)
    for clip in gather((prepare(frame.pixels) for frame in video.stream(np.unique(number_CL))), number_CL):
        ...  # L prepared frames

Time stamps count from the first frame, whatever the file's clock says. Rotation and mirroring that the file asks for
are applied; pixels that are not square stay as they are. Sound plays no part.

Shape suffixes: F frames of the file, N frames asked for, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ccr_cli.data.video_decode import Pixels, by_av, by_torchcodec
from ccr_cli.data.video_index import (
    MAX_PIXELS,
    Index,
    NoFrames,
    NoVideoStream,
    TooLarge,
    Undecodable,
    VideoError,
    read_index,
)

__all__ = [
    "MAX_PIXELS",
    "Backend",
    "Facts",
    "Frame",
    "Frames",
    "NoFrames",
    "NoVideoStream",
    "TooLarge",
    "Undecodable",
    "Video",
    "VideoError",
    "backends",
    "missing",
    "open_video",
    "probe",
    "read_frames",
]

Backend = Literal["auto", "av"]


@dataclass(frozen=True)
class Facts:
    """What a file is, by its packets and its first frame."""

    duration_s: float
    """From the first frame to the end of the last."""
    frames: int
    """Frames that are there."""
    frames_expected: int | None
    """Frames that the header promises; None where it says nothing. More than `frames`: the file was cut off."""
    fps: float
    """Mean rate: frames / duration_s."""
    width: int
    """As shown: after rotation."""
    height: int
    rotation: int
    """Degrees by which frames are turned, counter-clockwise: 0, 90, 180 or 270; mirrored ones after left and right
    are exchanged."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One frame of a stream."""

    number: int
    """Which one of the file was asked for, from 0 in the order of presentation."""
    pixels: Pixels
    """(H, W, 3), RGB."""
    decoded: bool
    """Whether it is that frame: where it does not decode, the one before it stands in, else the one after."""


@dataclass(frozen=True, eq=False)
class Frames:
    """The frames asked for, and how many of them there are."""

    pixels_NHW3: Pixels
    number_N: npt.NDArray[np.int64]
    frames_expected: int
    """Different frames asked for."""
    frames_decoded: int
    """How many of them decode; neighbours stand in for the others."""


class Video:
    """A video whose frames can be streamed, any number of times and from several threads.

    Args:
        index: What `read_index` found in the file.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    @cached_property
    def shown_F(self) -> npt.NDArray[np.float64]:
        """When each frame appears, seconds after the first."""
        pts_F, base = self._index.times.pts_F, self._index.times.base
        shown_F: npt.NDArray[np.float64] = (pts_F - pts_F[0]) * base.numerator / base.denominator
        return shown_F

    @cached_property
    def facts(self) -> Facts:
        """What the file is."""
        index = self._index
        duration_s = float(self.shown_F[-1]) + index.times.last_s
        height, width = index.shape_HW
        return Facts(
            duration_s=duration_s,
            frames=len(index.times.pts_F),
            frames_expected=index.expected,
            fps=len(index.times.pts_F) / duration_s,
            width=width,
            height=height,
            rotation=90 * index.turns,
        )

    def at(self, times_s: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Numbers of the frames that are on the screen at these times, in any shape; outside, the first or last."""
        after = np.searchsorted(self.shown_F, np.asarray(times_s, dtype=np.float64), side="right")
        return np.maximum(np.asarray(after, dtype=np.int64) - 1, 0)

    def stream(self, numbers: npt.ArrayLike, backend: Backend = "auto") -> Iterator[Frame]:
        """Decodes frames, holding one at a time (with torchcodec at most 16, and 64 MiB or one).

        Args:
            numbers: Of the frames, ascending, none twice.
            backend: `auto`: torchcodec where it imports and the file is sound, else PyAV; `av`: PyAV alone.

        Yields:
            A frame for each number.

        Raises:
            VideoError: If the file has changed since it was opened, and gives no frames any more.
        """
        number_N = np.asarray(numbers, dtype=np.int64)
        assert number_N.ndim == 1 and (np.diff(number_N) > 0).all(), "frames are asked for in ascending order"
        assert not len(number_N) or (number_N[0] >= 0 and number_N[-1] < len(self._index.times.pts_F)), "no such frame"
        done = 0
        for pixels in by_torchcodec(self._index, number_N) if backend == "auto" else ():
            yield Frame(int(number_N[done]), pixels, decoded=True)
            done += 1
        for pixels, decoded in by_av(self._index, number_N[done:]):
            yield Frame(int(number_N[done]), pixels, decoded)
            done += 1


def open_video(path: Path, max_pixels: int = MAX_PIXELS) -> Video:
    """Reads the times of all frames, and decodes the first.

    Args:
        path: A local file of any format that FFmpeg knows.
        max_pixels: Most pixels in a frame.

    Raises:
        FileNotFoundError: If the file is not there.
        NoVideoStream: If it holds no pictures, or only a cover.
        NoFrames: If it holds a video of no frames.
        TooLarge: If a frame has more pixels than allowed.
        Undecodable: If it is no media file, or so damaged that no frame decodes.
        UnavailableError: If PyAV is not installed.
    """
    return Video(read_index(path, max_pixels))


def probe(path: Path, max_pixels: int = MAX_PIXELS) -> Facts:
    """What a file is; raises as `open_video` does."""
    return open_video(path, max_pixels).facts


def read_frames(
    path: Path,
    *,
    times_s: Sequence[float] | npt.NDArray[np.float64] | None = None,
    numbers: Sequence[int] | npt.NDArray[np.int64] | None = None,
    max_pixels: int = MAX_PIXELS,
    backend: Backend = "auto",
) -> Frames:
    """Decodes the frames shown at some times, or of some numbers, in any order, and keeps them all.

    Args:
        path: A local file of any format that FFmpeg knows.
        times_s: Seconds after the first frame.
        numbers: In place of times: numbers of the frames from 0; beyond the ends, the first or last.
        max_pixels: Most pixels in a frame.
        backend: `auto`, or `av` for PyAV alone.

    Raises:
        FileNotFoundError: If the file is not there.
        VideoError: If it gives no frames (see `open_video`).
    """
    assert (times_s is None) != (numbers is None), "either times or numbers"
    video = open_video(path, max_pixels)
    if times_s is not None:
        number_N = video.at(times_s)
    else:
        number_N = np.clip(np.asarray(numbers, dtype=np.int64), 0, len(video.shown_F) - 1)
    wanted, place_N = np.unique(number_N, return_inverse=True)
    found = list(video.stream(wanted, backend))
    shape = (0, video.facts.height, video.facts.width, 3)
    pixels = np.stack([found[place].pixels for place in place_N]) if len(found) else np.zeros(shape, np.uint8)
    return Frames(pixels, number_N, len(wanted), sum(frame.decoded for frame in found))


def backends() -> dict[str, str]:
    """What decodes here, with versions; results do not depend on it."""
    found = {}
    for name in ("av", "torchcodec"):
        with suppress(Exception):  # torchcodec raises anything where FFmpeg or torch do not fit
            found[name] = str(import_module(name).__version__)
    return found


def missing() -> tuple[str, str] | None:
    """Says what is missing for reading videos and how to get it; None where nothing is."""
    return None if find_spec("av") else ("not installed: av", "pip install 'ccr-cli[video]'")
