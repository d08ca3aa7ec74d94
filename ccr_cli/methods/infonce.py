"""Symmetric softmax cross-entropy (InfoNCE, CLIP's loss) on V-S and V-T.

Not in the papers' tables, but what a user would pick instead, so every comparison includes it. With `judge=oracle`
the truly mismatched pairs are left out: the ceiling that a noise-robust method can aim at.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base
from ccr_cli.methods.config import NotNegative, Positive


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `infonce`."""

    temperature: Positive = 0.07
    """Temperature of the softmax; the initial value if it is learned."""
    learn_temperature: bool = False
    """Learn the temperature as CLIP does: the logarithm of its inverse, clamped to at most 100."""
    cross_lingual_weight: NotNegative = 0.0
    """Weight of InfoNCE on S-T, weighted by the judge."""


class Method(base.Method):
    """Contrastive learning with in-batch negatives, weighted by the judge, if there is one."""

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.log_scale: Tensor | None = None
        if config.learn_temperature:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))

    def temperature(self) -> float | Tensor:
        """The current temperature."""
        if self.log_scale is None:
            return self.config.temperature
        with torch.no_grad():  # clamped in the graph, a value above the limit would have no gradient to return by
            self.log_scale.clamp_(max=math.log(100.0))
        return (-self.log_scale).exp()

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE of both visual views."""
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        tau = self.temperature()
        terms = {"infonce_vs": infonce(sim.VS, tau, sim.mask, p.VS), "infonce_vt": infonce(sim.VT, tau, sim.mask, p.VT)}
        if self.config.cross_lingual_weight:
            terms["infonce_st"] = self.config.cross_lingual_weight * infonce(sim.ST, tau, sim.mask, p.ST)
        return terms
