"""The contract of a training method, and what all methods on pooled features share.

Shape suffixes: B triplets in a batch (rows visual, columns texts), V visual items, T texts, D embedding, Q queries,
G gallery.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import BatchJudge, believe, load_judge
from ccr_cli.judges.base import Belief as Belief
from ccr_cli.losses.evidential import evidence, query_uncertainty
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.methods.config import Config as Config
from ccr_cli.methods.config import Need as Need
from ccr_cli.methods.config import Side as Side
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.heads import AlignedHead, Projection
from ccr_cli.nets.plain import Plain
from ccr_cli.nets.pooling import FrameTransformer, GeneralizedPooling, Pooling
from ccr_cli.nets.text import GivenTextEncoder, NgramTextEncoder, text_encoder_from_config
from ccr_cli.nets.text import TextEncoder as TextEncoder
from ccr_cli.nets.tower import VisualTower


@dataclass(frozen=True)
class Batch:
    """B training triplets. Each process holds the items and texts of b of them, and everything else for all B.

    With a single process, b = B.
    """

    visual: Frames
    """Frozen features of the b visual items: one row per item, unless the method needs frames."""
    source: Tokens
    """Captions in the source language."""
    target: Tokens
    """Their translations, including mismatched ones; `source` itself if nothing was translated."""
    item_B: Tensor
    """Number of the item; for a pair mismatched by noise the wrong item, never the true one."""
    p: Belief[Tensor]
    """Probability that each side matches, from a judge of all triplets or a list of pairs; 1 without either."""
    judged: bool = False
    """Whether the warm-up is over, so that a judge takes effect."""
    back: Tokens | None = None
    """Back-translations, for a method that needs them."""
    row_B: Tensor | None = None
    """Index of each triplet in the training set, the same in every epoch, for a method that remembers triplets."""
    label_B: Tensor | None = None
    """Category of each item, int64, for a method that needs it."""
    teacher_BD: Tensor | None = None
    """A teacher's unit vectors of the source captions, for a method that needs them."""
    gather: Callable[[Tensor, int], Tensor] | None = None
    """Gathers the rows of all processes, with gradient; None in a single process."""

    def whole(self, x: Tensor) -> Tensor:
        """Gathers the rows (B, ...) of the whole batch from this process's rows (b, ...)."""
        return x if self.gather is None else self.gather(x, len(self.item_B))

    def whole_texts(self, x: Tensor, languages: int = 2) -> Tensor:
        """Gathers the rows of S, then those of T and so on."""
        return x if self.gather is None else torch.cat([self.whole(part) for part in x.chunk(languages)])


class Embedder(Protocol):
    """A model that retrieval can use."""

    def embed_visual(self, visual: Frames) -> Tensor:
        """Returns unit vectors (V, D) of visual items."""

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Returns unit vectors (T, D) of texts in any language."""


def dual_encoder(config: Config, visual_dim: int, text_encoder: TextEncoder) -> DualEncoder:
    """Builds the dual encoder that every method trains: a text encoder, and heads into the common space.

    Raises:
        UsageError: If the run starts from an alignment, and features, texts and `dim` differ in dimension.
    """
    if config.aligned:
        if not visual_dim == text_encoder.dim == config.dim:
            sides = f"the features have {visual_dim} dimensions and the texts {text_encoder.dim}"
            more = "" if config.dim in (visual_dim, text_encoder.dim) else f" (dim={config.dim})"
            hint = "a dual encoder with one dimension for both, pooling=own and no dim; or train with head=linear"
            raise UsageError(f"head={config.head}: {sides}{more}", hint=hint)
        aligned = AlignedHead(visual_dim, config.dropout, residual=config.head == "residual")
        return DualEncoder(aligned, text_encoder, None, config.text_dropout)
    visual_head: Projection | AlignedHead
    if config.head == "linear":
        visual_head = Projection(visual_dim, config.dim, config.hidden or None, config.dropout, norm_input=True)
    else:  # that of a teacher
        visual_head = AlignedHead(visual_dim, config.dropout, residual=config.head == "residual")
    trained = not isinstance(text_encoder, GivenTextEncoder)
    text_head = None if trained and text_encoder.dim == config.dim else Projection(text_encoder.dim, config.dim)
    pooling: Pooling | None = GeneralizedPooling(config.visual_drop) if config.visual == "gpo" else None
    if config.visual == "transformer":
        pooling = FrameTransformer(config.dim, config.visual_layers, config.visual_heads, config.visual_drop)
    return DualEncoder(visual_head, text_encoder, text_head, config.text_dropout, pooling)


def twin(config: Config, visual_dim: int, text_encoder: TextEncoder) -> DualEncoder:
    """Builds another dual encoder of the same kind.

    A pretrained text encoder starts from the same weights, an n-gram table from new random ones.
    """
    again: TextEncoder = copy.deepcopy(text_encoder)
    if isinstance(text_encoder, NgramTextEncoder):
        again = text_encoder_from_config(text_encoder.config())
    return dual_encoder(config, visual_dim, again)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates unit vectors of several models; a dot product is then the mean of their cosines."""
    return torch.cat(list(parts), dim=-1) / math.sqrt(len(parts))


