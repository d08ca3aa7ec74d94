"""Which moments of a video are encoded: at a rate or evenly spaced, as single frames or as clips.

Pure arithmetic on times; `data/video.py` finds the frames shown at these times.

Shape suffixes: F frames of the file, N moments of the video, C clips, L moments of a clip.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ccr_cli.data.video import TooLarge
from ccr_cli.errors import UsageError

T = TypeVar("T")
_MOST = 100_000
_FASTEST = 1000.0
MOST_FRAMES = 4_000_000
"""Most frames per video over all its clips: 44 hours at 25 per second if clips are adjacent."""


@dataclass(frozen=True)
class Sampling:
    """Chooses moments, then forms clips of them.

    Each moment is the middle of a segment of the video, which lasts 1 / `fps` seconds or one `frames`-th of the whole
    (as TSN does at test time: Wang et al., ECCV 2016). So a file with 25 frames per second sampled at 25 gives every
    frame once, however its time stamps are rounded, and other rates are resampled by time, whether the file's own
    rate is constant or not.
    """

    fps: float = 1.0
    """Moments per second, at least one per video; 0: every frame of the file."""

    frames: int = 0
    """Number of moments, spread evenly over the whole video, instead of `fps`; 0: use `fps`."""

    clip_frames: int = 1
    """L, number of moments in a clip; 1: single frames. I3D takes 16 or 64 at fps=25."""

    clip_stride: int = 0
    """Moments from the start of one clip to the start of the next; 0: `clip_frames`, adjacent clips."""

    def __post_init__(self) -> None:
        """Checks the values; UsageError if one is out of range."""
        if not (math.isfinite(self.fps) and 0 <= self.fps <= _FASTEST):
            raise UsageError(f"fps={self.fps} is not between 0 and {_FASTEST:g}", hint="--set fps=25")
        for name, least in (("frames", 0), ("clip_frames", 1), ("clip_stride", 0)):
            if not least <= getattr(self, name) <= _MOST:
                raise UsageError(f"{name}={getattr(self, name)} is not between {least} and {_MOST}")

    def moments(self, duration_s: float, shown_F: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the moments (N,) in seconds after the first frame, ascending, within the video.

        N is `frames`, or the number of k = 0, 1, ... with (k + 0.5) / `fps` before the end, or F if fps is 0. It is at
        least one: the middle of a video shorter than half a segment.

        Args:
            duration_s: Seconds from the first frame to the end of the last.
            shown_F: When each frame appears, seconds after the first.

        Raises:
            TooLarge: If there are more than `MOST_FRAMES`: a small file can claim to last for days.
        """
        if not self.frames and not self.fps:
            _check(len(shown_F))
            return shown_F
        count = self.frames or math.ceil(duration_s * self.fps - 0.5)
        if count < 1:
            return np.array([duration_s / 2])
        _check(count)
        middle_N = np.arange(count, dtype=np.float64) + 0.5
        moment_N = middle_N * (duration_s / self.frames) if self.frames else middle_N / self.fps
        return np.minimum(moment_N, duration_s)

    def clips(self, duration_s: float, shown_F: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the moments (C, L) of every clip in seconds.

        A clip starts at every `clip_stride`-th moment, as long as it contains a moment that the clip before it lacks.
        So no moment is lost, except in the gaps of a stride longer than a clip. A clip that reaches past the end
        repeats the last moment. Arguments and errors are those of `moments`.
        """
        moment_N = self.moments(duration_s, shown_F)
        length, stride = self.clip_frames, self.clip_stride or self.clip_frames
        count = max(1, math.ceil((len(moment_N) - max(0, length - stride)) / stride))
        _check(count * length)
        at_CL = np.arange(count)[:, None] * stride + np.arange(length)[None, :]
        clip_CL: npt.NDArray[np.float64] = moment_N[np.minimum(at_CL, len(moment_N) - 1)]
        return clip_CL


def _check(count: int) -> None:
    if count > MOST_FRAMES:
        raise TooLarge(f"{count} frames to encode, at most {MOST_FRAMES}")


def gather(frames: Iterable[T], number_CL: npt.NDArray[np.int64]) -> Iterator[list[T]]:
    """Yields the L frames of every clip, holding only frames that a later clip needs.

    Args:
        frames: One frame (pixels, or anything made of them) per number in `np.unique(number_CL)`, in that order.
        number_CL: Frame numbers of every clip, ascending within a clip; the first numbers of the clips ascend too.
    """
    source = zip(np.unique(number_CL).tolist(), frames, strict=True)
    held: dict[int, T] = {}
    newest = -1
    for row in number_CL.tolist():
        held = {number: frame for number, frame in held.items() if number >= row[0]}
        while newest < row[-1]:
            newest, frame = next(source)
            held[newest] = frame
        yield [held[number] for number in row]
