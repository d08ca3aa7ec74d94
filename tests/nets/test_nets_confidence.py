"""Confidence: calibrated where its model holds, and harmless where there is nothing to learn."""

from __future__ import annotations

import numpy as np
import torch

from ccr_cli.nets.confidence import Confidence


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
