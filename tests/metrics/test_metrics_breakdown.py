"""Groups of queries and their figures, by hand and by a loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccr_cli.metrics.breakdown import by_value, figures, lengths, split


def test_lengths_are_words_or_characters() -> None:
    assert (lengths(["a  red dog\n", ""], "de")[0].tolist(), lengths([], "pt-BR")[1]) == ([3.0, 0.0], "words")
    for lang in ("zh", "ja", "zh-Hant", "zh_CN", "th"):
        found, unit = lengths(["狗 在 跑", "狗"], lang)
        assert (found.tolist(), unit) == ([3.0, 1.0], "characters")


def test_groups_are_rising_about_equal_and_never_part_equal_values() -> None:
    rng = np.random.default_rng(0)
    value = rng.poisson(9, 1000).astype(float)
    value[::50] = np.nan
    groups = split(value)
    assert 2 <= len(groups) <= 5 and sum(g.sum() for g in groups) == 980
    for one, two in itertools.pairwise(groups):
        assert value[one].max() < value[two].min()
    assert max(g.sum() for g in groups) < 350
    assert [int(g.sum()) for g in split(rng.permutation(30).astype(float))] == [6] * 5
    assert [g.tolist() for g in split(np.array([4.0, 4.0, 4.0]))] == [[True, True, True]]
    assert split(np.array([np.nan])) == [] and split(np.zeros(0)) == []


def test_figures_of_groups_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    value, rank, ap = rng.integers(1, 12, 200).astype(float), rng.integers(1, 30, 200).astype(float), rng.random(200)
    found = by_value(value, rank, ap)
    assert sum(g["queries"] for g in found) == 200 and sum(g["share"] for g in found) == pytest.approx(1)
    for group in found:
        mine = [(r, a) for v, r, a in zip(value, rank, ap, strict=True) if group["low"] <= v <= group["high"]]
        assert group["queries"] == len(mine)
        for k in (1, 5, 10):
            assert group[f"R@{k}"] == pytest.approx(100 * sum(r <= k for r, _ in mine) / len(mine))
        assert group["MedR"] == sorted(r for r, _ in mine)[len(mine) // 2] or len(mine) % 2 == 0
        assert group["mAP"] == pytest.approx(100 * sum(a for _, a in mine) / len(mine))


def test_an_empty_group_has_no_figures() -> None:
    none = figures(np.array([1.0]), np.array([1.0]), np.array([False]))
    assert none == {"queries": 0, "share": 0.0, "R@1": None, "R@5": None, "R@10": None, "MedR": None, "mAP": None}
    with pytest.raises(ValueError, match=r"\b2 values, 1 ranks\b"):
        by_value(np.zeros(2), np.ones(1), np.ones(1))
