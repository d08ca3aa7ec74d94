"""Approximate search with FAISS (`factory` has the kinds), and its recall against exact search.

Shape suffixes: Q queries, V entries that are searched, K results, D embedding.
"""

import math
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli.artifacts import index as artifact
from ccr_cli.artifacts.base import Artifact, atomic_open
from ccr_cli.data.seeds import derive
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError, nearest
from ccr_cli.trial import try_reading

BUILD_EFFORT = 200
"""Candidates while a graph is built (efConstruction)."""
ROUNDING = 1e-5
"""Similarities that differ by less are a tie: either entry counts as correct."""
LEAST, MOST, SAMPLE = 39, 50, 1 << 17
"""Training vectors: at least `LEAST` per centre, as FAISS advises; at most `SAMPLE`, or `MOST` per centre if more."""
BATCH = 1 << 16
"""Vectors that are added at once."""
DEPTHS = (1, 4, 16, 64)
"""Candidates per result that are compared exactly, if the index holds rounded vectors."""
KINDS = ("ivf", "hnsw", "Flat", "SQ8", "SQfp16", "IVF16,Flat", "IVF16,SQ8", "HNSW32,Flat", "IVF16,PQ32x4fs", "PQ32x4fs")
"""Factory strings; the nearest of these is suggested for an unknown one."""
EXACT = ("IndexFlat", "IndexHNSWFlat", "IndexIVFFlat")
"""Index types that store vectors without loss."""

Numbers = npt.NDArray[np.int64]


def faiss() -> Any:
    """The FAISS package; raises UnavailableError if it is not installed."""
    try:
        import faiss as package
    except ImportError:
        raise UnavailableError("an index needs faiss: not installed", "pip install 'ccr-cli[index]'") from None
    return package


