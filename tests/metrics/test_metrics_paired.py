"""Paired intervals and tests against slow loops, and what they say where nothing differs."""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt
import pytest
from ranked import problem, ranked, slow
from scipy import stats

from ccr_cli.metrics.bootstrap import FIGURES, RankedGallery, RankedQueries
from ccr_cli.metrics.paired import differences, holm, interval_of_difference

Array = npt.NDArray[np.float64]
Sides = tuple[RankedQueries, RankedQueries]


def again(sides: Sides, seed: int, better: float = 0.0) -> Sides:
    """Another system, asked the same."""
    rng = np.random.default_rng(seed)

    def other(side: RankedQueries) -> RankedQueries:
        rank = np.maximum(1, np.round(side.rank_Q * np.exp(rng.normal(-better, 0.8, len(side.rank_Q)))))
        return RankedQueries(side.item_Q, rank, rng.random(len(rank)))

    return other(sides[0]), other(sides[1])


def mean_figures(system: list[list[Sides]], fold: int) -> Array:
    mean: Array = np.mean([slow(list(run[fold])) for run in system], axis=0)
    return mean


def written_out(sides: Sides, drawn: list[int]) -> Sides:
    """The queries of the drawn items, as often as they were drawn."""
    parts = []
    for side in sides:
        at = np.array([q for item in drawn for q in np.flatnonzero(side.item_Q == item)], dtype=int)
        parts.append(RankedQueries(side.item_Q[at], side.rank_Q[at], side.ap_Q[at]))
    return parts[0], parts[1]