class Method(nn.Module, ABC):
    """A dual encoder and the losses that train it.

    Subclasses add `losses` and may override `uncertainty`.
    """

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {}
    """Named settings that differ from the defaults, e.g. `paper`."""
    CAVEATS: ClassVar[dict[str, str]] = {}
    """Warnings about presets, by preset name; printed when training starts."""
    TRANSLATED: ClassVar[bool] = True
    """Whether it needs translations; if not, it also trains on a data set without any."""
    TRAINED: ClassVar[bool] = True
    """Whether it is trained at all."""

    def __init__(self, config: Config, visual_dim: int, text_encoder: TextEncoder) -> None:
        """Builds the model for visual features of this length; all languages share the text encoder."""
        super().__init__()
        self.config = config
        self.encoder = dual_encoder(config, visual_dim, text_encoder)
        self.epoch, self.epochs = 1, config.epochs

    @abstractmethod
    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Computes the loss terms of a batch; the training stage minimises their sum.

        Returns:
            Scalars by name, weights already applied.
        """

    def attach(self, tower: VisualTower) -> None:
        """Puts a visual tower with its own weights before the head of every dual encoder."""
        encoders = [part for part in self.modules() if isinstance(part, DualEncoder)]
        for number, encoder in enumerate(encoders):
            encoder.tower = copy.deepcopy(tower) if number else tower

    def follow(self, teacher: "Method | None", vector_ND: Tensor) -> Tensor:
        """Called once, if the method needs a teacher, with the teacher's vectors of the source captions.

        Args:
            teacher: The teacher's model if it is a run, else None.
            vector_ND: The teacher's unit vectors, one per triplet.

        Returns:
            The vectors to learn; `Batch.teacher_BD` holds a batch's rows of them.
        """
        return vector_ND

    def start_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 1."""
        self.epoch = epoch

    def embed_visual(self, visual: Frames) -> Tensor:
        """Returns unit vectors (V, D) of visual items."""
        return self.encoder.embed_visual(visual)

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Returns unit vectors (T, D) of texts in any language."""
        return self.encoder.embed_text(tokens)

    def plain(self) -> list[Plain]:
        """The model as plain layers, for `ccr export`: dual encoders whose vectors, `joined`, are the method's own.

        A method whose vectors are not those of `encoder` overrides it.
        """
        return [self.encoder.plain()]

    def readings(self) -> dict[str, Embedder]:
        """Other ways to use the trained model, by name; evaluation also reports each of them."""
        return {}

    def evidence(self, sim: Tensor) -> Tensor:
        """Evidence of pairs from their similarities, for `ccr diagnose`; UML eq. (1) by default."""
        return evidence(sim)

    def judge_scores(self, sim_BB: Tensor) -> Tensor:
        """Scores that a batch judge reads, from similarities (B, B)."""
        return sim_BB

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compares queries with a gallery; one of the two is visual.

        Returns:
            Cosine similarities (Q, G) and the uncertainty (Q,) of each query, or None without one.
        """
        sim_QG = query_QD @ gallery_GD.T
        return sim_QG, self.uncertainty(sim_QG)

    def uncertainty(self, sim_QG: Tensor) -> Tensor | None:
        """Uncertainty of queries from their similarities to the gallery, in [0, 1]; None without one."""
        return None

    def calibrate(self, top_QK: Tensor, right_Q: Tensor) -> None:
        """Called with the validation queries that select the checkpoint, whenever the model is the best so far.

        A method that overrides it turns its uncertainty into the probability that the first hit is wrong. `top_QK` has
        the similarities of each query's two most similar items (fewer in a smaller gallery), descending; `right_Q`
        tells whether the first of them is the right item.
        """
        return

    @property
    def calibrated(self) -> bool:
        """Whether the uncertainty is a probability that the first hit is wrong."""
        return type(self).calibrate is not Method.calibrate

    def entropy(self, query_QD: Tensor) -> Tensor | None:
        """Entropy of each query's categories (Q,), 0 to 1; None if the method has no categories."""
        return None

    def uncertainty_candidates(self) -> int:
        """How many of the most similar items the uncertainty reads: 1 for the query alone, 0 for the whole gallery."""
        return int(getattr(self.config, "candidates", 0))

    def uncertainty_scope(self) -> str:
        """What decides the uncertainty, for the signature: `gallery`, `topN`, `topN-calibrated` or `query`."""
        candidates = self.uncertainty_candidates()
        return (f"top{candidates}" if candidates else "gallery") + ("-calibrated" if self.calibrated else "")


