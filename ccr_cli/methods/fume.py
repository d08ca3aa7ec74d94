"""Fuzzy learning of categories, with the credibility of each query's category.

Duan et al., "Fuzzy Multimodal Learning for Trusted Cross-modal Retrieval" (FUME), CVPR 2025. For data with one
category per item. Every view (picture, caption, translation) is classified by fixed orthonormal directions of the
common space; the credibility of a query's categories gives its uncertainty, from the query alone.

Shape suffixes: B triplets, D common space, K categories, Q queries, G gallery.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.losses import credibility as fuzzy
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.methods import base
from ccr_cli.methods.config import Count, NotNegative, Positive, equal_rates
from ccr_cli.nets.heads import Projection

KL_EPOCHS = 10
"""Epochs in which the divergence of evidential classification gains its full weight (Sensoy et al.)."""


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `fume`."""

    layers: Count = 2
    """Fully connected layers of each side, the last one into the common space."""
    hidden: Count = 512
    """Units of the other layers (ReLU)."""
    fuzzy_weight: NotNegative = 1.0
    """Weight of L_fml, eq. (4)."""
    alpha: NotNegative = 1.0
    """Weight of L_cl, eq. (8)."""
    temperature: Positive = 1.0
    """Temperature of L_cl: tau."""
    include_self: bool = True
    """Count a view among those of its own item in L_cl, as in eq. (6); false: as in the authors' code."""
    credibility: Literal["fuzzy", "evidential"] = "fuzzy"
    """The classifier: `fuzzy` (credibility), or `evidential` learning (EDL), the paper's baseline."""
    classes: int = 0
    """Number of categories; 0: that of the training data, or `dim` without data."""
    left_out: str = ""
    """Categories to leave out of training, as comma-separated numbers, for out-of-distribution tests."""
    epochs: int = 20
    lr: float = 2e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fuzzy_weight == self.alpha == 0:
            raise ValueError("fuzzy_weight and alpha are both 0, which leaves nothing to train")
        if not 0 <= self.classes <= self.dim:
            raise ValueError(f"{self.classes} categories need as many dimensions, and dim is {self.dim}")
        if not all(label.strip().isdigit() for label in self.left_out.split(",") if self.left_out):
            raise ValueError(f"left_out is a list of numbers such as 3,7, not {self.left_out!r}")

    def unaligned(self) -> str:
        """It trains networks on both sides."""
        return "fume trains a network of its own on both sides"

    def needs(self) -> frozenset[base.Need]:
        """Also the categories."""
        return super().needs() | {"labels"}

    def unjudged(self) -> str:
        """Evidential learning keeps the evidence in the length of a vector: see `Method._placed`."""
        if self.credibility == "fuzzy":
            return ""
        return "credibility=evidential keeps the length of its vectors, so the product of two texts is no cosine"


_PAPER: dict[str, object] = {
    "layers": 3,
    "hidden": 4096,
    "dropout": 0.0,
    "text_dropout": 0.0,
    **equal_rates(5e-5),
    "lr_drop": 201,  # never: no schedule is stated
    "epochs": 200,
}


