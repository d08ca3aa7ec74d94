"""Embeddings for a report's map: items with their human captions, by the best run of each language."""

from __future__ import annotations

import numpy as np
import torch

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.parquet import artifact_table
from ccr_cli.data.seeds import derive
from ccr_cli.errors import ArtifactError
from ccr_cli.report.content import EmbeddingMap
from ccr_cli.stages.report.sample_searches import best_runs
from ccr_cli.stages.report.stage import finder
from ccr_cli.stages.shared.embedding import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import gallery, without


def sample_maps(inputs: Inputs, count: int, *, split: str = "test", device: str = "auto") -> list[EmbeddingMap]:
    """Maps by the best run of each data set and language, as example searches choose it.

    Args:
        inputs: The runs given, else those of the workspace.
        count: Items of a map, drawn by a fixed seed among those with captions.
        split: Of which items.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The maps; none of a language in which people wrote no captions of these items.
    """
    made = (_map(inputs, trained, lang, count, split, choose_device(device)) for lang, trained in best_runs(inputs))
    return [each for each in made if each is not None]


@torch.no_grad()
def _map(
    inputs: Inputs, trained: base.Artifact, lang: str, count: int, split: str, device: torch.device
) -> EmbeddingMap | None:
    source = inputs.parent(trained, "dataset")
    method, tokenizer = load_method(trained, device)
    data = without(dataset.read(source), getattr(method.config, "left_out", ""))
    captions = data.captions[data.captions["lang"] == lang]
    try:
        found = gallery(data, inputs.parent(trained, "features"), split, captions, lang, method.config.needs())
    except ArtifactError:
        return None
    asked = np.unique(found.item_T)
    rows = np.sort(np.random.default_rng(derive(0, "map", lang)).permutation(asked)[:count])
    own = np.isin(found.item_T, rows)
    visual = embed_visuals(method, found.visual, device, torch.from_numpy(rows))
    texts = encode_and_embed(method, tokenizer, [found.texts[i] for i in np.flatnonzero(own)], device)
    items = artifact_table(source, "items.parquet", dataset.ITEMS, ["item_id", "media"])
    return EmbeddingMap(
        run=trained.name,
        lang=lang,
        item_ids=[found.item_ids[row] for row in rows],
        item_VD=visual.cpu().numpy(),
        text_TD=texts.float().cpu().numpy(),
        item_T=np.searchsorted(rows, found.item_T[own]),
        image=finder(source, dict(zip(items["item_id"], items["media"], strict=True))),
    )
