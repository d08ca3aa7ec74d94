"""What a judge is: the contract that every file of this folder keeps.

A judge gives the probability that a given pair matches. It is one file of this folder; the first line of its
docstring is its help. It holds a constant ``SCOPE`` and a function ``clean_probability``:

- ``SCOPE = "batch"``: ``clean_probability(score_BB, mask_BB=None) -> Tensor (B,)``, without gradient. The
  scores are evidence or similarities of the pairs of one batch, the given pairs on the diagonal; rows and
  columns are the two sides of the pair. ``mask_BB`` is True where an entry takes part (entries of one item do
  not).
- ``SCOPE = "epoch"``: ``clean_probability(score_N, null_M) -> ndarray (N,)``. ``score_N`` holds the
  similarity of each given training pair in evaluation mode, ``null_M`` that of randomly shuffled pairs (of
  different items).
- ``SCOPE = "triangle"``: ``clean_probability(score_N3, null_M3) -> ndarray (N, 3)``, the same for all three sides of a
  triplet at once: V-S, V-T, S-T, those of a picture less the crowding of their ends (``Embedded.leads``). It chooses by
  itself what to look at.
- ``SCOPE = "text"``: the same, where ``score_N`` compares texts without any model (``stages/shared/agreement.py``).
- ``SCOPE = "truth"``: ``clean_probability(wrong_N) -> ndarray (N,)`` from the truth about synthetic noise.

Which similarity a judge reads (English against translation, picture against translation, both) is the
caller's matter. A pair is presumed to match: where nothing tells the given pairs apart (all scores equal, wherever
the null sample lies; a tie; no rival) the answer is 1. In the ``epoch`` and ``text`` scopes scores that are not
finite are refused with ValueError, higher scores never give lower probabilities, and the answer depends on the values
alone, not on their order.

Shapes: B pairs in the batch, N given training pairs, M pairs of the null sample.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Scope = Literal["batch", "epoch", "triangle", "text", "truth"]
FloatArray = npt.NDArray[np.float64]


def batch_scores(score_BB: Tensor, mask_BB: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked scores, detached, in float32 or better, and the mask of the rivals off the diagonal.

    Raises:
        ValueError: the scores are not square, or the mask does not fit.
    """
    score_BB = score_BB.detach()
    if score_BB.ndim != 2 or score_BB.shape[0] != score_BB.shape[1]:
        raise ValueError(f"scores of a batch are a square matrix, not of shape {tuple(score_BB.shape)}")
    if score_BB.dtype in (torch.float16, torch.bfloat16):
        score_BB = score_BB.float()
    off_BB = ~torch.eye(len(score_BB), dtype=torch.bool, device=score_BB.device)
    if mask_BB is None:
        return score_BB, off_BB
    if mask_BB.shape != score_BB.shape or mask_BB.dtype != torch.bool:
        raise ValueError(f"want a boolean mask of shape {tuple(score_BB.shape)}, got {tuple(mask_BB.shape)}")
    return score_BB, off_BB & mask_BB


def beaten_share_B(score_BB: Tensor, rival_BB: Tensor) -> Tensor:
    """Share of each row's rivals that score strictly higher than the row's own pair; 0 without rivals."""
    higher_BB = rival_BB & (score_BB > score_BB.diagonal()[:, None])
    return higher_BB.sum(dim=1) / rival_BB.sum(dim=1).clamp(min=1)


def epoch_scores(values: npt.ArrayLike, name: str) -> FloatArray:
    """A one-dimensional float64 copy.

    Raises:
        ValueError: more than one dimension, or a value that is not finite.
    """
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: want one dimension, got shape {array.shape}")
    if not np.isfinite(array).all():
        bad = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name}: {bad} of {array.size} scores are not finite")
    return array


def all_equal(values: FloatArray) -> bool:
    """Whether the values (at least one) differ by no more than rounding."""
    return bool(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())))


def rising_interval(low: tuple[float, float], high: tuple[float, float]) -> tuple[float, float]:
    """Where the log-odds of the upper of two Gaussians rise with the score.

    Gaussians of unequal width cross twice; beyond the turning point of the log-odds, quadratic in the score, a
    higher score would give a lower probability.

    Args:
        low: Mean and standard deviation of the lower one.
        high: The same of the upper one.

    Returns:
        The interval; one end is infinite.
    """
    (low_mean, low_width), (high_mean, high_width) = low, high
    curvature = low_width**-2 - high_width**-2  # of the log-odds
    if abs(curvature) < 1e-12:
        return -np.inf, np.inf
    turn = float((low_mean * low_width**-2 - high_mean * high_width**-2) / curvature)
    return (turn, np.inf) if curvature > 0 else (-np.inf, turn)
