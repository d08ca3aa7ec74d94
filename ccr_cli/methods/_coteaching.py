"""Co-teaching: two dual encoders, each of which learns from the split that the other one makes.

After Huang et al., "Learning with Noisy Correspondence for Cross-modal Matching" (NCR), NeurIPS 2021. Training judges
each encoder by itself, with the same judge. `Batch.p` then has a column for each of them, (B, 2); a judge that reads no
model gives both one belief, (B,).

Shape suffixes: B triplets in a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ccr_cli.judges.base import Belief
from ccr_cli.methods import base
from ccr_cli.nets.dual import DualEncoder


class CoTaught(base.JointMethod):
    """Two dual encoders that are judged one by one, and retrieve together."""

    def __init__(self, config: base.Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.peer = base.twin(config, visual_dim, text_encoder)

    def encoders(self) -> list[DualEncoder]:
        """The two encoders."""
        return [self.encoder, self.peer]

    def peers_beliefs(self, batch: base.Batch, sims: Sequence[base.Views]) -> list[Belief[Tensor]]:
        """For each encoder the belief of the other one; `sims` are the batch as either sees it."""

        def column(number: int) -> Callable[[Tensor], Tensor]:
            return lambda p_B2: p_B2 if p_B2.ndim == 1 else p_B2[:, number]

        own = [replace(batch, p=batch.p.map(column(number))) for number in range(len(sims))]
        return [base.clean_probabilities(self, one, sim) for one, sim in zip(own, sims, strict=True)][::-1]

    @torch.no_grad()
    def steady_views(self, batch: base.Batch) -> list[base.Views]:
        """The batch as either encoder sees it in evaluation mode, without gradient."""
        mode = self.training
        self.eval()
        sims = [base.views(encoder, batch) for encoder in self.encoders()]
        self.train(mode)
        return sims
