"""Trust-consistent learning: two query models with consistent evidence.

Qin et al., "Trustworthy Visual-Textual Retrieval", IEEE TIP 2025, doi 10.1109/TIP.2025.3587575. One model learns
from visual queries (rows), the other from textual ones (columns); each has a visual head and a text encoder of its
own. The paper has one language; here V-S and V-T are both learned, with equal weights.

The paper's Algorithm 1 minimises L_u, then T_max times L_c, with one Adam for both. ccr minimises one sum per batch,
L_u + T_max L_c. With shared moments, the 1 + T_max small steps follow the mean of these gradients, so the sum differs
only in that L_c is not recomputed after each of them (docs/methods/tcl.md has the comparison).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ccr_cli.losses import trust
from ccr_cli.methods import base
from ccr_cli.methods.config import LeastTau, NotNegative, Whole, equal_rates
from ccr_cli.nets.dual import DualEncoder


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `tcl`."""

    tau: LeastTau = 0.1
    """Temperature of the evidence, eq. (3); the paper advises 0.03 to 0.07, and its code has 0.05. Below 0.1 pairs that
    start badly have no evidence left to learn from; 0.1 is better when training from scratch."""
    evidence: trust.Form = "exp"
    """g of eq. (3): `exp` (the reference code's), `relu` or `softplus`."""
    kl_rate: NotNegative = 0.0005
    """The weight of the KL, eq. (10), is this times the epoch, at most 1; 0 drops the KL. The paper's 0.005 greatly
    worsens retrieval when training from scratch."""
    consistency_weight: NotNegative = 3.0
    """Weight of L_c, eq. (13), in place of T_max of Algorithm 1; 0 drops it."""
    consistency_from: int = 1
    """First epoch of L_c; the reference code's is 2."""
    alpha: NotNegative = 1.0
    """Weight of V-T relative to V-S."""
    candidates: Whole = 2
    """Number of most similar candidates that determine a query's uncertainty; 0: the whole gallery."""


_PAPER: dict[str, object] = {
    "tau": 0.05,
    "kl_rate": 0.005,
    "candidates": 0,
    "epochs": 25,
    "lr_drop": 16,
    "batch_size": 128,
    "dim": 1024,
}


class Method(base.EvidentialMethod, base.JointMethod):
    """Uncertainty-aware learning in each direction, and a consistency loss between the two models."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {**_PAPER, **equal_rates(5e-4)},
        "paper-bert": {**_PAPER, **equal_rates(5e-5), "kl_rate": 0.001, "text_encoder": "bert-base-multilingual-cased"},
    }

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.textual_queries = base.twin(config, visual_dim, text_encoder)  # `encoder` is the model of visual ones

    def encoders(self) -> list[DualEncoder]:
        """The models of visual and of textual queries."""
        return [self.encoder, self.textual_queries]

    def readings(self) -> dict[str, base.Embedder]:
        """Each model alone, which the paper reports too."""
        return {"visual-queries": self.encoder, "textual-queries": self.textual_queries}

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """L_u, eq. (11), and L_c, eq. (13), of both views; a judge's probabilities weight the pairs."""
        c = self.config
        visual, textual = (base.views(model, batch) for model in self.encoders())
        mask = visual.mask
        vs, vt, st = ((getattr(visual, side) + getattr(textual, side)) / 2 for side in ("VS", "VT", "ST"))
        p = base.clean_probabilities(self, batch, base.Views(vs, vt, st, mask))
        kl_weight = min(1.0, c.kl_rate * self.epoch)
        terms = {}
        for view, weight in (("VS", 1.0), ("VT", c.alpha)):
            if not weight:
                continue
            p_B = getattr(p, view)
            e, f = (trust.evidence(getattr(sim, view), c.tau, c.evidence) for sim in (visual, textual))
            rows = trust.uncertainty_aware_loss(e, mask, p_B, kl_weight=kl_weight)
            columns = trust.uncertainty_aware_loss(f.T, mask.T, p_B, kl_weight=kl_weight)
            terms[f"uncertainty_{view.lower()}"] = weight * (rows + columns)
            if c.consistency_weight and self.epoch >= c.consistency_from:
                apart = trust.consistency(e, f, mask, p_B) + trust.consistency(f.T, e.T, mask.T, p_B)
                terms[f"consistency_{view.lower()}"] = weight * c.consistency_weight * apart
        return terms

    def evidence(self, sim: Tensor) -> Tensor:
        """Eq. (3)."""
        return trust.evidence(sim, self.config.tau, self.config.evidence)
