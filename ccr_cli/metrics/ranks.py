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

which without ties is the usual AP over all positives; 0 * ties and 1 * ties give its two bounds.

Similarities in half precision tie by rounding, so they are refused. A similarity function that does not
return bit-equal numbers for equal gallery entries breaks their tie by rounding: that is its doing.

Shape legend: Q queries, G gallery entries, P positives of all queries, M most positives of a query in a
block; lower case: a block.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccr_cli.metrics.counting import EXACT, count
from ccr_cli.metrics.positives import IntArray, Positives
from ccr_cli.metrics.sims import SimBlock, blocks, matrix_sim, transposed

FloatArray = NDArray[np.float64]

TIES = ("mid", "optimistic", "pessimistic")


@dataclass(frozen=True)
class Ranks:
    """What one direction of retrieval came to, an entry a query; nan for queries without a positive.

    Ranks begin at 1. `middle`, `reciprocal` and `average_precision` follow the middle-rank rule above.
    """

    middle: FloatArray
    """(Q,) rank of the best positive, tied competitors counting half"""
    optimistic: FloatArray
    """(Q,) the same with tied competitors below"""
    pessimistic: FloatArray
    """(Q,) the same with tied competitors above"""
    ties: FloatArray
    """(Q,) number of competitors tied with the best positive"""
    reciprocal: FloatArray
    """(Q,) 1 / middle"""
    average_precision: FloatArray
    """(Q,) AP in [0, 1], tied competitors counting half"""
    average_precision_optimistic: FloatArray
    """(Q,) AP with tied competitors below"""
    average_precision_pessimistic: FloatArray
    """(Q,) AP with tied competitors above"""
    positives: IntArray
    """(Q,) number of right answers"""
    gallery: int
    """number of entries searched"""

    def __len__(self) -> int:
        """Number of queries, those without a positive included."""
        return len(self.middle)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """(Q,) which queries have a positive and therefore count."""
        return self.positives > 0

    @property
    def dropped(self) -> int:
        """Number of queries without a positive."""
        return int((~self.valid).sum())

    def rank(self, tie: str = "mid") -> FloatArray:
        """(Q,) the rank of the best positive under a tie rule: mid, optimistic or pessimistic."""
        return _pick(tie, self.middle, self.optimistic, self.pessimistic)

    def ap(self, tie: str = "mid") -> FloatArray:
        """(Q,) the average precision under a tie rule."""
        return _pick(
            tie,
            self.average_precision,
            self.average_precision_optimistic,
            self.average_precision_pessimistic,
        )

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Ranks:
        """The ranks of some of the queries (positions, repeats allowed, or a mask)."""
        arrays = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "gallery"}
        return Ranks(**arrays, gallery=self.gallery)


def _pick(tie: str, mid: FloatArray, optimistic: FloatArray, pessimistic: FloatArray) -> FloatArray:
    if tie not in TIES:
        raise ValueError(f"unknown tie rule {tie!r}; known are {', '.join(TIES)}")
    return {"mid": mid, "optimistic": optimistic, "pessimistic": pessimistic}[tie]


