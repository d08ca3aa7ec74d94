"""Galleries as vectors, searched in both directions: their queries, ranks, figures and intervals.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics import bootstrap
from ccr_cli.metrics.bootstrap import DIRECTIONS
from ccr_cli.metrics.ranks import (
    KS,
    Positives,
    Ranks,
    columns,
    dot_sim,
    fused,
    minmax,
    rank_both,
    rank_queries,
    summarise,
)
from ccr_cli.stages.shared.triplets import Gallery

BLOCK, BLOCK_CUDA, INTERVAL_SEED = 1024, 8192, 0
"""Blocks are the most rows and columns of similarities held at once: for a processor's cache, and for a GPU."""


@dataclass(frozen=True)
class Figures:
    """Figures of both directions."""

    t2v: dict[str, float]
    v2t: dict[str, float]

    @property
    def mean_ap(self) -> float:
        """The mean of both directions' mean average precision, in percent."""
        return (self.t2v["mAP"] + self.v2t["mAP"]) / 2

    @property
    def sum_r(self) -> float:
        """SumR, the sum of R@1, R@5, R@10 of both directions in percent, at most 600."""
        return sum(direction[f"R@{k}"] for direction in (self.t2v, self.v2t) for k in KS)


@dataclass(frozen=True)
class Scores(Figures):
    """Figures of one gallery, and the ranks behind them by direction."""

    ranks: dict[str, Ranks]

    @classmethod
    def of(cls, t2v: Ranks, v2t: Ranks, tie: str) -> "Scores":
        """Summarises ranks under a tie rule: mid, optimistic or pessimistic."""
        return cls(summarise(t2v, tie=tie), summarise(v2t, tie=tie), {"t2v": t2v, "v2t": v2t})


def over_folds(folds: Sequence[Figures]) -> Figures:
    """Means over folds, all with equal weight; counts are summed, and SumR is the sum of the mean recalls."""

    def mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
        values = {name: [row[name] for row in rows] for name in rows[0]}
        return {name: sum(v) if name in ("queries", "dropped") else float(np.mean(v)) for name, v in values.items()}

    return Figures(mean([fold.t2v for fold in folds]), mean([fold.v2t for fold in folds]))


@dataclass(frozen=True)
class Queries:
    """Queries of one direction, and the gallery that they search."""

    ids: list[str]
    items: list[str]
    """The item of each query."""
    query_QD: Tensor
    gallery_GD: Tensor


ByDirection = dict[str, Queries]
"""`t2v` and `v2t`, or one of them."""


@dataclass(frozen=True)
class EmbeddedGallery:
    """A gallery with the unit vectors of its items and texts."""

    gallery: Gallery
    visual_VD: Tensor
    text_TD: Tensor
    english_TD: Tensor | None = None
    """Vectors of the texts' translations into the source language, for score fusion."""

    def queries(self, searched: "EmbeddedGallery | None" = None) -> ByDirection:
        """The queries of both directions; they search this gallery, or `searched` instead."""
        own, other = self.gallery, searched or self
        first, findable_TD = other.gallery.first_T, other.text_TD
        if first is not None:
            findable_TD = findable_TD[torch.from_numpy(first).to(findable_TD.device)]
        items = [own.item_ids[v] for v in own.item_T]
        return {
            "t2v": Queries(own.caption_ids, items, self.text_TD, other.visual_VD),
            "v2t": Queries(own.item_ids, own.item_ids, self.visual_VD, findable_TD),
        }

    def folds(self, fold_V: np.ndarray, number: int) -> "list[EmbeddedGallery]":
        """Splits the gallery into galleries with the captions of their items; ArtifactError if one has none."""
        if number == 1:
            return [self]
        fold_T = fold_V[self.gallery.item_T]
        return [self._part(np.flatnonzero(fold_V == n), np.flatnonzero(fold_T == n), n) for n in range(number)]

    def _part(self, row_V: np.ndarray, row_T: np.ndarray, number: int) -> "EmbeddedGallery":
        whole = self.gallery
        if not len(row_V) or not len(row_T):
            lacking = "captions" if len(row_V) else "items with features"
            raise ArtifactError(f"fold {number + 1} has no {lacking}: there is no mean over all folds")
        at_V, at_T = torch.from_numpy(row_V), torch.from_numpy(row_T)
        on_V, on_T = at_V.to(self.visual_VD.device), at_T.to(self.text_TD.device)
        gallery = replace(
            whole,
            item_ids=[whole.item_ids[row] for row in row_V],
            visual=whole.visual.select(at_V),
            caption_ids=[whole.caption_ids[row] for row in row_T],
            texts=[whole.texts[row] for row in row_T],
            item_T=np.searchsorted(row_V, whole.item_T[row_T]),
            label_V=None if whole.label_V is None else whole.label_V[at_V],
            first_T=None if whole.first_T is None else np.flatnonzero(np.isin(row_T, whole.first_T)),
        )
        english_TD = None if self.english_TD is None else self.english_TD[on_T]
        return EmbeddedGallery(gallery, self.visual_VD[on_V], self.text_TD[on_T], english_TD)


