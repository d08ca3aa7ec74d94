"""UML learns the evidence of two views, judges pairs, and adds an InfoNCE anchor.

Liu et al., "UML", Sci China Inf Sci 69(3):132107, 2026, doi 10.1007/s11432-024-4696-2.

As printed (`--preset paper`) the method does not train: eq. (1) keeps tau inside tanh, where the gradient
vanishes, and eq. (4) calls most pairs noisy before in-batch retrieval is accurate, so that eq. (18) drives
clean pairs apart. The default keeps the paper's terms and differs in named options (docs/methods/uml.md has the
measurements): `evidence=scaled`, `phi=0`, a smaller `beta`, a warm-up in which all labels are 1, the judge
`triangle`, fitted once per epoch, instead of eq. (4), noisy rows weighted down instead of given a zero target,
uncertainty over the most similar candidates, and an InfoNCE anchor on V-S, V-T and S-T, our addition.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.evidential import dual_direction_loss, evidence, view_weight
from ccr_cli.losses.masks import kept_rows_B, without_zero_weights_BB
from ccr_cli.losses.mutual import consistency, disentanglement
from ccr_cli.methods import base
from ccr_cli.methods.config import LeastTau, NotNegative, Positive, Share, Whole, equal_rates


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `uml`."""

    tau: LeastTau = 0.1
    """Scale of the evidence, eq. (1), and of the softmax in eq. (14), (18)."""
    evidence: Literal["scaled", "paper"] = "scaled"
    """`scaled` exp(tanh(sim)/tau), or eq. (1) as printed, exp(tanh(sim/tau))."""
    evidential_weight: NotNegative = 1.0
    """Weight of L_u, eq. (11)."""
    phi: NotNegative = 0.0
    """Weight of the log-determinant of the Fisher information, eq. (6); the paper's is 0.01. With 0, L_u
    makes all similarities equal unless an anchor separates them."""
    gamma: Share = 0.2
    """Smallest weight of the V-S view, eq. (11)."""
    schedule: NotNegative = 4.0
    """Decay of the weight of the V-S view, lambda of eq. (11)."""
    beta: NotNegative = 0.3
    """Weight of adaptive mutual learning, eq. (20); the paper's is 0.6 for images, 0.4 for videos."""
    consistency_weight: NotNegative = 1.0
    """Weight of L_c, eq. (14), in adaptive mutual learning."""
    disentangle_weight: NotNegative = 1.0
    """Weight of L_n, eq. (18), in adaptive mutual learning; used after the warm-up, times the probability of noise."""
    detach_observation: bool = True
    """No gradient through q_v2s and q_s2v in L_n (variational self-distillation, the paper's reference 33)."""
    noisy_target: Literal["weight", "zero"] = "weight"
    """Treatment of noisy rows: `weight` their loss, or give them the target `zero` (the paper)."""
    anchor_weight: NotNegative = 1.0
    """Weight of an InfoNCE anchor on V-S and V-T, weighted by the judge; 0 as in the paper."""
    anchor_temperature: Positive = 0.07
    """Temperature of the anchor."""
    cross_lingual_weight: NotNegative = 0.5
    """Weight of InfoNCE on S-T, part of the anchor, weighted by the judge; 0 as in the paper."""
    candidates: Whole = 2
    """Number of most similar candidates that determine a query's uncertainty; 0: the whole gallery."""
    judge: str = "triangle"

    def __post_init__(self) -> None:
        super().__post_init__()
        together = self.beta * self.consistency_weight
        if not any((self.evidential_weight, self.anchor_weight, self.cross_lingual_weight, together)):
            raise ValueError(
                "evidential_weight, anchor_weight, cross_lingual_weight and beta * consistency_weight are all 0, which "
                "leaves nothing to train"
            )


_LITERAL = {
    "evidence": "paper",
    "phi": 0.01,
    "anchor_weight": 0.0,
    "cross_lingual_weight": 0.0,
    "noisy_target": "zero",
    "judge": "argmax",
    "judge_side": "cross_modal",
    "warmup_epochs": 0,
    "candidates": 0,
    "epochs": 40,
    "batch_size": 128,
    **equal_rates(2.5e-5),
    "text_encoder": "bert-base-multilingual-cased",
}


class Method(base.EvidentialMethod):
    """Dual-view uncertainty-aware learning and adaptive mutual learning."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {**_LITERAL, "gamma": 0.2, "schedule": 4.0, "beta": 0.6},
        "paper-video": {**_LITERAL, "gamma": 0.25, "schedule": 3.0, "beta": 0.4},
    }

    CAVEATS: ClassVar[dict[str, str]] = dict.fromkeys(
        PRESETS, "uml as printed does not train: it collapses to chance, also without noise (docs/methods/uml.md)"
    )

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Eq. (20): the mean over the batch of L_u + beta (l L_c - (1 - l) L_n), plus the anchor.

        L_n is for noisy pairs, so those below `drop_below` stay in it.
        """
        c = self.config
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)

        def rivals_BB(p_B: Tensor) -> Tensor:
            return without_zero_weights_BB(sim.mask, p_B) if c.drop_below else sim.mask

        def mean(value_B: Tensor, mask_BB: Tensor) -> Tensor:
            rows = kept_rows_B(mask_BB)
            return torch.where(rows, value_B, torch.zeros_like(value_B)).sum() / rows.sum().clamp(min=1)

        def view(sim_BB: Tensor, p_B: Tensor) -> Tensor:
            mask_BB = sim.mask if c.noisy_target == "zero" else rivals_BB(p_B)
            evidence_BB = self.evidence(sim_BB)
            l_u = dual_direction_loss(evidence_BB, p_B, mask_BB, phi=c.phi, noisy_target=c.noisy_target)
            return mean(l_u, mask_BB)

        terms = {}
        if c.evidential_weight:
            sigma = view_weight(self.epoch, self.epochs, gamma=c.gamma, decay=c.schedule)
            terms["evidential_vs"] = c.evidential_weight * sigma * view(sim.VS, p.VS)
            terms["evidential_vt"] = c.evidential_weight * (1 - sigma) * view(sim.VT, p.VT)
        if c.beta and c.consistency_weight:
            mask_BB = rivals_BB(p.VT)
            l_c = consistency(sim.VT, sim.VS, mask_BB, temperature=c.tau)
            terms["consistency"] = c.beta * c.consistency_weight * mean(p.VT * l_c, mask_BB)
        if c.beta and c.disentangle_weight and batch.judged:
            l_n = disentanglement(sim.VS, sim.ST, sim.mask, temperature=c.tau, detach_observation=c.detach_observation)
            terms["disentangle"] = -c.beta * c.disentangle_weight * mean((1 - p.VT) * l_n, sim.mask)
        if c.anchor_weight:
            anchor = infonce(sim.VS, c.anchor_temperature, sim.mask, p.VS)
            anchor = anchor + infonce(sim.VT, c.anchor_temperature, sim.mask, p.VT)
            terms["anchor"] = c.anchor_weight * anchor
        if c.cross_lingual_weight:
            terms["cross_lingual"] = c.cross_lingual_weight * infonce(sim.ST, c.anchor_temperature, sim.mask, p.ST)
        return terms

    def evidence(self, sim: Tensor) -> Tensor:
        """Eq. (1), in the form that `evidence` sets."""
        return evidence(sim, self.config.tau, self.config.evidence)
