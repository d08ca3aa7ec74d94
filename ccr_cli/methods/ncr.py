"""Co-teaching with soft margins: two models split the pairs for each other (NCR).

Huang et al., "Learning with Noisy Correspondence for Cross-modal Matching" (NCR), NeurIPS 2021. The equations are those
of the authors' code, which has one language; here V-S and V-T are both learned, with equal weights. The default judge
is `hinge`; docs/methods/ncr.md lists the other differences.

Shape suffixes: B triplets in a batch, C some of them, M models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ccr_cli.losses.ncr import among, label_margin, mean_hinge, predicted_labels
from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base
from ccr_cli.methods._coteaching import CoTaught
from ccr_cli.methods.config import Positive, Share, equal_rates


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `ncr`."""

    margin: Positive = 0.2
    """Margin of a pair with label 1."""
    threshold: Share = 0.5
    """Probability above which a pair is clean."""
    noisy_from: Share = 0.5
    """Share of the epochs after the warm-up before noisy pairs are learned, with predicted labels; 1: never."""
    judge: str = "hinge"
    judge_side: base.Side = "both"


_PAPER: dict[str, object] = {
    "judge_side": "cross_modal",
    "warmup_epochs": 5,
    "epochs": 45,
    "lr_drop": 36,
    "batch_size": 128,
    "dim": 1024,
    "clip_norm": 2.0,
    **equal_rates(2e-4),
}


class Method(CoTaught):
    """Hardest-negative hinges with margins from labels: refined by belief for clean pairs, predicted for noisy ones."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": _PAPER,
        "paper-coco": {**_PAPER, "warmup_epochs": 10, "epochs": 30, "lr_drop": 21},
    }

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Hinges summed over the pairs and both models, for V-S and V-T."""
        return self.learned(batch, self._parts)

    def _parts(
        self, sim_BB: Tensor, mask_BB: Tensor, p_MB: Sequence[Tensor], guess: Sequence[Tensor], model: int
    ) -> dict[str, Tensor]:
        """The losses of one view of one model; `guess` holds each model's similarities, none in the warm-up.

        Clean and noisy pairs are not rivals of each other, as in the batches of the code.
        """
        c, p_B = self.config, p_MB[model]
        if not guess:
            return {"warmup": mean_hinge(sim_BB, mask_BB, c.margin, p_B)}
        clean_B = p_B > c.threshold
        p_C, own_C = p_B[clean_B], predicted_labels(*among(clean_B, guess[model], mask_BB), c.margin)
        parts = {"clean": self._hinge(sim_BB, mask_BB, clean_B, p_C + (1 - p_C) * own_C)}
        if self.begun(c.noisy_from):
            labels = [predicted_labels(*among(~clean_B, each, mask_BB), c.margin) for each in guess]
            parts["noisy"] = self._hinge(sim_BB, mask_BB, ~clean_B, torch.stack(labels).mean(0))
        return parts

    def _hinge(self, sim_BB: Tensor, mask_BB: Tensor, member_B: Tensor, label_C: Tensor) -> Tensor:
        """Hinge with the hardest negative among some pairs, at the margin of the pair's label."""
        margin_C = label_margin(label_C, self.config.margin)
        return triplet(*among(member_B, sim_BB, mask_BB), margin=margin_C, reduction="sum")