def score_gallery(
    embedded: EmbeddedGallery, *, beta: float = 1.0, fusion: str = "raw", tie: str = "mid", labelled: bool = False
) -> Scores:
    """Ranks a gallery in both directions, by fused similarities if its texts have translations.

    `beta` is the weight of the texts themselves, NRCCR eq. (13); `fusion` is `raw`, or `minmax` to normalise both whole
    matrices first, as NRCCR's code does; `tie` is mid, optimistic or pessimistic. With `labelled`, everything in the
    query's category is right, not only the query's own item.
    """
    gallery, visual_VD, english_TD = embedded.gallery, embedded.visual_VD, embedded.english_TD
    shape = n_visual, n_texts = len(gallery.item_ids), len(gallery.texts)
    sim = dot_sim(visual_VD, embedded.text_TD)
    if english_TD is not None and beta != 1.0:
        other = dot_sim(visual_VD, english_TD)
        if fusion == "minmax":
            sim, other = minmax(sim, *shape), minmax(other, *shape)
        sim = fused(sim, other, beta)
    block = BLOCK_CUDA if visual_VD.is_cuda else BLOCK
    right, curve = right_answers(gallery, labelled), tie if labelled else ""
    t2v, v2t = rank_both(sim, n_visual, n_texts, right, block=block, curve=curve)
    first = gallery.first_T
    if first is not None:
        right = Positives.from_lists([[int(item)] for item in gallery.item_T[first]]).reversed(n_visual)
        v2t = rank_queries(columns(sim, first), n_visual, len(first), right, block=block)
    return Scores.of(t2v, v2t, tie)


def right_answers(gallery: Gallery, labelled: bool) -> Positives:
    """The items that answer each text: its own, or (`labelled`) its category; ArtifactError if an item has none."""
    if not labelled:
        return Positives.from_lists([[int(item)] for item in gallery.item_T])
    if gallery.label_V is None:
        raise ArtifactError("not every item has a category (a label)", hint="--protocol full")
    label_V = gallery.label_V.numpy()
    return Positives.from_ids(label_V[gallery.item_T].tolist(), label_V.tolist())


def rank_table(folds: Sequence[tuple[Gallery, Scores]], tie: str) -> pd.DataFrame:
    """The rank of every query as an evaluation keeps it: by direction, then by fold.

    The rank is nan for a query without a right answer. A further column `item` numbers the items of all folds.
    """
    tables = []
    for direction in DIRECTIONS:
        before = 0
        for number, (gallery, scores) in enumerate(folds):
            ranks, items = scores.ranks[direction], gallery.item_ids
            item_Q = gallery.item_T if direction == "t2v" else np.arange(len(items))
            table = {
                "direction": direction,
                "query_id": gallery.caption_ids if direction == "t2v" else items,
                "item_id": [items[item] for item in item_Q],
                "item": item_Q + before,
                "fold": np.int32(number),
                "rank": ranks.rank(tie),
                "ties": ranks.ties,
                "average_precision": ranks.ap(tie),
            }
            tables.append(pd.DataFrame(table))
            before += len(items)
    return pd.concat(tables, ignore_index=True)


def intervals(queries: pd.DataFrame) -> dict[str, Any]:
    """Bootstrap intervals over items of all figures, as an evaluation keeps them.

    The low and the high end of `SumR`, of `mAP` (the mean of both directions) and, by direction, of the other figures;
    and how the intervals were made.
    """
    galleries = []
    for _, fold in queries[queries["rank"].notna()].groupby("fold"):
        sides = (fold.loc[fold["direction"] == d, ["item", "rank", "average_precision"]] for d in DIRECTIONS)
        ranked = (bootstrap.RankedQueries(*(side[name].to_numpy() for name in side)) for side in sides)
        galleries.append(bootstrap.RankedGallery(*ranked))
    made = {"level": bootstrap.LEVEL, "resamples": bootstrap.SAMPLES, "drawn": "items", "seed": INTERVAL_SEED}
    out: dict[str, Any] = {**made, **{direction: {} for direction in DIRECTIONS}}
    for name, interval in bootstrap.intervals(galleries, seed=INTERVAL_SEED).items():
        direction, _, figure = name.rpartition(".")
        ends = [interval.low, interval.high]
        (out[direction] if direction else out)[figure] = None if np.isnan(ends).any() else ends
    return out
