"""Example searches for a report: human test queries drawn without looking at the results."""

from __future__ import annotations

import numpy as np

from ccr_cli.artifacts import base, dataset, run
from ccr_cli.data.seeds import derive
from ccr_cli.data.splits import items_of
from ccr_cli.report.searches import Found, Search
from ccr_cli.stages.search import search
from ccr_cli.stages.select import Inputs

TOP = 5


def sample_searches(inputs: Inputs, count: int, *, split: str = "test", device: str = "auto") -> list[Search]:
    """Searches with the run that did best on validation, `count` queries in each language that it was trained for.

    The queries are drawn by a fixed seed among the human short captions (k = 0), so that nobody picked them.

    Args:
        inputs: The runs given, else those of the workspace.
        count: Queries a language.
        split: Items to search.
        device: `auto`, `cpu` or `cuda`.

    Returns:
        The searches, by language; none where there is no run with human queries.
    """
    best: dict[str, tuple[float, base.Artifact]] = {}
    for artifact in inputs.all("run"):
        lang = run.config(artifact)["lang"]
        reached = _validation(artifact)
        if lang not in best or reached > best[lang][0]:
            best[lang] = (reached, artifact)
    return [
        s for lang, (_, artifact) in sorted(best.items()) for s in _sample(inputs, artifact, lang, count, split, device)
    ]


def _validation(artifact: base.Artifact) -> float:
    history = run.history(artifact)
    return float(history["val.SumR"].max()) if "val.SumR" in history else 0.0


def _sample(inputs: Inputs, trained: base.Artifact, lang: str, count: int, split: str, device: str) -> list[Search]:
    data = dataset.read(inputs.parent(trained, "dataset"))
    items = set(items_of(data.items, split)["item_id"])
    captions = data.captions[data.captions["item_id"].isin(items) & (data.captions["k"] == 0)]
    queries = captions[captions["lang"] == lang]
    if queries.empty:
        return []
    order = np.random.default_rng(derive(0, "sample searches", lang)).permutation(len(queries))[:count]
    chosen = queries.iloc[np.sort(order)]
    english = captions[captions["lang"] == data.source_lang].drop_duplicates("item_id").set_index("item_id")["text"]
    answers = search(inputs, trained, list(chosen["text"]), split=split, top=TOP, device=device)
    return [
        Search(
            query=answer.query,
            lang=lang,
            results=[Found(h.item_id, h.caption, h.similarity, h.image, h.item_id == item) for h in answer.hits],
            gloss=english.get(item),
            run=trained.name,
            uncertainty=answer.uncertainty,
        )
        for answer, item in zip(answers, chosen["item_id"], strict=True)
    ]
