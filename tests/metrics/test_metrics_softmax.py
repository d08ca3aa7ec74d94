"""A softmax over the gallery against scipy in float64.

Shape suffixes: M models, Q queries, G gallery entries.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp, rel_entr, softmax

from ccr_cli.metrics import softmax_uncertainty as ours
from ccr_cli.metrics.softmax_uncertainty import COLDEST, HOTTEST, disagreement, fit_temperature, wrong_probability

Array = npt.NDArray[np.float64]


def cosines(*shape: int, seed: int = 0) -> Array:
    return np.clip(np.random.default_rng(seed).normal(0.0, 0.2, shape), -1.0, 1.0)


def problem(gallery: int, seed: int, lift: float = 0.3) -> tuple[Array, npt.NDArray[np.int64]]:
    """Similarities in which the right entry stands out a little."""
    sim_QG, right_Q = cosines(40, gallery, seed=seed), np.random.default_rng(seed + 1).integers(0, gallery, 40)
    sim_QG[np.arange(40), right_Q] += lift
    return np.clip(sim_QG, -1.0, 1.0), right_Q


def slope(sim_QG: Array, right_Q: npt.NDArray[np.int64], log_t: float) -> float:
    """Of the mean of -log p in 1/T: the similarity that is expected, less that of the right entry."""
    expected_Q = (softmax(sim_QG / math.exp(log_t), axis=1) * sim_QG).sum(1)
    return float((expected_Q - sim_QG[np.arange(len(sim_QG)), right_Q]).mean())


@pytest.mark.parametrize(("gallery", "seed"), [(2, 0), (3, 1), (128, 2)])
@pytest.mark.parametrize("block", [ours.BLOCK, 300])
def test_the_temperature_is_where_the_cost_has_no_slope(
    gallery: int, seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "BLOCK", block)
    sim_QG, right_Q = problem(gallery, seed)
    root = brentq(lambda log_t: slope(sim_QG, right_Q, log_t), math.log(COLDEST), math.log(HOTTEST))
    found = fit_temperature(torch.from_numpy(sim_QG), torch.from_numpy(right_Q))
    assert math.log(found) == pytest.approx(root, abs=2e-4)
    single = fit_temperature(torch.from_numpy(sim_QG).float(), torch.from_numpy(right_Q))
    assert single == pytest.approx(found, rel=1e-4)


def test_a_temperature_stays_in_its_bounds() -> None:
    sure, right_Q = torch.eye(4), torch.arange(4)
    assert COLDEST <= fit_temperature(sure, right_Q) < 0.03, "below 0.03 all cost the same: 0"
    assert fit_temperature(sure, right_Q.flip(0)) == pytest.approx(HOTTEST, rel=1e-3)
    with pytest.raises(ValueError, match=r"^0\b"):
        fit_temperature(sure[:0], right_Q[:0])


@pytest.mark.parametrize("gallery", [2, 3, 128])
@pytest.mark.parametrize("temperature", [0.005, 0.07, 2.0])
def test_the_probability_of_all_others(gallery: int, temperature: float) -> None:
    sim_QG, first_Q = problem(gallery, 5, lift=0.8)
    log_QG = log_softmax(sim_QG / temperature, axis=1)
    rest_QG = np.where(np.arange(gallery) == first_Q[:, None], -np.inf, log_QG)
    expected = np.exp(logsumexp(rest_QG, axis=1))
    found = wrong_probability(torch.from_numpy(sim_QG), temperature, torch.from_numpy(first_Q))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    assert expected.min() < 1e-12 or temperature > 0.005, "what 1 - p would round to 0 is seen"
    single = wrong_probability(torch.from_numpy(sim_QG).float(), temperature, torch.from_numpy(first_Q))
    np.testing.assert_allclose(single.numpy(), expected, rtol=3e-7 * 2 / temperature)


def test_ties_share_and_a_gallery_of_one_is_certain() -> None:
    assert wrong_probability(torch.full((1, 5), 0.9), 0.01, torch.tensor([3])).item() == pytest.approx(0.8)
    assert wrong_probability(torch.tensor([[0.1]]), 0.01, torch.tensor([0])).item() == 0.0


@pytest.mark.parametrize("models", [2, 3, 5])
@pytest.mark.parametrize("gallery", [2, 3, 128])
def test_disagreement_is_the_mean_divergence_from_the_mean(models: int, gallery: int) -> None:
    sims_MQG = cosines(models, 30, gallery, seed=models)
    temperatures = [0.02 * (m + 1) for m in range(models)]
    p_MQG = np.stack([softmax(sim / t, axis=1) for sim, t in zip(sims_MQG, temperatures, strict=True)])
    expected_Q = rel_entr(p_MQG, p_MQG.mean(0)).sum(2).mean(0) / math.log(models)
    found = disagreement(torch.from_numpy(sims_MQG), temperatures)
    np.testing.assert_allclose(found.numpy(), expected_Q, rtol=1e-9, atol=1e-15)
    single = disagreement(torch.from_numpy(sims_MQG).float(), temperatures)
    np.testing.assert_allclose(single.numpy(), expected_Q, rtol=1e-4, atol=1e-8)


def test_disagreement_lies_between_none_and_all() -> None:
    same = torch.from_numpy(cosines(4, 9))
    assert disagreement([same, same, same], [0.1] * 3).max().item() < 1e-12
    apart = disagreement([torch.eye(3)[[m]] for m in range(3)], [0.005] * 3)
    assert apart.item() == pytest.approx(1.0)