class JointMethod(Method):
    """Several dual encoders whose mean similarity is used for retrieval."""

    @abstractmethod
    def encoders(self) -> list[DualEncoder]:
        """The dual encoders."""

    def embed_visual(self, visual: Frames) -> Tensor:
        """All encoders' vectors, so that a dot product is the mean of their cosines; (V, encoders x D)."""
        return joined([encoder.embed_visual(visual) for encoder in self.encoders()])

    def embed_text(self, tokens: Tokens) -> Tensor:
        """All encoders' vectors of texts, (T, encoders x D)."""
        return joined([encoder.embed_text(tokens) for encoder in self.encoders()])

    def plain(self) -> list[Plain]:
        """The encoders as plain layers, one each."""
        return [encoder.plain() for encoder in self.encoders()]


class EvidentialMethod(Method):
    """A method that trains evidence, which batch judges read and which gives the uncertainty of queries."""

    @abstractmethod
    def evidence(self, sim: Tensor) -> Tensor:
        """The trained evidence of pairs from their similarities."""

    def judge_scores(self, sim_BB: Tensor) -> Tensor:
        """The evidence, from which the papers derive their labels."""
        return self.evidence(sim_BB)

    def uncertainty(self, sim_QG: Tensor) -> Tensor:
        """The ratio u = K / S over the most similar candidates (or the whole gallery); papers leave K open."""
        return query_uncertainty(sim_QG, self.evidence, self.uncertainty_candidates() or None)


@dataclass(frozen=True)
class Views:
    """Similarity matrices (B, B) of an embedded batch: rows V (S in ST), columns S or T."""

    VS: Tensor
    VT: Tensor
    ST: Tensor
    mask: Tensor
    """True for entries that can be negatives, and on the diagonal."""


def views(model: Embedder, batch: Batch) -> Views:
    """Embeds a batch, S and T in one call, and compares its three sides."""
    v_bD, text_2bD = model.embed_visual(batch.visual), model.embed_text(batch.source.join(batch.target))
    return compare(batch.whole(v_bD), batch.whole_texts(text_2bD), batch.item_B)


def compare(v_BD: Tensor, text_2BD: Tensor, item_B: Tensor) -> Views:
    """Compares the sides of an embedded batch: pictures (B, D), and its captions S and then T (2B, D)."""
    s_BD, t_BD = torch.split(text_2BD, len(v_BD))
    mask_BB = negatives_BB(item_B, item_B)
    with no_autocast(v_BD):  # half precision makes differences below 0.002 ties
        v_BD, s_BD, t_BD = (normalize(at_least_float32(x_BD), dim=1) for x_BD in (v_BD, s_BD, t_BD))
        return Views(v_BD @ s_BD.T, v_BD @ t_BD.T, s_BD @ t_BD.T, mask_BB)


def clean_probabilities(method: Method, batch: Batch, sim: Views) -> Belief[Tensor]:
    """The belief in a batch: `batch.p`, or after the warm-up that of a batch judge (unless it never speaks).

    Probabilities below `drop_below` become 0, and losses leave pairs of weight 0 out of the rivals too.
    """
    p = batch.p
    judge = load_judge(method.config.judge)
    if isinstance(judge, BatchJudge) and judge.speaks != "never" and batch.judged:
        with torch.no_grad():
            scores = {"VS": sim.VS, "VT": sim.VT, "ST": sim.ST, "both": sim.VT}

            def probability(name: str) -> Tensor:
                return judge.clean_probability(method.judge_scores(scores[name]), sim.mask)

            p = believe(method.config.judge_side, probability, torch.ones_like(p.VT))
    return p.map(lambda p_B: p_B.where(p_B >= method.config.drop_below, torch.zeros_like(p_B)))
