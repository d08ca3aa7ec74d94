"""What a model thinks of every training triplet, and what the judge makes of it.

Shape suffixes: N triplets, V visual items, D embedding, M shuffled pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from ccr_cli import registry
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import TokenTable
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.methods.base import Belief, Method, believe
from ccr_cli.metrics.detection import detection
from ccr_cli.stages.shared.agreement import agreement
from ccr_cli.stages.shared.embedding import embed_texts, embed_visuals
from ccr_cli.stages.shared.triplets import Triplets

Array = npt.NDArray[np.float64]
_SHIFTS = (1, 2, 3, 5)
_STRANGERS, _NEAREST, _BLOCK, _PIECE = 500, 2, 4096, 512


@dataclass(frozen=True)
class Embedded:
    """The training triplets as a model sees them, in evaluation mode."""

    v_VD: Tensor
    s_ND: Tensor
    t_ND: Tensor
    item_N: Tensor
    kin_ND: Tensor | None = None
    """What stands beside each triplet's picture: the other captions of its item."""

    @cached_property
    def v_ND(self) -> Tensor:
        """The visual side of each triplet: its picture, and its kin."""
        own_ND = self.v_VD[self.item_N]
        return own_ND if self.kin_ND is None else normalize(own_ND + self.kin_ND, dim=1)

    def select(self, rows: npt.NDArray[np.int64]) -> Embedded:
        """Some of the triplets, before kin was added to any."""
        at = torch.from_numpy(rows).to(self.item_N.device)
        return Embedded(self.v_VD, self.s_ND[at], self.t_ND[at], self.item_N[at])

    def with_kin(self, p: Belief[Array]) -> Embedded:
        """Lets the other captions of an item speak for its picture, each as far as it is believed.

        Captions that belong to one item resemble each other. The mean of those that are believed, without the
        triplet's own, is added to the picture, at most at its length; an item with one caption stays as it is.
        """
        vs_N1, vt_N1 = (torch.from_numpy(x).to(self.s_ND)[:, None] for x in (p.VS, p.VT))
        own_ND, weight_N1 = vs_N1 * self.s_ND + vt_N1 * self.t_ND, vs_N1 + vt_N1
        total_VD, weight_V1 = (_sum_by_item(x, self.item_N, len(self.v_VD)) for x in (own_ND, weight_N1))
        others_N1 = (weight_V1[self.item_N] - weight_N1).clamp(min=1)
        return replace(self, kin_ND=(total_VD[self.item_N] - own_ND) / others_N1)

    @property
    def sides(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The two ends of each side of the triplets, by its name: VS, VT, ST."""
        v_ND = self.v_ND
        return {"VS": (v_ND, self.s_ND), "VT": (v_ND, self.t_ND), "ST": (self.s_ND, self.t_ND)}

    def similarities(self) -> dict[str, Array]:
        """Cosine similarity of each side."""
        return {name: _cosine(a, b) for name, (a, b) in self.sides.items()}

    def shuffled(self, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of triplets of different items, so that nothing of the one can match the other."""
        order = np.random.default_rng(seed).permutation(len(self.item_N))
        left = np.concatenate([order] * len(_SHIFTS))
        right = np.concatenate([np.roll(order, shift) for shift in _SHIFTS])
        items = self.item_N.cpu().numpy()
        differ = items[left] != items[right]
        return left[differ], right[differ]

    def null(self, seed: int) -> dict[str, Array]:
        """The similarities of shuffled triplets."""
        left, right = (torch.from_numpy(rows).to(self.item_N.device) for rows in self.shuffled(seed))
        return {name: _cosine(a, b, left, right) for name, (a, b) in self.sides.items()}

    def crowding(self, seed: int) -> dict[str, tuple[Array, Array]]:
        """How near strangers come to either end of the sides that have a picture, as in CSLS (Conneau et al., 2018).

        The mean similarity of the nearest few among a random sample of other items' entries. A picture says more
        than a caption, and a caption that says little is near to many pictures: what a picture and its caption have
        in common shows in how far they are ahead of strangers. A caption and its translation say the same.
        """
        order = np.random.default_rng(seed).permutation(len(self.item_N))[:_STRANGERS]
        some = torch.from_numpy(order).to(self.item_N.device)

        def near(a_ND: Tensor, b_ND: Tensor) -> Array:
            parts, others_RD = [], b_ND[some]
            for a_BD, item_B in zip(torch.split(a_ND, _BLOCK), torch.split(self.item_N, _BLOCK), strict=True):
                sim_BR = (a_BD @ others_RD.T).masked_fill_(item_B[:, None] == self.item_N[some], -1.0)
                parts.append(sim_BR.topk(min(_NEAREST, len(some)), dim=1).values.mean(dim=1))
            return np.asarray(torch.cat(parts).double().cpu().numpy())

        return {name: (near(a, b), near(b, a)) for name, (a, b) in self.sides.items() if name != "ST"}

    def leads(self, seed: int) -> tuple[Array, Array]:
        """What the triangle reads of given and of shuffled triplets: similarity less crowding; (N, 3), (M, 3)."""
        given, null, (left, right) = self.similarities(), self.null(seed), self.shuffled(seed)
        for name, (a_N, b_N) in self.crowding(seed).items():
            given[name] = given[name] - (a_N + b_N) / 2
            null[name] = null[name] - (a_N[left] + b_N[right]) / 2
        return np.stack(list(given.values()), axis=1), np.stack(list(null.values()), axis=1)


@dataclass(frozen=True)
class Opinion:
    """What a judge says of every triplet."""

    similarity: dict[str, Array]
    p: Belief[Array]
    shares: dict[str, float] = field(default_factory=dict)
    """How often what is wrong, where the judge tells that apart."""
    by_lang: list[Opinion] = field(default_factory=list)
    """Of the triplets of each language, where there are several and the judge saw one after the other."""

    def some(self, rows: npt.NDArray[np.int64]) -> Opinion:
        """What it says of some of the triplets."""
        sides = (self.p.VS, self.p.VT, self.p.ST)
        return Opinion({side: sim[rows] for side, sim in self.similarity.items()}, Belief(*(p[rows] for p in sides)))


def embed_triplets(
    method: Method, triplets: Triplets, source: TokenTable, target: TokenTable, device: torch.device
) -> Embedded:
    """Embeds all training triplets."""
    return Embedded(
        embed_visuals(method, triplets.visual, device),
        embed_texts(method, source, device),
        embed_texts(method, target, device),
        triplets.item_N.to(device),
    )


def ask(
    judge: str,
    side: str,
    embedded: Embedded,
    triplets: Triplets,
    *,
    seed: int,
    batch_size: int,
    read: Callable[[Tensor], Tensor],
) -> Opinion:
    """Asks a judge about every triplet.

    Of several languages a judge that compares triplets with each other sees one after the other: translations into
    one are nearer to their captions than those into another, without being righter. A judge of a batch sees the
    batches as they are trained on, with triplets of all languages.

    Args:
        judge: A file of judges/.
        side: cross_lingual, cross_modal or both; see `methods.base.believe`.
        embedded: The triplets' embeddings.
        triplets: The triplets, for what is known of synthetic noise.
        seed: Of the shuffles.
        batch_size: Triplets a batch, for judges that read a batch.
        read: What these read, from similarities; `Method.judge_scores`.
    """
    module = registry.load("judges", judge)
    if len(triplets.langs) > 1 and module.SCOPE in ("epoch", "triangle"):
        how: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "read": read}
        parts = triplets.by_language()
        found = [ask(judge, side, embedded.select(rows), part, **how) for rows, part in parts]
        return _joined(found, [rows for rows, _ in parts])
    similarity = embedded.similarities()
    if module.SCOPE == "truth":
        return Opinion(similarity, truth(triplets))
    if module.SCOPE == "text":
        return Opinion(similarity, from_texts(triplets, seed))
    if module.SCOPE == "triangle":
        return _triangle(module, embedded, similarity, seed)
    null = embedded.null(seed) if module.SCOPE == "epoch" else {}

    def of(name: str) -> Array:
        if module.SCOPE == "batch":
            return _by_batch(module, embedded, "VT" if name == "both" else name, seed, batch_size, read)
        both = name == "both"
        given, shuffled = (x["VS"] + x["VT"] if both else x[name] for x in (similarity, null))
        return np.asarray(module.clean_probability(given, shuffled), dtype=float)

    return Opinion(similarity, believe(side, of, np.ones(len(triplets))))


