"""Trust every pair."""

import torch
from torch import Tensor

from ccr_cli.judges.base import BatchJudge, batch_scores


@torch.no_grad()
def clean_probability(score_BB: Tensor, mask_BB: Tensor | None = None) -> Tensor:
    """1 for every pair of the batch, shape (B,)."""
    score_BB, _ = batch_scores(score_BB, mask_BB)
    return score_BB.new_ones(len(score_BB))


JUDGE = BatchJudge(clean_probability, speaks="never")
