"""index: a FAISS index of a run's gallery, for galleries too large for exact search.

Shape suffixes: Q queries, V entries that are searched, K results, D embedding.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts import index as index_artifact
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import say, warn
from ccr_cli.data.seeds import derive
from ccr_cli.errors import UsageError
from ccr_cli.stages.search.faiss_index import Index, estimated_bytes, exact, faiss, fitting, recall, untrained
from ccr_cli.stages.search.options import IndexOptions, SearchOptions
from ccr_cli.stages.search.stage import Searcher, choose_run, searched_split, sources
from ccr_cli.stages.shared.inputs import Inputs

AT = 10
CHOSEN = "auto"
"""The type in the request of an index whose kind is chosen by `memory`."""
QUERIES = 1000
"""Maximum number of sample queries; one half chooses the effort, the other measures recall."""


def index(inputs: Inputs, options: IndexOptions) -> base.Artifact:
    """Builds an index of a run's data set, or of another data set with features of the run's encoder.

    Queries use the least effort that reaches the required recall on one half of the sample queries; the recorded
    recall is measured on the other half. Sample queries are captions of validation and test items (`Searcher.queries`)
    if items are searched, and pictures if captions are.

    Raises:
        UnavailableError: If FAISS is not installed.
        UsageError: If an option is unknown or the recall out of range, FAISS cannot make such an index of the entries,
            or it does not fit into the memory.
    """
    trained = choose_run(inputs, options.lang)
    searched = SearchOptions(options.find, options.lang, options.split, device=options.device).filled()
    if not 0 < options.recall <= 1:
        raise UsageError(f"--recall {options.recall:g} is not above 0 and at most 1")
    faiss()
    data, feats = sources(inputs, trained)
    searched = replace(searched, split=searched_split(dataset.read(data), searched.split))
    kind = options.kind or (CHOSEN if options.memory else "ivf")
    request: dict[str, Any] = {
        "split": None if searched.split == "all" else searched.split,
        "find": searched.find,
        "lang": searched.lang if searched.find == "captions" else None,
        "type": kind,
        "recall": options.recall,
        **({"memory": options.memory} if kind == CHOSEN else {}),
    }
    usual = {**request, "find": "items", "lang": None, "recall": IndexOptions.recall, "memory": None}
    other = [data.name] if data.id != trained.parent("dataset").id else []
    name = options.name or stem("-".join([trained.name, *other, str(searched.split), kind]), request, usual)

    def write(site: Build) -> dict[str, int]:
        return _build(site, Searcher(inputs, trained, searched), options)

    parents = [trained, data, feats]
    return build_artifact(inputs.workspace, "index", name, request, parents, write=write, force=options.force)


def _build(build: Build, searcher: Searcher, options: IndexOptions) -> dict[str, int]:
    rows_VD = searcher.rows_VD.cpu()
    kind, expected = _kind(options, *rows_VD.shape)
    start = time.monotonic()
    index = Index.build(rows_VD, kind)
    build.environment["build_seconds"] = round(time.monotonic() - start, 2)
    query_QD, source = _queries(searcher)
    choosing_QD, measuring_QD = query_QD[::2], query_QD[1::2]
    k = min(AT, len(rows_VD))
    best_QK = exact(choosing_QD, rows_VD, k)
    reached = index.tune(choosing_QD, rows_VD, best_QK, options.recall)
    if reached < options.recall:
        only = f"reaches a recall of only {reached:.3f}, not {options.recall:g}"
        warn(f"even the greatest effort, {index.effort}, {only}")
    best_QK = exact(measuring_QD, rows_VD, k)
    measured = {"at": k, "value": recall(index, measuring_QD, rows_VD, best_QK), "queries": len(measuring_QD)}
    about = {"type": kind, "effort": index.effort, "recall": measured, "measured_on": source, "bytes": expected}
    if not index.exact:
        about["depth"] = index.depth
    build.environment["query_ms"] = _milliseconds(
        lambda q_1D: rows_VD[index.nearest(q_1D, k)[0]] @ q_1D[0], measuring_QD
    )
    build.environment["exact_query_ms"] = _milliseconds(lambda q_1D: exact(q_1D, rows_VD, k), measuring_QD)
    index.write(build.folder)
    write_table(build.folder / "entries.parquet", pd.DataFrame({"id": list(searcher.ids)}), index_artifact.ENTRIES)
    base.write_json(build.folder / "index.json", about)
    return {"entries": len(rows_VD), "dim": rows_VD.shape[1]}


def _kind(options: IndexOptions, count: int, dim: int) -> tuple[str, int]:
    """Returns the kind of the index, named or chosen to fit `memory`, and the bytes that it needs."""
    if options.kind is None and options.memory is not None:
        kind, needed = fitting(options.memory, count, dim)
        say(f"{kind}: the most exact index of {count:,} x {dim} numbers in {options.memory:,} bytes takes {needed:,}")
        return kind, needed
    kind = options.kind or "ivf"
    needed = estimated_bytes(untrained(kind, count, dim), count)
    if options.memory is not None and needed > options.memory:
        problem = f"an index {kind!r} of {count:,} x {dim} numbers takes {needed:,} bytes, more than --memory"
        raise UsageError(f"{problem} {options.memory:,}", hint="without --factory, --memory chooses one that fits")
    return kind, needed


def _milliseconds(search: Callable[[Tensor], object], query_QD: Tensor) -> float:
    """The median time of a single query."""
    spent = []
    for query_1D in torch.split(query_QD[:50], 1):
        start = time.perf_counter()
        search(query_1D)
        spent.append(time.perf_counter() - start)
    return round(float(np.median(spent)) * 1000, 4)


def _queries(searcher: Searcher) -> tuple[Tensor, str]:
    """Vectors of sample queries, drawn by a fixed seed, and their source."""
    items = searcher.data.items
    held_out = items[items["split"].isin(["val", "test"])]
    chosen = set((held_out if len(held_out) else items)["item_id"])
    if searcher.options.find == "captions":
        ids = [item for item in items["item_id"] if item in chosen]
        return searcher.visuals(_sample(ids)).rows_VD.cpu(), "pictures"
    source, texts = next(((source, list(found["text"])) for source, found in searcher.queries(chosen)), ("", []))
    return searcher.vectors(_sample(texts)).cpu(), source


def _sample(values: list[str]) -> list[str]:
    if len(values) < 2:
        raise UsageError(f"recall cannot be measured with {len(values)} captions or pictures to search with")
    order = np.random.default_rng(derive(0, "queries of an index")).permutation(len(values))[:QUERIES]
    return [values[at] for at in order]
