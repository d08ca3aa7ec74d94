"""Generalised cross entropy: softmax over the batch, bounded for pairs that do not match.

Zhang and Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels", NeurIPS 2018.

Shapes: B pairs of the batch.
"""

from dataclasses import dataclass

from torch import Tensor

from ccr_cli.losses.masks import masked_log_softmax_BK, weighted_mean
from ccr_cli.methods import base
from ccr_cli.methods.config import Positive


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `gce`."""

    temperature: Positive = 0.07
    """Temperature of the softmax."""
    q: Positive = 0.7
    """Robustness: near 0 the loss is cross entropy, at 1 the mean absolute error."""


class Method(base.Method):
    """Equation (6) of the paper on V-S and V-T, in both directions, weighted by the judge."""

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Both visual views."""
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        return {"gce_vs": self._loss(sim.VS, sim.mask, p.VS), "gce_vt": self._loss(sim.VT, sim.mask, p.VT)}

    def _loss(self, sim_BB: Tensor, mask_BB: Tensor, p_B: Tensor) -> Tensor:
        logits_BB = sim_BB.float() / self.config.temperature
        rows_B, columns_B = (
            (1 - (self.config.q * masked_log_softmax_BK(logits, mask).diagonal()).exp()) / self.config.q
            for logits, mask in ((logits_BB, mask_BB), (logits_BB.T, mask_BB.T))
        )
        return weighted_mean(rows_B + columns_B, p_B) / 2
