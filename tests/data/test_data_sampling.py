"""Moments and clips of a video: counts, order and bounds, for any length and rate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccr_cli.data.sampling import Sampling, gather
from ccr_cli.data.video import TooLarge
from ccr_cli.errors import UsageError

NONE = np.zeros(1)
durations = st.floats(1e-3, 30.0)
samplings = st.builds(
    Sampling,
    fps=st.one_of(st.just(0.0), st.floats(0.01, 60)),
    frames=st.sampled_from([0, 0, 1, 2, 8, 64]),
    clip_frames=st.sampled_from([1, 2, 8, 16, 64]),
    clip_stride=st.sampled_from([0, 1, 3, 8, 16, 100]),
)


def shown(duration_s: float, frames: int) -> npt.NDArray[np.float64]:
    return np.arange(frames, dtype=np.float64) * (duration_s / frames)


@settings(deadline=None, max_examples=60)
@given(samplings, durations, st.integers(1, 40))
def test_moments_ascend_within_the_video(sampling: Sampling, duration_s: float, frames: int) -> None:
    moment_N = sampling.moments(duration_s, shown(duration_s, frames))
    assert len(moment_N) >= 1
    assert moment_N[0] >= 0
    assert moment_N[-1] <= duration_s
    assert (np.diff(moment_N) > 0).all()
    if sampling.frames:
        assert len(moment_N) == sampling.frames
    elif not sampling.fps:
        assert len(moment_N) == frames
    else:
        assert abs(len(moment_N) - duration_s * sampling.fps) <= 0.5 + 1e-9 or len(moment_N) == 1


@settings(deadline=None, max_examples=60)
@given(samplings, durations, st.integers(1, 40))
def test_clips_lose_no_moment_and_repeat_only_the_last(sampling: Sampling, duration_s: float, frames: int) -> None:
    shown_F = shown(duration_s, frames)
    moment_N = sampling.moments(duration_s, shown_F)
    clip_CL = sampling.clips(duration_s, shown_F)
    length, stride = sampling.clip_frames, sampling.clip_stride or sampling.clip_frames
    assert clip_CL.shape[1] == length
    for number, clip in enumerate(clip_CL):
        expected = moment_N[number * stride : number * stride + length]
        np.testing.assert_array_equal(clip[: len(expected)], expected)
        assert len(expected) > 0
        assert (clip[len(expected) :] == moment_N[-1]).all()
        if number:
            assert not set(expected) <= set(clip_CL[number - 1])
    if stride <= length:
        assert set(clip_CL.flat) == set(moment_N)
    else:
        assert (len(clip_CL) - 1) * stride < len(moment_N) <= len(clip_CL) * stride


@pytest.mark.parametrize(
    ("sampling", "frames"),
    [
        (Sampling(fps=25, clip_frames=16), 2),
        (Sampling(fps=1000), 2),
        (Sampling(fps=1, clip_frames=64, clip_stride=1), 2),
        (Sampling(fps=0), 4_000_001),
    ],
)
def test_a_video_that_would_fill_the_memory(sampling: Sampling, frames: int) -> None:
    with pytest.raises(TooLarge, match=r"\b\d{7,}\b.*\b4000000\b"):
        sampling.clips(6.9 * 24 * 3600, np.zeros(frames))
    assert sampling.clips(3600.0, np.arange(10.0)).shape[1] == sampling.clip_frames


@pytest.mark.parametrize(
    ("moments", "length", "stride", "clips"),
    [
        (64, 64, 0, 1),
        (65, 64, 0, 2),
        (63, 64, 0, 1),
        (1, 16, 0, 1),
        (128, 16, 0, 8),
        (20, 16, 8, 2),
        (24, 16, 8, 2),
        (25, 16, 8, 3),
        (10, 4, 1, 7),
        (10, 2, 5, 2),
        (11, 2, 5, 3),
        (10, 1, 0, 10),
    ],
)
def test_number_of_clips(moments: int, length: int, stride: int, clips: int) -> None:
    sampling = Sampling(fps=25, clip_frames=length, clip_stride=stride)
    assert sampling.clips(moments / 25, NONE).shape == (clips, length)


@pytest.mark.parametrize("rate", [23.976, 24, 25, 29.97, 30, 50, 59.94, 60])
@pytest.mark.parametrize("tick", [1e-3, 1 / 90000, 1 / 12800])
def test_a_file_read_at_its_own_rate_gives_every_frame_once(rate: float, tick: float) -> None:
    shown_F = np.round(np.arange(250) / rate / tick) * tick
    moment_N = Sampling(fps=rate).moments(250 / rate, shown_F)
    np.testing.assert_array_equal(np.searchsorted(shown_F, moment_N, side="right") - 1, np.arange(250))


def test_the_middle_of_segments_and_of_seconds() -> None:
    np.testing.assert_allclose(Sampling(frames=4).moments(8.0, NONE), [1, 3, 5, 7])
    np.testing.assert_allclose(Sampling(fps=1).moments(3.2, NONE), [0.5, 1.5, 2.5])
    np.testing.assert_allclose(Sampling(fps=1).moments(3.6, NONE), [0.5, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(Sampling(fps=1).moments(0.3, NONE), [0.15])
    np.testing.assert_array_equal(Sampling(fps=0).moments(1.0, np.array([0, 0.1, 0.7])), [0, 0.1, 0.7])


@pytest.mark.parametrize(
    "wrong",
    [
        {"fps": -1},
        {"fps": float("nan")},
        {"fps": float("inf")},
        {"fps": 1e6},
        {"frames": -1},
        {"frames": 10**7},
        {"clip_frames": 0},
        {"clip_stride": -1},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="{}={}".format(*next(iter(wrong.items())))):
        Sampling(**wrong)


def test_every_field_is_a_plain_number() -> None:
    assert all(isinstance(value, int | float) for value in dataclasses.asdict(Sampling()).values())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 25))
def test_gathering_gives_the_rows_and_holds_no_more_than_a_clip(moments: int, length: int, stride: int) -> None:
    sampling = Sampling(fps=25, clip_frames=length, clip_stride=stride)
    number_CL = np.floor(sampling.clips(moments / 25, NONE) * 15).astype(np.int64)  # a file of 15 frames a second
    alive: set[int] = set()

    class Held:
        def __init__(self, number: int) -> None:
            self.number = number
            alive.add(number)

        def __del__(self) -> None:
            alive.discard(self.number)

    clips = []
    for clip in gather((Held(number) for number in np.unique(number_CL).tolist()), number_CL):
        clips.append([frame.number for frame in clip])
        assert len(alive) <= length + 1
    assert clips == number_CL.tolist()


def test_gathering_notices_a_stream_that_ends_early() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(gather(iter("ab"), np.array([[0, 1], [1, 2]])))