def cells(count: int) -> int:
    """Cells for `count` entries: about 4 sqrt(V), fewer if a cell would have under 39 entries (FAISS's advice)."""
    return max(1, min(round(4 * math.sqrt(count)), count // LEAST))


def factory(kind: str, count: int) -> str:
    """Returns the FAISS factory string of `ivf` or `hnsw`, and any other string unchanged."""
    return {"ivf": f"IVF{cells(count)},Flat", "hnsw": "HNSW32,Flat"}.get(kind, kind)


def untrained(kind: str, count: int, dim: int) -> Any:
    """Creates an empty index, with fixed seeds, for vectors whose dot products are the similarities.

    Raises:
        UsageError: If FAISS does not know the string, it does not fit the dimension, ccr does not read its type, or it
            needs more entries to train on.
    """
    package = faiss()
    try:
        index = package.index_factory(dim, factory(kind, count), package.METRIC_INNER_PRODUCT)
    except (RuntimeError, TypeError) as error:
        reason = re.sub(r"^.* at \S+:\d+: |Error: '.*' failed:? ?", "", str(error), flags=re.DOTALL).strip()
        more = "" if kind in reason else f": {reason[:200]}"
        near = [*nearest(kind, KINDS, 1), "IVF16,SQ8"][0]
        raise UsageError(f"FAISS makes no index {kind!r} of {dim} dimensions{more}", f"--factory {near}") from None
    least = 0
    for part in artifact.parts(index):
        if (name := type(part).__name__) not in artifact.TYPES:
            raise UsageError(f"--factory {kind}: ccr does not read indexes of the type {name}", "--factory IVF16,SQ8")
        if coder := getattr(part, "pq", None):
            least = max(least, LEAST * coder.ksub)
            if hasattr(part, "do_polysemous_training"):  # slow, and only for search by Hamming distance
                part.do_polysemous_training = False
        if transforms := getattr(part, "chain", None):
            steps = [package.downcast_VectorTransform(transforms.at(at)) for at in range(transforms.size())]
            if not all(hasattr(step, "A") for step in steps):
                raise UsageError(f"--factory {kind}: of transforms ccr reads OPQ, PCA and RR", "--factory IVF16,SQ8")
            if any(isinstance(step, package.OPQMatrix) for step in steps):
                least = max(least, LEAST * 256)
        if hasattr(part, "hnsw"):
            part.hnsw.efConstruction = BUILD_EFFORT
        if hasattr(part, "nlist"):
            part.cp.spherical = True
            part.cp.min_points_per_centroid = 1 if part.nlist == 1 else LEAST
            least = max(least, LEAST * part.nlist if part.nlist > 1 else 0)
    if count < least:
        problem = f"an index {kind!r} needs at least {least:,} entries to train on; there are {count:,}"
        raise UsageError(problem, hint="--factory ivf, which has fewer cells" if "IVF" in kind else "--factory SQ8")
    return index


def estimated_bytes(index: Any, count: int) -> int:
    """Estimates the bytes that `count` entries will take in an empty index; exact vectors beside it stay on disk."""
    own = faiss().downcast_index(index)
    code = int(getattr(own, "code_size", 0))
    books = 4 * int(own.d * own.pq.ksub) if hasattr(own, "pq") else 0
    if transformed := getattr(own, "index", None):
        return 4 * int(own.d * transformed.d) + estimated_bytes(transformed, count)
    if hasattr(own, "refine_index"):
        return estimated_bytes(own.base_index, count) + estimated_bytes(own.refine_index, count)
    if hasattr(own, "nlist"):
        padded = count + int(getattr(own, "bbs", 0) // 2 * own.nlist)  # blocks of codes
        return books + padded * code + count * 8 + estimated_bytes(own.quantizer, own.nlist)
    if hasattr(own, "hnsw"):
        neighbours = int(own.hnsw.nb_neighbors(0)) + 1  # one for the higher levels, which few entries have
        return estimated_bytes(own.storage, count) + count * (4 * neighbours + 12)
    return books + count * code


def fitting(budget: int, count: int, dim: int) -> tuple[str, int]:
    """Returns the kind of the most exact index of cells that fits into a budget of bytes, and its estimated bytes.

    It holds the vectors in full if they fit, else in float16, else with a byte per dimension, else product-quantised
    with 2 to 32 dimensions per byte (4-bit codes, which train on few vectors). UsageError if none fits.
    """
    codes = ["Flat", "SQfp16", "SQ8", *(f"PQ{dim // size}x4fs" for size in (1, 2, 4, 8, 16) if dim % size == 0)]
    least = 0
    for code in codes[: None if count >= LEAST * 16 else 3]:  # product quantisers train 16 centres
        kind = f"IVF{cells(count)},{code}"
        least = estimated_bytes(untrained(kind, count, dim), count)
        if least <= budget:
            return kind, least
    problem = f"no index of {count:,} x {dim} numbers fits into --memory {budget:,} bytes"
    raise UsageError(problem, f"--memory {least / 1e6 + 1:.0f}MB")


class Index:
    """An index: entries with their vectors.

    If the index holds rounded vectors, `rows_VD` are the exact ones, and it finds `depth` candidates per result, to be
    compared exactly.
    """

    def __init__(self, index: Any) -> None:
        self._index, self.depth = index, 1
        self._rows_VD: Tensor | None = None
        names = {"nlist": "nprobe", "hnsw": "efSearch"}
        own = next((part for part in artifact.parts(index) if any(hasattr(part, name) for name in names)), None)
        self._knob = next((knob for name, knob in names.items() if hasattr(own, name)), None)
        self._tuned: Any = getattr(own, "hnsw", own)
        self.exact = type(next(artifact.parts(index))).__name__.removesuffix("IP") in EXACT

    @classmethod
    def build(cls, rows_VD: Tensor, kind: str) -> "Index":
        """Builds an index of vectors whose dot products are the similarities; UsageError as for `untrained`.

        It is trained on all of them, or on a sample with a fixed seed (131,072, or 50 per cell if more). They are added
        in batches, so that vectors mapped from a file stay on disk. Besides the vectors, only the number of threads
        affects its bytes, except for graphs, which differ each time that several threads build them.
        """
        data_VD = rows_VD.cpu().contiguous().numpy()
        index = untrained(kind, *data_VD.shape)
        if not index.is_trained:
            largest = max((part.nlist for part in artifact.parts(index) if hasattr(part, "nlist")), default=0)
            most = max(SAMPLE, MOST * largest)
            draws = np.random.default_rng(derive(0, "training of an index"))
            some = np.sort(draws.permutation(len(data_VD))[:most]) if most < len(data_VD) else slice(None)
            index.train(data_VD[some])
        for first in range(0, len(data_VD), BATCH):
            index.add(data_VD[first : first + BATCH])
        made = cls(index)
        made._rows_VD = None if made.exact else rows_VD
        return made

    @classmethod
    def read(cls, path: Path, kind: str, effort: int, shape: tuple[int, int], vectors: Path | None = None) -> "Index":
        """Reads an index and sets the effort of a query; ArtifactError unless it is one of this kind and shape (V, D).

        Another process tries to read it first, because a malformed index can crash FAISS.
        """
        package = faiss()
        try_reading(path, artifact.try_index)
        try:
            read = artifact.read_faiss(path)
        except RuntimeError as error:
            raise ArtifactError(f"this version of faiss cannot read the index {path}: {str(error)[:200]}") from None
        try:
            wanted = package.index_factory(shape[1], factory(kind, shape[0]), package.METRIC_INNER_PRODUCT)
        except (RuntimeError, TypeError):
            raise ArtifactError(f"{path} has the unknown type {kind!r}") from None
        expected, found = (" of ".join(dict.fromkeys(_names(index))) for index in (wanted, read))
        if expected != found or (read.ntotal, read.d) != shape or read.metric_type != package.METRIC_INNER_PRODUCT:
            given = f"{found} of {read.ntotal} x {read.d}"
            raise ArtifactError(f"{path} holds {given}, expected {expected} of {shape[0]} x {shape[1]}")
        index = cls(read)
        if not index.exact:
            index._rows_VD = _mapped(path, vectors, shape)
        elif isinstance(read, package.IndexIVF):
            read.make_direct_map()
        if effort < 1:
            raise ArtifactError(f"{path} has the effort {effort}, not above 0")
        index.effort = effort
        return index

    @classmethod
    def open(cls, made: Artifact, count: int) -> "Index":
        """Opens the index of an artifact with `count` entries; ArtifactError as for `read`."""
        facts = artifact.about(made)
        vectors = made.file("vectors.npy") if any(file.path == "vectors.npy" for file in made.files) else None
        shape = (count, made.counts["dim"])
        index = cls.read(made.file("index.faiss"), facts["type"], facts["effort"], shape, vectors)
        index.depth = max(1, facts.get("depth", 1))
        return index

    def write(self, folder: Path) -> None:
        """Writes the files of the index; OSError if there is no room."""
        problems: list[OSError] = []
        with atomic_open(folder / "index.faiss") as handle:

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
        if self._rows_VD is not None:
            with atomic_open(folder / "vectors.npy") as handle:
                np.save(handle, self._rows_VD.cpu().numpy(), allow_pickle=False)

    @property
    def effort(self) -> int:
        """Effort of a query: more effort finds more and takes longer."""
        return int(getattr(self._tuned, self._knob)) if self._knob else 1

    @effort.setter
    def effort(self, value: int) -> None:
        if self._knob:
            setattr(self._tuned, self._knob, value)

    def efforts(self) -> list[int]:
        """Returns efforts worth trying, the least first: candidates to follow in a graph, or cells to search."""
        if self._knob == "efSearch":
            return [2**n for n in range(4, 13)]
        count = int(self._tuned.nlist) if self._knob else 1
        return [*(2**n for n in range((count - 1).bit_length())), count]

    def tune(self, query_QD: Tensor, rows_VD: Tensor, best_QK: Tensor, least: float) -> float:
        """Sets the least effort, and depth at it, that reach a recall, or else the greatest; returns the recall."""
        reached = 0.0
        for effort, depth in product(self.efforts(), (1,) if self.exact else DEPTHS):
            self.effort, self.depth = effort, depth
            reached = recall(self, query_QD, rows_VD, best_QK)
            if reached >= least:
                break
        return reached

    def nearest(self, query_QD: Tensor, k: int) -> Numbers:
        """Returns the numbers of the entries nearest to each query (Q, K), most similar first, padded with -1.

        K is `depth` times `k`, but at most the number of entries. Queries that find fewer than `k` get more effort.
        """
        query, total = query_QD.cpu().contiguous().numpy(), self._index.ntotal
        most, usual = min(k * self.depth, total), self.effort
        at_QK: Numbers = self._index.search(query, most)[1]
        try:
            for effort in self.efforts():
                few_Q = (at_QK >= 0).sum(axis=1) < min(k, total)
                if effort <= usual or not few_Q.any():
                    continue
                self.effort = effort
                at_QK[few_Q] = self._index.search(query[few_Q], most)[1]
        finally:
            self.effort = usual
        return at_QK

    def vectors(self, at_K: Numbers) -> Tensor:
        """The exact vectors of entries (K, D)."""
        rows_VD = self._rows_VD
        return torch.from_numpy(self._index.reconstruct_batch(at_K)) if rows_VD is None else rows_VD[at_K].cpu()


def _names(index: Any) -> Iterator[str]:
    """Yields what distinguishes indexes of different factory strings: the class and the code size of each part."""
    for part in artifact.parts(index):
        name = type(part).__name__.replace("IndexFlatIP", "IndexFlat")
        yield f"{name} ({part.code_size} bytes)" if hasattr(part, "code_size") else name


def _mapped(path: Path, vectors: Path | None, shape: tuple[int, int]) -> Tensor:
    """Maps the exact vectors of an index from their file."""
    try:
        if vectors is None:
            raise ValueError("is missing")
        rows_VD = np.load(vectors, mmap_mode="c", allow_pickle=False)
        if rows_VD.shape != shape or rows_VD.dtype != np.float32 or not rows_VD.flags.c_contiguous:
            raise ValueError(f"holds {rows_VD.dtype} of {rows_VD.shape}, expected float32 of {shape}")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"vectors.npy of {path.parent}: {str(error)[:200]}") from None
    return torch.from_numpy(rows_VD)


def exact(query_QD: Tensor, rows_VD: Tensor, k: int) -> Tensor:
    """The k highest similarities of each query (Q, K)."""
    parts = torch.split(query_QD, max(1, (1 << 25) // max(1, len(rows_VD))))
    return torch.cat([(part_QD @ rows_VD.T).topk(k, dim=1).values for part_QD in parts])


def recall(index: Index, query_QD: Tensor, rows_VD: Tensor, best_QK: Tensor) -> float:
    """The fraction of the K most similar entries (`best_QK`, from `exact`) that an index finds; ties all count."""
    found, k = 0, best_QK.shape[1]
    for part_qD, best_qK in zip(torch.split(query_QD, 64), torch.split(best_QK, 64), strict=True):
        at_qK = torch.from_numpy(index.nearest(part_qD, k)).to(rows_VD.device)
        sim_qK = torch.einsum("qd,qkd->qk", part_qD, rows_VD[at_qK.clamp(min=0)])
        hit_qK = (at_qK >= 0) & (sim_qK >= best_qK[:, -1:] - ROUNDING)
        found += int(hit_qK.sum(dim=1).clamp(max=k).sum())
    return found / best_QK.numel()
