"""Noisy pairs learn from neighbours among the other model's clean pairs (IN2R).

"Intra-Modal Neighbors Never Lie: Rectifying Inter-Modal Noisy Correspondence via Graph-Based Intra-Modal Reasoning",
ICML 2026, arXiv 2606.04061. Paper and code have one language; here V-S and V-T are both learned, with equal weights.
The default judge is `hinge`. docs/methods/in2r.md says what was chosen where paper and code differ.

Shape suffixes: B triplets in a batch, C some of them, K neighbours, Q entries of a queue, D embedding.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ccr_cli.losses.in2r import soft_target_CK, symmetric_cross_entropy, to_target_C
from ccr_cli.losses.precision import at_least_float32, no_autocast
from ccr_cli.losses.triplet import triplet
from ccr_cli.methods import base
from ccr_cli.methods._coteaching import CoTaught
from ccr_cli.methods.config import Count, NotNegative, Positive, Share, Whole, equal_rates
from ccr_cli.nets.dual import DualEncoder

Pool = Callable[[Tensor], Tensor]
"""Pools the neighbours (C, K, D) of each pair into one vector (C, D)."""
HEADS = 4
"""Attention heads of a `Refiner`."""


@dataclass(frozen=True)
class Config(base.Config):
    """Options of `in2r`."""

    margin: Positive = 0.2
    """Margin of the hinges."""
    views: NotNegative = 0.1
    """Weight of the hinges between two passes of one side, which dropout makes different; the code has 1."""
    neighbours: Whole = 5
    """Number of neighbours, K, whose prototype corrects a noisy pair; 0: noisy pairs are left out."""
    prototype: Literal["mean", "attention"] = "mean"
    """Prototype of the neighbours: their `mean`, or that after a layer of `attention` among them (the paper)."""
    correction: Literal["target", "pair"] = "target"
    """Use of a prototype: it gives a `target` over the batch (the paper), or is one end of a new `pair` (the code)."""
    temperature: Positive = 0.05
    """Temperature of the softmax in the warm-up and in corrections."""
    queue_size: Count = 16384
    """Number of clean pairs that each model remembers per language."""
    threshold: Share = 0.5
    """Probability above which a pair is clean."""
    judge: str = "hinge"
    judge_side: base.Side = "both"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prototype == "attention" and self.dim % HEADS:
            raise ValueError(f"prototype=attention: its {HEADS} heads do not divide dim={self.dim}")


_PAPER: dict[str, object] = {
    "judge_side": "cross_modal",
    "warmup_epochs": 5,
    "epochs": 45,
    "batch_size": 128,
    "dim": 1024,
    "clip_norm": 2.0,
    "queue_size": 65536,
    "prototype": "attention",
    **equal_rates(5e-4),
}
_CODE: dict[str, object] = {"warmup_epochs": 1, "epochs": 41, "lr_drop": 17, "weight_decay": 1e-4}


def mean(x_CKD: Tensor) -> Tensor:
    """Mean of the neighbours (C, D)."""
    return x_CKD.mean(dim=1)


class Refiner(nn.Module):
    """A layer of attention among the neighbours of a pair, with a residual, and their mean (C, D)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, HEADS, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x_CKD: Tensor) -> Tensor:
        """Pools the neighbours (C, K, D) of each pair."""
        read_CKD, _ = self.attention(x_CKD, x_CKD, x_CKD, need_weights=False)
        return mean(self.norm(x_CKD + read_CKD))


