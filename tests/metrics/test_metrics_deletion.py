"""Deleting doubtful pairs, against an oracle that sorts lists, and by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ccr_cli.metrics.deletion import RATES, Deletion, delete, deletion_curve
from ccr_cli.metrics.ranks import Positives, matrix_sim, rank_queries, summarise


def oracle(
    sim: npt.NDArray[np.float64], doubt: npt.NDArray[np.float64], right: list[list[int]], threshold: float
) -> tuple[int, int, int, float | None, float | None]:
    """Counts and both means, from sorted lists; no ties."""
    aps: list[float | None] = []
    pairs = positives = 0
    for q in range(len(sim)):
        kept = [g for g in range(sim.shape[1]) if doubt[q, g] <= threshold]
        pairs += len(kept)
        hits = [place for place, g in enumerate(sorted(kept, key=lambda g: -sim[q, g]), start=1) if g in right[q]]
        positives += len(hits)
        if right[q]:
            aps.append(np.mean([n / place for n, place in enumerate(hits, start=1)]).item() if hits else None)
    found = [ap for ap in aps if ap is not None]
    return pairs, positives, len(found), mean(found), mean([ap or 0.0 for ap in aps])


def mean(values: list[float]) -> float | None:
    return 100 * sum(values) / len(values) if values else None


@pytest.fixture
def case() -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    """40 queries of a gallery of 60 in five classes, one class without an entry, one without a query."""
    generator = torch.Generator().manual_seed(0)
    sim = torch.rand(40, 60, generator=generator, dtype=torch.float64)
    doubt = torch.rand(40, 60, generator=generator, dtype=torch.float64)
    asked, there = torch.arange(40) % 4, 1 + torch.arange(60) % 4
    return sim, doubt, [(there == label).nonzero()[:, 0].tolist() for label in asked]


@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.5, 0.97, 2.0])
def test_equals_the_oracle(case: tuple[torch.Tensor, torch.Tensor, list[list[int]]], threshold: float) -> None:
    sim, doubt, right = case
    found = delete(sim, doubt, Positives.from_lists(right), threshold)
    expected = oracle(sim.numpy(), doubt.numpy(), right, threshold)
    assert (found.pairs, found.positives, found.queries) == expected[:3]
    assert found.map_kept == pytest.approx(expected[3]) and found.map_all == pytest.approx(expected[4])
    assert found.rate == pytest.approx(1 - expected[0] / 2400)


def test_nothing_deleted_is_ordinary_map(case: tuple[torch.Tensor, torch.Tensor, list[list[int]]]) -> None:
    sim, doubt, right = case
    positives = Positives.from_lists(right)
    found = delete(sim, doubt, positives, None)
    usual = summarise(rank_queries(matrix_sim(sim), 40, 60, positives))
    assert found.map_kept == found.map_all == pytest.approx(usual["mAP"])
    assert (found.rate, found.pairs, found.queries) == (0.0, 2400, usual["queries"])


def test_curve_deletes_the_shares_asked_for_and_the_doubtful_first(
    case: tuple[torch.Tensor, torch.Tensor, list[list[int]]],
) -> None:
    sim, doubt, right = case
    curve = deletion_curve(sim, doubt, Positives.from_lists(right))
    assert [point.rate for point in curve] == pytest.approx(RATES)
    assert curve[0].threshold is None
    for point in curve[1:]:
        assert point.threshold is not None and point.pairs == int((doubt <= point.threshold).sum())


def test_a_mean_that_rises_as_queries_vanish() -> None:
    # query 0 finds its answer first, query 1 second; deleting query 1 altogether makes the printed mean perfect
    sim = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    doubt = torch.tensor([[0.2, 0.2], [0.8, 0.8]])
    positives = Positives.from_lists([[0], [1]])
    before, after = delete(sim, doubt, positives, None), delete(sim, doubt, positives, 0.5)
    assert (before.map_kept, before.map_all) == (75.0, 75.0)
    assert after == Deletion(0.5, 0.5, 2, 1, 1, 100.0, 50.0)


def test_what_lies_at_the_threshold_is_kept_and_what_exceeds_it_is_not() -> None:
    sim, above = torch.rand(1, 3), float(np.nextafter(np.float32(0.5), np.float32(1)))
    found = delete(sim, torch.tensor([[0.25, 0.5, above]]), Positives.from_lists([[1, 2]]), 0.5)
    assert (found.pairs, found.positives) == (2, 1)


def test_equal_doubts_stay_together_and_nothing_may_be_left() -> None:
    sim, same = torch.rand(3, 4), torch.full((3, 4), 0.5)
    positives = Positives.from_lists([[0], [1], []])
    same[0, 0] = 0.25
    whole, half, most = deletion_curve(sim, same, positives, rates=(0.0, 0.5, 0.95))
    assert (whole.pairs, half.pairs, half.threshold) == (12, 12, 0.5)
    assert (most.pairs, most.threshold) == (1, 0.25)
    gone = delete(sim, same, positives, 0.2)
    assert (gone.pairs, gone.rate, gone.map_kept, gone.map_all) == (0, 1.0, None, 0.0)
    nobody = delete(sim, same, Positives.from_lists([[], [], []]), None)
    assert (nobody.map_kept, nobody.map_all, nobody.queries) == (None, None, 0)


def test_what_makes_no_sense_is_refused() -> None:
    sim, positives = torch.rand(2, 3), Positives.from_lists([[0], [1]])
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        delete(sim, torch.rand(3, 2), positives, None)
    with pytest.raises(ValueError, match="6 of 6"):
        delete(sim, torch.full((2, 3), float("nan")), positives, 0.5)
    with pytest.raises(ValueError, match=r"\(1.0,\)"):
        deletion_curve(sim, sim, positives, rates=(1.0,))
