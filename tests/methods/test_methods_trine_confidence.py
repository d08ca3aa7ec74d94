"""Confidence: calibrated where its model holds, and harmless where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ccr_cli.methods.trine import Confidence


def draw(seed: int, count: int = 20_000) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    top = rng.uniform(0.1, 0.9, count)
    lead = rng.uniform(0.0, 0.1, count)
    probability = 1 / (1 + np.exp(-(4 * top + 30 * lead - 3.5)))
    right = rng.random(count) < probability
    return torch.from_numpy(np.stack([top, top - lead], axis=1)), torch.from_numpy(right), probability


def test_coefficients_are_those_that_made_the_data() -> None:
    top_QK, right_Q, _ = draw(0)
    confidence = Confidence()
    confidence.fit(top_QK, right_Q)
    np.testing.assert_allclose(confidence.coefficients.numpy(), [4, 30, -3.5], rtol=0.1)
    fresh_QK, _, probability = draw(1)
    np.testing.assert_allclose(confidence(fresh_QK).numpy(), probability, atol=0.03)


def test_more_similarity_or_lead_is_never_less_sure() -> None:
    top_QK, right_Q, _ = draw(0)
    confidence = Confidence()
    confidence.fit(top_QK, ~right_Q)  # the more similar the more often wrong: nothing to be trusted
    assert (confidence.coefficients[:2] == 0).all()
    assert confidence(top_QK).std() < 1e-6


@pytest.mark.parametrize(
    ("of_similarity", "of_lead", "kept"),
    [(4, 30, (True, True)), (-6, 30, (False, True)), (6, -30, (True, False)), (-6, -30, (False, False)), (0, 0, None)],
)
def test_its_mean_is_the_hit_rate_whatever_is_left_out(
    of_similarity: float, of_lead: float, kept: tuple[bool, bool] | None
) -> None:
    rng = np.random.default_rng(0)
    top, lead = rng.uniform(0.1, 0.9, 4000), rng.uniform(0.0, 0.1, 4000)
    right = rng.random(4000) < 1 / (1 + np.exp(-(of_similarity * (top - 0.5) + of_lead * (lead - 0.05) - 1)))
    confidence, top_QK = Confidence(), torch.from_numpy(np.stack([top, top - lead], axis=1))
    confidence.fit(top_QK, torch.from_numpy(right))
    assert confidence(top_QK).mean().item() == pytest.approx(right.mean(), abs=2e-3)
    slopes = confidence.coefficients[:2]
    assert (slopes >= 0).all() and (kept is None or (slopes > 0).tolist() == list(kept))


def test_what_is_left_out_is_what_explains_less() -> None:
    # both together: the similarity lowers it, being correlated with the lead; alone, either raises it
    rng = np.random.default_rng(0)
    lead = rng.uniform(0.0, 0.4, 4000)
    top = lead + rng.uniform(0.3, 0.4, 4000)
    right = rng.random(4000) < 1 / (1 + np.exp(-(20 * lead - 4 * top)))
    confidence, top_QK = Confidence(), torch.from_numpy(np.stack([top, top - lead], axis=1))
    confidence.fit(top_QK, torch.from_numpy(right))
    assert confidence.coefficients[0] == 0 and confidence.coefficients[1] > 10
    assert confidence(top_QK).mean().item() == pytest.approx(right.mean(), abs=2e-3)


def test_a_collapsed_model_is_as_sure_as_it_is_often_right() -> None:
    confidence, right_Q = Confidence(), torch.arange(10) < 3
    confidence.fit(torch.ones(10, 2), right_Q)
    np.testing.assert_allclose(confidence(torch.ones(10, 2)).numpy(), 0.3, atol=1e-6)


def test_it_knows_nothing_until_it_is_told() -> None:
    confidence = Confidence()
    top_QK = torch.rand(5, 2).sort(descending=True).values
    assert confidence(top_QK).tolist() == [0.5] * 5
    confidence.fit(top_QK, torch.ones(5, dtype=torch.bool))
    assert confidence(top_QK).tolist() == [0.5] * 5


def test_a_gallery_of_one_and_half_precision() -> None:
    top_QK, right_Q, _ = draw(0, 200)
    confidence = Confidence()
    confidence.fit(top_QK, right_Q)
    alone = confidence(torch.tensor([[0.4], [0.9]]))
    assert alone.shape == (2,) and (alone >= 0).all() and (alone <= 1).all()
    assert confidence(top_QK.float()).dtype == torch.float32
