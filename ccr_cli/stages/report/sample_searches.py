"""Example searches for a report: human queries drawn without looking at the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr_cli.artifacts import base, dataset, run
from ccr_cli.data.seeds import derive
from ccr_cli.data.splits import items_of
from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.stages.search.stage import search
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.labels import knows_truth

TOP = 5


def sample_searches(inputs: Inputs, count: int, *, split: str = "test", device: str = "auto") -> list[ExampleSearch]:
    """Searches with the best run of each data set and language, `count` queries each.

    Best is the highest SumR on validation, among runs that were selected by queries of one kind: machine-translated
    ones, else human ones; one that learned categories is taken, by mAP, where there is no other. A run that was told
    the truth is not taken. The queries are drawn by a fixed seed among
    the human short captions (k = 0), so that nobody picked them.

    Args:
        inputs: The runs given, else those of the workspace.
        count: Queries a language.
        split: Items to search.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The searches, by data set and language; none where there is no run with human queries.
    """
    return [s for lang, a in best_runs(inputs) for s in _sample(inputs, a, lang, count, split, device)]


def best_runs(inputs: Inputs) -> list[tuple[str, base.Artifact]]:
    """The run to search with for each language and data set, as `sample_searches` says."""
    best: dict[tuple[str, str], tuple[tuple[bool, int, float], base.Artifact]] = {}
    for artifact in inputs.all("run"):
        settings = run.config(artifact)
        if knows_truth(settings):
            continue
        for lang in run.langs(settings):
            where = (lang, artifact.parent("dataset").id)
            reached = _validation(artifact, settings["select"], settings.get("criterion", "SumR"), lang)
            if where not in best or reached > best[where][0]:
                best[where] = (reached, artifact)
    chosen = [(lang, artifact) for (lang, _), (_, artifact) in best.items()]
    return sorted(chosen, key=lambda pair: (pair[0], pair[1].name))


KINDS = {"mt": 2, "human": 1}
"""What chose the epoch, the most wanted highest: figures of one kind cannot be compared with those of another."""


def _validation(artifact: base.Artifact, select: str, criterion: str, lang: str) -> tuple[bool, int, float]:
    """How good a run is in a language; of several languages after the epoch that was kept for them all."""
    history, figure = run.history(artifact), f"val.{criterion}"
    if figure not in history or history[figure].isna().all():
        return criterion == "SumR", 0, 0.0
    kept: Any = history.iloc[int(np.nanargmax(history[figure]))]
    return criterion == "SumR", KINDS.get(select, 0), float(kept.get(f"val.langs.{lang}.{criterion}", kept[figure]))


def _sample(
    inputs: Inputs, trained: base.Artifact, lang: str, count: int, split: str, device: str
) -> list[ExampleSearch]:
    data = dataset.read(inputs.parent(trained, "dataset"))
    items = set(items_of(data.items, split)["item_id"])
    captions = data.captions[data.captions["item_id"].isin(items) & (data.captions["k"] == 0)]
    queries = captions[captions["lang"] == lang]
    if queries.empty:
        return []
    order = np.random.default_rng(derive(0, "sample searches", lang)).permutation(len(queries))[:count]
    chosen = queries.iloc[np.sort(order)]
    source = captions[captions["lang"] == data.source_lang].drop_duplicates("item_id").set_index("item_id")["text"]
    answers = search(inputs, trained, list(chosen["text"]), split=split, top=TOP, device=device)
    return [
        ExampleSearch(
            query=answer.query,
            lang=lang,
            results=[ExampleHit(h.item_id, h.caption, h.similarity, h.image, h.item_id == item) for h in answer.hits],
            gloss=source.get(item),
            gloss_lang=data.source_lang if item in source.index else "",
            run=trained.name,
            uncertainty=answer.uncertainty,
        )
        for answer, item in zip(answers, chosen["item_id"], strict=True)
    ]
