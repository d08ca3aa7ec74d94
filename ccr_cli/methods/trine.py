"""Ours: three sides contrasted, each believed as far as the triangle vouches.

The method of this toolkit, for pairs of which some are wrong and nobody knows which or in what way. Every side of a
triplet, V-S, V-T and S-T, is learned by InfoNCE, weighted by the probability that this side matches; the judge
`triangle` gives it from the three similarities together and from the other captions of the item. A wrong translation
then teaches nothing about the picture, while its source caption goes on teaching; a picture that is wrong together
with its captions leaves these two to teach each other. Which of it pays, and what did not, is in docs/methods/trine.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base
from ccr_cli.nets.confidence import Confidence


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `trine`."""

    temperature: float = 0.07
    """Of the softmax."""
    visual_weight: float = 1.0
    """Weight of V-T beside V-S."""
    cross_lingual_weight: float = 0.5
    """Weight of S-T."""
    judge: str = "triangle"

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            ValueError: If a value makes no sense.
        """
        super().__post_init__()
        if self.temperature <= 0 or min(self.visual_weight, self.cross_lingual_weight) < 0:
            raise ValueError("temperature > 0 and weights >= 0 are needed")


class Method(base.Method):
    """InfoNCE on three sides, weighted by belief; a calibrated confidence for every query."""

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.confidence = Confidence()

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """The sides that have a weight."""
        c = self.config
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        terms = {"infonce_vs": infonce(sim.VS, c.temperature, sim.mask, p.VS)}
        if c.visual_weight:
            terms["infonce_vt"] = c.visual_weight * infonce(sim.VT, c.temperature, sim.mask, p.VT)
        if c.cross_lingual_weight:
            terms["infonce_st"] = c.cross_lingual_weight * infonce(sim.ST, c.temperature, sim.mask, p.ST)
        return terms

    def calibrate(self, top_QK: Tensor, right_Q: Tensor) -> None:
        """Fits the confidence to the validation queries that select."""
        self.confidence.fit(top_QK, right_Q)

    def uncertainty(self, sim_QG: Tensor) -> Tensor:
        """One minus the probability that the first hit is right."""
        confidence_Q: Tensor = self.confidence(sim_QG.topk(min(2, sim_QG.shape[1]), dim=1).values)
        return 1 - confidence_Q

    def uncertainty_scope(self) -> str:
        """Two candidates, calibrated."""
        return "top2-calibrated"