def _triangle(module: Any, embedded: Embedded, similarity: dict[str, Array], seed: int) -> Opinion:
    """Asks about the triplets alone, and again with the captions that were believed beside the pictures."""
    alone = Belief(*module.clean_probability(*embedded.leads(seed)).T)
    p_NH = module.weigh(*embedded.with_kin(alone).leads(seed))
    shares = dict(zip(module.HYPOTHESES[1:], p_NH.mean(0)[1:].tolist(), strict=True))
    return Opinion(similarity, Belief(*module.sides(p_NH).T), shares)


def _joined(parts: Sequence[Opinion], rows: Sequence[npt.NDArray[np.int64]]) -> Opinion:
    """The opinions of each language as one."""
    order = np.argsort(np.concatenate(rows), kind="stable")

    def whole(values: Sequence[Array]) -> Array:
        return np.concatenate(values)[order]

    sides = parts[0].similarity
    return Opinion(
        {side: whole([part.similarity[side] for part in parts]) for side in sides},
        Belief(*(whole([getattr(part.p, side) for part in parts]) for side in ("VS", "VT", "ST"))),
        {what: _mean([part.shares[what] for part in parts], rows) for what in parts[0].shares},
        list(parts),
    )


def _mean(values: Sequence[float], rows: Sequence[npt.NDArray[np.int64]]) -> float:
    return float(np.average(values, weights=[len(each) for each in rows]))


