"""index: a FAISS index of what a run searches, and its recall against exact search.

Files: `index.faiss`, `entries.parquet` (the ids, in the order of the index), `index.json`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import read_table, table_schema
from ccr_cli.trial import UnfitError

ENTRIES = table_schema("id string")
"""The ids of items or captions."""


def entries(artifact: Artifact) -> list[str]:
    """Reads the ids, in the order of the index."""
    return list(read_table(artifact.file("entries.parquet"), ENTRIES)["id"])


def about(artifact: Artifact) -> dict[str, Any]:
    """Reads how an index was built, and its recall."""
    return artifact.json("index.json")


def try_index(path: Path) -> None:
    """Reads an index and searches it; UnfitError unless everything in it refers to one of its entries."""
    import faiss

    index: Any = faiss.read_index(str(path))
    graph, lists = getattr(index, "hnsw", None), getattr(index, "invlists", None)
    if graph is not None:
        neighbours, offsets = faiss.vector_to_array(graph.neighbors), faiss.vector_to_array(graph.offsets)
        entries = [neighbours, np.array([graph.entry_point])]
        fits = len(offsets) == index.ntotal + 1 and (np.diff(offsets.astype(np.int64)) >= 0).all()
        fits = fits and offsets[-1] == len(neighbours) and index.storage.ntotal == index.ntotal
    elif lists is not None:
        sizes = [lists.list_size(number) for number in range(lists.nlist)]
        entries = [faiss.rev_swig_ptr(lists.get_ids(n), size) for n, size in enumerate(sizes) if size]
        fits = lists.nlist == index.nlist == index.quantizer.ntotal
        ids = np.concatenate([np.zeros(0, np.int64), *entries])
        fits = fits and np.array_equal(np.sort(ids), np.arange(index.ntotal))  # each entry once
    else:
        raise UnfitError("it is an index of a type that ccr does not write")
    if not fits or any((ids < -1).any() or (ids >= index.ntotal).any() for ids in entries):
        raise UnfitError("its parts do not fit its number of entries")
    index.search(np.ones((1, index.d), np.float32), 1)
