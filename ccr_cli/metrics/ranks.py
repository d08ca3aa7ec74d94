"""Ranks and average precision of the right answers, by counting block by block, with one tie rule.

Nothing is sorted but a query's own positives, and the matrix is never built: for each positive the entries
with a greater and with an equal similarity are counted while blocks stream by. A `SimBlock` is called with two
slices, of queries and of gallery entries, and returns that part of the similarity matrix, higher meaning more alike.

The tie rule. The *competitors* of a query are the gallery entries that are not its positives. For a positive
with similarity s let greater = #competitors above s and ties = #competitors equal to s. Then

    optimistic = 1 + greater      middle = 1 + greater + ties / 2      pessimistic = 1 + greater + ties

is the rank of the best positive. Another positive never competes with it, tied or not: which of two right
answers comes first does not matter. With several tied positives the middle rank is the middle of the range of
possible ranks, not the expectation under a random order (which is a little better).

Average precision takes the same view: half of the tied competitors stand above the positive. For the
positives in descending order, k = 1..m (tied ones in any order, the sum is the same),

    AP = 1/m * sum_k  k / (k + greater_k + ties_k / 2)

which without ties is the usual AP over all positives; 0 * ties and 1 * ties give its two bounds. The interpolated
precision at recall r is the greatest of the precisions in this sum with k/m >= r.

Similarities in half precision tie by rounding, so they are refused. A similarity function that does not
return bit-equal numbers for equal gallery entries breaks their tie by rounding, which is not corrected here.

Shape legend: Q queries, G gallery entries, V visual items, T texts, D embedding, P positives of all queries, M most
positives of a query in a block; lower case: a block.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
SimBlock = Callable[[slice, slice], Tensor]

KS = (1, 5, 10)
"""The K of R@K; SumR is the sum of all of them in both directions, so another K changes it."""
TIES = {"mid": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
"""The tie rules: the share of tied competitors that stand above a positive."""
TENTHS = 10
"""A curve of precision against recall has the recalls 0, 1/10, ... 1."""
EXACT = 2**24
"""maximum length of a row: flags are summed in float32 (fastest by far), which is exact up to here"""
COUNT_EACH = 16
"""up to this many scores per row, each is compared with all values; beyond, the values are binned"""


def matrix_sim(sim_QG: Tensor) -> SimBlock:
    """Blocks of a matrix (Q, G) that already exists."""
    return lambda queries, gallery: sim_QG[queries, gallery]


def dot_sim(query_QD: Tensor, gallery_GD: Tensor) -> SimBlock:
    """Blocks of the dot product of two sets of embeddings (the cosine if their rows have unit length)."""
    return lambda queries, gallery: query_QD[queries] @ gallery_GD[gallery].T


def columns(sim: SimBlock, at_G: IntArray) -> SimBlock:
    """The similarities to a subset of the gallery entries, at ascending positions (G,)."""

    def part(queries: slice, gallery: slice) -> Tensor:
        at_g = at_G[gallery]
        sim_qg = sim(queries, slice(int(at_g[0]), int(at_g[-1]) + 1))
        return sim_qg[:, torch.from_numpy(at_g - at_g[0]).to(sim_qg.device)]

    return part


def blocks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover 0..n."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def minmax(sim: SimBlock, n_queries: int, n_gallery: int, *, block: int = 1024) -> SimBlock:
    """Similarities scaled to [0, 1] by the extrema of the *whole* matrix (NRCCR's code, not its eq. (13)).

    A constant matrix becomes all zeros. This does not change the ranks of one matrix (except by rounding), but it
    does change those of a sum of two. Raises ValueError for an empty matrix or an entry that is not finite.
    """
    grid = itertools.product(blocks(n_queries, block), blocks(n_gallery, block))
    ends = [value.item() for part in grid for value in torch.aminmax(sim(*part))]
    if not ends or not np.isfinite(ends).all():
        problem = f"cannot normalise {n_queries} x {n_gallery} similarities: there are none, or one is not finite"
        raise ValueError(problem)
    low, high = min(ends), max(ends)
    scale = 1.0 / (high - low) if high > low else 0.0
    return lambda queries, gallery: (sim(queries, gallery) - low) * scale


def fused(target: SimBlock, translated: SimBlock, beta: float) -> SimBlock:
    """Fuses similarities, NRCCR eq. (13): beta * target + (1 - beta) * translated; beta = 1 is `target` bit for bit."""
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta is {beta}, not in [0, 1]")
    if beta == 1.0:
        return target
    if beta == 0.0:
        return translated
    return lambda queries, gallery: beta * target(queries, gallery) + (1.0 - beta) * translated(queries, gallery)


@dataclass(frozen=True)
class Positives:
    """The right answers of every query: those of query i are `index[offsets[i]:offsets[i + 1]]`, without duplicates."""

    index: IntArray
    """(P,) positions in the gallery, ascending within a query"""
    offsets: IntArray
    """(Q + 1,) where each query's answers begin; the last is P"""

    def __post_init__(self) -> None:
        index, offsets = np.asarray(self.index, dtype=np.int64), np.asarray(self.offsets, dtype=np.int64)
        if index.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError("positives need a flat index and a flat list of offsets, one more than queries")
        if offsets[0] != 0 or offsets[-1] != len(index) or (np.diff(offsets) < 0).any():
            raise ValueError(f"the offsets of positives must rise from 0 to their number, {len(index)}")
        object.__setattr__(self, "offsets", offsets)
        index = index[np.lexsort((index, self.row))]
        twice = (np.diff(index) == 0) & (np.diff(self.row) == 0)
        if twice.any():
            raise ValueError(f"query {self.row[twice.argmax()]} names the same positive twice")
        object.__setattr__(self, "index", index)

    @property
    def counts(self) -> IntArray:
        """(Q,) number of positives of each query."""
        return np.diff(self.offsets)

    @property
    def row(self) -> IntArray:
        """(P,) the query of each positive."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    @classmethod
    def of_pairs(cls, row: IntArray, index: IntArray, n_queries: int) -> "Positives":
        """From the query and the gallery position of each positive (P,), the queries ascending."""
        return cls(index, np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_queries))]))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> "Positives":
        """From one list of gallery positions per query.

        >>> Positives.from_lists([[0], [2, 1], []]).offsets.tolist()
        [0, 1, 3, 3]
        """
        flat = [position for positions in lists for position in positions]
        return cls(np.array(flat, dtype=np.int64), np.cumsum([0, *map(len, lists)]))

    @classmethod
    def from_ids(cls, query_ids: Sequence[object], gallery_ids: Sequence[object]) -> "Positives":
        """A gallery entry answers a query if their ids are equal (the item's id; or a class label).

        >>> Positives.from_ids(["a", "b"], ["b", "a", "b"]).index.tolist()
        [1, 0, 2]
        """
        where: dict[object, list[int]] = {}
        for position, key in enumerate(gallery_ids):
            where.setdefault(key, []).append(position)
        return cls.from_lists([where.get(key, []) for key in query_ids])

    def where(self, kept: NDArray[np.bool_]) -> "Positives":
        """Keeps some of the positives, by a mask (P,), for the same queries."""
        return Positives.of_pairs(self.row[kept], self.index[kept], len(self))

    def reversed(self, n_gallery: int) -> "Positives":
        """The same pairs in the other direction: for each of the `n_gallery` entries, the queries it answers."""
        self.check(n_gallery)
        order = np.argsort(self.index, kind="stable")
        return Positives.of_pairs(self.index[order], self.row[order], n_gallery)

    def check(self, n_gallery: int) -> None:
        """Raises ValueError unless every positive lies in a gallery of this size."""
        if len(self.index) and (self.index.min() < 0 or self.index.max() >= n_gallery):
            raise ValueError(f"a positive lies outside the gallery of {n_gallery} entries")


@dataclass(frozen=True)
class Ranks:
    """Results of one direction of retrieval, one entry per query; nan for queries without a positive."""

    greater: FloatArray
    """(Q,) number of competitors above the best positive"""
    ties: FloatArray
    """(Q,) number of competitors tied with it"""
    average_precision: Mapping[str, FloatArray]
    """(Q,) AP in [0, 1] by tie rule"""
    precision: FloatArray
    """(Q, 11) interpolated precision in [0, 1] at the recalls 0, 0.1, ... 1; (Q, 0) without a `curve`"""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(Q,) which queries have a positive and therefore count."""
        return ~np.isnan(self.greater)

    def rank(self, tie: str = "mid") -> FloatArray:
        """(Q,) the rank of the best positive, from 1, under a tie rule."""
        return 1.0 + self.greater + _share_above(tie) * self.ties

    def ap(self, tie: str = "mid") -> FloatArray:
        """(Q,) the average precision under a tie rule."""
        _share_above(tie)
        return self.average_precision[tie]


def _share_above(tie: str) -> float:
    if tie not in TIES:
        raise ValueError(f"unknown tie rule {tie!r}; known are {', '.join(TIES)}")
    return TIES[tie]


def rank_queries(
    sim: SimBlock,
    n_queries: int,
    n_gallery: int,
    positives: Positives,
    *,
    block: int = 1024,
    keep: int = 2**26,
    curve: str = "",
) -> Ranks:
    """Ranks every query's positives (none, one or several) in the whole gallery, on the device of `sim`'s result.

    A first pass computes those blocks (of at most `block` queries and entries) that hold a positive, for its
    similarity; a second pass counts in all blocks. Up to `keep` numbers are kept from the first pass and the rest is
    computed again, so memory is O(block^2 + keep + P). `sim` returns float32 or float64 and is not written to. `curve`
    is the tie rule of `Ranks.precision`; empty leaves it out.

    Raises:
        ValueError: If similarities are NaN, half precision or of the wrong shape, or the positives do not fit.
    """
    rows = _Side(positives, n_queries, n_gallery, block)
    _sweep(sim, n_queries, n_gallery, rows, None, block, keep)
    return rows.ranks(curve)


def rank_both(
    sim_VT: SimBlock,
    n_visual: int,
    n_texts: int,
    visual_of_text: Positives,
    *,
    block: int = 1024,
    keep: int = 2**26,
    curve: str = "",
) -> tuple[Ranks, Ranks]:
    """Ranks both directions of one similarity (V, T), sharing each block; otherwise as `rank_queries`.

    Returns the ranks with texts as queries (t2v), then those with visual items as queries (v2t).
    """
    texts = _Side(visual_of_text, n_texts, n_visual, block)
    visual = _Side(visual_of_text.reversed(n_visual), n_visual, n_texts, block)
    _sweep(sim_VT, n_visual, n_texts, visual, texts, block, keep)
    return texts.ranks(curve), visual.ranks(curve)


def _sweep(
    sim: SimBlock, n_rows: int, n_columns: int, rows: "_Side", columns: "_Side | None", block: int, keep: int
) -> None:
    """Passes every block of the matrix to its rows as queries, and to its columns if these are queries too.

    A block that is computed twice is computed from the same slices, and so rounded in the same way.
    """
    kept: dict[tuple[int, int], Tensor] = {}
    sides = [side for side in (rows, columns) if side]
    strips = [strip for side in sides for strip in side.strips]
    ready = False
    for seek in (True, False):
        if not seek:
            for counted in strips:
                counted.settle()
        grid = itertools.product(enumerate(blocks(n_rows, block)), enumerate(blocks(n_columns, block)))
        for (i, row), (j, column) in grid:
            own = rows.strips[i], columns.strips[j] if columns else None
            if seek and not own[0].inside(column).any():  # both directions have the same pairs
                continue
            if not any(strip and strip.shape[1] for strip in own):
                continue
            sim_rc = kept.pop((i, j)) if (i, j) in kept else _checked(sim(row, column), row, column)
            if not ready:  # allocated at once: among short-lived blocks, what stays would fragment the heap
                for counted in strips:
                    counted.prepare(sim_rc)
                ready = True
            if seek and sim_rc.numel() <= keep:
                kept[i, j] = sim_rc
                keep -= sim_rc.numel()
            for strip, seen_qg, gallery in ((own[0], sim_rc, column), (own[1], sim_rc.T, row)):
                if strip and strip.shape[1]:
                    (strip.seek if seek else strip.count)(seen_qg, gallery)


class _Strip:
    """The queries of one slice: the similarities of their positives, and the competitors above and tied with each."""

    def __init__(self, counts: IntArray, index: IntArray) -> None:
        self.index = index
        self.row = np.repeat(np.arange(len(counts)), counts)
        self.column = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.shape = (len(counts), int(counts.max(initial=0)))
        self.bounds = (int(index.min()), int(index.max())) if len(index) else (0, -1)
        self.score_qM: Tensor | None = None
        self.order_qM: Tensor | None = None

    def inside(self, gallery: slice) -> NDArray[np.bool_]:
        """Which of the positives lie in a slice of the gallery."""
        low, high = self.bounds
        if high < gallery.start or low >= gallery.stop:
            return np.zeros(len(self.index), dtype=bool)
        found: NDArray[np.bool_] = (self.index >= gallery.start) & (self.index < gallery.stop)
        return found

    def prepare(self, like: Tensor) -> None:
        """Allocates room for the results, on the device of the similarities."""
        self.score_qM = self._empty(like)
        self.greater_qM = torch.zeros(self.shape, dtype=torch.float64, device=like.device)
        self.equal_qM = torch.zeros_like(self.greater_qM)

    def settle(self) -> None:
        """Sorts the similarities of the positives, once all are there."""
        if self.score_qM is not None:  # ascending, nan (no such positive) last
            self.score_qM, self.order_qM = self.score_qM.sort(dim=1)

    def seek(self, sim_qg: Tensor, gallery: slice) -> None:
        """Stores the similarities of the positives in a block."""
        assert self.score_qM is not None
        self._place(self.score_qM, sim_qg, gallery, self.inside(gallery))

    def count(self, sim_qg: Tensor, gallery: slice) -> None:
        """Counts the competitors in a block, that is all but positives."""
        assert self.score_qM is not None
        seen, inside = [(sim_qg, 1)], self.inside(gallery)
        if inside.any():
            own_qM = self._empty(sim_qg)
            self._place(own_qM, sim_qg, gallery, inside)
            seen.append((own_qM, -1))
        for values, sign in seen:
            above_qM, level_qM = count(values, self.score_qM)
            self.greater_qM.add_(above_qM, alpha=sign)
            self.equal_qM.add_(level_qM, alpha=sign)

    def counts(self) -> tuple[FloatArray, FloatArray]:
        """Greater and tied competitors of each positive, in the positives' order."""
        if self.order_qM is None:
            return np.zeros(len(self.index)), np.zeros(len(self.index))
        # back from ascending score to the order of the positives
        both = (torch.empty_like(x).scatter_(1, self.order_qM, x).cpu() for x in (self.greater_qM, self.equal_qM))
        greater, equal = (x.numpy()[self.row, self.column] for x in both)
        return greater, equal

    def _empty(self, like: Tensor) -> Tensor:
        return torch.full(self.shape, float("nan"), dtype=like.dtype, device=like.device)

    def _place(self, target_qM: Tensor, sim_qg: Tensor, gallery: slice, inside: NDArray[np.bool_]) -> None:
        """Copies the positives that lie in a block into their places."""
        places = (self.row[inside], self.index[inside] - gallery.start, self.column[inside])
        row_p, at_p, column_p = (torch.from_numpy(place).to(sim_qg.device) for place in places)
        target_qM[row_p, column_p] = sim_qg[row_p, at_p]


class _Side:
    """One direction: its queries, strip by strip."""

    def __init__(self, positives: Positives, n_queries: int, n_gallery: int, block: int) -> None:
        if len(positives) != n_queries:
            raise ValueError(f"{len(positives)} queries have positives, and there are {n_queries}")
        if not 1 <= block <= EXACT:
            raise ValueError(f"block is {block}, not in 1..{EXACT}")
        positives.check(n_gallery)
        self.positives = positives
        counts, ends = positives.counts, positives.offsets
        self.strips = [
            _Strip(counts[part], positives.index[ends[part.start] : ends[part.stop]])
            for part in blocks(len(counts), block)
        ]

    def ranks(self, curve: str) -> Ranks:
        """Ranks, average precision and precision at recalls from the two counts of every positive."""
        counts = [strip.counts() for strip in self.strips] or [(np.zeros(0), np.zeros(0))]
        greater_P, ties_P = (np.concatenate(parts) for parts in zip(*counts, strict=True))
        positives = self.positives
        m_Q, first_Q = positives.counts, positives.offsets[:-1]
        valid_Q = m_Q > 0
        row_P = positives.row
        # Descending similarity is ascending greater. With equal greater, fewer ties first: if a positive ties
        # with t competitors, every worse one sees these t as greater. So this is the order of similarities.
        order = np.lexsort((ties_P, greater_P, row_P))
        greater_P, ties_P = greater_P[order], ties_P[order]
        k_P = np.arange(len(row_P)) - np.repeat(first_Q, m_Q) + 1.0
        precision_P = {tie: k_P / (k_P + greater_P + share * ties_P) for tie, share in TIES.items()}
        greater_Q, ties_Q, *ap_Q = np.full((2 + len(TIES), len(m_Q)), np.nan)
        greater_Q[valid_Q], ties_Q[valid_Q] = greater_P[first_Q[valid_Q]], ties_P[first_Q[valid_Q]]
        for mean_Q, value_P in zip(ap_Q, precision_P.values(), strict=True):
            mean_Q[valid_Q] = np.bincount(row_P, weights=value_P, minlength=len(m_Q))[valid_Q] / m_Q[valid_Q]
        curves = _interpolated(precision_P[curve], positives) if curve else np.empty((len(m_Q), 0))
        return Ranks(greater_Q, ties_Q, dict(zip(TIES, ap_Q, strict=True)), curves)


def _checked(sim_qg: Tensor, queries: slice, gallery: slice) -> Tensor:
    expected = (queries.stop - queries.start, gallery.stop - gallery.start)
    if tuple(sim_qg.shape) != expected:
        raise ValueError(f"similarities of shape {tuple(sim_qg.shape)}, expected {expected}")
    if sim_qg.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"similarities in {sim_qg.dtype}: ranks need float32 or better, or they tie by rounding")
    sim_qg = sim_qg.detach()
    # A sum is NaN if an entry is, and also for inf - inf: look closer only then.
    if bool(sim_qg.sum().isnan()) and bool(sim_qg.isnan().any()):
        bad = int(queries.start + sim_qg.isnan().any(dim=1).nonzero()[0].item())
        raise ValueError(f"NaN among the similarities in row {bad}: they cannot be ranked")
    return sim_qg


def _interpolated(precision_P: FloatArray, positives: Positives) -> FloatArray:
    """(Q, 11) the greatest precision at a recall of at least 0, 0.1, ... 1, from that at every positive."""
    valid_Q, m_Q, start_Q = positives.counts > 0, positives.counts, positives.offsets[:-1]
    out_QR = np.full((len(m_Q), TENTHS + 1), np.nan)
    padded = np.append(precision_P, 0.0)  # `reduceat` wants the last end to be an entry
    for tenth in range(TENTHS + 1):
        needed_Q = np.maximum(1, -(-tenth * m_Q // TENTHS))  # fewest of m positives with this recall: exact
        ends = np.stack([start_Q + needed_Q - 1, start_Q + m_Q], axis=1)[valid_Q].ravel()
        if len(ends):
            out_QR[valid_Q, tenth] = np.maximum.reduceat(padded, ends)[::2]
    return out_QR


def count(values_qg: Tensor, score_qM: Tensor) -> tuple[Tensor, Tensor]:
    """Counts, for each score (ascending, nan last), the values of its row above it and equal to it.

    A nan among the values is counted nowhere; the counts of a nan score mean nothing.
    """
    if score_qM.shape[1] > COUNT_EACH:
        return _binned(values_qg, score_qM)
    above, level = [], []
    # of the same memory layout as the values: a transposed block costs twenty times as much otherwise
    flag_qg = torch.empty_like(values_qg, dtype=torch.float32)
    for j in range(score_qM.shape[1]):
        score_q1 = score_qM[:, j : j + 1]
        above.append(torch.gt(values_qg, score_q1, out=flag_qg).sum(dim=1))
        level.append(torch.eq(values_qg, score_q1, out=flag_qg).sum(dim=1))
    return torch.stack(above, dim=1).double(), torch.stack(level, dim=1).double()


def _binned(values_qg: Tensor, score_qM: Tensor) -> tuple[Tensor, Tensor]:
    """`count` for many scores: find each value's place among them, then add up the places from the right."""
    n_rows, n_scores = score_qM.shape
    score_qM = torch.where(score_qM.isnan(), float("inf"), score_qM).contiguous()
    values_qg = values_qg.contiguous()
    counts = []
    for right in (False, True):  # number of scores below the value; number of scores below or equal
        place_qg = torch.searchsorted(score_qM, values_qg, right=right)
        place_qg[values_qg.isnan()] = 0
        bins = torch.zeros(n_rows, n_scores + 1, dtype=torch.int64, device=values_qg.device)
        bins.scatter_add_(1, place_qg, torch.ones_like(place_qg))
        # A value exceeds score j (0-based) if more than j scores lie below it. Integers add up exactly.
        counts.append(bins.flip(1).cumsum(1).flip(1)[:, 1:])
    return counts[0].double(), (counts[1] - counts[0]).double()


def summarise(ranks: Ranks, *, tie: str = "mid") -> dict[str, float]:
    """The usual figures of one direction under a tie rule; queries without a positive are left out (`dropped`).

    A query counts as found at K if the rank of its best positive is at most K; under the middle rank a query whose
    answer ties with one competitor (rank 1.5) is not found at 1. So a model with all similarities equal has R@K = 0 for
    every K below half of the gallery, neither 100 nor a matter of memory order.

    Returns `R@K`, `mAP` and `MRR` in percent, `MedR` and `MeanR` (ranks from 1): nan without a query; and `queries`.
    """
    valid = ranks.valid
    rank_Q, ap_Q = ranks.rank(tie)[valid], ranks.ap(tie)[valid]

    def mean(value_Q: NDArray[np.float64] | NDArray[np.bool_]) -> float:
        return float(np.mean(value_Q)) if len(value_Q) else float("nan")

    out = {f"R@{k}": 100.0 * mean(rank_Q <= k) for k in KS}
    out["MedR"] = float(np.median(rank_Q)) if len(rank_Q) else float("nan")
    out |= {"MeanR": mean(rank_Q), "mAP": 100.0 * mean(ap_Q), "MRR": 100.0 * mean(1.0 / rank_Q)}
    return out | {"queries": len(rank_Q), "dropped": int((~valid).sum())}


def precision_recall(folds: Sequence[Ranks]) -> list[float]:
    """The precision of one direction at the recalls 0, 0.1, ... 1, in percent: mean over queries, then over folds."""
    means = [fold.precision[fold.valid].mean(axis=0) for fold in folds if fold.valid.any()]
    return [100.0 * float(value) for value in np.mean(means, axis=0)] if len(means) == len(folds) else []