def trust(triplets: Triplets) -> Belief[Array]:
    """Everything matches."""
    return Belief(*[np.ones(len(triplets))] * 3)


def from_texts(triplets: Triplets, seed: int) -> Belief[Array]:
    """What the texts alone say of the translations, of those into each language by itself.

    Raises:
        ArtifactError: If there is nothing to compare the translations with.
    """
    judge = registry.load("judges", "translation")
    p = np.ones(len(triplets))
    for rows, part in triplets.by_language():
        p[rows] = judge.clean_probability(*agreement(part, seed))
    return Belief(np.ones(len(triplets)), p, p)


def truth(triplets: Triplets) -> Belief[Array]:
    """What synthetic noise says: 1 for intact, 0 for mismatched; all 1 without noise."""
    if triplets.wrong is None:
        return trust(triplets)
    oracle = registry.load("judges", "oracle")
    return Belief(
        *(oracle.clean_probability(triplets.wrong[f"{side}_wrong"].to_numpy(bool)) for side in ("vs", "vt", "st"))
    )


def quality(opinion: Opinion, triplets: Triplets) -> dict[str, Any]:
    """The judge against synthetic truth (None where there is none), and how many pairs it calls noisy.

    Of several languages also of each alone, as `langs`.
    """
    of: dict[str, Any] = {}
    if len(triplets.langs) > 1:
        parts = triplets.by_language()
        alone = opinion.by_lang or [opinion.some(rows) for rows, _ in parts]
        of = {"langs": {part.langs[0]: quality(each, part) for each, (_, part) in zip(alone, parts, strict=True)}}
    said: dict[str, Any] = {
        "share_noisy": float((opinion.p.VT < 0.5).mean()),
        "mean_p_clean": float(opinion.p.VT.mean()),
    }
    said |= {f"wrong_{what}": share for what, share in opinion.shares.items()}
    if triplets.wrong is not None:
        said |= detection(opinion.p.VT, triplets.wrong["vt_wrong"].to_numpy(bool))
    return said | of


def _sum_by_item(x_ND: Tensor, item_N: Tensor, items: int) -> Tensor:
    """Sums (V, D) of the rows of each item, added up in their order: `index_add_` has none on a GPU."""
    offsets_V1 = torch.zeros(items + 1, dtype=torch.int64, device=item_N.device)
    torch.cumsum(item_N.bincount(minlength=items), 0, out=offsets_V1[1:])
    return embedding_bag(item_N.argsort(stable=True), x_ND, offsets_V1, mode="sum", include_last_offset=True)


def _cosine(a_ND: Tensor, b_ND: Tensor, left_N: Tensor | None = None, right_N: Tensor | None = None) -> Array:
    """Similarity of rows, of those that are named if any are; in pieces that a processor's cache holds."""
    parts, size = [], len(a_ND) if left_N is None else len(left_N)
    for first in range(0, max(size, 1), _PIECE):
        here = slice(first, first + _PIECE)
        a_BD, b_BD = (x[here] if rows is None else x[rows[here]] for x, rows in ((a_ND, left_N), (b_ND, right_N)))
        parts.append((a_BD * b_BD).sum(dim=1))
    value: Array = torch.cat(parts).double().cpu().numpy()
    return value


def _by_batch(
    module: Any, embedded: Embedded, name: str, seed: int, batch_size: int, read: Callable[[Tensor], Tensor]
) -> Array:
    n = len(embedded.item_N)
    order = torch.from_numpy(np.random.default_rng(derive(seed, "judge")).permutation(n)).to(embedded.item_N.device)
    out = np.ones(n)
    for rows in torch.split(order, batch_size):
        items = embedded.item_N[rows]
        sides = {"V": embedded.v_VD[items], "S": embedded.s_ND[rows], "T": embedded.t_ND[rows]}
        score_BB = read(sides[name[0]] @ sides[name[1]].T)
        p_B = module.clean_probability(score_BB, negatives_BB(items, items))
        out[rows.cpu().numpy()] = p_B.double().cpu().numpy()
    return out
