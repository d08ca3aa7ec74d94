"""search: a query against a run's items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ccr_cli.artifacts import base, dataset
from ccr_cli.data.splits import items_of
from ccr_cli.errors import UsageError
from ccr_cli.stages.embed import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.load import load_method
from ccr_cli.stages.select import Inputs, like, refuse_unread
from ccr_cli.stages.triplets import read_visuals


@dataclass(frozen=True)
class Hit:
    """One result of a search."""

    place: int
    item_id: str
    similarity: float
    caption: str
    """The item's first caption in the source language."""
    image: Path | None


@dataclass(frozen=True)
class Answer:
    """The results of one query."""

    query: str
    hits: list[Hit]
    uncertainty: float | None
    """Of the query, in [0, 1]; None where the method has none."""


def search(
    inputs: Inputs,
    trained: base.Artifact,
    queries: list[str],
    *,
    split: str | None = "test",
    top: int = 5,
    device: str = "auto",
) -> list[Answer]:
    """Searches a run's data set.

    Args:
        inputs: Where the run's parents are.
        trained: The run.
        queries: Texts, best in a language that the run was trained on.
        split: Which items to search; None for all.
        top: How many results a query.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        An answer a query, in order.

    Raises:
        ArtifactError: If another data set was named, and has no features of the run's encoder, or several.
        UsageError: If a query is empty, or other data were named that would not be read.
    """
    if not queries or not all(query.strip() for query in queries):
        raise UsageError("a query needs some text", hint='ccr search "una cara sonriente"')
    data = dataset.read(inputs.parent(trained, "dataset"))
    own = inputs.parent(trained, "features")
    others = [a for a in inputs.given if a.kind == "dataset" and a.id != data.artifact.id]
    feats = own
    if others:
        data = dataset.read(others[0])
        feats = like(inputs, own, data)
    refuse_unread(inputs, trained, data.artifact, feats)
    items = data.items if split is None else items_of(data.items, split)
    on = choose_device(device)
    method, tokenizer = load_method(trained, on)
    visual, item_ids = read_visuals(feats, list(items["item_id"]), method.config.needs())
    gallery_VD = embed_visuals(method, visual, on)
    query_QD = encode_and_embed(method, tokenizer, queries, on)
    with torch.no_grad():
        sim_QV, unc_Q = method.score(query_QD, gallery_VD)
    best = sim_QV.topk(min(top, len(item_ids)), dim=1)
    captions = _first_captions(data)
    media = dict(zip(items["item_id"], items["media"], strict=True))
    root = dataset.media_root(data.artifact)
    answers = []
    for q, query in enumerate(queries):
        hits = []
        for place, (value, at) in enumerate(zip(best.values[q].tolist(), best.indices[q].tolist(), strict=True), 1):
            item = item_ids[at]
            image = dataset.media_path(root, media[item])
            hits.append(Hit(place, item, float(value), captions.get(item, ""), image))
        answers.append(Answer(query, hits, None if unc_Q is None else float(unc_Q[q])))
    return answers


def _first_captions(data: dataset.Dataset) -> dict[str, str]:
    source = data.captions[data.captions["lang"] == data.source_lang].sort_values("k", kind="stable")
    first = source.drop_duplicates("item_id")
    return dict(zip(first["item_id"], first["text"], strict=True))