class Method(base.Method):
    """Credibility of categories and consistency of views."""

    TRANSLATED = False
    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "pascal-sentence": {**_PAPER, "dim": 20, "batch_size": 100, "alpha": 10.0},
        "wikipedia": {**_PAPER, "dim": 10, "batch_size": 200, "alpha": 0.05},
        "nus-wide-10k": {**_PAPER, "dim": 10, "batch_size": 300, "alpha": 0.5, "layers": 4},
        "inria-websearch": {**_PAPER, "dim": 100, "batch_size": 300, "alpha": 0.05, "layers": 4},
        "xmedianet": {**_PAPER, "dim": 200, "batch_size": 100, "alpha": 1.0},
    }

    config: Config
    weight_KD: Tensor

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.encoder.visual_head = _network(config, visual_dim, config.dropout)
        self.encoder.text_head = _network(config, text_encoder.dim, config.text_dropout)
        directions = nn.init.orthogonal_(torch.empty(config.classes or config.dim, config.dim))
        self.register_buffer("weight_KD", directions)

    def embed_visual(self, visual: Frames) -> Tensor:
        """Unit vectors (V, D); with evidential learning see `_placed`."""
        return self._placed(self.encoder.pool_visual(visual), 0)

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Unit vectors (T, D); with evidential learning see `_placed`."""
        assert self.encoder.text_head is not None
        return self._placed(self.encoder.text_head(self.encoder.text_encoder(tokens)), 1)

    def _placed(self, x_BD: Tensor, side: int) -> Tensor:
        """Normalises vectors; with evidential learning, appends their length.

        There the length holds the evidence (the paper does not normalise for EDL). Pictures and texts keep it in
        different extra coordinates, so the product of a picture and a text is still their cosine.
        """
        with no_autocast(x_BD):
            x_BD = at_least_float32(x_BD)
            unit_BD = normalize(x_BD, dim=-1)
            if self.config.credibility == "fuzzy":
                return unit_BD
            length_B1 = x_BD.norm(dim=-1, keepdim=True)
            nothing_B1 = torch.zeros_like(length_B1)
            return torch.cat([unit_BD, *((length_B1, nothing_B1) if side == 0 else (nothing_B1, length_B1))], dim=1)

    def categories(self, x_BD: Tensor) -> Tensor:
        """Membership degrees of embedded items, eq. (3), or evidence; (B, K)."""
        if self.config.credibility == "fuzzy":
            return fuzzy.membership(x_BD, self.weight_KD)
        unit_BD, length_B1 = x_BD[:, : self.config.dim], x_BD[:, self.config.dim :].sum(dim=1, keepdim=True)
        return softplus(length_B1 * unit_BD @ self.weight_KD.T)  # not ReLU, whose gradient dies

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """Eq. (8): L_fml + alpha L_cl, over pictures, captions and translations; the judge weights the texts."""
        c = self.config
        assert batch.label_B is not None, "fume learns categories"
        v_BD = batch.whole(self.embed_visual(batch.visual))
        translated = batch.target is not batch.source
        both = batch.source.join(batch.target) if translated else batch.source
        texts = torch.split(batch.whole_texts(self.embed_text(both), 1 + translated), len(v_BD))
        views, z = [v_BD, *texts], [x_BD[:, : c.dim] for x_BD in (v_BD, *texts)]
        mask_BB = negatives_BB(batch.item_B, batch.item_B)
        with no_autocast(v_BD):
            sim = base.Views(z[0] @ z[1].T, z[0] @ z[-1].T, z[1] @ z[-1].T, mask_BB)
        p = base.clean_probabilities(self, batch, sim)
        weights = [torch.ones_like(p.VS), p.VS, p.VT][: len(views)]
        terms: dict[str, Tensor] = {}
        if c.fuzzy_weight:
            label_B = batch.label_B
            losses = [self._classified(x_BD, label_B, w_B) for x_BD, w_B in zip(views, weights, strict=True)]
            terms[c.credibility] = c.fuzzy_weight * torch.stack(losses).sum()
        if c.alpha:
            consistent = fuzzy.consistency_loss(z, c.temperature, mask_BB, weights, include_self=c.include_self)
            terms["consistency"] = c.alpha * consistent
        return terms

    def _classified(self, x_BD: Tensor, label_B: Tensor, weight_B: Tensor) -> Tensor:
        m_BK = self.categories(x_BD)
        if self.config.credibility == "fuzzy":
            return fuzzy.fuzzy_loss(m_BK, label_B, weight_B)
        return fuzzy.evidential_classification(m_BK, label_B, min(1.0, self.epoch / KL_EPOCHS), weight_B)

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine similarities (Q, G), and the uncertainty (Q,) of each query, eq. (9), from the query alone."""
        m_QK = self.categories(query_QD)
        if self.config.credibility == "fuzzy":
            u_Q = fuzzy.decision_uncertainty(fuzzy.credibility(m_QK))
        else:
            u_Q = fuzzy.evidential_uncertainty(m_QK)
        return query_QD @ gallery_GD.T, u_Q

    def entropy(self, query_QD: Tensor) -> Tensor:
        """Shannon entropy of the shares of categories (Q,), divided by its maximum: FUME Figure 5.

        The paper does not say of which shares; here: credibility, or evidence + 1, divided by its sum.
        """
        m_QK = self.categories(query_QD)
        share_QK = fuzzy.credibility(m_QK) if self.config.credibility == "fuzzy" else m_QK + 1
        share_QK = share_QK / share_QK.sum(dim=1, keepdim=True)
        total_Q: Tensor = torch.special.entr(share_QK).sum(dim=1)
        return total_Q / math.log(max(share_QK.shape[1], 2))

    def uncertainty_candidates(self) -> int:
        """The query alone."""
        return 1

    def uncertainty_scope(self) -> str:
        """The query alone."""
        return "query"


def _network(config: Config, in_dim: int, dropout: float) -> Projection:
    hidden = config.hidden if config.layers > 1 else None
    return Projection(in_dim, config.dim, hidden, dropout, norm_input=True, depth=config.layers - 1, activation=nn.ReLU)
