"""Trust-consistent learning: two query models with consistent evidence.

Qin et al., "Trustworthy Visual-Textual Retrieval", IEEE TIP 2025, doi 10.1109/TIP.2025.3587575. One model learns
from visual queries (rows), the other from textual ones (columns); each has a visual head and a text encoder of its
own. The paper knows one language: here V-S and V-T are both learned, with equal weights.

The paper's Algorithm 1 minimises L_u, then T_max times L_c, with one Adam for both. The trainer minimises one sum a
batch: L_u + T_max L_c. With moments shared, the 1 + T_max small steps go along the mean of these gradients, so the
sum leaves out only that L_c is computed anew after each of them (docs/methods/tcl.md has the comparison).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.losses import trust
from ccr_cli.losses.evidential import LEAST_TAU, dirichlet
from ccr_cli.methods import base
from ccr_cli.nets.plain import Plain


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `tcl`."""

    tau: float = 0.1
    """Temperature of the evidence, eq. (3); the paper advises 0.03 to 0.07, and its code has 0.05. Below 0.1 pairs that
    start badly have no evidence left to learn from; 0.1 is better when training from scratch."""
    evidence: trust.Form = "exp"
    """g of eq. (3): `exp` (the reference code's), `relu` or `softplus`."""
    kl_rate: float = 0.0005
    """The weight of the KL, eq. (10), is this times the epoch, at most 1; 0 drops the KL. The paper's 0.005 hurts
    retrieval much when training from scratch."""
    consistency_weight: float = 3.0
    """Weight of L_c, eq. (13), in place of T_max of Algorithm 1; 0 drops it."""
    consistency_from: int = 1
    """First epoch of L_c; the reference code's is 2."""
    alpha: float = 1.0
    """Weight of V-T beside V-S."""
    candidates: int = 2
    """Most similar candidates that decide the uncertainty of a query; 0: the whole gallery."""

    def __post_init__(self) -> None:
        """Raises ValueError if a value is out of range."""
        super().__post_init__()
        weights = self.kl_rate, self.consistency_weight, self.alpha, self.candidates
        if self.tau < LEAST_TAU or min(weights) < 0:
            raise ValueError(f"tau >= {LEAST_TAU}, and weights (alpha, kl_rate too), candidates >= 0 are needed")


_PAPER: dict[str, object] = {
    "tau": 0.05,
    "kl_rate": 0.005,
    "candidates": 0,
    "epochs": 25,
    "lr_drop": 16,
    "batch_size": 128,
    "dim": 1024,
}


class Method(base.Method):
    """Uncertainty-aware learning of either direction, and a consistency module between the two models."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {**_PAPER, "lr": 5e-4, "table_lr": 5e-4, "encoder_lr": 5e-4},
        "paper-bert": {
            **_PAPER,
            "lr": 5e-5,
            "table_lr": 5e-5,
            "encoder_lr": 5e-5,
            "kl_rate": 0.001,
            "text_encoder": "bert-base-multilingual-cased",
        },
    }

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.textual_queries = base.twin(config, visual_dim, text_encoder)  # `encoder` is the model of visual ones

    def readings(self) -> dict[str, base.Embedder]:
        """Each model alone, which the paper reports too."""
        return {"visual-queries": base.Tower(self.encoder), "textual-queries": base.Tower(self.textual_queries)}

    def embed_visual(self, visual: Frames) -> Tensor:
        """Both models' vectors, so that a dot product is the mean of their cosines; (V, 2 D)."""
        return base.joined([model.embed_visual(visual) for model in self.readings().values()])

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Both models' vectors of texts, (T, 2 D)."""
        return base.joined([model.embed_text(tokens) for model in self.readings().values()])

    def plain(self) -> list[Plain]:
        """Either model, in the order of `readings`."""
        return [self.encoder.plain(), self.textual_queries.plain()]

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """L_u, eq. (11), and L_c, eq. (13), of both views; a judge's probabilities weight the pairs."""
        c = self.config
        visual, textual = (base.views(model, batch) for model in self.readings().values())
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

    def judge_scores(self, sim_BB: Tensor) -> Tensor:
        """Evidence."""
        return self.evidence(sim_BB)

    def uncertainty(self, sim_QG: Tensor) -> Tensor:
        """Eq. (4), u = K/S, over the most similar candidates (or the whole gallery); the paper leaves it open."""
        k = self.config.candidates
        if 0 < k < sim_QG.shape[1]:
            sim_QG = sim_QG.topk(k, dim=1).values
        return dirichlet(self.evidence(sim_QG)).uncertainty_B
