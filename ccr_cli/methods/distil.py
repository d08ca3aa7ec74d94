"""Teacher learning: texts learn a frozen teacher's vectors of the English.

Translations pass no gradient to pictures, so a wrong one cannot move them. The teacher is a run without translations,
whose visual head is kept, or a sentence encoder, for which a visual head learns from pictures and source captions.

Reimers and Gurevych, "Making monolingual sentence embeddings multilingual using knowledge distillation", EMNLP 2020;
Carlsson et al., "Cross-lingual and multilingual CLIP", LREC 2022 (`mse`); Chen et al., "mCLIP", ACL 2023 (`contrast`);
`relational` is ours. Shape suffixes: B triplets in a batch, D embedding.
"""

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ccr_cli.losses import distil
from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.methods import base
from ccr_cli.methods.config import Need, Positive

TEXT_WEIGHT = 0.1
"""Weight of InfoNCE with the teacher's vectors under `contrast`, as in mCLIP's code."""


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `distil`."""

    teacher: str = ""
    """A run of a method without translations (`source-only`, `pretrained`) on the same features, or a sentence encoder
    of transformers, by folder or name; empty: the only such run."""
    distance: Literal["mse", "cosine", "relational", "contrast"] = "cosine"
    """Loss of the student: `cosine` and `mse`, distance from the teacher's vector; `relational`, difference of
    similarities to the captions of the batch; `contrast`, InfoNCE with pictures and with the teacher's vectors."""
    centre: bool = False
    """Subtract the mean of the teacher's vectors from each."""
    temperature: Positive = 0.07
    """Temperature of `relational`, of the sentence encoder's visual head, and at the start of `contrast`, where it is
    learned."""
    judge: str = "two-group"
    """The judge of S-T, after the warm-up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.finetune:
            raise ValueError("finetune=true is not possible: the pictures stay where the teacher has them")

    @property
    def aligned(self) -> bool:
        """Always False: whatever the visual head is, the student's texts start elsewhere."""
        return False

    def needs(self) -> frozenset[Need]:
        """Also a teacher."""
        return super().needs() | {"teacher"}


class Method(base.Method):
    """A student of a frozen teacher."""

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.log_scale: Tensor | None = None
        if config.distance == "contrast":
            self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))

    def follow(self, teacher: base.Method | None, vector_ND: Tensor) -> Tensor:
        """Copies and freezes the visual side of a teacher that is a run; returns the vectors to learn."""
        if teacher is not None:
            for name in ("visual_head", "pooling"):
                mine, its = getattr(self.encoder, name), getattr(teacher.encoder, name)
                if mine is not None:
                    mine.load_state_dict(its.state_dict())
                    mine.requires_grad_(False)
        return normalize(vector_ND - vector_ND.mean(0), dim=1) if self.config.centre else vector_ND

    def train(self, mode: bool = True) -> Self:
        """Sets the mode, but keeps a frozen visual side in evaluation mode."""
        super().train(mode)
        for part in (self.encoder.visual_head, self.encoder.pooling):
            if part is not None and not any(w.requires_grad for w in part.parameters()):
                part.eval()
        return self

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Distances of S and T from the teacher's vector of S, and InfoNCE of V with that vector if the head is new."""
        assert batch.teacher_BD is not None, "the batch has the teacher's vectors"
        g_BD = batch.teacher_BD.detach()
        raw_2BD = batch.whole_texts(self.encoder.pool_text(batch.source.join(batch.target)))
        v_BD = batch.whole(self.embed_visual(batch.visual))
        sim = base.compare(v_BD, raw_2BD, batch.item_B)
        p = base.clean_probabilities(self, batch, sim)
        s_BD, t_BD = raw_2BD.chunk(2)
        terms = {
            "distil_t": self._distance(t_BD, g_BD, v_BD, sim.mask, p.ST, p.VT),
            "distil_s": self._distance(s_BD, g_BD, v_BD, sim.mask, None, p.VS),
        }
        if any(weight.requires_grad for weight in self.encoder.visual_head.parameters()):
            terms["infonce_vs"] = infonce(similarities(v_BD, g_BD), self.config.temperature, sim.mask, p.VS)
        return terms

    def _distance(
        self, raw_BD: Tensor, g_BD: Tensor, v_BD: Tensor, mask_BB: Tensor, p_B: Tensor | None, p_visual_B: Tensor
    ) -> Tensor:
        """The student's loss on texts, from their vectors before normalisation; V gets no gradient."""
        match self.config.distance:
            case "mse":
                return distil.mse(raw_BD, g_BD, p_B)
            case "cosine":
                return distil.cosine(raw_BD, g_BD, p_B)
            case "relational":
                return distil.relational(normalize(raw_BD, dim=1), g_BD, self.config.temperature, p_B)
        assert self.log_scale is not None
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(100.0))
        tau = (-self.log_scale).exp()
        with_v, with_g = similarities(v_BD.detach(), raw_BD), similarities(g_BD, raw_BD)
        return infonce(with_v, tau, mask_BB, p_visual_B) + TEXT_WEIGHT * infonce(with_g, tau, mask_BB, p_B)


def similarities(unit_BD: Tensor, raw_BD: Tensor) -> Tensor:
    """Cosines (B, B) in full precision; `unit_BD` holds unit vectors."""
    with no_autocast(unit_BD):
        return at_least_float32(unit_BD) @ normalize(at_least_float32(raw_BD), dim=1).T
