"""Where the right answers stand: ranks and average precision by counting, block by block, with one tie rule.

Nothing is sorted but a query's own positives, and the matrix is never built: for each positive the entries
with a greater and with an equal similarity are counted while blocks stream by.

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
return bit-equal numbers for equal gallery entries breaks their tie by rounding: that is its doing.

Shape legend: Q queries, G gallery entries, P positives of all queries, M most positives of a query in a
block; lower case: a block.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccr_cli.metrics.counting import EXACT, count
from ccr_cli.metrics.positives import IntArray, Positives
from ccr_cli.metrics.sims import SimBlock, blocks

FloatArray = NDArray[np.float64]

TIES = {"mid": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
"""The tie rules: the share of tied competitors that stand above a positive."""
TENTHS = 10
"""A curve of precision against recall has the recalls 0, 1/10, ... 1."""


@dataclass(frozen=True)
class Ranks:
    """What one direction of retrieval came to, an entry a query; nan for queries without a positive."""

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
    """Rank every query's positives in the whole gallery, on the device where `sim` answers.

    Blocks that hold a positive are computed first, for its similarity, and all others once. What fits into `keep`
    numbers is kept from the first pass to the second, the rest computed again, so memory is O(block^2 + keep + P).

    Args:
        sim: Called with a slice of queries and one of gallery entries; returns their (q, g) similarities in
            float32 or float64. It is not written to.
        n_queries: Q.
        n_gallery: G.
        positives: The right answers; a query may have none (nan) or several.
        block: Most queries and most gallery entries per block.
        keep: Most similarities kept between the passes.
        curve: The tie rule of `Ranks.precision`; empty leaves it out.

    Raises:
        ValueError: If a similarity is NaN, half precision or of the wrong shape, or positives do not fit.
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
    """Both directions of one similarity (V, T), each block computed once for both; otherwise as `rank_queries`.

    Returns:
        The ranks with texts as queries (t2v), then those with visual items as queries (v2t).
    """
    texts = _Side(visual_of_text, n_texts, n_visual, block)
    visual = _Side(visual_of_text.reversed(n_visual), n_visual, n_texts, block)
    _sweep(sim_VT, n_visual, n_texts, visual, texts, block, keep)
    return texts.ranks(curve), visual.ranks(curve)


def _sweep(
    sim: SimBlock, n_rows: int, n_columns: int, rows: _Side, columns: _Side | None, block: int, keep: int
) -> None:
    """Shows every block of the matrix to its rows as queries, and to its columns where these ask too.

    A block that is computed twice is computed from the same slices, and so rounded in the same way.
    """
    kept: dict[tuple[int, int], Tensor] = {}
    sides = [side for side in (rows, columns) if side]
    strips = [strip for side in sides for strip in side.strips]
    ready = False
    for seek in (True, False):
        if not seek:
            for each in strips:
                each.settle()
        grid = itertools.product(enumerate(blocks(n_rows, block)), enumerate(blocks(n_columns, block)))
        for (i, row), (j, column) in grid:
            own = rows.strips[i], columns.strips[j] if columns else None
            if seek and not own[0].inside(column).any():  # of the same pairs in both directions
                continue
            if not any(strip and strip.shape[1] for strip in own):
                continue
            sim_rc = kept.pop((i, j)) if (i, j) in kept else _checked(sim(row, column), row, column)
            if not ready:  # what stays is made at once: between blocks that come and go it would tear the heap
                for each in strips:
                    each.prepare(sim_rc)
                ready = True
            if seek and sim_rc.numel() <= keep:
                kept[i, j] = sim_rc
                keep -= sim_rc.numel()
            for strip, seen_qg, gallery in ((own[0], sim_rc, column), (own[1], sim_rc.T, row)):
                if strip and strip.shape[1]:
                    (strip.seek if seek else strip.count)(seen_qg, gallery)


class _Strip:
    """The queries of one slice: the similarities of their positives, and the competitors above and level with each."""

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
        """Makes room for what will be found, on the device of the similarities."""
        self.score_qM = self._empty(like)
        self.greater_qM = torch.zeros(self.shape, dtype=torch.float64, device=like.device)
        self.equal_qM = torch.zeros_like(self.greater_qM)

    def settle(self) -> None:
        """Sorts the similarities of the positives, once all are there."""
        if self.score_qM is not None:  # ascending, nan (no such positive) last
            self.score_qM, self.order_qM = self.score_qM.sort(dim=1)

    def seek(self, sim_qg: Tensor, gallery: slice) -> None:
        """Takes the similarities of the positives in a block."""
        assert self.score_qM is not None
        self._place(self.score_qM, sim_qg, gallery, self.inside(gallery))

    def count(self, sim_qg: Tensor, gallery: slice) -> None:
        """Counts a block, less the positives in it."""
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
        greater_P, ties_P = (np.concatenate(each) for each in zip(*counts, strict=True))
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
        needed_Q = np.maximum(1, -(-tenth * m_Q // TENTHS))  # of m positives so many are a recall of that: exact
        ends = np.stack([start_Q + needed_Q - 1, start_Q + m_Q], axis=1)[valid_Q].ravel()
        if len(ends):
            out_QR[valid_Q, tenth] = np.maximum.reduceat(padded, ends)[::2]
    return out_QR
