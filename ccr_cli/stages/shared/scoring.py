"""Scores of a gallery, or of several folds, in both directions: ranks, figures and intervals.

Shape suffixes: V visual items, T texts, D embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics import bootstrap
from ccr_cli.metrics.positives import Positives
from ccr_cli.metrics.ranks import TENTHS, Ranks, rank_both, rank_queries
from ccr_cli.metrics.recall import mean_of_folds, precision_recall, sum_recall, summarise
from ccr_cli.metrics.sims import SimBlock, columns, dot_sim, fused, minmax
from ccr_cli.stages.shared.triplets import Gallery

BLOCK, BLOCK_CUDA = 1024, 8192
"""Most rows and columns of the similarities held at once: for a processor's cache, and for a GPU."""


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
        """SumR, the sum of R@1, R@5, R@10 of both directions in percent."""
        return sum_recall(self.t2v, self.v2t)

    def headline(self, labelled: bool) -> float:
        """The headline figure: mAP where everything in the query's category is right, else SumR."""
        return self.mean_ap if labelled else self.sum_r


@dataclass(frozen=True)
class Scores(Figures):
    """Figures of one gallery, and the ranks behind them."""

    ranks_t2v: Ranks
    ranks_v2t: Ranks


def precision_curves(folds: Sequence[Scores]) -> dict[str, list[float]]:
    """Precision against recall by category, as an evaluation keeps it: the recalls, and by direction the precisions."""
    both = {"t2v": [fold.ranks_t2v for fold in folds], "v2t": [fold.ranks_v2t for fold in folds]}
    recalls = {"recall": [tenth / TENTHS for tenth in range(TENTHS + 1)]}
    return recalls | {direction: precision_recall(ranks) for direction, ranks in both.items()}


def over_folds(folds: Sequence[Figures]) -> Figures:
    """The means over folds; SumR is then the sum of mean recalls."""
    return Figures(mean_of_folds([fold.t2v for fold in folds]), mean_of_folds([fold.v2t for fold in folds]))


