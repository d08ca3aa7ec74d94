"""Evaluation without pictures (`--task text`, NRCCR Table 5): sentences search their translations, in both directions.

The pairs are of one kind, the first that exists: human captions that are translations of each other; human captions and
their machine translations into the source language (as in the paper); machine translations and their source captions.

Shape suffixes: T sentences of the target language, S of the source, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts.signature import NONE
from ccr_cli.console import warn
from ccr_cli.data.frames import Frames
from ccr_cli.errors import ArtifactError
from ccr_cli.metrics.ranks import Positives, rank_both
from ccr_cli.metrics.sims import dot_sim
from ccr_cli.stages.evaluate.measure import Evaluator, QueryLanguage
from ccr_cli.stages.evaluate.targets import Target, captions_of
from ccr_cli.stages.shared.scoring import Scores, rank_table
from ccr_cli.stages.shared.triplets import Gallery

POSITIVES = ("caption", "item")
"""The right answers: the sentence's own translation, or that of any caption of its item."""


def measure_texts(evaluator: Evaluator, target: Target, advance: Callable[[int], None]) -> None:
    """Measures every target language of one data set, by caption and by item."""
    langs = [lang for lang in target.langs if lang != target.data.source_lang]
    lacking = []
    for lang in langs:
        relation, pairs = pairs_of(target, lang)
        if pairs.empty:
            lacking.append(lang)
        else:
            _measure(
                evaluator, QueryLanguage(target, lang, "+".join(sorted(set(pairs["caption_set"])))), relation, pairs
            )
        advance(1)
    message = f"{target.data.name} has no {target.protocol.split} captions paired with sentences in the source language"
    if len(lacking) == len(langs):
        command = f"ccr translate --lang {langs[0] if langs else 'LANG'} --queries"
        raise ArtifactError(message, hint=f"{command}, or [parallel] in the manifest of the data set")
    if lacking:
        warn(f"{message} for {', '.join(lacking)}")


def pairs_of(target: Target, lang: str) -> tuple[str, pd.DataFrame]:
    """Sentences of a language with their translations in the source language.

    Returns the relation: `parallel`, `query-mt` or `mt`; and a row per pair: `item_id`, `caption_set`, `query_id` and
    `query` in the language, `source_id` and `source`.
    """
    data, human = target.data, target.split.captions
    captions = captions_of(target.split, lang, target.protocol)
    english = human[human["lang"] == data.source_lang]
    parallel: Mapping[str, str] = data.manifest.get("parallel") or {}
    both = captions.merge(english, on=["item_id", "k"], suffixes=("", "_source"))
    parallel_sets = {*parallel.items(), *((own, other) for other, own in parallel.items())}
    sets = zip(both["caption_set"], both["caption_set_source"], strict=True)
    both = both[np.array([pair in parallel_sets for pair in sets], dtype=bool)]
    if not both.empty:
        return "parallel", _pairs(both, "caption_id", "text", "caption_id_source", "text_source")
    if target.translations is None:
        return "none", both
    queries = target.translated_queries.reset_index()
    both = captions.merge(queries, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    if not both.empty:
        return "query-mt", _pairs(both, "caption_id", "text", "caption_id_mt", "text_mt")
    made = target.translations
    forward = made[(made["status"] == "ok") & (made["direction"] == "forward") & (made["lang"] == lang)]
    forward = forward.drop_duplicates("source_caption_id")
    both = english.merge(forward, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    return "mt", _pairs(both, "caption_id_mt", "text_mt", "caption_id", "text")


def _pairs(both: pd.DataFrame, query_id: str, query: str, source_id: str, source: str) -> pd.DataFrame:
    names = {query_id: "query_id", query: "query", source_id: "source_id", source: "source"}
    return both[[*names, "item_id", "caption_set"]].rename(columns=names)


def _measure(evaluator: Evaluator, about: QueryLanguage, relation: str, pairs: pd.DataFrame) -> None:
    tie, n, items = evaluator.options.ties, len(pairs), list(pairs["item_id"])
    text_TD, source_SD = (evaluator.model.texts(list(pairs[name])) for name in ("query", "source"))
    no_visuals = Frames.single(source_SD.new_zeros(n, 1))
    ids, texts = list(pairs["query_id"]), list(pairs["query"])
    gallery = Gallery(list(pairs["source_id"]), no_visuals, ids, texts, np.arange(n), None, 0)
    code_T = np.unique(items, return_inverse=True)[1]
    for right in POSITIVES:
        positives = Positives.from_ids(range(n), range(n)) if right == "caption" else Positives.from_ids(items, items)
        scores = Scores.of(*rank_both(dot_sim(source_SD, text_TD), n, n, positives), tie)
        queries = rank_table([(gallery, scores)], tie).assign(item_id=2 * items, item=np.tile(code_T, 2))
        signature = evaluator.signature(
            about,
            q=str(n),
            gallery=str(n),
            dir="t2s+s2t",
            protocol=f"text-{relation}",
            pos=right,
            sim=evaluator.model.ensemble.similarity(),
            fusion=NONE,
            unc=NONE,
        )
        named = {"task": "text", "fusion": NONE, "reading": ""}
        unmeasured: dict[str, Any] = {"breakdown": {}, "calibration": None}
        evaluator.add(about, signature, named, scores, queries.assign(uncertainty=np.nan), unmeasured)
