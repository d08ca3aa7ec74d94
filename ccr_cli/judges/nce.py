"""Two Gaussians fitted to contrastive losses; the lower is clean (CREAM).

Ma et al., "Cross-modal Retrieval with Noisy Correspondence via Consistency Refining and Mining", IEEE TIP 2024, as in
its code. The loss of a pair is -log of its share of the softmax over its row of a random batch, plus that over its
column, in evaluation mode. ``both`` adds the losses of V-S and V-T.

Shapes: B pairs in a batch.
"""

import torch
from torch import Tensor

from ccr_cli.judges.gmm import clean_probability
from ccr_cli.judges.hinge import LossJudge

TEMPERATURE = 0.07


def losses(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
    """Loss of each pair (B,)."""
    logits_BB = (sim_BB / TEMPERATURE).masked_fill(~mask_BB, -torch.inf)
    return -(logits_BB.log_softmax(dim=1).diagonal() + logits_BB.log_softmax(dim=0).diagonal())


JUDGE = LossJudge(losses, clean_probability)
