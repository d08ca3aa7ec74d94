"""Noise-robust learning by self-distillation, back-translation and an adversary.

Wang et al., "Cross-Lingual Cross-Modal Retrieval with Noise-Robust Learning", ACM MM 2022, doi
10.1145/3503161.3548003. The basic model (triplets on V-S and V-T) with a Transformer block over the tokens of either
language and one over frames. A teacher, the cross-attention of English over translated tokens, guides the translated
captions; back-translations and a language discriminator regularise the text space.

Choices where the paper is silent or wrong are documented in the code and in docs/methods/nrccr.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import UsageError
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.losses.nrccr import feature_distillation, language_cross_entropy, similarity_distillation
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, Dropped, NotNegative, Positive, equal_rates
from ccr_cli.nets.attention import Residual, SequenceEncoder
from ccr_cli.nets.heads import Projection, reverse_gradient
from ccr_cli.nets.plain import Block, Plain, Unit
from ccr_cli.nets.ragged import masked_mean, pad_rows

DISCRIMINATOR_HIDDEN = 256
"""Hidden units of the language discriminator."""


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `nrccr`."""

    margin: NotNegative = 0.2
    """Margin of the hinges, in units of cosine similarity."""
    alpha: NotNegative = 0.6
    """Weight of V-T relative to V-S in L_tri."""
    reduction: Literal["sum", "mean"] = "sum"
    """Reduction of L_tri and L_cyc over the batch; the weights below are for `sum`, as in the reference code."""
    similarity_weight: NotNegative = 0.4
    """Weight of L_sim, eq. (8): lambda_1."""
    feature_weight: NotNegative = 0.1
    """Weight of L_feat, eq. (9): lambda_2."""
    cycle_weight: NotNegative = 0.5
    """Weight of L_cyc, eq. (10): lambda_3. Needs back-translations unless 0."""
    adversarial_weight: NotNegative = 1e-3
    """Weight of L_adv, eq. (11): lambda_4, for encoder and discriminator."""
    temperature: Positive = 0.07
    """Temperature of the softmaxes of L_sim."""
    teacher_residual: Residual = "read"
    """Residual of the teacher's attention: `read` adds the tokens attended to; `none` as eq. (6) is printed."""
    feature_distance: Literal["l1", "smooth"] = "l1"
    """Distance of L_feat: `l1`, eq. (9), or `smooth`, the reference code's smooth L1."""
    heads: Count = 8
    """Heads of both Transformer blocks."""
    block_dropout: Dropped = 0.3
    """Dropout in both blocks."""
    frame_block: bool = True
    """Use a Transformer block over the frames of an item that has several; false: use `visual`."""
    lr: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame_block and self.visual != "projection":
            raise ValueError(f"visual={self.visual} and frame_block both pool frames: set frame_block=false")
        if self.dim % self.heads:
            raise ValueError(f"heads must divide dim, and {self.heads} does not divide {self.dim}")

    def unaligned(self) -> str:
        """It trains a Transformer block over the tokens."""
        return "nrccr trains a text side of its own over the tokens"

    def needs(self) -> frozenset[base.Need]:
        """Frames for their block, back-translations for the cycle."""
        needs: dict[base.Need, bool] = {"frames": self.frame_block, "back": self.cycle_weight > 0}
        return super().needs() | {need for need, needed in needs.items() if needed}


