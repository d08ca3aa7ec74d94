"""The pair ranks among the best tenth of its row and of its column in the batch."""

import torch
from torch import Tensor

from ccr_cli.judges.base import BatchJudge, batch_scores, beaten_share_B


@torch.no_grad()
def clean_probability(score_BB: Tensor, mask_BB: Tensor | None = None, *, share: float = 0.1) -> Tensor:
    """1 where at most ``share`` (0 to 1) of the rivals score strictly higher, in the row and in the column, else 0."""
    if not 0 <= share <= 1:
        raise ValueError(f"share {share} is not between 0 and 1")
    score_BB, rival_BB = batch_scores(score_BB, mask_BB)
    row_B, col_B = beaten_share_B(score_BB, rival_BB), beaten_share_B(score_BB.T, rival_BB.T)
    return ((row_B <= share) & (col_B <= share)).to(score_BB.dtype)


JUDGE = BatchJudge(clean_probability)
