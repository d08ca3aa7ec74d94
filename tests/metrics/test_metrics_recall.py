"""Summaries and bootstrap intervals; expected numbers are worked out by hand or by numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from ccr_cli.metrics.positives import Positives
from ccr_cli.metrics.ranks import Ranks, rank_both, rank_queries
from ccr_cli.metrics.recall import bootstrap_interval, sum_recall, summarise
from ccr_cli.metrics.sims import dot_sim, matrix_sim


def with_ranks(wanted: list[int], gallery: int = 100) -> Ranks:
    """Queries whose only answer stands at the wanted ranks."""
    sim = torch.arange(gallery, 0, -1, dtype=torch.float64).repeat(len(wanted), 1)
    return rank_queries(matrix_sim(sim), len(wanted), gallery, Positives.from_lists([[r - 1] for r in wanted]))


def test_summary_by_hand() -> None:
    found = summarise(with_ranks([1, 2, 5, 6, 10, 11, 100, 1]))
    assert found == {
        "R@1": 25.0,  # two of eight
        "R@5": 50.0,  # 1 2 5 1
        "R@10": 75.0,  # 1 2 5 6 10 1
        "MedR": 5.5,  # between 5 and 6
        "MeanR": 17.0,  # 136 / 8
        "mAP": pytest.approx(100 * (1 + 1 / 2 + 1 / 5 + 1 / 6 + 1 / 10 + 1 / 11 + 1 / 100 + 1) / 8),
        "MRR": pytest.approx(100 * (1 + 1 / 2 + 1 / 5 + 1 / 6 + 1 / 10 + 1 / 11 + 1 / 100 + 1) / 8),
        "queries": 8,
        "dropped": 0,
    }


def test_a_tie_at_the_top_counts_by_its_rule() -> None:
    ranks = rank_queries(matrix_sim(torch.tensor([[1.0, 1.0, 0.0]])), 1, 3, Positives.from_lists([[0]]))
    assert [summarise(ranks, tie=t)["R@1"] for t in ("mid", "optimistic", "pessimistic")] == [0.0, 100.0, 0.0]
    assert [summarise(ranks, tie=t)["MeanR"] for t in ("mid", "optimistic", "pessimistic")] == [1.5, 1.0, 2.0]
    assert summarise(ranks, ks=(2,))["R@2"] == 100.0


def test_queries_without_an_answer_are_left_out_and_counted() -> None:
    sim = matrix_sim(torch.eye(3))
    found = summarise(rank_queries(sim, 3, 3, Positives.from_lists([[0], [], [2]])))
    assert (found["R@1"], found["queries"], found["dropped"]) == (100.0, 2, 1)
    nothing = summarise(rank_queries(sim, 3, 3, Positives.from_lists([[], [], []])))
    assert nothing["queries"] == 0 and math.isnan(nothing["R@1"]) and math.isnan(nothing["MedR"])


def test_sum_recall_of_perfect_retrieval_is_600() -> None:
    unit = torch.eye(20)
    visual_of_text = Positives.from_ids([i // 5 for i in range(100)], range(20))
    t2v, v2t = rank_both(dot_sim(unit, unit.repeat_interleave(5, 0)), 20, 100, visual_of_text)
    assert sum_recall(summarise(t2v), summarise(v2t)) == 600.0


def test_bootstrap_of_a_proportion_agrees_with_the_binomial() -> None:
    ranks = with_ranks([1] * 120 + [50] * 280)
    found = bootstrap_interval(ranks, "R@1", seed=0, samples=2000)
    assert found.estimate == 30.0
    # resampling 400 answers of which 30 % are right *is* Binomial(400, 0.3)
    low, high = stats.binom.ppf([0.025, 0.975], 400, 0.3) / 4.0
    assert abs(found.low - low) < 0.6 and abs(found.high - high) < 0.6
    assert bootstrap_interval(ranks, "R@1", seed=0, samples=2000) == found
    assert bootstrap_interval(ranks, "R@1", seed=1, samples=2000) != found


@pytest.mark.parametrize("name", ["R@1", "R@5", "R@10", "MedR", "MeanR", "mAP", "MRR"])
def test_a_named_statistic_is_the_figure_of_the_summary(name: str) -> None:
    ranks = with_ranks([1, 2, 5, 6, 10, 11, 100, 1, 7])
    found = bootstrap_interval(ranks, name, seed=0, samples=200)
    assert found.estimate == pytest.approx(summarise(ranks)[name])
    assert found.low <= found.estimate <= found.high
    by_function = bootstrap_interval(ranks, lambda r: summarise(r)[name], seed=0, samples=200)
    assert (by_function.low, by_function.high) == pytest.approx((found.low, found.high))


def test_drawing_items_widens_the_interval_when_their_captions_agree() -> None:
    ranks = with_ranks([1] * 100 + [50] * 100)  # 40 items of five captions with one fate
    items = np.arange(200) // 5
    alone = bootstrap_interval(ranks, "R@1", seed=0)
    grouped = bootstrap_interval(ranks, "R@1", seed=0, groups=items)
    # sd of a mean of n fair coins is 50 / sqrt(n): 200 captions 3.5, 40 items 7.9; the interval is 3.92 sd
    assert alone.high - alone.low == pytest.approx(3.92 * 50 / math.sqrt(200), rel=0.15)
    assert grouped.high - grouped.low == pytest.approx(3.92 * 50 / math.sqrt(40), rel=0.15)


def test_sum_recall_is_resampled_over_items_of_both_directions() -> None:
    t2v, v2t = with_ranks([1] * 10 + [50] * 10), with_ranks([1, 50])
    items = [np.arange(20) // 10, np.arange(2)]
    found = bootstrap_interval(
        (t2v, v2t), lambda a, b: sum_recall(summarise(a), summarise(b)), seed=0, samples=300, groups=items
    )
    assert (found.estimate, found.low, found.high) == (300.0, 0.0, 600.0)  # both items good, or both bad
    with pytest.raises(ValueError, match="by groups"):
        bootstrap_interval((t2v, v2t), lambda a, b: 0.0, seed=0)


def test_bootstrap_refuses_what_it_cannot_do() -> None:
    ranks = with_ranks([1, 2])
    for options in ({"samples": 0}, {"level": 1.0}, {"groups": np.arange(3)}):
        with pytest.raises(ValueError, match=r"bootstrap|groups"):
            bootstrap_interval(ranks, "R@1", seed=0, **options)
    with pytest.raises(ValueError, match="unknown statistic"):
        bootstrap_interval(ranks, "R@0", seed=0)
    with pytest.raises(ValueError, match="tie rule"):
        bootstrap_interval(ranks, lambda r: 0.0, seed=0, tie="optimistic")
    empty = rank_queries(matrix_sim(torch.eye(2)), 2, 2, Positives.from_lists([[], []]))
    with pytest.raises(ValueError, match="no query"):
        bootstrap_interval(empty, "R@1", seed=0)
