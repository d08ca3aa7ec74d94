"""Bootstrap intervals against loops that draw queries one by one, and how often they hold the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ranked import problem, ranked, slow
from scipy import stats

from ccr_cli.metrics import bootstrap
from ccr_cli.metrics.bootstrap import FIGURES, RankedGallery, RankedQueries, intervals

Array = npt.NDArray[np.float64]


def of_queries(item_Q: Any, rank_Q: Any) -> RankedGallery:
    """A gallery in which the second direction is as good as it can be."""
    return RankedGallery(ranked(item_Q, rank_Q), ranked(np.unique(item_Q), np.ones(len(np.unique(item_Q)))))


def resampled(sides: tuple[RankedQueries, RankedQueries], rng: np.random.Generator) -> Array:
    """The figures of one resample, its queries written out one after the other."""
    items = sorted({*sides[0].item_Q, *sides[1].item_Q})
    drawn = [items[i] for i in rng.integers(0, len(items), len(items))]
    parts = []
    for side in sides:
        at = np.array([q for item in drawn for q in np.flatnonzero(side.item_Q == item)], dtype=int)
        parts.append(RankedQueries(side.item_Q[at], side.rank_Q[at], side.ap_Q[at]))
    return slow(parts)


@pytest.mark.parametrize("n_folds", [1, 3])
@pytest.mark.parametrize("room", [2**22, 50])
def test_every_interval_is_that_of_queries_written_out(
    n_folds: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ROOM", room)  # 50: several blocks of resamples
    folds = [problem(n, 9 + n) for n in range(n_folds)]
    found = intervals([RankedGallery(*fold) for fold in folds], seed=3, samples=200)
    rng = np.random.default_rng(3)
    values = np.mean([[resampled(fold, rng) for _ in range(200)] for fold in folds], axis=0)
    low, high = np.percentile(values, [2.5, 97.5], axis=0)
    estimate = np.mean([slow(list(fold)) for fold in folds], axis=0)
    assert tuple(found) == FIGURES
    np.testing.assert_allclose([i.estimate for i in found.values()], estimate, rtol=1e-12)
    np.testing.assert_allclose([i.low for i in found.values()], low, rtol=1e-12)
    np.testing.assert_allclose([i.high for i in found.values()], high, rtol=1e-12)


def test_a_proportion_agrees_with_the_binomial() -> None:
    gallery = of_queries(np.arange(400), [1] * 120 + [50] * 280)
    found = intervals([gallery], samples=2000)["t2v.R@1"]
    assert found.estimate == 30.0
    # resampling 400 answers of which 30 % are right *is* Binomial(400, 0.3)
    low, high = stats.binom.ppf([0.025, 0.975], 400, 0.3) / 4.0
    assert abs(found.low - low) < 0.6 and abs(found.high - high) < 0.6
    assert intervals([gallery], samples=2000)["t2v.R@1"] == found
    assert intervals([gallery], seed=1, samples=2000)["t2v.R@1"] != found


def test_drawing_items_widens_the_interval_when_their_captions_agree() -> None:
    rank = [1] * 100 + [50] * 100  # 40 items of five captions with one fate
    alone = intervals([of_queries(np.arange(200), rank)])["t2v.R@1"]
    grouped = intervals([of_queries(np.arange(200) // 5, rank)])["t2v.R@1"]
    # sd of a mean of n fair coins is 50 / sqrt(n): 200 captions 3.5, 40 items 7.9; the interval is 3.92 sd
    assert alone.high - alone.low == pytest.approx(3.92 * 50 / math.sqrt(200), rel=0.15)
    assert grouped.high - grouped.low == pytest.approx(3.92 * 50 / math.sqrt(40), rel=0.15)


def test_sum_r_draws_the_same_items_in_both_directions() -> None:
    both = RankedGallery(ranked(np.arange(20) // 10, [1] * 10 + [50] * 10), ranked([0, 1], [1, 50]))
    found = intervals([both], samples=300)["SumR"]
    assert (found.estimate, found.low, found.high) == (300.0, 0.0, 600.0)  # both items good, or both bad


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """150 test sets of 80 items whose three captions share the item's difficulty, from a known population."""
    rng = np.random.default_rng(0)
    names = ("t2v.R@1", "t2v.MedR", "t2v.mAP", "SumR", "mAP")

    def sides(n_items: int) -> tuple[RankedQueries, RankedQueries]:
        hard_V = rng.normal(1.0, 1.0, n_items)
        rank_T = np.ceil(np.exp(np.repeat(hard_V, 3) + rng.normal(0, 0.7, 3 * n_items)))
        rank_V = np.ceil(np.exp(hard_V + rng.normal(0, 0.7, n_items)))
        return ranked(np.repeat(np.arange(n_items), 3), rank_T), ranked(np.arange(n_items), rank_V)

    truth = dict(zip(FIGURES, RankedGallery(*sides(200_000)).figures()[0], strict=True))
    held = dict.fromkeys(names, 0)
    for n in range(150):
        found = intervals([RankedGallery(*sides(80))], seed=n, samples=300)
        for name in names:
            held[name] += found[name].low <= truth[name] <= found[name].high
    # 95 % of 150 are 142.5; percentile intervals of 80 items are a little narrow; three sd are 8
    assert all(132 <= count <= 150 for count in held.values()), held


def test_a_direction_without_queries_says_nothing() -> None:
    found = intervals([RankedGallery(ranked([1, 2, 2], [1, 5, 9]), ranked([], []))], samples=50)
    assert not math.isnan(found["t2v.MedR"].low) and math.isnan(found["v2t.MedR"].low)
    assert math.isnan(found["SumR"].estimate) and math.isnan(found["mAP"].high)
    # two items, one of which is asked for by pictures alone: a quarter of the resamples has no caption
    some = intervals([RankedGallery(ranked([1], [3]), ranked([1, 2], [1, 1]))], samples=50)["t2v.MedR"]
    assert (some.estimate, some.low, some.high) == (3.0, 3.0, 3.0)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="0 queries"):
        RankedGallery(ranked([], []), ranked([], []))
