"""Probabilities of results, against outcomes drawn with known ones."""

from __future__ import annotations

import numpy as np
import pytest

from ccr_cli.metrics.logistic import HitProbability


@pytest.mark.parametrize(
    ("similarity", "log_place", "kept"), [(9, -0.7, (9, -0.7)), (9, 0.7, (9, 0)), (-9, -0.7, None)]
)
def test_the_probability_of_a_result(similarity: float, log_place: float, kept: tuple[float, float] | None) -> None:
    rng = np.random.default_rng(0)
    sims = -np.sort(-rng.uniform(0, 0.8, (20_000, 5)), axis=1)
    logit = similarity * sims + log_place * np.log(np.arange(1, 6)) - np.sign(similarity) * 4
    right = rng.random(sims.shape) < 1 / (1 + np.exp(-logit))
    results = [list(zip(*rows, strict=True)) for rows in zip(sims.tolist(), right.tolist(), strict=True)]
    fitted = HitProbability.fitted(results, 10)
    if kept is None:
        assert fitted is None
        return
    assert fitted is not None and fitted.log_place == pytest.approx(kept[1], abs=0.05)
    stated = np.array([fitted.of(row) for row in sims.tolist()])
    for low, high in ((0.1, 0.3), (0.3, 0.6), (0.6, 0.9)):
        bin_ = (low < stated) & (stated < high)
        assert right[bin_].mean() == pytest.approx(stated[bin_].mean(), abs=0.02)
    assert fitted.of([2000.0, -2000.0]) == [1, 0]


@pytest.mark.parametrize("right", [0, 9, 91, 100])
def test_too_few_results_give_no_probability(right: int) -> None:
    results = [[(1 - n / 100, n < right)] for n in range(100)]
    assert HitProbability.fitted(results, 10) is None