class Queue(nn.Module):
    """The latest clean pairs that a model has embedded; saved to resume training, but not in the finished run."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.v_QD = nn.Buffer(torch.zeros(size, dim), persistent=False)
        self.t_QD = nn.Buffer(torch.zeros(size, dim), persistent=False)
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.int64), persistent=False)

    @torch.no_grad()
    def add(self, v_CD: Tensor, t_CD: Tensor) -> None:
        """Adds pairs in place of the oldest ones."""
        size = len(self.v_QD)
        place_C = (self.seen + torch.arange(len(v_CD), device=self.seen.device))[-size:] % size
        self.v_QD[place_C], self.t_QD[place_C] = v_CD[-size:].to(self.v_QD), t_CD[-size:].to(self.t_QD)
        self.seen.add_(len(v_CD))

    def prototypes(
        self, v_CD: Tensor, t_CD: Tensor, count: int, of_texts: Pool = mean, of_pictures: Pool = mean
    ) -> tuple[Tensor, Tensor] | None:
        """Pools the texts of the pictures nearest to `v_CD`, and the pictures of the texts nearest to `t_CD`.

        Returns unit vectors (C, D), or None while fewer than `count` pairs are known.
        """
        known = min(int(self.seen), len(self.v_QD))
        if known < count:
            return None
        v_QD, t_QD = self.v_QD[:known], self.t_QD[:known]

        def prototype(query_CD: Tensor, key_QD: Tensor, value_QD: Tensor, pool: Pool) -> Tensor:
            with torch.no_grad(), no_autocast(query_CD):
                near_CK = (query_CD.to(key_QD) @ key_QD.T).topk(count, dim=1).indices
            return normalize(pool(value_QD[near_CK]), dim=1)

        return prototype(v_CD, v_QD, t_QD, of_texts), prototype(t_CD, t_QD, v_QD, of_pictures)


class Method(CoTaught):
    """The hardest-negative hinge of clean pairs, and noisy pairs corrected by the other model's clean ones."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "paper": _PAPER,
        "code": {**_PAPER, **_CODE, "views": 1.0, "neighbours": 1, "correction": "pair"},
    }

    config: Config

    def __init__(self, config: Config, visual_dim: int, text_encoder: base.TextEncoder) -> None:
        super().__init__(config, visual_dim, text_encoder)
        self.peer = copy.deepcopy(self.encoder)  # same start: each finds neighbours among the other's vectors
        self.queues = nn.ModuleDict(
            {f"{side}-{model}": Queue(config.queue_size, config.dim) for side in ("VS", "VT") for model in range(2)}
        )
        self.refiners = nn.ModuleDict()
        if config.neighbours and config.prototype == "attention":
            self.refiners.update({f"{end}-{model}": Refiner(config.dim) for end in "TV" for model in range(2)})

    def losses(self, batch: base.Batch) -> dict[str, Tensor]:
        """SCE in the warm-up, then hinges of clean pairs and corrected noisy ones, for both models, V-S and V-T."""
        c = self.config
        passes = [self._passes(encoder, batch) for encoder in self.encoders()]
        sims = [base.compare(one["V"], torch.cat([one["S"], one["T"]]), batch.item_B) for one, *_ in passes]
        beliefs, mask_BB = self.peers_beliefs(batch, sims), sims[0].mask
        corrects = batch.judged and c.neighbours > 0
        terms: dict[str, list[Tensor]] = {}
        for view in ("VS", "VT"):
            ends = [[(one[view[0]], one[view[1]]) for one in each] for each in passes]
            p_2B = [getattr(belief, view) for belief in beliefs]
            if corrects:
                for model, p_B in enumerate(p_2B):
                    sure_B = sure(p_B, c.threshold)
                    self._queue(view, model).add(*(x_BD[sure_B] for x_BD in ends[model][0]))
            for model, (sim, p_B) in enumerate(zip(sims, p_2B, strict=True)):
                sim_BB = getattr(sim, view)
                again = [cosines(*side) for side in zip(*ends[model], strict=True)] if c.views else []
                parts = self._trusted(sim_BB, again, mask_BB, p_B, batch.judged)
                noisy_B = p_B <= c.threshold
                if corrects and bool(noisy_B.any()):
                    v_BD, t_BD = ends[model][0]
                    pools = [cast(Pool, self.refiners[f"{end}-{model}"]) for end in "TV"] if self.refiners else []
                    queue = self._queue(view, 1 - model)
                    near = queue.prototypes(v_BD[noisy_B], t_BD[noisy_B], c.neighbours, *pools)
                    if near is not None:
                        parts["corrected"] = self._corrected(sim_BB, mask_BB, noisy_B, ends[model][0], near)
                for part, loss in parts.items():
                    terms.setdefault(f"{part}_{view.lower()}", []).append(loss)
        return {name: torch.stack(losses).sum() for name, losses in terms.items()}

    def _passes(self, encoder: DualEncoder, batch: base.Batch) -> list[dict[str, Tensor]]:
        """Embeds all sides (B, D) in two passes with separate dropout, or in one pass if `views` is 0."""
        found = []
        for _ in range(2 if self.config.views else 1):
            v_BD = batch.whole(encoder.embed_visual(batch.visual))
            text_2BD = batch.whole_texts(encoder.embed_text(batch.source.join(batch.target)))
            found.append(dict(zip("VST", (v_BD, *text_2BD.chunk(2)), strict=True)))
        return found

    def _queue(self, view: str, model: int) -> Queue:
        return cast(Queue, self.queues[f"{view}-{model}"])

    def _trusted(
        self, sim_BB: Tensor, again: Sequence[Tensor], mask_BB: Tensor, p_B: Tensor, judged: bool
    ) -> dict[str, Tensor]:
        """The losses of pairs as given; `again` holds the similarities of each side between the two passes."""
        c = self.config
        if not judged:
            parts = [symmetric_cross_entropy(x_BB, c.temperature, mask_BB, p_B) for x_BB in (sim_BB, *again)]
            name, again_name = "warmup", "warmup_views"
        else:
            clean_B = p_B > c.threshold
            inner_BB = mask_BB[clean_B][:, clean_B]
            parts = [triplet(x[clean_B][:, clean_B], inner_BB, margin=c.margin) for x in (sim_BB, *again)]
            name, again_name = "clean", "views"
        return {name: parts[0]} | ({again_name: c.views * torch.stack(parts[1:]).sum()} if again else {})

    def _corrected(
        self,
        sim_BB: Tensor,
        mask_BB: Tensor,
        noisy_B: Tensor,
        ends: tuple[Tensor, Tensor],
        near: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Mean loss of the noisy pairs; `near` are their prototypes, a text and a picture for each (C, D)."""
        c, (v_BD, t_BD), (text_CD, picture_CD) = self.config, ends, near
        if c.correction == "pair":
            inner_BB = mask_BB[noisy_B][:, noisy_B]
            sims = [cosines(v_BD[noisy_B], text_CD), cosines(t_BD[noisy_B], picture_CD)]
            return torch.stack([symmetric_cross_entropy(x, c.temperature, inner_BB) for x in sims]).sum() / 2

        def direction(sim_BB: Tensor, mask_BB: Tensor, prototype_CD: Tensor, candidate_BD: Tensor) -> Tensor:
            mask_CB = mask_BB[noisy_B]
            target_CB = soft_target_CK(cosines(prototype_CD, candidate_BD.detach()), mask_CB, c.temperature)
            return to_target_C(sim_BB[noisy_B], target_CB, mask_CB, c.temperature).mean()

        rows = direction(sim_BB, mask_BB, text_CD, t_BD)
        return (rows + direction(sim_BB.T, mask_BB.T, picture_CD, v_BD)) / 2


def sure(p_B: Tensor, threshold: float) -> Tensor:
    """Mask of the clean pairs that are at least as probable as the batch's clean pairs on average."""
    clean_B = p_B > threshold
    return clean_B & (p_B >= p_B[clean_B].double().mean())  # in float32 equal values can lie below their mean


def cosines(one_CD: Tensor, two_KD: Tensor) -> Tensor:
    """Similarities (C, K) in full precision."""
    with no_autocast(one_CD):
        one_CD, two_KD = (normalize(at_least_float32(x), dim=1) for x in (one_CD, two_KD))
        return one_CD @ two_KD.T
