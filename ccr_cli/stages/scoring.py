"""Scores of one gallery: both directions, with ranks, figures and intervals.

Shape suffixes: V visual items, T texts, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.positives import Positives
from ccr_cli.metrics.ranks import Ranks, rank_both
from ccr_cli.metrics.recall import sum_recall, summarise
from ccr_cli.metrics.sims import SimBlock, dot_sim, fused, minmax
from ccr_cli.stages.triplets import Gallery


@dataclass(frozen=True)
class Scores:
    """Figures of both directions, and the ranks behind them."""

    t2v: dict[str, float]
    v2t: dict[str, float]
    ranks_t2v: Ranks
    ranks_v2t: Ranks

    @property
    def mean_ap(self) -> float:
        """The mean of both directions' mean average precision, in percent."""
        return (self.t2v["mAP"] + self.v2t["mAP"]) / 2

    @property
    def sum_r(self) -> float:
        """SumR, the sum of R@1, R@5, R@10 of both directions in percent."""
        return sum_recall(self.t2v, self.v2t)

    def headline(self, labelled: bool) -> float:
        """What stands for all of them: mAP where whatever has the query's category is right, else SumR."""
        return self.mean_ap if labelled else self.sum_r


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
        english_TD: Those of the texts' translations into the source language, for score fusion.
        beta: Weight of the texts as they are, NRCCR eq. (13); 1 leaves the translations out.
        fusion: `raw`, or `minmax` (NRCCR's code: both matrices are normalised as wholes first).
        tie: mid, optimistic or pessimistic.
        labelled: Whatever has the query's category is right, not the query's own item alone.
    """
    sim = similarity(gallery, visual_VD, text_TD, english_TD=english_TD, beta=beta, fusion=fusion)
    n_visual, n_texts = len(gallery.item_ids), len(gallery.texts)
    t2v, v2t = rank_both(sim, n_visual, n_texts, right_answers(gallery, labelled))
    return Scores(summarise(t2v, tie=tie), summarise(v2t, tie=tie), t2v, v2t)


def right_answers(gallery: Gallery, labelled: bool) -> Positives:
    """The items that answer each text of a gallery: its own, or all of its category.

    Raises:
        ArtifactError: If categories are asked for and an item has none.
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
    number: int, direction: str, ids: list[str], ranks: Ranks, tie: str, unc: np.ndarray | None
) -> pd.DataFrame:
    """The rank of every query of one direction of one result, as an evaluation keeps it."""
    frame = pd.DataFrame(
        {
            "result": np.int32(number),
            "direction": direction,
            "query_id": ids,
            "rank": ranks.rank(tie),
            "ties": ranks.ties,
            "average_precision": ranks.ap(tie),
            "uncertainty": unc if unc is not None else pd.array([None] * len(ids), dtype="Float64"),
        }
    )
    frame = frame[ranks.valid].astype({"ties": np.int64})
    return frame
