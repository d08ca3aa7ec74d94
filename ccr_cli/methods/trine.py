"""ccr's own: contrast on all three sides, weighted by the judge `triangle`.

The method of this toolkit, for pairs of which some are wrong and nobody knows which or in what way. Every side of a
triplet, V-S, V-T and S-T, is learned by InfoNCE, weighted by the probability that this side matches; the judge
`triangle` gives it from the three similarities together and from the other captions of the item. A wrong translation
then teaches nothing about the picture, while its source caption goes on teaching; a picture that is wrong together
with its captions leaves these two to teach each other. Which of it pays, and what did not, is in docs/methods/trine.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, NotNegative, Positive
from ccr_cli.nets.confidence import Confidence
from ccr_cli.nets.dual import DualEncoder


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `trine`."""

    models: Count = 2
    """Dual encoders trained in parallel; judge and retrieval use their mean similarity."""
    temperature: Positive = 0.1
    """Temperature of the softmax."""
    visual_weight: NotNegative = 1.0
    """Weight of V-T beside V-S."""
    cross_lingual_weight: NotNegative = 0.5
    """Weight of S-T."""
    judge: str = "triangle"


class Method(base.JointMethod):
    """InfoNCE on three sides, weighted by belief; a calibrated confidence for every query."""

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.others = nn.ModuleList(base.twin(config, visual_dim, text_encoder) for _ in range(config.models - 1))
        self.confidence = Confidence()

    def encoders(self) -> list[DualEncoder]:
        """The dual encoders."""
        return [self.encoder, *(cast(DualEncoder, other) for other in self.others)]

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE of every side with a weight, summed over the models; they share one belief."""
        c = self.config
        sims = [base.views(encoder, batch) for encoder in self.encoders()]
        vs, vt, st = (torch.stack([getattr(sim, side) for sim in sims]).mean(0) for side in ("VS", "VT", "ST"))
        p = base.clean_probabilities(self, batch, base.Views(vs, vt, st, sims[0].mask))
        terms = {}
        for side, weight in (("VS", 1.0), ("VT", c.visual_weight), ("ST", c.cross_lingual_weight)):
            if weight:
                losses = [infonce(getattr(sim, side), c.temperature, sim.mask, getattr(p, side)) for sim in sims]
                terms[f"infonce_{side.lower()}"] = weight * torch.stack(losses).sum()
        return terms

    def calibrate(self, top_QK: Tensor, right_Q: Tensor) -> None:
        """Fits the confidence to the selecting validation queries."""
        self.confidence.fit(top_QK, right_Q)

    def uncertainty(self, sim_QG: Tensor) -> Tensor:
        """One minus the probability that the first hit is right."""
        confidence_Q: Tensor = self.confidence(sim_QG.topk(min(2, sim_QG.shape[1]), dim=1).values)
        return 1 - confidence_Q

    def uncertainty_candidates(self) -> int:
        """The two most similar items."""
        return 2
