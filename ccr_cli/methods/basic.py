"""Triplet ranking with hardest negatives on V-S and V-T: the papers' baseline.

NRCCR's "Basic Model" (Wang et al., ACM MM 2022, section 3.2) and row 0 of UML's Table 4.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base
from ccr_cli.methods.config import NotNegative


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `basic`."""

    margin: NotNegative = 0.2
    """Margin of the hinge, in units of cosine similarity."""
    alpha: NotNegative = 0.6
    """Weight of V-T relative to V-S (NRCCR's alpha)."""
    reduction: Literal["sum", "mean"] = "mean"
    """Reduction over the batch: `sum` as in the reference code; `mean` does not depend on the batch size."""


class Method(base.Method):
    """Hinge with the hardest in-batch negative in both directions."""

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """NRCCR eq. (7): L_tri(V, S) + alpha L_tri(V, T), weighted by the judge's probabilities."""
        c = self.config
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        terms = {"triplet_vs": triplet(sim.VS, sim.mask, margin=c.margin, reduction=c.reduction, weight_B=p.VS)}
        if c.alpha:
            vt = triplet(sim.VT, sim.mask, margin=c.margin, reduction=c.reduction, weight_B=p.VT)
            terms["triplet_vt"] = c.alpha * vt
        return terms
