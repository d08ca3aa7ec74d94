"""InfoNCE on pictures and source captions alone, without translations.

The lowest baseline: how well target-language queries retrieve without training in that language and, with
`ccr evaluate --translate-test`, how well an English model retrieves with translated queries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccr_cli.losses.contrastive import infonce
from ccr_cli.methods import base
from ccr_cli.methods.config import Positive


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `source-only`."""

    temperature: Positive = 0.07
    """Temperature of the softmax."""


class Method(base.Method):
    """Contrastive learning on V-S, weighted by the judge, if there is one."""

    TRANSLATED = False
    config: Config

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """InfoNCE of V-S."""
        s_BD = batch.whole(self.embed_text(batch.source))
        # the source captions also stand in for the translations: only the belief in V-S is used
        v_BD = batch.whole(self.embed_visual(batch.visual))
        sim = base.compare(v_BD, torch.cat([s_BD, s_BD]), batch.item_B)
        p = base.clean_probabilities(self, batch, sim)
        return {"infonce_vs": infonce(sim.VS, self.config.temperature, sim.mask, p.VS)}
