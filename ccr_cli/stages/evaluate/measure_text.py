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
from ccr_cli.metrics import bootstrap
from ccr_cli.metrics.positives import Positives
from ccr_cli.metrics.ranks import rank_both
from ccr_cli.metrics.recall import summarise
from ccr_cli.metrics.sims import dot_sim
from ccr_cli.stages.evaluate.measure import Evaluator, finite
from ccr_cli.stages.evaluate.targets import Target, captions_of
from ccr_cli.stages.shared.scoring import Scores, interval_report, rank_table
from ccr_cli.stages.shared.triplets import Gallery

POSITIVES = ("caption", "item")
"""The right answers: the sentence's own translation, or that of any caption of its item."""


def measure_texts(evaluator: Evaluator, target: Target, advance: Callable[[int], None]) -> None:
    """Measures every target language of one data set, by caption and by item.

    Raises:
        ArtifactError: If no language has a pair.
    """
    langs = [lang for lang in target.langs if lang != target.data.source_lang]
    lacking = []
    for lang in langs:
        relation, pairs = pairs_of(target, lang)
        if pairs.empty:
            lacking.append(lang)
        else:
            _measure(evaluator, target, lang, relation, pairs)
        advance(1)
    message = f"{target.data.name} has no {target.protocol.split} captions paired with sentences in the source language"
    if len(lacking) == len(langs):
        command = f"ccr translate --lang {langs[0] if langs else 'LANG'} --queries"
        raise ArtifactError(message, hint=f"{command}, or [parallel] in the manifest of the data set")
    if lacking:
        warn(f"{message} for {', '.join(lacking)}")


def pairs_of(target: Target, lang: str) -> tuple[str, pd.DataFrame]:
    """Sentences of a language with their translations in the source language.

    Returns:
        The relation: `parallel`, `query-mt` or `mt`; and a row per pair: `item_id`, `caption_set`, `query_id` and
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
    translated = target.translations[target.translations["status"] == "ok"]
    queries = translated[translated["direction"] == "query"].drop_duplicates("source_caption_id")
    both = captions.merge(queries, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    if not both.empty:
        return "query-mt", _pairs(both, "caption_id", "text", "caption_id_mt", "text_mt")
    forward = translated[(translated["direction"] == "forward") & (translated["lang"] == lang)]
    forward = forward.drop_duplicates("source_caption_id")
    both = english.merge(forward, left_on="caption_id", right_on="source_caption_id", suffixes=("", "_mt"))
    return "mt", _pairs(both, "caption_id_mt", "text_mt", "caption_id", "text")


def _pairs(both: pd.DataFrame, query_id: str, query: str, source_id: str, source: str) -> pd.DataFrame:
    columns = {"query_id": query_id, "query": query, "source_id": source_id, "source": source}
    frame = pd.DataFrame({name: both[column].to_numpy() for name, column in columns.items()})
    return frame.assign(item_id=both["item_id"].to_numpy(), caption_set=both["caption_set"].to_numpy())


def _measure(evaluator: Evaluator, target: Target, lang: str, relation: str, pairs: pd.DataFrame) -> None:
    tie, n = evaluator.options.ties, len(pairs)
    text_TD = evaluator.model.texts(list(pairs["query"]))
    source_SD = evaluator.model.texts(list(pairs["source"]))
    sets = "+".join(sorted(set(pairs["caption_set"])))
    no_visuals = Frames.single(source_SD.new_zeros(n, 1))
    ids = list(pairs["query_id"]), list(pairs["query"])
    gallery = Gallery(list(pairs["source_id"]), no_visuals, *ids, np.arange(n), None, 0)
    items, code_T = list(pairs["item_id"]), np.unique(pairs["item_id"], return_inverse=True)[1]
    for right in POSITIVES:
        positives = Positives.from_ids(range(n), range(n)) if right == "caption" else Positives.from_ids(items, items)
        t2s, s2t = rank_both(dot_sim(source_SD, text_TD), n, n, positives)
        scores = Scores(summarise(t2s, tie=tie), summarise(s2t, tie=tie), t2s, s2t)
        sides = (bootstrap.RankedQueries.of(ranks, code_T, tie) for ranks in (t2s, s2t))
        signature = evaluator.signature(
            target,
            lang,
            caption_set=sets,
            q=str(n),
            gallery=str(n),
            dir="t2s+s2t",
            protocol=f"text-{relation}",
            pos=right,
            sim=evaluator.model.ensemble.similarity(),
            fusion=NONE,
            unc=NONE,
        )
        result: dict[str, Any] = {
            "task": "text",
            "fusion": NONE,
            "reading": "",
            "t2v": finite(scores.t2v),
            "v2t": finite(scores.v2t),
            "SumR": scores.sum_r,
            "intervals": interval_report([bootstrap.RankedGallery(*sides)]),
            "breakdown": {},
            "calibration": None,
        }
        evaluator.results.append(evaluator.heading(target, lang, sets, signature) | result)
        for direction in ("t2v", "v2t"):
            table = rank_table(len(evaluator.results) - 1, direction, 0, gallery, scores, tie, None)
            evaluator.ranks.append(table.assign(item_id=items))
