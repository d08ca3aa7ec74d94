"""index: what a run searches, for galleries that are too large to be compared with one by one.

Shape suffixes: Q queries, V entries that are searched, K results, D embedding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base
from ccr_cli.artifacts import index as artifact
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import warn
from ccr_cli.data.seeds import derive
from ccr_cli.errors import UsageError
from ccr_cli.stages.search.faiss_index import TYPES, Index, exact, faiss, recall
from ccr_cli.stages.search.stage import Searcher, Wanted, sources
from ccr_cli.stages.shared.inputs import Inputs

AT = 10
QUERIES = 1000
"""At most; one half chooses the effort, recall is measured on the other."""


@dataclass(frozen=True)
class Asked:
    """What is asked of an index."""

    kind: str = "ivf"
    """`ivf` or `hnsw`."""
    recall: float = 0.99
    """The share of the ten most similar entries that it shall find."""


def index(
    inputs: Inputs,
    trained: base.Artifact,
    wanted: Wanted,
    asked: Asked,
    *,
    name: str | None = None,
    force: bool = False,
) -> base.Artifact:
    """Makes an index of what a run searches.

    The effort of a query is the least with which the recall asked for is reached on one half of the queries; the
    recall that is stated is of the other half. Queries are human captions of validation and test items where items
    are searched, pictures where captions are.

    Args:
        inputs: Where the run's parents are, or another data set with features of the run's encoder.
        trained: The run.
        wanted: What is searched.
        asked: What is asked of the index.
        name: Name of the artifact.
        force: Build again.

    Returns:
        The index.

    Raises:
        UnavailableError: If FAISS is not installed.
        UsageError: If there is no such type, or no such recall.
    """
    if asked.kind not in TYPES:
        raise UsageError(f"--type is {' or '.join(TYPES)}, not {asked.kind!r}")
    if not 0 < asked.recall <= 1:
        raise UsageError("--recall lies above 0 and up to 1")
    faiss()
    of = {"split": wanted.split, "find": wanted.find, "lang": wanted.lang if wanted.find == "captions" else None}
    request = {**of, "type": asked.kind, "recall": asked.recall}
    usual = {**request, "find": "items", "lang": None, "recall": Asked.recall}
    data, feats = sources(inputs, trained)
    other = [data.name] if data.id != trained.parent("dataset").id else []
    name = name or stem("-".join([trained.name, *other, wanted.split or "all", asked.kind]), request, usual)
    return build_artifact(
        inputs.workspace,
        "index",
        name,
        request,
        [trained, data, feats],
        write=lambda site: _build(site, Searcher(inputs, trained, wanted), asked),
        force=force,
    )


def _build(build: Build, searcher: Searcher, asked: Asked) -> dict[str, int]:
    start = time.monotonic()
    rows_VD = searcher.rows_VD.cpu()
    found = Index.build(rows_VD, asked.kind)
    build.environment["build_seconds"] = round(time.monotonic() - start, 2)
    query_QD, what = _queries(searcher)
    choosing_QD, measuring_QD = query_QD[::2], query_QD[1::2]
    k = min(AT, len(rows_VD))
    best_QK = exact(choosing_QD, rows_VD, k)
    for effort in found.efforts():
        found.effort = effort
        reached = recall(found, choosing_QD, rows_VD, best_QK)
        if reached >= asked.recall:
            break
    else:
        warn(f"the greatest effort, {found.effort}, reaches a recall of {reached:.3f}, not {asked.recall:g}")
    best_QK = exact(measuring_QD, rows_VD, k)
    about: dict[str, Any] = {
        "type": asked.kind,
        "effort": found.effort,
        "recall": {"at": k, "value": recall(found, measuring_QD, rows_VD, best_QK), "queries": len(measuring_QD)},
        "measured_on": what,
    }
    build.environment["query_ms"] = _milliseconds(lambda q_1D: found.nearest(q_1D, k), measuring_QD)
    build.environment["exact_query_ms"] = _milliseconds(lambda q_1D: exact(q_1D, rows_VD, k), measuring_QD)
    found.write(build.folder / "index.faiss")
    write_table(build.folder / "entries.parquet", pd.DataFrame({"id": list(searcher.ids)}), artifact.ENTRIES)
    base.write_json(build.folder / "index.json", about)
    return {"entries": len(rows_VD), "dim": rows_VD.shape[1]}


def _milliseconds(ask: Callable[[Tensor], object], query_QD: Tensor) -> float:
    """The median time of a query alone."""
    spent = []
    for query_1D in torch.split(query_QD[:50], 1):
        start = time.perf_counter()
        ask(query_1D)
        spent.append(time.perf_counter() - start)
    return round(float(np.median(spent)) * 1000, 4)


def _queries(searcher: Searcher) -> tuple[Tensor, str]:
    """Vectors of queries like those that will come, drawn by a fixed seed, and what they are."""
    items = searcher.data.items
    held_out = items[items["split"].isin(["val", "test"])]
    chosen = set((held_out if len(held_out) else items)["item_id"])
    if searcher.wanted.find == "captions":
        ids = [item for item in items["item_id"] if item in chosen]
        return searcher.visuals(_drawn(ids)).rows_VD.cpu(), "pictures"
    captions = searcher.data.captions
    captions = captions[captions["item_id"].isin(chosen)]
    lang = next((lang for lang in searcher.langs if (captions["lang"] == lang).any()), searcher.data.source_lang)
    texts = _drawn(list(captions.loc[captions["lang"] == lang, "text"]))
    return searcher.vectors(texts).cpu(), f"captions in {lang}"


def _drawn(values: list[str]) -> list[str]:
    if len(values) < 2:
        raise UsageError("there are no captions or pictures with which recall could be measured")
    order = np.random.default_rng(derive(0, "queries of an index")).permutation(len(values))[:QUERIES]
    return [values[at] for at in order]
