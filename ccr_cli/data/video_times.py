"""The times of a video's frames, from its packets; repairs times that cannot be right.

Shape suffixes: F frames of the file, K keyframes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_JUMP_S = 10.0
_FEW = 0.25


@dataclass(frozen=True)
class Packet:
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
    """The decoder's times do not identify frames; their order of decoding does."""


def times_of(
    packets: Sequence[Packet], base: Fraction, rate: Fraction, *, misordered: bool, discontinuous: bool
) -> Times:
    """Computes the times of frames from their packets.

    Args:
        packets: All packets that decode to frames, in the order of the file.
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
    if discontinuous and len(pts_F) * (1 - _FEW) < len(distinct_F) < len(
        pts_F
    ):  # if there were more, they would be the two fields of a frame
        pts_F, counted = _spread(pts_F), True
    else:
        pts_F = distinct_F
    last = max(packets, key=lambda packet: packet.pts or 0)
    last_s = float(last.duration * base) if last.duration else float(1 / rate)
    if misordered:  # their durations belong to places, some of which are empty
        last_s = float(int(pts_F[-1] - pts_F[-2]) * base)
    key_K = np.unique(np.array([packet.pts for packet in packets if packet.key], dtype=np.int64))
    return Times(pts_F, base, key_K, last_s, counted)


def ascend(times: Sequence[int | None]) -> bool:
    """Returns whether no time is None and they ascend strictly."""
    return None not in times and all(a < b for a, b in pairwise(times))  # type: ignore[operator]


def _joined(packets: Sequence[Packet], most: int) -> list[Packet] | None:
    """The packets with a continuous clock; None if it never goes back or ahead by more than `most`."""
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
    """Spreads frames of equal times evenly until the next time; those of the last time use the step before."""
    distinct, first, count = np.unique(pts_F, return_index=True, return_counts=True)
    width = np.diff(distinct)
    if count[-1] > 1:
        distinct = np.append(distinct, distinct[-1] + count[-1] * width[-1])
    width_F = np.repeat(np.diff(distinct) if count[-1] > 1 else np.append(width, 1), count)
    place_F = np.arange(len(pts_F)) - np.repeat(first, count)
    return np.unique(pts_F + width_F * place_F // np.repeat(count, count))
