"""Co-teaching with soft targets: pairs are clean, hard or noisy (CREAM).

Ma et al., "Cross-modal Retrieval with Noisy Correspondence via Consistency Refining and Mining", IEEE TIP 2024. The
equations are those of the authors' code, which has one language; here V-S and V-T are both learned, with equal weights.
The default judge is `nce`; docs/methods/cream.md lists the other differences.

Shape suffixes: B triplets in a batch, C some of them, M models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.cream import consistency_B, mined
from ccr_cli.losses.ncr import among
from ccr_cli.methods import base
from ccr_cli.methods._coteaching import CoTaught
from ccr_cli.methods.config import Positive, Share, equal_rates

MOSTLY_CLEAN = 0.85
"""Share of clean pairs above which clean and hard ones keep all rivals in their targets."""


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `cream`."""

    temperature: Positive = 0.07
    """Temperature of the softmax."""
    threshold: Share = 0.5
    """Probability above which a model calls a pair clean."""
    hard_from: Share = 0.25
    """Share of the epochs after the warm-up before hard pairs (called clean by only one model) are learned."""
    noisy_from: Share = 0.375
    """Share of the epochs after the warm-up before noisy pairs (called clean by neither) are learned; 1: never."""
    judge: str = "nce"
    judge_side: base.Side = "both"


_PAPER: dict[str, object] = {
    "judge_side": "cross_modal",
    "warmup_epochs": 5,
    "epochs": 45,
    "lr_drop": 16,
    "batch_size": 128,
    "dim": 1024,
    "clip_norm": 2.0,
    **equal_rates(2e-4),
}


class Method(CoTaught):
    """Cross-entropy with soft targets, for each kind of pair (clean, hard, noisy) by itself."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": _PAPER,
        "paper-coco": {**_PAPER, "epochs": 25, "hard_from": 0.5, "noisy_from": 0.75},
    }

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Sums over both models, of V-S and V-T: InfoNCE in the warm-up, then the contrast of each kind of pair."""
        return self.learned(batch, self._parts)

    def _parts(
        self, sim_BB: Tensor, mask_BB: Tensor, p_MB: Sequence[Tensor], guess: Sequence[Tensor], model: int
    ) -> dict[str, Tensor]:
        """The losses of one view of one model, means over the batch; `p_MB` are the beliefs of the models' peers.

        `guess` holds each model's similarities in evaluation mode, none in the warm-up. Pairs are rivals only of pairs
        of their kind, as in the batches of the code.
        """
        c = self.config
        if not guess:
            return {"warmup": 2 * infonce(sim_BB, c.temperature, mask_BB, p_MB[model])}
        votes_B = torch.stack([p_B > c.threshold for p_B in p_MB]).sum(dim=0)
        member = {"clean": votes_B == 2, "hard": votes_B == 1, "noisy": votes_B == 0}
        own = {
            kind: torch.stack([consistency_B(*among(of_B, x, mask_BB), c.temperature) for x in guess])
            for kind, of_B in member.items()
        }
        mean_B = torch.stack(list(p_MB)).mean(dim=0)
        belief = {"clean": p_MB[model][member["clean"]], "hard": mean_B[member["hard"]]}
        label = {kind: p_C + (1 - p_C) * own[kind][model] for kind, p_C in belief.items()}
        label["noisy"] = own["noisy"].mean(dim=0)

        learns_hard, learns_noisy = self.begun(c.hard_from), self.begun(c.noisy_from)
        usual = float(torch.cat(list(label.values())).mean())
        least = {"clean": usual if learns_hard else 1.0, "hard": usual, "noisy": usual}
        if bool(member["clean"].double().mean() > MOSTLY_CLEAN):
            least |= {"clean": 0.0, "hard": 0.0}
        learned = ["clean"] + ["hard"] * learns_hard + ["noisy"] * learns_noisy
        parts = {}
        for kind in learned:
            sim_CC, mask_CC = among(member[kind], sim_BB, mask_BB)
            parts[kind] = mined(sim_CC, label[kind], mask_CC, c.temperature, least[kind]) / len(sim_BB)
        return parts
