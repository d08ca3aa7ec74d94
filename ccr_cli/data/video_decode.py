"""Decoding frames of a video file to RGB, by torchcodec or by PyAV, which are to give the same pixels.

Both convert by swscale, bilinear. Where a standard says bit by bit what a decoder gives, and where that is planar YUV
of 8 bits and even size, pixels are equal to the last bit, with FFmpeg 5.1 as with 8. Everything else is left to PyAV:
MPEG-1, 2 and 4, whose transform is not exact (2 levels of 255), odd sizes and 10 bits (over 60 levels at edges of
colours), interlaced files (23 levels at edges of colours), mirrored ones, those without usable times, and all in which
anything is amiss. What remains: bits damaged inside a frame, which no packet tells of, are painted over by each as its
FFmpeg does; and a file counts as interlaced by its first frame.

Shape suffixes: F frames of the file, N frames asked for, H height, W width, K keyframes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ccr_cli.data.video_index import Index, Undecodable, decode_packets, opened, video_stream

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame

Pixels = npt.NDArray[np.uint8]
_EXACT_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1"})
_SAME_COLOURS = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p"})
_PART, _PART_BYTES = 16, 1 << 26
"""Most frames that torchcodec decodes at once; fewer where they are large, so that a thread needs no more memory."""
_WORTH_A_SEEK = 8


@cache
def torchcodec_decoder() -> Any:
    """The decoder of torchcodec, or None where it does not import: it raises whatever comes to its mind then."""
    try:
        from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined,unused-ignore]
    except Exception:
        return None
    return VideoDecoder


def by_torchcodec(index: Index, number_N: npt.NDArray[np.int64]) -> Iterator[Pixels]:
    """Upright frames for as long as torchcodec gives those that the index has; the rest is for PyAV."""
    same_colours = index.pixel_format in _SAME_COLOURS and index.width % 2 == index.height % 2 == 0
    usual = index.sound and not (index.times.counted or index.interlaced or index.mirrored)
    equal = usual and index.codec in _EXACT_CODECS and same_colours
    decoder_of = torchcodec_decoder() if equal and len(number_N) else None
    if decoder_of is None:
        return
    shown_F = index.times.pts_F * float(index.times.base)
    try:
        decoder = decoder_of(
            str(index.path.absolute()), stream_index=index.stream, dimension_order="NHWC", num_ffmpeg_threads=1
        )
        same = len(decoder) == len(index.times.pts_F)
    except RuntimeError:
        return
    part = max(1, min(_PART, _PART_BYTES // (3 * index.width * index.height)))
    for first in range(0, len(number_N) if same else 0, part):
        part_N = number_N[first : first + part]
        try:
            batch = decoder.get_frames_at(part_N.tolist())
        except RuntimeError:
            return
        right = np.abs(batch.pts_seconds.numpy() - shown_F[part_N]) < float(index.times.base) / 2
        if not right.all() or batch.data.shape[1:] != (*index.shape_HW, 3):
            return
        yield from batch.data.numpy()


def by_av(index: Index, number_N: npt.NDArray[np.int64]) -> Iterator[tuple[Pixels, bool]]:
    """Upright frames, each with whether it is the very one asked for; from the start again where seeking fails."""
    upright, done = _Upright(index), 0
    for seeking in (not index.times.counted, False):
        with opened(index.path) as container:
            walk = _Walk(container, index, seeking)
            try:
                asked_N = number_N if index.times.counted else index.times.pts_F[number_N]
                for pts in asked_N[done:].tolist():
                    frame, exact = walk.shown_at(pts)
                    yield upright(frame), exact
                    done += 1
                return
            except _LostError:
                continue


class _LostError(Exception):
    """Seeking did not lead to the keyframe."""


class _Walk:
    """Goes through a file from frame to frame, over what nobody asked for by leaps from keyframe to keyframe."""

    def __init__(self, container: InputContainer, index: Index, seeking: bool) -> None:
        self._container, self._index, self._seeking = container, index, seeking
        self._stream = video_stream(container, index.stream)
        self._frames = self._timed(None)
        self._before: tuple[int, VideoFrame] | None = None
        self._ahead: tuple[int, VideoFrame] | None = None

    def shown_at(self, pts: int) -> tuple[VideoFrame, bool]:
        """The frame of this time, which is not before the last one asked for, or its neighbour; and whether it is it.

        Raises:
            _LostError: If seeking fails.
            Undecodable: If nothing decodes.
        """
        if self._seeking:
            self._leap(pts)
        while self._before is None or self._before[0] < pts:
            self._ahead = self._ahead or next(self._frames, None)
            if self._ahead is None or self._ahead[0] > pts:
                break
            self._before, self._ahead = self._ahead, None
        if (found := self._before or self._ahead) is None:
            raise Undecodable("no frame decodes")
        return found[1], found[0] == pts

    def _leap(self, pts: int) -> None:
        """Seeks the last keyframe before a time, if it lies well ahead; neither ends at a frame that is not whole."""
        number = int(np.searchsorted(self._index.times.key_K, pts, side="right")) - 1
        if number < 0:
            return
        key = int(self._index.times.key_K[number])
        reached = self._ahead or self._before
        here: int = reached[0] if reached else int(self._index.times.pts_F[0])
        key_at, here_at = np.searchsorted(self._index.times.pts_F, [key, here])
        if key_at - here_at < _WORTH_A_SEEK:
            return
        try:
            self._container.seek(key, stream=self._stream)
        except (OSError, ValueError):
            raise _LostError from None
        self._frames = self._timed(key)
        self._ahead = next(self._frames, None)
        if self._ahead is None or self._ahead[0] != key:  # it was a point of recovery: pictures are whole only later
            raise _LostError

    def _timed(self, key: int | None) -> Iterator[tuple[int, VideoFrame]]:
        """Frames with their times; those before `key` may lack what they build upon."""
        for number, frame in enumerate(decode_packets(self._container, self._stream, key)):
            pts = number if self._index.times.counted else frame.pts
            if pts is not None and (key is None or pts >= key):
                yield pts, frame


class _Upright:
    """Turns decoded frames into pixels, all of one size and the right way up."""

    def __init__(self, index: Index) -> None:
        from av.video.reformatter import VideoReformatter

        self._index, self._reformatter = index, VideoReformatter()
        self._last: tuple[VideoFrame, Pixels] | None = None

    def __call__(self, frame: VideoFrame) -> Pixels:
        if self._last is not None and self._last[0] is frame:
            return self._last[1]
        size = {"width": self._index.width, "height": self._index.height}
        flat = self._reformatter.reformat(frame, **size, format="rgb24", interpolation="BILINEAR", threads=1)
        stored = flat.to_ndarray()[:, ::-1] if self._index.mirrored else flat.to_ndarray()
        pixels: Pixels = np.ascontiguousarray(np.rot90(stored, self._index.turns).astype(np.uint8))
        self._last = frame, pixels
        return pixels
