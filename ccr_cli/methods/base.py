"""The contract of a training method, and what all methods on pooled features share.

Shape suffixes: B triplets in a batch (rows visual, columns texts), V visual items, T texts, D embedding, Q queries,
G gallery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ccr_cli import registry
from ccr_cli.data.tokens import Tokens
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.heads import Projection
from ccr_cli.nets.text import NgramTextEncoder, TransformerTextEncoder

Side = Literal["cross_lingual", "cross_modal", "both"]
TextEncoder = NgramTextEncoder | TransformerTextEncoder


@dataclass(frozen=True)
class Config:
    """What every method is configured with; a method's own Config adds its options."""

    epochs: int = 20
    """Passes over the training triplets."""
    batch_size: int = 128
    """Triplets a step."""
    lr: float = 1e-3
    """Peak learning rate of Adam; it falls to zero along a cosine."""
    text_encoder: str = "ngram"
    """`ngram` (hashed words and character n-grams, from scratch), or a transformers encoder by folder or name."""
    max_tokens: int = 64
    """Longest caption in tokens, for a transformers encoder."""
    buckets: int = 32768
    """Rows of the n-gram table."""
    dim: int = 256
    """Dimension of the common space."""
    hidden: int = 0
    """Hidden units of the visual head; 0 is a linear map."""
    dropout: float = 0.4
    """Dropout of the visual features."""
    text_dropout: float = 0.2
    """Dropout of the text vectors."""
    judge: str = "none"
    """Who says which pair is noisy: a file of judges/."""
    judge_side: Side = "cross_lingual"
    """What the judge reads: S-T similarity, each visual view's own, or both."""
    warmup_epochs: int = 1
    """Epochs in which every pair counts as clean, before the judge speaks."""

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            ValueError: If a value makes no sense.
        """
        if self.epochs < 1 or self.batch_size < 2 or self.dim < 1 or self.lr <= 0:
            raise ValueError("epochs >= 1, batch_size >= 2, dim >= 1 and lr > 0 are needed")
        if self.judge not in registry.names("judges"):
            raise ValueError(f"no judge {self.judge!r}; judges: {', '.join(registry.names('judges'))}")


@dataclass(frozen=True)
class Batch:
    """B training triplets."""

    visual_BD: Tensor
    """Frozen features of the visual items."""
    source: Tokens
    """Captions in the source language."""
    target: Tokens
    """Their translations as given, mismatched ones included."""
    item_B: Tensor
    """Number of the given item; never the true one where noise moved it."""
    p_vs_B: Tensor
    """Probability that V and S match, as the epoch's judge sees it; 1 without a judge."""
    p_vt_B: Tensor
    """Probability that V and T match, likewise."""
    judged: bool = False
    """Whether the warm-up is over, so that a judge may speak."""


class Method(nn.Module, ABC):
    """A dual encoder and the losses that train it.

    Subclasses add `losses` and may override `uncertainty`.
    """

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {}
    """Named settings, e.g. `paper`; each is what differs from the defaults."""

    def __init__(self, config: Config, visual_dim: int, text_encoder: TextEncoder) -> None:
        """Builds the model.

        Args:
            config: The method's Config.
            visual_dim: Length of a visual feature.
            text_encoder: Encoder shared by all languages.
        """
        super().__init__()
        visual_head = Projection(visual_dim, config.dim, config.hidden or None, config.dropout, norm_input=True)
        text_head = None if text_encoder.dim == config.dim else Projection(text_encoder.dim, config.dim)
        self.encoder = DualEncoder(visual_head, text_encoder, text_head, config.text_dropout)
        self.epoch, self.epochs = 1, config.epochs

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Computes the loss terms of a batch; the training stage minimises their sum.

        Returns:
            Scalars by name, weights already applied.
        """

    def start_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1."""
        self.epoch = epoch

    def embed_visual(self, features_VD: Tensor) -> Tensor:
        """Returns unit vectors (V, D) of visual items."""
        return self.encoder.embed_visual(features_VD)

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Returns unit vectors (T, D) of texts in any language."""
        return self.encoder.embed_text(tokens.ids_N, tokens.offsets_B1)

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compares queries with a gallery, either of them visual.

        Returns:
            Cosine similarities (Q, G) and the uncertainty (Q,) of each query, or None where the method has none.
        """
        sim_QG = query_QD @ gallery_GD.T
        return sim_QG, self.uncertainty(sim_QG)

    def uncertainty(self, sim_QG: Tensor) -> Tensor | None:
        """Uncertainty of queries from their similarities to the gallery, in [0, 1]; None where there is none."""
        return None


@dataclass(frozen=True)
class Views:
    """The embedded batch as similarity matrices (B, B); rows V (or S in ST), columns S or T."""

    VS: Tensor
    VT: Tensor
    ST: Tensor
    mask: Tensor
    """Entries that may act as negatives, and the diagonal."""


def views(method: Method, batch: Batch) -> Views:
    """Embeds a batch and compares its three sides."""
    v_BD = method.embed_visual(batch.visual_BD)
    s_BD, t_BD = torch.split(method.embed_text(batch.source.join(batch.target)), len(v_BD))
    mask_BB = negatives_BB(batch.item_B, batch.item_B)
    return Views(v_BD @ s_BD.T, v_BD @ t_BD.T, s_BD @ t_BD.T, mask_BB)


def clean_probabilities(
    config: Config, batch: Batch, vs_BB: Tensor, vt_BB: Tensor, st_BB: Tensor, mask_BB: Tensor
) -> tuple[Tensor, Tensor]:
    """Asks the method's judge about a batch.

    A judge of an epoch or of the truth has spoken already (`batch.p_*`); a judge of a batch reads the matrices,
    which may hold similarities or evidence.

    Returns:
        Probability (B,) that V-S matches, and that V-T matches.
    """
    judge = registry.load("judges", config.judge)
    if judge.SCOPE != "batch" or not batch.judged:
        return batch.p_vs_B, batch.p_vt_B
    with torch.no_grad():
        ones_B = torch.ones_like(batch.p_vs_B)
        p_st = judge.clean_probability(st_BB, mask_BB) if config.judge_side != "cross_modal" else ones_B
        if config.judge_side == "cross_lingual":
            return ones_B, p_st
        p_vs, p_vt = (judge.clean_probability(sim_BB, mask_BB) for sim_BB in (vs_BB, vt_BB))
        return p_vs, p_vt * p_st