@dataclass(frozen=True)
class EmbeddedGallery:
    """A gallery with the vectors of its items and texts."""

    gallery: Gallery
    visual_VD: Tensor
    text_TD: Tensor
    english_TD: Tensor | None = None
    """Vectors of the texts' translations into the source language, for score fusion."""

    def directions(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By direction the queries, and what they search."""
        first, findable_TD = self.gallery.first_T, self.text_TD
        if first is not None:
            findable_TD = findable_TD[torch.from_numpy(first).to(findable_TD.device)]
        return {"t2v": (self.text_TD, self.visual_VD), "v2t": (self.visual_VD, findable_TD)}

    def folds(self, fold_V: np.ndarray, number: int) -> list[EmbeddedGallery]:
        """Splits the gallery into folds, each a gallery of its own with the captions of its items.

        Args:
            fold_V: Fold of each item, from 0.
            number: How many there are.

        Raises:
            ArtifactError: If one has no items, or no captions.
        """
        if number == 1:
            return [self]
        fold_T = fold_V[self.gallery.item_T]
        return [self._part(np.flatnonzero(fold_V == n), np.flatnonzero(fold_T == n), n) for n in range(number)]

    def _part(self, row_V: np.ndarray, row_T: np.ndarray, number: int) -> EmbeddedGallery:
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
    gallery: Gallery,
    visual_VD: Tensor,
    text_TD: Tensor,
    *,
    english_TD: Tensor | None = None,
    beta: float = 1.0,
    fusion: str = "raw",
    tie: str = "mid",
    labelled: bool = False,
) -> Scores:
    """Ranks a gallery in both directions.

    Args:
        gallery: Which text belongs to which item.
        visual_VD: Unit vectors of the items.
        text_TD: Unit vectors of the texts.
        english_TD: Unit vectors of the texts' translations into the source language, for score fusion.
        beta: Weight of the texts themselves, NRCCR eq. (13); 1 leaves the translations out.
        fusion: `raw`, or `minmax` (NRCCR's code: both matrices are normalised as wholes first).
        tie: mid, optimistic or pessimistic.
        labelled: Everything in the query's category is right, not the query's own item alone.
    """
    sim = similarity(gallery, visual_VD, text_TD, english_TD=english_TD, beta=beta, fusion=fusion)
    n_visual, n_texts = len(gallery.item_ids), len(gallery.texts)
    block = BLOCK_CUDA if visual_VD.is_cuda else BLOCK
    right, curve = right_answers(gallery, labelled), tie if labelled else ""
    t2v, v2t = rank_both(sim, n_visual, n_texts, right, block=block, curve=curve)
    first = gallery.first_T
    if first is not None:
        right = Positives.from_lists([[int(item)] for item in gallery.item_T[first]]).reversed(n_visual)
        v2t = rank_queries(columns(sim, first), n_visual, len(first), right, block=block)
    return Scores(summarise(t2v, tie=tie), summarise(v2t, tie=tie), t2v, v2t)


INTERVAL_SEED = 0


def intervals(folds: Sequence[tuple[Gallery, Scores]], tie: str) -> dict[str, Any]:
    """The bootstrap interval over items of every figure, as an evaluation keeps it.

    Args:
        folds: Each fold with its scores.
        tie: mid, optimistic or pessimistic.

    Returns:
        `SumR`, `mAP` (the mean of both directions), and by direction the other figures: low and high end each; and
        how they were made.
    """
    galleries = [
        bootstrap.RankedGallery(
            bootstrap.RankedQueries.of(scores.ranks_t2v, gallery.item_T, tie),
            bootstrap.RankedQueries.of(scores.ranks_v2t, np.arange(len(gallery.item_ids)), tie),
        )
        for gallery, scores in folds
    ]
    return interval_report(galleries)


def interval_report(galleries: Sequence[bootstrap.RankedGallery]) -> dict[str, Any]:
    """The intervals of the answers in each fold, as an evaluation keeps them."""
    made = {"level": bootstrap.LEVEL, "resamples": bootstrap.SAMPLES, "drawn": "items", "seed": INTERVAL_SEED}
    out: dict[str, Any] = {**made, **{direction: {} for direction in bootstrap.DIRECTIONS}}
    for name, interval in bootstrap.intervals(galleries, seed=INTERVAL_SEED).items():
        direction, _, figure = name.rpartition(".")
        ends = [interval.low, interval.high]
        (out[direction] if direction else out)[figure] = None if np.isnan(ends).any() else ends
    return out


def right_answers(gallery: Gallery, labelled: bool) -> Positives:
    """The items that answer each text of a gallery: its own, or all of its category.

    Raises:
        ArtifactError: If `labelled` and an item has no category.
    """
    if not labelled:
        return Positives.from_lists([[int(item)] for item in gallery.item_T])
    if gallery.label_V is None:
        raise ArtifactError("not every item has a category (a label)", hint="--protocol full")
    label_V = gallery.label_V.numpy()
    return Positives.from_ids(label_V[gallery.item_T].tolist(), label_V.tolist())


def similarity(
    gallery: Gallery,
    visual_VD: Tensor,
    text_TD: Tensor,
    *,
    english_TD: Tensor | None = None,
    beta: float = 1.0,
    fusion: str = "raw",
) -> SimBlock:
    """The similarity of visual rows and text columns, fused where there are translations of the texts."""
    sim = dot_sim(visual_VD, text_TD)
    if english_TD is None or beta == 1.0:
        return sim
    other = dot_sim(visual_VD, english_TD)
    if fusion == "minmax":
        shape = (len(gallery.item_ids), len(gallery.texts))
        sim, other = minmax(sim, *shape), minmax(other, *shape)
    return fused(sim, other, beta)


def rank_table(
    number: int, direction: str, fold: int, gallery: Gallery, scores: Scores, tie: str, unc: np.ndarray | None
) -> pd.DataFrame:
    """The rank of every query of one direction in one fold of a result, as an evaluation keeps it.

    Args:
        number: Number of the result.
        direction: `t2v` or `v2t`.
        fold: Number of the fold.
        gallery: Its gallery.
        scores: Its scores.
        tie: mid, optimistic or pessimistic.
        unc: The uncertainty of each query, or None.
    """
    ranks = scores.ranks_t2v if direction == "t2v" else scores.ranks_v2t
    ids = gallery.caption_ids if direction == "t2v" else gallery.item_ids
    frame = pd.DataFrame(
        {
            "result": np.int32(number),
            "direction": direction,
            "query_id": ids,
            "item_id": gallery.caption_items if direction == "t2v" else gallery.item_ids,
            "fold": np.int32(fold),
            "rank": ranks.rank(tie),
            "ties": ranks.ties,
            "average_precision": ranks.ap(tie),
            "uncertainty": unc if unc is not None else pd.array([None] * len(ids), dtype="Float64"),
        }
    )
    return frame[ranks.valid].astype({"ties": np.int64})