@pytest.mark.parametrize(("n_folds", "seeds"), [(1, (1, 1)), (2, (1, 1)), (1, (3, 2))])
def test_the_interval_is_that_of_queries_written_out(n_folds: int, seeds: tuple[int, int]) -> None:
    folds = [problem(n, 10) for n in range(n_folds)]
    one, two = ([[again(f, 10 * s + side) for f in folds] for s in range(seeds[side])] for side in (0, 1))
    first, second = ([[RankedGallery(*f) for f in run] for run in system] for system in (one, two))
    found = differences(first, second, seed=5, samples=150, flips=9)
    rng = np.random.default_rng(5)
    values = []
    for n, fold in enumerate(folds):
        items = sorted({int(i) for side in fold for i in side.item_Q})
        rows = []
        for _ in range(150):
            drawn = [items[i] for i in rng.integers(0, len(items), len(items))]
            a, b = ([[written_out(run[n], drawn)] for run in system] for system in (one, two))
            rows.append(mean_figures(b, 0) - mean_figures(a, 0))
        values.append(rows)
    low, high = np.percentile(np.mean(values, axis=0), [2.5, 97.5], axis=0)
    gap = np.mean([mean_figures(two, n) - mean_figures(one, n) for n in range(n_folds)], axis=0)
    np.testing.assert_allclose([d.estimate for d in found.values()], gap, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([d.low for d in found.values()], low, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([d.high for d in found.values()], high, rtol=1e-9, atol=1e-9)
    for figure in ("SumR", "mAP", "v2t.R@5"):
        c, alone = FIGURES.index(figure), interval_of_difference(first, second, figure, seed=5, samples=150)
        told = [alone.estimate, alone.low, alone.high]
        np.testing.assert_allclose(told, [gap[c], low[c], high[c]], rtol=1e-9, atol=1e-9)


def test_p_is_the_share_of_all_sign_flips_that_differ_as_much() -> None:
    """Eight items: all 256 assignments, by swapping the answers of the two systems, item by item."""
    sides = problem(2, 8)
    one, two = again(sides, 0), again(sides, 1, better=0.9)
    items = sorted({int(i) for side in sides for i in side.item_Q})
    gaps = []
    for flips in itertools.product((False, True), repeat=len(items)):
        swap = {item for item, flip in zip(items, flips, strict=True) if flip}
        mixed: list[list[RankedQueries]] = [[], []]
        for a, b in zip(one, two, strict=True):
            swapped_Q = np.isin(a.item_Q, list(swap))
            for to, (x, y) in zip(mixed, ((a, b), (b, a)), strict=True):
                rank, ap = (np.where(swapped_Q, getattr(y, k), getattr(x, k)) for k in ("rank_Q", "ap_Q"))
                to.append(RankedQueries(a.item_Q, rank, ap))
        gaps.append(slow(mixed[1]) - slow(mixed[0]))
    exact = np.mean(np.abs(gaps) >= np.abs(gaps[0]) - 1e-9, axis=0)
    found = differences([[RankedGallery(*one)]], [[RankedGallery(*two)]], samples=10, flips=20_000)
    for name, share in zip(FIGURES, exact, strict=True):
        if name.endswith("MedR"):
            assert found[name].p is None
        else:
            assert found[name].p == pytest.approx(share, abs=0.015), name
    assert min(exact) < 0.2, "something differs here"


@pytest.mark.slow
def test_p_is_uniform_where_nothing_differs() -> None:
    """Two systems whose items are hard for both and luck decides; their captions share the item's luck."""
    rng = np.random.default_rng(4)
    p, wide = [], 0
    for n in range(200):
        hard_V = rng.normal(1, 1, 60)
        systems = []
        for _ in range(2):
            luck_V = hard_V + rng.normal(0, 0.8, 60)
            t2v = ranked(np.repeat(np.arange(60), 2), np.ceil(np.exp(np.repeat(luck_V, 2))))
            systems.append([[RankedGallery(t2v, ranked(np.arange(60), np.ceil(np.exp(luck_V))))]])
        found = differences(*systems, seed=n, samples=200, flips=200)["mAP"]
        assert found.p is not None
        p.append(found.p)
        wide += found.low <= 0 <= found.high
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert 180 <= wide <= 199, "95 % of 200 intervals hold no difference; three sd are 9"


def test_a_real_difference_is_found_and_its_sign_is_that_of_the_second() -> None:
    sides = problem(6, 150)
    one, two = again(sides, 0), again(sides, 1, better=0.7)
    found = differences([[RankedGallery(*one)]], [[RankedGallery(*two)]])
    assert found["SumR"].estimate > 0 and found["SumR"].low > 0 and found["t2v.MeanR"].high < 0
    assert found["SumR"].p is not None and found["SumR"].p <= 0.001
    back = differences([[RankedGallery(*two)]], [[RankedGallery(*one)]])
    assert back["SumR"].estimate == -found["SumR"].estimate and back["SumR"].low == -found["SumR"].high
    same = differences([[RankedGallery(*one)]], [[RankedGallery(*one)]])["SumR"]
    assert (same.estimate, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)


def test_other_queries_cannot_be_paired() -> None:
    one, two = problem(0, 9), problem(1, 9)
    for folds in ([two], [one, one]):
        counts = [[len(side.item_Q) for fold in run for side in fold] for run in ([one], folds)]
        with pytest.raises(ValueError, match=re.escape(f"{counts[0]} and {counts[1]}")):
            differences([[RankedGallery(*one)]], [[RankedGallery(*fold) for fold in folds]])


def test_equal_figures_differ_by_zero_and_not_by_rounding() -> None:
    sides = problem(3, 40)
    runs = [[RankedGallery(*again(sides, seed))] for seed in range(5)]
    for estimate in differences(runs, [runs[n] for n in (3, 0, 4, 2, 1)], samples=20, flips=9).values():
        assert [str(value) for value in (estimate.estimate, estimate.low, estimate.high)] == ["0.0"] * 3


def test_holm_by_hand() -> None:
    assert holm([0.04]) == [0.04] and holm([]) == []
    assert holm([0.02, 0.02, 0.02, 0.5]) == pytest.approx([0.08, 0.08, 0.08, 0.5])
    assert holm([0.9, 0.001, 0.6]) == pytest.approx([1.0, 0.003, 1.0])