class Method(base.Method):
    """The basic model with token and frame blocks, and the four noise-robust terms."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {
            "text_encoder": "bert-base-multilingual-cased",
            "frozen_layers": 7,
            **equal_rates(1e-4),
            "batch_size": 128,
            "epochs": 50,
            "dim": 1024,
            "dropout": 0.2,
            "block_dropout": 0.1,
            "teacher_residual": "none",
        }
    }

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        width = text_encoder.token_dim
        if config.pooling != "mean":
            raise UsageError(f"nrccr reads tokens: pooling={config.pooling} has no effect")
        if width % config.heads:
            raise UsageError(f"{config.heads} heads do not divide the {width} dimensions of {config.text_encoder}")
        self.encoder.text_head = None  # the token encoder maps into the common space
        self.token_encoder = SequenceEncoder(
            width, config.dim, config.heads, config.block_dropout, dropout=config.text_dropout
        )
        self.frame_encoder: SequenceEncoder | None = None
        if config.frame_block:
            self.frame_encoder = SequenceEncoder(config.dim, config.dim, config.heads, config.block_dropout)
        self.discriminator: Projection | None = None
        if config.adversarial_weight:
            self.discriminator = Projection(width, 1, DISCRIMINATOR_HIDDEN)

    def embed_visual(self, visual: Frames) -> Tensor:
        """Eq. (1), (4): the block over the frames that exist, their mean, g_v; unit vectors (V, D).

        The embedding of an item with one frame is its projection, as for images in the paper.
        """
        if self.frame_encoder is None:
            return super().embed_visual(visual)
        rows_ND, offsets_V1 = self.encoder.see(visual)
        x_VFD, mask_VF = pad_rows(self.encoder.visual_head(rows_ND), offsets_V1)
        v_VD = at_least_float32(x_VFD[:, 0])
        moving_V = mask_VF.sum(1) > 1
        if moving_V.any():
            moved_MD = self.frame_encoder(x_VFD[moving_V], mask_VF[moving_V])
            v_VD = v_VD.masked_scatter(moving_V.unsqueeze(1), at_least_float32(moved_MD))
        return normalize(v_VD, dim=-1)

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Eq. (2) to (4): the block over the tokens, their mean, g_t; unit vectors (T, D)."""
        return normalize(self.token_encoder(*self._tokens(tokens)), dim=-1)

    def plain(self) -> list[Plain]:
        """The blocks over tokens and frames."""
        text = (Block(self.token_encoder, keeps_lone_row=False), Unit())
        if self.frame_encoder is None:
            return [Plain(self.encoder.text_encoder, text, self.encoder.plain().visual)]
        frames = Block(self.frame_encoder, keeps_lone_row=True)
        return [Plain(self.encoder.text_encoder, text, (*self.encoder.visual_head.layers, frames, Unit()))]

    def _tokens(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        return self.encoder.text_encoder.tokens(tokens)

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Eq. (12): L_tri + l1 L_sim + l2 L_feat + l3 L_cyc + l4 L_adv (its gradient reversed for the encoder)."""
        c, size, own = self.config, len(batch.item_B), len(batch.source)
        texts = batch.source.join(batch.target)
        if c.cycle_weight:
            assert batch.back is not None, "the cycle needs back-translations"
            texts = texts.join(batch.back)
        x_BLD, there_BL = self._tokens(texts)
        v_BD = batch.whole(self.embed_visual(batch.visual))
        embedded_BD = batch.whole_texts(self.token_encoder(x_BLD, there_BL), 2 + (batch.back is not None))
        mask_BB = negatives_BB(batch.item_B, batch.item_B)
        with no_autocast(v_BD):
            v_BD, embedded_BD = (normalize(at_least_float32(e_BD), dim=1) for e_BD in (v_BD, embedded_BD))
            s_BD, t_BD, *back_BD = torch.split(embedded_BD, size)
            sim = base.Views(v_BD @ s_BD.T, v_BD @ t_BD.T, s_BD @ t_BD.T, mask_BB)
        p = base.clean_probabilities(self, batch, sim)

        def ranked(sim_BB: Tensor, p_B: Tensor) -> Tensor:
            return triplet(sim_BB, mask_BB, margin=c.margin, reduction=c.reduction, weight_B=p_B)

        terms = {"triplet_vs": ranked(sim.VS, p.VS)}
        if c.alpha:
            terms["triplet_vt"] = c.alpha * ranked(sim.VT, p.VT)
        if c.similarity_weight or c.feature_weight:
            h_BD = batch.whole(self._teacher(x_BLD[: 2 * own], there_BL[: 2 * own]))
        if c.similarity_weight:
            with no_autocast(v_BD):
                taught_VT = v_BD @ h_BD.T
            near = similarity_distillation(taught_VT, sim.VT, mask_BB, temperature=c.temperature, weight_B=p.VT)
            terms["similarity"] = c.similarity_weight * near
        if c.feature_weight:
            near = feature_distillation(h_BD, t_BD, distance=c.feature_distance, weight_B=p.ST)
            terms["feature"] = c.feature_weight * near
        for b_BD in back_BD:
            with no_autocast(b_BD):
                terms["cycle"] = c.cycle_weight * ranked(s_BD @ b_BD.T, p.ST)
        if self.discriminator is not None:
            mean_BD = batch.whole_texts(masked_mean(x_BLD[: 2 * own], there_BL[: 2 * own]))
            logit_B = self.discriminator(reverse_gradient(mean_BD)).squeeze(1)
            terms["adversarial"] = c.adversarial_weight * language_cross_entropy(*torch.split(logit_B, size))
        return terms

    @torch.no_grad()
    def attention(self, source: Tokens, target: Tokens) -> Tensor:
        """Figure 3: attention of each source token to each translated token, mean over heads (B, L, M)."""
        return self.token_encoder.attention(*self._tokens(source), *self._tokens(target))

    @torch.no_grad()
    def _teacher(self, x_BLD: Tensor, there_BL: Tensor) -> Tensor:
        """Eq. (6): English tokens attend to translated ones; pooled and mapped by g_t; unit vectors (B, D).

        The teacher is not trained: it runs in evaluation mode, without dropout and with running batch statistics.
        """
        (s_BLD, t_BLD), (s_BL, t_BL) = x_BLD.chunk(2), there_BL.chunk(2)
        self.token_encoder.eval()
        h_BD = self.token_encoder.cross(s_BLD, s_BL, t_BLD, t_BL, self.config.teacher_residual)
        self.token_encoder.train(self.training)
        return normalize(at_least_float32(h_BD), dim=1)
