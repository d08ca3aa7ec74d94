"""InfoNCE: symmetric softmax cross-entropy over the batch, with row weights.

Shapes: B pairs (rows visual items, columns texts).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccr_cli.losses.masks import (
    full_mask_BB,
    kept_rows_B,
    masked_log_softmax_BK,
    weighted_mean,
    without_zero_weights_BB,
)
from ccr_cli.losses.precision import at_least_float32, no_autocast


def infonce(
    sim_BB: Tensor,
    temperature: float | Tensor = 0.07,
    mask_BB: Tensor | None = None,
    weight_B: Tensor | None = None,
) -> Tensor:
    """Half of (visual-to-text plus text-to-visual cross-entropy), each a weighted mean over its rows.

    Args:
        sim_BB: similarities, shape (B, B), positives on the diagonal.
        temperature: > 0; a tensor of one element gets its gradient (a learned temperature).
        mask_BB: entries that take part, shape (B, B), or None.
        weight_B: weight of each pair, >= 0, shape (B,), or None for equal weights. Multiplying all weights by
            a constant changes nothing. A pair of weight exactly 0 is neither positive nor negative: with a
            judge that knows the truth this is the oracle, the loss of the batch without its mismatched pairs.

    Returns:
        The loss, a scalar in float32 or better. Rows and columns without a negative are left out of the mean;
        0 with a graph if none is left.

    Raises:
        ValueError: a temperature (a float) that is not positive, or shapes that do not fit.
    """
    if isinstance(temperature, float | int) and not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    with no_autocast(sim_BB):
        sim_BB = at_least_float32(sim_BB)
        mask_BB = full_mask_BB(sim_BB, mask_BB)
        if weight_B is None:
            weight_B = sim_BB.new_ones(len(sim_BB))
        weight_B = weight_B.to(sim_BB)
        mask_BB = without_zero_weights_BB(mask_BB, weight_B)
        logits_BB = sim_BB / temperature
        rows = _one_direction(logits_BB, mask_BB, weight_B)
        return (rows + _one_direction(logits_BB.T, mask_BB.T, weight_B)) / 2


def _one_direction(logits_BB: Tensor, mask_BB: Tensor, weight_B: Tensor) -> Tensor:
    """Weighted mean over rows of the negative log-probability of the diagonal."""
    loss_B = -masked_log_softmax_BK(logits_BB, mask_BB).diagonal()
    kept_B = kept_rows_B(mask_BB)
    return weighted_mean(loss_B, torch.where(kept_B, weight_B, torch.zeros_like(weight_B)))
