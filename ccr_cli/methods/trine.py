"""ccr's own: contrast on all three sides, weighted by the judge `triangle`.

For data in which some pairs are wrong, and nobody knows which or in what way. Every side of a triplet, V-S, V-T and
S-T, is learned by InfoNCE, weighted by the probability that the side matches; the judge `triangle` derives it from all
three similarities and from the other captions of the item. A wrong translation then teaches nothing about the picture,
but its source caption still does; if the picture does not match its captions, these still teach each other.
docs/methods/trine.md says which parts help, and what did not.

Shape suffixes: B triplets, Q queries, G gallery, K most similar items.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ccr_cli.judges.base import FloatArray
from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, NotNegative, Positive
from ccr_cli.metrics.logistic import logistic
from ccr_cli.nets.dual import DualEncoder


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `trine`."""

    models: Count = 2
    """Dual encoders trained in parallel; judge and retrieval use their mean similarity."""
    temperature: Positive = 0.1
    """Temperature of the softmax."""
    visual_weight: NotNegative = 1.0
    """Weight of V-T relative to V-S."""
    cross_lingual_weight: NotNegative = 0.5
    """Weight of S-T."""
    judge: str = "triangle"


class Method(base.JointMethod):
    """InfoNCE on three sides, weighted by the judge; a calibrated confidence for every query."""

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.others = nn.ModuleList(base.twin(config, visual_dim, text_encoder) for _ in range(config.models - 1))
        self.confidence = Confidence()

    def encoders(self) -> list[DualEncoder]:
        """The dual encoders."""
        return [self.encoder, *(cast(DualEncoder, other) for other in self.others)]

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE of each side whose weight is not 0, summed over the models, which share one belief."""
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
        """Fits the confidence to the validation queries that select the checkpoint."""
        self.confidence.fit(top_QK, right_Q)

    def uncertainty(self, sim_QG: Tensor) -> Tensor | None:
        """One minus the probability that the first hit is right; None if it could not be fitted."""
        if not self.confidence.coefficients.any():
            return None
        confidence_Q: Tensor = self.confidence(sim_QG.topk(min(2, sim_QG.shape[1]), dim=1).values)
        return 1 - confidence_Q

    def uncertainty_candidates(self) -> int:
        """The two most similar items."""
        return 2


class Confidence(nn.Module):
    """Probability that the first hit is right, from its similarity and its lead over the second (Platt scaling).

    Calibrated on queries whose answer is known (Platt, "Probabilistic outputs for support vector machines", 1999).
    Its coefficients are 0 until it is fitted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Buffer(torch.zeros(3, dtype=torch.float64))  # of similarity, lead, and the constant

    def forward(self, top_QK: Tensor) -> Tensor:
        """Returns the probability (Q,), from similarities in descending order; a lone item's lead is over -1."""
        return torch.sigmoid(self._inputs(top_QK) @ self.coefficients).to(top_QK.dtype)

    def fit(self, top_QK: Tensor, right_Q: Tensor) -> None:
        """Fits the coefficients by logistic regression; if all hits are right, or all wrong, they stay unchanged.

        `top_QK` are similarities of the most similar items, descending, K >= 1; `right_Q`: whether the first is right.
        """
        y_Q = right_Q.cpu().numpy()
        if len(np.unique(y_Q)) < 2:
            return
        x_Q2 = self._inputs(top_QK)[:, :2].cpu().numpy()
        # a greater similarity or lead must not lower the probability: if the full fit has a negative slope, the best
        # fit without one replaces it, on one input or none (its constant then gives the hit rate)
        fits = [_fitted(x_Q2, y_Q, inputs) for inputs in ([0, 1], [0], [1], [])]
        if (fits[0][:2] < 0).any():
            fits = [fit for fit in fits[1:] if (fit[:2] >= 0).all()]
            fits.sort(key=lambda fit: float(np.logaddexp(0, (0.5 - y_Q) * 2 * (x_Q2 @ fit[:2] + fit[2])).sum()))
        self.coefficients.copy_(torch.from_numpy(fits[0]))

    @staticmethod
    def _inputs(top_QK: Tensor) -> Tensor:
        top_QK = top_QK.double()
        second_Q = top_QK[:, 1] if top_QK.shape[1] > 1 else torch.full_like(top_QK[:, 0], -1.0)
        return torch.stack([top_QK[:, 0], top_QK[:, 0] - second_Q, torch.ones_like(second_Q)], dim=1)


def _fitted(x_Q2: FloatArray, y_Q: npt.NDArray[np.bool_], inputs: list[int]) -> FloatArray:
    """Slopes (0 for omitted inputs) and constant of a logistic regression on some of the inputs."""
    out = np.array([0.0, 0.0, np.log(y_Q.mean() / (1 - y_Q.mean()))])
    if inputs:
        out[[*inputs, 2]] = logistic(x_Q2[:, inputs], y_Q)
    return out
