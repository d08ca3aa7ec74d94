"""Symmetric softmax cross-entropy (InfoNCE, CLIP's loss) on V-S and V-T.

Not in the papers' tables, but what a user would pick instead, so every comparison holds it. With `judge=oracle`
the truly mismatched pairs are left out: the ceiling that a noise-robust method can aim at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `infonce`."""

    temperature: float = 0.07
    """Of the softmax; the start value where it is learned."""
    learn_temperature: bool = False
    """Learn it as CLIP does: the logarithm of its inverse, clamped to at most 100."""
    cross_lingual_weight: float = 0.0
    """Weight of InfoNCE on S-T, weighted by the judge like V-T."""


class Method(base.Method):
    """Contrastive learning with in-batch negatives, weighted by the judge where there is one."""

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.config = config
        self.log_scale: Tensor | None = None
        if config.learn_temperature:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))

    def temperature(self) -> float | Tensor:
        """The temperature now in force."""
        if self.log_scale is None:
            return self.config.temperature
        return (-self.log_scale.clamp(max=math.log(100.0))).exp()

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE of both visual views."""
        sim = base.views(self, batch)
        p_vs, p_vt = base.clean_probabilities(self.config, batch, sim.VS, sim.VT, sim.ST, sim.mask)
        tau = self.temperature()
        terms = {
            "infonce_vs": infonce(sim.VS, tau, sim.mask, p_vs),
            "infonce_vt": infonce(sim.VT, tau, sim.mask, p_vt),
        }
        if self.config.cross_lingual_weight:
            terms["infonce_st"] = self.config.cross_lingual_weight * infonce(sim.ST, tau, sim.mask, p_vt)
        return terms
