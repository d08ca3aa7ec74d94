"""The pair's score, summed over both directions, is the highest in its row (UML).

Liu et al., Sci China Inf Sci 69(3):132107, 2026, eq. (4): l_i = 1 if i = argmax_j (e_ij + e_ji).
"""

import torch
from torch import Tensor

from ccr_cli.judges.base import BatchJudge, batch_scores, beaten_share_B


@torch.no_grad()
def clean_probability(score_BB: Tensor, mask_BB: Tensor | None = None) -> Tensor:
    """1 or 0 for each pair of the batch (B,), from evidence (as in the paper) or similarities.

    A pair is called noisy only if a rival is strictly better, so ties are clean. An entry is a rival if it
    and its mirror image are unmasked.
    """
    score_BB, rival_BB = batch_scores(score_BB, mask_BB)
    share_B = beaten_share_B(score_BB + score_BB.T, rival_BB & rival_BB.T)
    return (share_B == 0).to(score_BB.dtype)


JUDGE = BatchJudge(clean_probability)
