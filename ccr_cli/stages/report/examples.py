"""Examples for a report from the best run of each language: searches, maps of embeddings, and the inside of models.

The examples are not hand-picked: a fixed seed draws them regardless of the results.

Shape suffixes: B pairs of a batch, D embedding, V items, T captions, L tokens of a caption, M of its translation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, run, translation
from ccr_cli.data.seeds import derive
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError
from ccr_cli.report.content import CrossAttention, EmbeddingMap, ExampleHit, ExampleSearch, ModelInternals
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.stage import Searcher
from ccr_cli.stages.shared.embedding import choose_device, embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import knows_truth, load_method, translations_of
from ccr_cli.stages.shared.triplets import gallery, read_visuals, texts_by_source, without

TOP = 5
"""Results of an example search."""
FEWEST, LONGEST = 2, 10
"""Fewest and most tokens of a text whose attention is shown."""
SELECTED_BY = {"mt": 2, "human": 1}
"""Preference among kinds of validation queries that chose the epoch; figures of different kinds are not comparable."""


def best_runs(inputs: Inputs) -> list[tuple[str, base.Artifact]]:
    """The best run of each language and data set.

    Best means the highest validation SumR among runs whose epoch was chosen by the same kind of queries:
    machine-translated if there are such runs, else human. A run trained on categories is taken (by mAP) only if there
    is no other; a run whose judge knows the truth is never taken.
    """
    best: dict[tuple[str, str], tuple[tuple[bool, int, float], base.Artifact]] = {}
    for artifact in inputs.all("run"):
        config = run.config(artifact)
        if knows_truth(config):
            continue
        for lang in run.langs(config):
            key = (lang, artifact.parent("dataset").id)
            reached = _validation(artifact, config["select"], config.get("criterion", "SumR"), lang)
            if key not in best or reached > best[key][0]:
                best[key] = (reached, artifact)
    chosen = [(lang, artifact) for (lang, _), (_, artifact) in best.items()]
    return sorted(chosen, key=lambda pair: (pair[0], pair[1].name))


def _validation(artifact: base.Artifact, select: str, criterion: str, lang: str) -> tuple[bool, int, float]:
    """Returns a sort key of how good a run is in a language, at the epoch that was kept."""
    history, figure = run.history(artifact), f"val.{criterion}"
    if figure not in history or history[figure].isna().all():
        return criterion == "SumR", 0, 0.0
    kept: Any = history.iloc[int(np.nanargmax(history[figure]))]
    value = float(kept.get(f"val.langs.{lang}.{criterion}", kept[figure]))
    return criterion == "SumR", SELECTED_BY.get(select, 0), value


@dataclass(frozen=True)
class _Captions:
    """The captions of the items of a split, and a gloss of each item."""

    frame: pd.DataFrame
    source_lang: str
    gloss_of: "pd.Series[Any]"
    """The first caption of each item in the source language."""

    def of(self, lang: str, k: int | None = None) -> pd.DataFrame:
        """The captions in a language; with `k` only the k-th of each item."""
        frame = self.frame[self.frame["lang"] == lang]
        return frame if k is None else frame[frame["k"] == k]


def _draw(what: str, lang: str, number: int, count: int) -> np.ndarray:
    """Draws `count` of `number` positions with a fixed seed; returns them in order."""
    return np.sort(np.random.default_rng(derive(0, what, lang)).permutation(number)[:count])


@dataclass(frozen=True)
class Examples:
    """Draws examples from the items of a split, with the given runs, else those of the workspace."""

    inputs: Inputs
    split: str = "test"
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""

    @cached_property
    def on(self) -> torch.device:
        """The device."""
        return choose_device(self.device)

    def _captions(self, trained: base.Artifact) -> _Captions:
        data = dataset.read(self.inputs.parent(trained, "dataset"))
        items = set(items_of(data.items, self.split)["item_id"])
        source = data.captions_in(data.source_lang).sort_values("k", kind="stable")
        glosses = source.drop_duplicates("item_id").set_index("item_id")["text"]
        return _Captions(data.captions[data.captions["item_id"].isin(items)], data.source_lang, glosses)

    def searches(self, count: int) -> list[ExampleSearch]:
        """Searches with the best run of each data set and language, in the order of `best_runs`.

        The queries are `count` human captions (k = 0) per language; a language without human captions is left out.
        """
        examples = []
        for lang, trained in best_runs(self.inputs):
            captions = self._captions(trained)
            queries = captions.of(lang, k=0)
            queries = queries.iloc[_draw("sample searches", lang, len(queries), count)]
            if queries.empty:
                continue
            glosses = captions.of(captions.source_lang, k=0).drop_duplicates("item_id").set_index("item_id")["text"]
            searcher = Searcher(self.inputs, trained, SearchOptions(split=self.split, device=self.device).filled())
            answers = searcher.texts(list(queries["text"]), TOP)
            for answer, item in zip(answers, queries["item_id"], strict=True):
                hits = [ExampleHit(h.item_id, h.caption, h.similarity, h.image, h.item_id == item) for h in answer.hits]
                gloss, gloss_lang = glosses.get(item), captions.source_lang if item in glosses.index else ""
                about: dict[str, Any] = {"uncertainty": answer.uncertainty, "gloss_lang": gloss_lang}
                examples.append(ExampleSearch(answer.query, lang, hits, gloss, trained.name, **about))
        return examples

    @torch.no_grad()
    def maps(self, count: int) -> list[EmbeddingMap]:
        """Maps of `count` items by the best run of each data set and language with human captions of these items."""
        maps = []
        for lang, trained in best_runs(self.inputs):
            source = self.inputs.parent(trained, "dataset")
            method, tokenizer = load_method(trained, self.on)
            data = without(dataset.read(source), getattr(method.config, "left_out", ""))
            captions, features = data.captions_in(lang), self.inputs.parent(trained, "features")
            try:
                shown = gallery(data, features, self.split, captions, lang, method.config.needs())
            except ArtifactError:
                continue
            described = np.unique(shown.item_T)
            rows = described[_draw("map", lang, len(described), count)]
            drawn_T = np.isin(shown.item_T, rows)
            visual = embed_visuals(method, shown.visual, self.on, torch.from_numpy(rows))
            texts = encode_and_embed(method, tokenizer, [shown.texts[i] for i in np.flatnonzero(drawn_T)], self.on)
            item_T = np.searchsorted(rows, shown.item_T[drawn_T])
            ids, vectors = [shown.item_ids[row] for row in rows], (visual.cpu().numpy(), texts.float().cpu().numpy())
            maps.append(EmbeddingMap(trained.name, lang, ids, *vectors, item_T, dataset.image_finder(source)))
        return maps

    @torch.no_grad()
    def internals(self, count: int) -> ModelInternals:
        """`count` examples of each kind from inside models.

        Soft targets and attention come from one run each: of those whose method has them, the one with the least noise,
        then the lowest seed. Picture queries are searched with the best runs.
        """
        with_targets, with_attention = (self._first_able(ability) for ability in ("soft_targets", "attention"))
        return ModelInternals(
            pictures=[s for lang, best in best_runs(self.inputs) for s in self._pictures(best, lang, count)],
            targets=list(self._targets(with_targets, count)) if with_targets else (),
            attention=list(self._attention(with_attention, count)) if with_attention else (),
        )

    def _first_able(self, ability: str) -> base.Artifact | None:
        """Returns the run with the least noise, then the lowest seed, whose method has an ability; None if none has."""
        able = []
        for artifact in self.inputs.all("run"):
            config = run.config(artifact)
            if hasattr(registry.load("methods", config["method"]).Method, ability) and not knows_truth(config):
                ratio = float((config["noise"] or {}).get("ratio", 0.0))
                able.append((ratio, int(config["seed"]), artifact.name, artifact))
        return min(able, key=lambda entry: entry[:3])[3] if able else None

    def _targets(self, trained: base.Artifact, count: int) -> Iterator[ExampleSearch]:
        """Yields captions, from the surest to the least sure, with their soft targets over the pictures of a batch.

        The batch has one caption per item.
        """
        lang, captions = run.langs(run.config(trained))[0], self._captions(trained)
        text_of = captions.of(lang, k=0).drop_duplicates("item_id").set_index("item_id")["text"]
        if text_of.empty:
            return
        method: Any
        method, tokenizer = load_method(trained, self.on)
        features = self.inputs.parent(trained, "features")
        visual, ids = read_visuals(features, list(text_of.index), method.config.needs())
        if len(ids) < 2:
            return
        rows = _draw("soft targets", lang, len(ids), method.config.batch_size)
        items = [ids[row] for row in rows]
        image, gloss = dataset.image_finder(self.inputs.parent(trained, "dataset")), captions.gloss_of.get
        visual_BD = embed_visuals(method, visual, self.on, torch.from_numpy(rows))
        text_BD = encode_and_embed(method, tokenizer, [text_of[item] for item in items], self.on)
        share_BB = method.soft_targets(visual_BD, text_BD).cpu().numpy()
        surest = np.argsort(-share_BB.diagonal(), kind="stable")
        for row in surest[np.unique(np.linspace(0, len(items) - 1, count).round().astype(int))].tolist():
            best = [(i, items[i]) for i in np.argsort(-share_BB[row], kind="stable")[:TOP].tolist()]
            hits = [ExampleHit(k, gloss(k) or "", float(share_BB[row, i]), image(k), i == row) for i, k in best]
            query, own = str(text_of[items[row]]), gloss(items[row])
            yield ExampleSearch(query, lang, hits, own, trained.name, gloss_lang=captions.source_lang)

    def _attention(self, trained: base.Artifact, count: int) -> Iterator[CrossAttention]:
        """Yields the attention between captions of readable length and the translations that the run was trained on."""
        captions = self._captions(trained)
        method: Any
        method, tokenizer = load_method(trained, self.on)
        translations, _ = translations_of(self.inputs.workspace, trained)
        for lang, (artifact, *_) in list(translations.items())[:1]:
            text_of = texts_by_source(translation.read(artifact))
            pairs = captions.of(captions.source_lang)
            pairs = pairs[pairs["caption_id"].isin(set(text_of))]
            shown = 0
            for row in np.random.default_rng(derive(0, "attention", lang)).permutation(len(pairs)):
                texts = str(pairs["text"].iloc[row]), text_of[pairs["caption_id"].iloc[row]]
                tokens = [tokenizer.words(text) for text in texts]
                if shown < count and all(FEWEST <= len(words) <= LONGEST for words in tokens):
                    shown += 1
                    source, target = (tokenizer.encode([text]).select(torch.tensor([0])).to(self.on) for text in texts)
                    share_LM = method.attention(source, target)[0].float().cpu().numpy()
                    yield CrossAttention(trained.name, lang, tokens[0], tokens[1], share_LM)

    def _pictures(self, trained: base.Artifact, lang: str, count: int) -> Iterator[ExampleSearch]:
        """Yields pictures of items with human captions, and the captions found for them."""
        captions = self._captions(trained)
        ids = list(dict.fromkeys(captions.of(lang)["item_id"]))
        if not ids:
            return
        chosen, gloss = [ids[row] for row in _draw("pictures", lang, len(ids), count)], captions.gloss_of.get
        options = SearchOptions("captions", lang, self.split, device=self.device).filled()
        searcher = Searcher(self.inputs, trained, options)
        needs = load_method(trained, self.on)[0].config.needs()
        visual, known = read_visuals(self.inputs.parent(trained, "features"), chosen, needs)
        for row, item in enumerate(known):
            answer = searcher.picture(visual.select(torch.tensor([row])), item, TOP)
            found = ((h, h.item_id, h.item_id == item) for h in answer.hits)
            hits = [ExampleHit(k, h.caption, h.similarity, h.image, own, lang, gloss(k)) for h, k, own in found]
            yield ExampleSearch(item, lang, hits, None, trained.name, answer.uncertainty, searcher.image(item))