def rank_queries(
    sim: SimBlock,
    n_queries: int,
    n_gallery: int,
    positives: Positives,
    *,
    block: int = 1024,
    keep: int = 2**26,
) -> Ranks:
    """Rank every query's positives in the whole gallery, on the device where `sim` answers.

    Memory: while a stripe of at least 64 queries (fewer if `block` is smaller) times the gallery fits into
    `keep` numbers, a stripe is computed once and kept; beyond that its blocks are computed twice and
    memory is O(block^2 + P).

    Args:
        sim: Called with a slice of queries and one of gallery entries; returns their (q, g) similarities in
            float32 or float64. It is not written to.
        n_queries: Q.
        n_gallery: G.
        positives: The right answers; a query may have none (nan) or several.
        block: Most queries and most gallery entries asked for at once.
        keep: Most similarities held at once.

    Raises:
        ValueError: If a similarity is NaN, half precision or of the wrong shape, or positives do not fit.
    """
    if len(positives) != n_queries:
        raise ValueError(f"positives are given for {len(positives)} queries, there are {n_queries}")
    if not 1 <= block <= EXACT:
        raise ValueError(f"block is {block}, not in 1..{EXACT}")
    positives.check(n_gallery)
    greater_P = np.zeros(len(positives.index))
    ties_P = np.zeros(len(positives.index))
    rows = min(block, max(64, keep // max(n_gallery, 1)))
    for queries in blocks(n_queries, rows):
        span = slice(int(positives.offsets[queries.start]), int(positives.offsets[queries.stop]))
        if span.start == span.stop:
            continue
        greater_P[span], ties_P[span] = _stripe(sim, queries, n_gallery, positives, block, keep)
    return _finish(greater_P, ties_P, positives, n_gallery)


def rank_both(
    sim_VT: SimBlock,
    n_visual: int,
    n_texts: int,
    visual_of_text: Positives,
    *,
    block: int = 1024,
    keep: int = 2**26,
) -> tuple[Ranks, Ranks]:
    """Both directions of one similarity: text to visual, and visual to text.

    A matrix of at most `keep` entries is computed once and held; a larger one is streamed for each direction.

    Args:
        sim_VT: Similarities with visual rows and text columns.
        n_visual: V.
        n_texts: T.
        visual_of_text: For each text the visual items that it describes.
        block: As in `rank_queries`.
        keep: As in `rank_queries`.

    Returns:
        The ranks with texts as queries (t2v), then those with visual items as queries (v2t).

    Raises:
        ValueError: As `rank_queries`.
    """
    if 0 < n_visual * n_texts <= keep:
        sim_VT = _held(sim_VT, n_visual, n_texts, block)
    t2v = rank_queries(transposed(sim_VT), n_texts, n_visual, visual_of_text, block=block, keep=keep)
    back = visual_of_text.reversed(n_visual)
    return t2v, rank_queries(sim_VT, n_visual, n_texts, back, block=block, keep=keep)


def _held(sim_VT: SimBlock, n_visual: int, n_texts: int, block: int) -> SimBlock:
    """The same similarities, computed once."""
    full_VT: Tensor | None = None
    for visual in blocks(n_visual, block):
        for texts in blocks(n_texts, block):
            sim_vt = _checked(sim_VT(visual, texts), visual, texts)
            if full_VT is None:
                full_VT = sim_vt.new_empty(n_visual, n_texts)
            full_VT[visual, texts] = sim_vt
    assert full_VT is not None
    return matrix_sim(full_VT)


def _stripe(
    sim: SimBlock, queries: slice, n_gallery: int, positives: Positives, block: int, keep: int
) -> tuple[FloatArray, FloatArray]:
    """Greater and tied competitors of each positive of one stripe of queries, in the positives' order."""
    counts = positives.counts[queries]
    offsets = positives.offsets[queries.start : queries.stop + 1]
    index = positives.index[offsets[0] : offsets[-1]]
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(index)) - np.repeat(offsets[:-1] - offsets[0], counts)
    shape = (len(counts), int(counts.max()))
    remember = shape[0] * n_gallery <= keep
    kept: list[Tensor] = []
    score_qM: Tensor | None = None
    for gallery in blocks(n_gallery, block):  # first pass: the similarities of the positives themselves
        sim_qg = _checked(sim(queries, gallery), queries, gallery)
        if score_qM is None:
            score_qM = torch.full(shape, float("nan"), dtype=sim_qg.dtype, device=sim_qg.device)
        inside = (index >= gallery.start) & (index < gallery.stop)
        _place(score_qM, sim_qg, row[inside], column[inside], index[inside] - gallery.start)
        if remember:
            kept.append(sim_qg)
    assert score_qM is not None
    # ascending, nan (no such positive) last
    score_qM, order_qM = score_qM.sort(dim=1)
    greater_qM = torch.zeros(shape, dtype=torch.float64, device=score_qM.device)
    equal_qM = torch.zeros_like(greater_qM)
    for number, gallery in enumerate(blocks(n_gallery, block)):  # second pass: count, less the positives
        sim_qg = kept[number] if remember else _checked(sim(queries, gallery), queries, gallery)
        inside = (index >= gallery.start) & (index < gallery.stop)
        own_qM = torch.full(shape, float("nan"), dtype=sim_qg.dtype, device=sim_qg.device)
        _place(own_qM, sim_qg, row[inside], column[inside], index[inside] - gallery.start)
        for values, sign in ((sim_qg, 1), (own_qM, -1)) if inside.any() else ((sim_qg, 1),):
            above_qM, level_qM = count(values, score_qM)
            greater_qM.add_(above_qM, alpha=sign)
            equal_qM.add_(level_qM, alpha=sign)
    # back from ascending score to the order in which the positives were given
    greater = torch.empty_like(greater_qM).scatter_(1, order_qM, greater_qM).cpu().numpy()
    equal = torch.empty_like(equal_qM).scatter_(1, order_qM, equal_qM).cpu().numpy()
    return greater[row, column], equal[row, column]


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


def _place(target_qM: Tensor, sim_qg: Tensor, row: NDArray[np.intp], column: NDArray[np.intp], at: IntArray) -> None:
    """Copy the positives that lie in this block into their places."""
    if len(row):
        device = sim_qg.device
        row_p = torch.from_numpy(row).to(device)
        picked_p = sim_qg[row_p, torch.from_numpy(at).to(device)]
        target_qM[row_p, torch.from_numpy(column).to(device)] = picked_p


def _finish(greater_P: FloatArray, ties_P: FloatArray, positives: Positives, n_gallery: int) -> Ranks:
    """Ranks and average precision from the two counts of every positive."""
    m_Q = positives.counts
    valid_Q = m_Q > 0
    row_P = np.repeat(np.arange(len(m_Q)), m_Q)
    start_P = np.repeat(positives.offsets[:-1], m_Q)

    def over_queries(value_P: FloatArray) -> FloatArray:
        out = np.full(len(m_Q), np.nan)
        sums = np.bincount(row_P, weights=value_P, minlength=len(m_Q))
        out[valid_Q] = sums[valid_Q] / m_Q[valid_Q]
        return out

    def first(value_P: FloatArray) -> FloatArray:
        out = np.full(len(m_Q), np.nan)
        out[valid_Q] = value_P[positives.offsets[:-1][valid_Q]]
        return out

    # Descending similarity is ascending greater. With equal greater, fewer ties first: if a positive ties
    # with t competitors, every worse one sees these t as greater. So this is the order of similarities.
    order = np.lexsort((ties_P, greater_P, row_P))
    greater_P, ties_P = greater_P[order], ties_P[order]
    k_P = np.arange(len(row_P)) - start_P + 1.0
    greater_Q, ties_Q = first(greater_P), first(ties_P)
    middle_Q = 1.0 + greater_Q + ties_Q / 2.0
    return Ranks(
        middle=middle_Q,
        optimistic=1.0 + greater_Q,
        pessimistic=1.0 + greater_Q + ties_Q,
        ties=ties_Q,
        reciprocal=1.0 / middle_Q,
        average_precision=over_queries(k_P / (k_P + greater_P + ties_P / 2.0)),
        average_precision_optimistic=over_queries(k_P / (k_P + greater_P)),
        average_precision_pessimistic=over_queries(k_P / (k_P + greater_P + ties_P)),
        positives=m_Q.astype(np.int64),
        gallery=n_gallery,
    )
