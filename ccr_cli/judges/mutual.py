"""The pair is the best of its row and of its column in the batch (DisNCL).

Dang et al., "Disentangled Noisy Correspondence Learning", eq. (2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccr_cli.judges.base import BatchJudge, batch_scores, beaten_share_B


@torch.no_grad()
def clean_probability(score_BB: Tensor, mask_BB: Tensor | None = None) -> Tensor:
    """1 or 0 for every pair of the batch; a pair is called noisy only if a rival is strictly better.

    Args:
        score_BB: evidence or similarities, shape (B, B).
        mask_BB: entries that take part, shape (B, B), or None.

    Returns:
        Shape (B,), no gradient.

    Raises:
        ValueError: scores that are not square, or a mask that does not fit.
    """
    score_BB, rival_BB = batch_scores(score_BB, mask_BB)
    row_B, col_B = beaten_share_B(score_BB, rival_BB), beaten_share_B(score_BB.T, rival_BB.T)
    return ((row_B == 0) & (col_B == 0)).to(score_BB.dtype)


JUDGE = BatchJudge(clean_probability)
