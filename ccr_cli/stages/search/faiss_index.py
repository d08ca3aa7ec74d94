"""FAISS: approximate search over many entries, and its recall against exact search.

Shape suffixes: Q queries, V entries that are searched, K results, D embedding.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.artifacts.index import try_index
from ccr_cli.errors import ArtifactError, UnavailableError
from ccr_cli.trial import try_reading

TYPES = ("ivf", "hnsw")
NEIGHBOURS, BUILD_EFFORT = 32, 200
"""Neighbours of an entry in the graph (M), and candidates while it is built (efConstruction)."""
ROUNDING = 1e-5
"""Similarities that differ by less are a tie: either entry counts as correct."""

Numbers = npt.NDArray[np.int64]


def faiss() -> Any:
    """The FAISS package; raises UnavailableError if it is not installed."""
    try:
        import faiss as package
    except ImportError:
        raise UnavailableError("an index needs faiss: not installed", "pip install 'ccr-cli[index]'") from None
    return package


class Index:
    """An index in memory: entries with their vectors."""

    def __init__(self, index: Any, kind: str) -> None:
        self._index, self.kind = index, kind

    @classmethod
    def build(cls, rows_VD: Tensor, kind: str) -> "Index":
        """Builds an index of vectors whose dot products are the similarities.

        `ivf` groups them in cells around 4 sqrt(V) centres (fewer if a cell would have under 39 entries, as FAISS
        advises), computed by k-means with a fixed seed. `hnsw` is a graph of neighbours: on 60,000 vectors it took 18
        times as long to build for the same recall, but its queries scale better to large galleries.
        """
        package, data_VD = faiss(), rows_VD.cpu().contiguous().numpy()
        count, dim = data_VD.shape
        if kind == "hnsw":
            index = package.IndexHNSWFlat(dim, NEIGHBOURS, package.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = BUILD_EFFORT
        else:
            cells = max(1, min(round(4 * count**0.5), count // 39))
            index = package.IndexIVFFlat(package.IndexFlatIP(dim), dim, cells, package.METRIC_INNER_PRODUCT)
            index.cp.spherical = True
            index.train(data_VD)
        index.add(data_VD)
        return cls(index, kind)

    @classmethod
    def read(cls, path: Path, kind: str, effort: int, shape: tuple[int, int]) -> "Index":
        """Reads an index and sets the effort of a query; ArtifactError unless it is one of this kind and shape (V, D).

        Another process reads it first, because a malformed one can crash FAISS.
        """
        package = faiss()
        try_reading(path, try_index)
        try:
            read = package.read_index(str(path))
        except RuntimeError as error:
            raise ArtifactError(f"this version of faiss cannot read the index {path}: {str(error)[:200]}") from None
        expected = {"hnsw": package.IndexHNSWFlat, "ivf": package.IndexIVFFlat}.get(kind)
        if expected is None:
            raise ArtifactError(f"{path} has the unknown type {kind!r}")
        if not isinstance(read, expected) or (read.ntotal, read.d) != shape or effort < 1:
            found = f"{type(read).__name__} of {read.ntotal} x {read.d}"
            raise ArtifactError(f"{path} holds {found}, expected {expected.__name__} of {shape[0]} x {shape[1]}")
        index = cls(read, kind)
        if kind == "ivf":
            index._index.make_direct_map()
        index.effort = effort
        return index

    def write(self, path: Path) -> None:
        """Writes the index; OSError if there is no room."""
        problems: list[OSError] = []
        with atomic_open(path) as handle:

            def write(part: bytes) -> None:
                try:
                    handle.write(part)
                except OSError as error:  # FAISS would hide which error it was
                    problems.append(error)
                    raise

            try:
                faiss().write_index(self._index, faiss().PyCallbackIOWriter(write))
            except Exception:
                if problems:
                    raise problems[0] from None
                raise

    @property
    def effort(self) -> int:
        """Effort of a query: a greater one finds more and takes longer."""
        return int(self._index.hnsw.efSearch if self.kind == "hnsw" else self._index.nprobe)

    @effort.setter
    def effort(self, value: int) -> None:
        if self.kind == "hnsw":
            self._index.hnsw.efSearch = value
        else:
            self._index.nprobe = value

    def efforts(self) -> list[int]:
        """Efforts worth trying, the least first: candidates to follow in a graph, or cells to look into."""
        if self.kind == "hnsw":
            return [2**n for n in range(4, 13)]
        cells = int(self._index.nlist)
        return [*(2**n for n in range((cells - 1).bit_length())), cells]

    def nearest(self, query_QD: Tensor, k: int) -> Numbers:
        """The numbers of the nearest entries of each query (Q, K), the most similar first; -1 fills up."""
        at_QK: Numbers = self._index.search(query_QD.cpu().contiguous().numpy(), k)[1]
        return at_QK

    def vectors(self, at_K: Numbers) -> Tensor:
        """The vectors of entries (K, D)."""
        return torch.from_numpy(self._index.reconstruct_batch(at_K))


def exact(query_QD: Tensor, rows_VD: Tensor, k: int) -> Tensor:
    """The k highest similarities of each query (Q, K)."""
    return torch.cat([(part_QD @ rows_VD.T).topk(k, dim=1).values for part_QD in torch.split(query_QD, 64)])


def recall(index: Index, query_QD: Tensor, rows_VD: Tensor, best_QK: Tensor) -> float:
    """The fraction of the K most similar entries (`best_QK`, from `exact`) that an index finds; ties all count."""
    at_QK = torch.from_numpy(index.nearest(query_QD, best_QK.shape[1])).to(rows_VD.device)
    sim_QK = torch.einsum("qd,qkd->qk", query_QD, rows_VD[at_QK.clamp(min=0)])
    hit_QK = (at_QK >= 0) & (sim_QK >= best_QK[:, -1:] - ROUNDING)
    return float(hit_QK.double().mean())
