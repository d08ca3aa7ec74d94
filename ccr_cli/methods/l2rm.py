"""Noisy pairs are rematched by partial optimal transport (L2RM).

Han et al., "Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval", CVPR 2024, arXiv 2403.05105. The
equations are those of the authors' code, which has one language; here V-S and V-T are both learned, with equal weights.
The default judge is `beta`; docs/methods/l2rm.md lists the other differences.

Shape suffixes: B triplets in a batch, C some of them.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from ccr_cli.losses.in2r import symmetric_cross_entropy
from ccr_cli.losses.masks import eye_BB
from ccr_cli.losses.ncr import among
from ccr_cli.losses.transport import partial_plan_BB, rematch
from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base
from ccr_cli.methods.config import Positive, Range, Share, equal_rates


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `l2rm`."""

    margin: Positive = 0.2
    """Margin of the clean pairs' hinge."""
    threshold: Share = 0.5
    """Probability above which a pair is clean."""
    mass: Share = 0.1
    """Share of the noisy pairs that is rematched; 0: noisy pairs are left out."""
    regularization: Annotated[float, Range(">= 0.005", 0.005)] = 0.07
    """Weight of the plan's entropy; the code has 0.01 for Flickr30K."""
    temperature: Positive = 0.05
    """Temperature of the softmax in the warm-up and in rematching."""
    judge: str = "beta"
    judge_side: base.Side = "both"


_PAPER: dict[str, object] = {
    "judge_side": "cross_modal",
    "warmup_epochs": 5,
    "epochs": 40,
    "lr_drop": 21,
    "batch_size": 128,
    "dim": 1024,
    "clip_norm": 2.0,
    "regularization": 0.01,
    **equal_rates(2e-4),
}


class Method(base.Method):
    """The hardest-negative hinge of clean pairs, and new matches among noisy ones."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": _PAPER,
        "paper-coco": {**_PAPER, "warmup_epochs": 10, "epochs": 30, "lr_drop": 21, "regularization": 0.07},
    }

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """SCE in the warm-up, then the hinge of clean pairs and the new matches of noisy ones, for V-S and V-T."""
        sim = base.views(self, batch)
        p = base.clean_probabilities(self, batch, sim)
        terms: dict[str, Tensor] = {}
        for view in ("VS", "VT"):
            parts = self._parts(getattr(sim, view), sim.mask, getattr(p, view), batch.judged)
            terms |= {f"{part}_{view.lower()}": loss for part, loss in parts.items()}
        return terms

    def _parts(self, sim_BB: Tensor, mask_BB: Tensor, p_B: Tensor, judged: bool) -> dict[str, Tensor]:
        """The losses of one view; clean and noisy pairs are not rivals of each other, as in the code's batches."""
        c = self.config
        if not judged:
            return {"warmup": symmetric_cross_entropy(sim_BB, c.temperature, mask_BB, p_B)}
        clean_B = p_B > c.threshold
        parts = {"clean": triplet(*among(clean_B, sim_BB, mask_BB), margin=c.margin)}
        if c.mass:
            sim_CC, mask_CC = among(~clean_B, sim_BB, mask_BB)
            other_CC = mask_CC & ~eye_BB(len(mask_CC), mask_CC.device)
            plan_CC = partial_plan_BB(1 - sim_CC, other_CC, c.mass, c.regularization)
            parts["rematched"] = rematch(sim_CC, plan_CC, mask_CC, c.temperature)
        return parts
