"""From artifacts to tensors: training triplets, and galleries with queries.

Shape suffixes: N triplets, V visual items, T texts, D feature dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError


@dataclass(frozen=True)
class Triplets:
    """The training set as a method is given it, synthetic mismatch included."""

    slot_ids: list[str]
    """The source caption whose place each triplet takes (N)."""
    visual_VD: Tensor
    """Features of the training items, float32."""
    item_N: Tensor
    """Row of `visual_VD` that each triplet was given; also the id by which negatives are masked."""
    item_ids: list[str]
    """Item of each row of `visual_VD`."""
    source: list[str]
    """Given source captions (N)."""
    target: list[str]
    """Given translations (N)."""
    wrong: pd.DataFrame | None
    """vs_wrong, vt_wrong, st_wrong of each triplet where synthetic noise says it."""
    dropped: int
    """Triplets left out because an item has no features or a caption no translation."""

    def __len__(self) -> int:
        return len(self.slot_ids)


@dataclass(frozen=True)
class Gallery:
    """Visual items and the captions that search them, one language."""

    item_ids: list[str]
    visual_VD: Tensor
    caption_ids: list[str]
    texts: list[str]
    item_T: np.ndarray
    """Row of the item that each caption describes."""
    missing: int
    """Items of the split without features."""


def training_triplets(
    data: Dataset, translations: pd.DataFrame, noise: pd.DataFrame | None, feats: base.Artifact
) -> Triplets:
    """Joins captions, translations, noise and features into triplets, in the data set's order.

    Raises:
        ArtifactError: If nothing is left, or the noise is of other captions.
    """
    items = items_of(data.items, "train")
    visual, item_ids = features.read_pooled(feats, list(items["item_id"]))
    row_of = {item: row for row, item in enumerate(item_ids)}
    captions = data.captions[data.captions["lang"] == data.source_lang]
    captions = captions[captions["item_id"].isin(set(items["item_id"]))]
    text_of = dict(zip(captions["caption_id"], captions["text"], strict=True))
    forward = translations[(translations["direction"] == "forward") & (translations["status"] == "ok")]
    translated = dict(zip(forward["source_caption_id"], forward["text"], strict=True))
    if noise is None:
        ids = captions["caption_id"]
        noise = pd.DataFrame(
            {
                "slot_id": ids,
                "given_item_id": captions["item_id"],
                "given_source_id": ids,
                "given_translation_of": ids,
            }
        )
    elif set(noise["slot_id"]) != set(captions["caption_id"]):
        raise ArtifactError("the noise was drawn over other captions than those of the training split")
    usable = (
        noise["given_item_id"].isin(set(row_of))
        & noise["given_source_id"].isin(set(text_of))
        & noise["given_translation_of"].isin(set(translated))
    )
    kept = noise[usable.to_numpy()].reset_index(drop=True)
    if len(kept) < 2:
        raise ArtifactError(f"only {len(kept)} of {len(noise)} training triplets have features and a translation")
    flags = [c for c in ("vs_wrong", "vt_wrong", "st_wrong") if c in kept.columns]
    return Triplets(
        slot_ids=list(kept["slot_id"]),
        visual_VD=torch.from_numpy(visual),
        item_N=torch.tensor([row_of[i] for i in kept["given_item_id"]], dtype=torch.int64),
        item_ids=item_ids,
        source=[text_of[i] for i in kept["given_source_id"]],
        target=[translated[i] for i in kept["given_translation_of"]],
        wrong=kept[flags] if flags else None,
        dropped=len(noise) - len(kept),
    )


def gallery(data: Dataset, feats: base.Artifact, split: str, captions: pd.DataFrame, what: str) -> Gallery:
    """Makes a gallery of a split's items with features, and the captions of these items.

    Args:
        data: The data set.
        feats: Features of its items.
        split: Which items.
        captions: Columns caption_id, item_id, text; captions of other items are left out.
        what: What the captions are, for the message.

    Raises:
        ArtifactError: If there are no items or no captions.
    """
    items = items_of(data.items, split)
    if items.empty:
        raise ArtifactError(f"{data.name} has no {split} items")
    visual, item_ids = features.read_pooled(feats, list(items["item_id"]))
    row_of = {item: row for row, item in enumerate(item_ids)}
    chosen = captions[captions["item_id"].isin(set(row_of)) & captions["text"].notna()]
    if chosen.empty:
        raise ArtifactError(f"{data.name} has no {what} for its {split} items")
    return Gallery(
        item_ids=item_ids,
        visual_VD=torch.from_numpy(visual),
        caption_ids=list(chosen["caption_id"]),
        texts=list(chosen["text"]),
        item_T=np.array([row_of[i] for i in chosen["item_id"]], dtype=np.int64),
        missing=len(items) - len(item_ids),
    )
