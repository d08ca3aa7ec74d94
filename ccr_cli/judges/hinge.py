"""Two Gaussians fitted to the pairs' ranking losses; the lower is clean (NCR).

Huang et al., NeurIPS 2021, as in its code. The loss of a pair is the mean of [0.2 + negative - positive]_+ over its row
of a random batch, plus that over its column, in evaluation mode. ``both`` adds the losses of V-S and V-T.

Shapes: N training pairs, B pairs in a batch, D embedding.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ccr_cli.judges.base import FloatArray, Judge, Opinion, Readings, believe
from ccr_cli.judges.gmm import clean_probability

MARGIN = 0.2


def hinges(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
    """Loss of each pair (B,); the diagonal counts as a hinge of 0, as in the code."""
    own_B = sim_BB.diagonal()
    rival_BB = mask_BB & ~torch.eye(len(sim_BB), dtype=torch.bool, device=sim_BB.device)
    row_BB, column_BB = (torch.relu(MARGIN + sim_BB - own) * rival_BB for own in (own_B[:, None], own_B))
    return row_BB.sum(dim=1) / mask_BB.sum(dim=1) + column_BB.sum(dim=0) / mask_BB.sum(dim=0)


class LossJudge(Judge):
    """Judges all pairs by their losses in random batches."""

    takes_side = True
    mixture = True

    def __init__(
        self, loss: Callable[[Tensor, Tensor], Tensor], clean_probability: Callable[[FloatArray], FloatArray]
    ) -> None:
        """`loss` gives losses (B,) from similarities and mask (B, B); `clean_probability` takes the negated losses."""
        self.loss, self.clean_probability = loss, clean_probability

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges all pairs at once."""

        def probability(name: str) -> FloatArray:
            loss_N = np.zeros(len(readings))
            for each in ("VS", "VT") if name == "both" else (name,):
                for rows, one_BD, two_BD, mask_BB in readings.ends(each):
                    loss_N[rows] += self.loss(one_BD @ two_BD.T, mask_BB).double().cpu().numpy()
            return self.clean_probability(-loss_N)

        return Opinion(believe(side, probability, np.ones(len(readings))))


JUDGE = LossJudge(hinges, clean_probability)
