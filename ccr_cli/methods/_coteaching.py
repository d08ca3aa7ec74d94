"""Co-teaching: two dual encoders, each trained on the split that the other one makes.

After Huang et al., "Learning with Noisy Correspondence for Cross-modal Matching" (NCR), NeurIPS 2021. The same judge
judges each encoder separately, so `Batch.p` has a column for each, (B, 2). A judge that reads no model gives both the
same belief, (B,).

Shape suffixes: B triplets in a batch, M models.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ccr_cli.judges.base import Belief
from ccr_cli.methods import base
from ccr_cli.nets.dual import DualEncoder

Parts = Callable[[Tensor, Tensor, Sequence[Tensor], Sequence[Tensor], int], dict[str, Tensor]]
"""The named losses of one view of one model: see `CoTaught.learned`."""


class CoTaught(base.JointMethod):
    """Two dual encoders that are judged separately and retrieve together."""

    def __init__(self, config: base.Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.peer = base.twin(config, visual_dim, text_encoder)

    def encoders(self) -> list[DualEncoder]:
        """The two encoders."""
        return [self.encoder, self.peer]

    def peers_beliefs(self, batch: base.Batch, sims: Sequence[base.Views]) -> list[Belief[Tensor]]:
        """For each encoder, the belief of the other one; `sims` holds each encoder's similarities."""

        def column(number: int) -> Callable[[Tensor], Tensor]:
            return lambda p_B2: p_B2 if p_B2.ndim == 1 else p_B2[:, number]

        own = [replace(batch, p=batch.p.map(column(number))) for number in range(len(sims))]
        return [base.clean_probabilities(self, one, sim) for one, sim in zip(own, sims, strict=True)][::-1]

    def learned(self, batch: base.Batch, parts: Parts) -> dict[str, Tensor]:
        """Sums losses over both models, for V-S and V-T.

        `parts` is called for each view and model with its similarities (B, B), their mask, the belief of each model's
        peer in the view (B,), each model's similarities of the view in evaluation mode (B, B; none in the warm-up), and
        the model's number.
        """
        sims = [base.views(encoder, batch) for encoder in self.encoders()]
        beliefs = self.peers_beliefs(batch, sims)
        guides = self.steady_views(batch) if batch.judged else []
        terms: dict[str, list[Tensor]] = {}
        for view in ("VS", "VT"):
            guess, p_MB = [getattr(guide, view) for guide in guides], [getattr(belief, view) for belief in beliefs]
            for model, sim in enumerate(sims):
                for part, loss in parts(getattr(sim, view), sim.mask, p_MB, guess, model).items():
                    terms.setdefault(f"{part}_{view.lower()}", []).append(loss)
        return {name: torch.stack(losses).sum() for name, losses in terms.items()}

    def begun(self, share: float) -> bool:
        """Whether this share of the epochs after the warm-up is over."""
        after, span = self.epoch - self.config.warmup_epochs, self.epochs - self.config.warmup_epochs
        return after > int(share * span)

    @torch.no_grad()
    def steady_views(self, batch: base.Batch) -> list[base.Views]:
        """Each encoder's similarities of the batch in evaluation mode, without gradient."""
        mode = self.training
        self.eval()
        sims = [base.views(encoder, batch) for encoder in self.encoders()]
        self.train(mode)
        return sims
