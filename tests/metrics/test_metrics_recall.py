"""Summaries; expected numbers are worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ccr_cli.metrics.ranks import Positives, Ranks, matrix_sim, rank_queries, summarise


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
    assert summarise(ranks)["R@5"] == 100.0


def test_queries_without_an_answer_are_left_out_and_counted() -> None:
    sim = matrix_sim(torch.eye(3))
    found = summarise(rank_queries(sim, 3, 3, Positives.from_lists([[0], [], [2]])))
    assert (found["R@1"], found["queries"], found["dropped"]) == (100.0, 2, 1)
    nothing = summarise(rank_queries(sim, 3, 3, Positives.from_lists([[], [], []])))
    assert nothing["queries"] == 0 and math.isnan(nothing["R@1"]) and math.isnan(nothing["MedR"])
