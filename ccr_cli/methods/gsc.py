"""Contrast weighted by how well two sides agree on their neighbours (GSC).

Zhao et al., "Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning", CVPR 2024, arXiv
2405.16996. The equations are those of the authors' code, which has one language; here V-S and V-T are both learned,
with equal weights. The default judge is `structure`; docs/methods/gsc.md lists the other differences.

Shape suffixes: B triplets, D embedding.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.losses.structure import closeness, structure
from ccr_cli.methods import base
from ccr_cli.methods.config import NotNegative, Positive, equal_rates


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `gsc`."""

    temperature: Positive = 0.07
    """Temperature of the softmax, and of the closeness within a side."""
    structure_weight: NotNegative = 0.01
    """gamma, the weight of the structures' agreement; the code has 0.01 for Flickr30K and CC152K, 0.05 for COCO."""
    judge: str = "structure"
    judge_side: base.Side = "both"


_PAPER: dict[str, object] = {
    "judge_side": "cross_modal",
    "clip_norm": 2.0,
    "epochs": 60,
    "batch_size": 128,
    "dim": 1024,
    **equal_rates(2e-4),
}


class Method(base.Method):
    """InfoNCE and the agreement of structures, both weighted by the judge."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": _PAPER,
        "paper-coco": {**_PAPER, "structure_weight": 0.05},
    }

    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE and L_IM of both visual views."""
        c = self.config
        v_bD, text_2bD = self.embed_visual(batch.visual), self.embed_text(batch.source.join(batch.target))
        v_BD, text_2BD = batch.whole(v_bD), batch.whole_texts(text_2bD)
        sim = base.compare(v_BD, text_2BD, batch.item_B)
        p = base.clean_probabilities(self, batch, sim)
        terms = {
            "infonce_vs": infonce(sim.VS, c.temperature, sim.mask, p.VS),
            "infonce_vt": infonce(sim.VT, c.temperature, sim.mask, p.VT),
        }
        if c.structure_weight:
            v_BB, s_BB, t_BB = (self._closeness(x_BD) for x_BD in (v_BD, *torch.split(text_2BD, len(v_BD))))
            terms["structure_vs"] = c.structure_weight * structure(v_BB, s_BB, sim.mask, p.VS)
            terms["structure_vt"] = c.structure_weight * structure(v_BB, t_BB, sim.mask, p.VT)
        return terms

    def _closeness(self, x_BD: Tensor) -> Tensor:
        """How near the vectors of one side are to each other, 0 to 1."""
        with no_autocast(x_BD):
            x_BD = normalize(at_least_float32(x_BD), dim=1)
            return closeness(x_BD @ x_BD.T, self.config.temperature)
