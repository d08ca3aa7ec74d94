"""Examples from within trained models for a report: picture queries, soft targets, cross-attention.

Shape suffixes: B pairs of a batch, D embedding, L tokens of a caption, M of its translation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, run, translation
from ccr_cli.artifacts.parquet import artifact_table
from ccr_cli.data.seeds import derive
from ccr_cli.data.splits import items_of
from ccr_cli.report.content import CrossAttention, ExampleHit, ExampleSearch, ModelInternals
from ccr_cli.stages.report.sample_searches import best_runs
from ccr_cli.stages.report.stage import finder
from ccr_cli.stages.search.stage import Searcher, SearchOptions
from ccr_cli.stages.shared.embedding import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.labels import knows_truth
from ccr_cli.stages.shared.load_run import load_method, translations_of
from ccr_cli.stages.shared.triplets import read_visuals

TOP = 5
FEWEST, LONGEST = 2, 10
"""Tokens of a text whose attention is shown."""


def sample_inside(inputs: Inputs, count: int, *, split: str = "test", device: str = "auto") -> ModelInternals:
    """Examples from within one run of each method that has some: the least noise, then the lowest seed.

    Pictures are searched with by the run that example searches take.

    Args:
        inputs: The runs given, else those of the workspace.
        count: Examples of each kind.
        split: Of which items.
        device: `auto`, `cpu` or `cuda`.
    """
    on = choose_device(device)
    soft = _first(inputs, "soft_targets")
    reads = _first(inputs, "attention")
    return ModelInternals(
        pictures=[s for lang, best in best_runs(inputs) for s in _pictures(inputs, best, lang, count, split, device)],
        targets=_targets(inputs, soft, count, split, on) if soft else (),
        attention=_attention(inputs, reads, count, split, on) if reads else (),
    )


def _first(inputs: Inputs, ability: str) -> base.Artifact | None:
    """The run that shows what its method can do."""
    found = []
    for artifact in inputs.all("run"):
        settings = run.config(artifact)
        able = hasattr(registry.load("methods", settings["method"]).Method, ability)
        if able and not knows_truth(settings):
            ratio = (settings["noise"] or {}).get("ratio", 0.0)
            found.append((float(ratio), int(settings["seed"]), artifact.name, artifact))
    return min(found, key=lambda each: each[:3])[3] if found else None


@torch.no_grad()
def _targets(
    inputs: Inputs, trained: base.Artifact, count: int, split: str, device: torch.device
) -> list[ExampleSearch]:
    """Human captions of a split with the shares that soft targets give to the pictures of a batch of that size.

    The batch is drawn by a fixed seed, a caption an item; shown are captions from the surest to the least sure.
    """
    source, lang = inputs.parent(trained, "dataset"), run.langs(run.config(trained))[0]
    data = dataset.read(source)
    captions = data.captions[(data.captions["lang"] == lang) & (data.captions["k"] == 0)]
    captions = captions[captions["item_id"].isin(set(items_of(data.items, split)["item_id"]))]
    captions = captions.drop_duplicates("item_id")
    method: Any
    method, tokenizer = load_method(trained, device)
    visual, ids = read_visuals(inputs.parent(trained, "features"), list(captions["item_id"]), method.config.needs())
    if len(ids) < 2:
        return []
    order = np.random.default_rng(derive(0, "soft targets", lang)).permutation(len(ids))
    rows = np.sort(order[: method.config.batch_size])
    items = [ids[row] for row in rows]
    text_of = dict(zip(captions["item_id"], captions["text"], strict=True))
    english = data.captions[data.captions["lang"] == data.source_lang].sort_values("k", kind="stable")
    english_of = english.drop_duplicates("item_id").set_index("item_id")["text"]
    media = artifact_table(source, "items.parquet", dataset.ITEMS, ["item_id", "media"])
    image = finder(source, dict(zip(media["item_id"], media["media"], strict=True)))
    visual_BD = embed_visuals(method, visual, device, torch.from_numpy(rows))
    text_BD = encode_and_embed(method, tokenizer, [text_of[item] for item in items], device)
    share_BB = method.soft_targets(visual_BD, text_BD).cpu().numpy()
    surest = np.argsort(-share_BB.diagonal(), kind="stable")
    shown = surest[np.unique(np.linspace(0, len(items) - 1, count).round().astype(int))]
    searches = []
    for row in shown.tolist():
        found = [
            ExampleHit(
                items[at], str(english_of.get(items[at], "")), float(share_BB[row, at]), image(items[at]), at == row
            )
            for at in np.argsort(-share_BB[row], kind="stable")[:TOP].tolist()
        ]
        text, meant = str(text_of[items[row]]), english_of.get(items[row])
        searches.append(ExampleSearch(text, lang, found, meant, trained.name, gloss_lang=data.source_lang))
    return searches


@torch.no_grad()
def _attention(
    inputs: Inputs, trained: base.Artifact, count: int, split: str, device: torch.device
) -> list[CrossAttention]:
    """Captions of a split with the translations of the run, drawn by a fixed seed among those of a readable length."""
    data = dataset.read(inputs.parent(trained, "dataset"))
    items = set(items_of(data.items, split)["item_id"])
    captions = data.captions[(data.captions["lang"] == data.source_lang) & data.captions["item_id"].isin(items)]
    method: Any
    method, tokenizer = load_method(trained, device)
    translations, _ = translations_of(inputs.workspace, trained)
    if not translations:
        return []
    lang, artifact = next(iter(translations.items()))
    table = translation.read(artifact)
    table = table[(table["direction"] == "forward") & (table["status"] == "ok")]
    text_of = dict(zip(table["source_caption_id"], table["text"], strict=True))
    pairs = captions[captions["caption_id"].isin(set(text_of))]
    found: list[CrossAttention] = []
    for row in np.random.default_rng(derive(0, "attention", lang)).permutation(len(pairs)):
        text, other = str(pairs["text"].iloc[row]), text_of[pairs["caption_id"].iloc[row]]
        words, others = tokenizer.words(text), tokenizer.words(other)
        if len(found) < count and all(FEWEST <= len(each) <= LONGEST for each in (words, others)):
            source, target = (tokenizer.encode([each]).select(torch.tensor([0])).to(device) for each in (text, other))
            share_LM = method.attention(source, target)[0].float().cpu().numpy()
            found.append(CrossAttention(trained.name, lang, words, others, share_LM))
    return found


def _pictures(
    inputs: Inputs, trained: base.Artifact, lang: str, count: int, split: str, device: str
) -> list[ExampleSearch]:
    """Pictures of a split, drawn by a fixed seed among those with human captions, and the captions that they find."""
    source = inputs.parent(trained, "dataset")
    data = dataset.read(source)
    items = set(items_of(data.items, split)["item_id"])
    described = data.captions[(data.captions["lang"] == lang) & data.captions["item_id"].isin(items)]
    ids = list(dict.fromkeys(described["item_id"]))
    if not ids:
        return []
    chosen = [
        ids[at] for at in np.sort(np.random.default_rng(derive(0, "pictures", lang)).permutation(len(ids))[:count])
    ]
    english = data.captions[data.captions["lang"] == data.source_lang].sort_values("k", kind="stable")
    english_of = english.drop_duplicates("item_id").set_index("item_id")["text"]
    searcher = Searcher(inputs, trained, SearchOptions(split, "captions", lang, device))
    needs = load_method(trained, choose_device(device))[0].config.needs()
    visual, known = read_visuals(inputs.parent(trained, "features"), chosen, needs)
    searches = []
    for row, item in enumerate(known):
        answer = searcher.picture(visual.select(torch.tensor([row])), item, TOP)
        found = [
            ExampleHit(h.item_id, h.caption, h.similarity, h.image, h.item_id == item, lang, english_of.get(h.item_id))
            for h in answer.hits
        ]
        searches.append(ExampleSearch(item, lang, found, None, trained.name, answer.uncertainty, searcher.image(item)))
    return searches
