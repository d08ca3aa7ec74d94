"""index: a FAISS index of the items or captions that a run searches, and its recall against exact search.

Files: `index.faiss`, `entries.parquet` (the ids, in the order of the index), `index.json`; and, if the
index holds rounded vectors, `vectors.npy` (float32, V x D), which is read from disk as needed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import read_table, table_schema
from ccr_cli.trial import UnfitError

ENTRIES = table_schema("id string")
"""The ids of items or captions."""
TYPES = {
    *("IndexFlat", "IndexFlatIP", "IndexScalarQuantizer", "IndexPQ", "IndexPQFastScan"),
    *("IndexHNSWFlat", "IndexHNSWSQ", "IndexHNSWPQ", "IndexPreTransform", "IndexRefine", "IndexRefineFlat"),
    *("IndexIVFFlat", "IndexIVFScalarQuantizer", "IndexIVFPQ", "IndexIVFPQFastScan"),
}
"""The classes of FAISS whose content `try_index` can check."""
_INNER = ("index", "base_index", "refine_index", "quantizer", "storage")


def entries(artifact: Artifact) -> list[str]:
    """Reads the ids, in the order of the index."""
    return list(read_table(artifact.file("entries.parquet"), ENTRIES)["id"])


def about(artifact: Artifact) -> dict[str, Any]:
    """Reads how an index was built, and its recall."""
    return artifact.json("index.json")


def read_faiss(path: Path) -> Any:
    """Reads an index; vectors and graphs stay on disk, mapped into memory. RuntimeError if FAISS cannot read it."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)


def parts(index: Any) -> Iterator[Any]:
    """Yields an index and the indexes inside it, each as its own class."""
    import faiss

    own = faiss.downcast_index(index)
    yield own
    for name in _INNER:
        if (inner := getattr(own, name, None)) is not None:
            yield from parts(inner)


def try_index(path: Path) -> None:
    """Reads an index and searches it; UnfitError unless everything in it refers to one of its entries."""
    index = read_faiss(path)
    for part in parts(index):
        if type(part).__name__ not in TYPES:
            raise UnfitError("it is an index of a type that ccr does not write")
        if not _fits(part):
            raise UnfitError("its parts do not fit its number of entries")
    index.search(np.ones((1, index.d), np.float32), 1)


def _fits(index: Any) -> bool:
    """Whether the arrays of an index have the sizes and the numbers that its search relies on."""
    import faiss

    held = [getattr(index, name) for name in _INNER if name != "quantizer" and getattr(index, name, None) is not None]
    fits: Any = all(inner.ntotal == index.ntotal for inner in held)
    if chain := getattr(index, "chain", None):
        steps = [faiss.downcast_VectorTransform(chain.at(at)) for at in range(chain.size())]
        dims = [index.d, *(step.d_out for step in steps)]
        fits = fits and dims == [*(step.d_in for step in steps), index.index.d]
        return bool(fits and all(hasattr(step, "A") and step.A.size() == step.d_in * step.d_out for step in steps))
    fits = fits and all(inner.d == index.d for inner in held)
    if graph := getattr(index, "hnsw", None):
        neighbours, offsets = faiss.vector_to_array(graph.neighbors), faiss.vector_to_array(graph.offsets)
        fits = fits and len(offsets) == index.ntotal + 1 and (np.diff(offsets.astype(np.int64)) >= 0).all()
        fits = fits and offsets[-1] == len(neighbours) and -1 <= graph.entry_point < index.ntotal
        return bool(fits and ((neighbours >= -1) & (neighbours < index.ntotal)).all())
    if coder := getattr(index, "pq", None):
        fits = fits and coder.centroids.size() == coder.d * coder.ksub and coder.M * coder.dsub == coder.d == index.d
    if coder := getattr(index, "sq", None):
        ranges = {coder.QT_8bit: 2 * index.d, coder.QT_6bit: 2 * index.d, coder.QT_4bit: 2 * index.d}
        fits = fits and coder.d == index.d and coder.trained.size() >= ranges.get(coder.qtype, 0)
    if lists := getattr(index, "invlists", None):
        sizes = [lists.list_size(number) for number in range(lists.nlist)]
        ids = [faiss.rev_swig_ptr(lists.get_ids(n), size) for n, size in enumerate(sizes) if size]
        fits = fits and lists.nlist == index.nlist == index.quantizer.ntotal and index.quantizer.d == index.d
        found = np.sort(np.concatenate([np.zeros(0, np.int64), *ids]))
        return bool(fits and np.array_equal(found, np.arange(index.ntotal)))  # each entry once
    if (codes := getattr(index, "codes", None)) is not None:
        fits = fits and codes.size() >= index.ntotal * index.code_size
    return bool(fits)
