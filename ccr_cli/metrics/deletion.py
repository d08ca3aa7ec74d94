"""Effect of deleting uncertain results: mAP over what is kept, and how much is kept (FUME section 4.3).

A *pair* is a query and a gallery entry; a threshold deletes pairs. FUME's code leaves queries without a remaining
positive out of the mean, so its mAP rises as queries vanish. So we also report the mean over all queries, in which
these count 0, and the numbers of pairs, positives and queries kept.

Shape legend: Q queries, G gallery entries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccr_cli.metrics.ranks import Positives, matrix_sim, rank_queries

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Deletion:
    """Retrieval over what a threshold keeps."""

    threshold: float | None
    """pairs whose uncertainty exceeds it are deleted, as in FUME; None: none are"""
    rate: float
    """share of the pairs that are deleted, FUME eq. (11)"""
    pairs: int
    """pairs kept"""
    positives: int
    """positives among them"""
    queries: int
    """queries with a positive among them"""
    map_kept: float | None
    """mean average precision in percent over these queries, as FUME's code prints it; None without one"""
    map_all: float | None
    """the same over all queries that had a positive; those that lost every one count 0"""


def delete(
    sim_QG: Tensor, unc_QG: Tensor, positives: Positives, threshold: float | None, *, tie: str = "mid"
) -> Deletion:
    """Deletes every pair whose uncertainty exceeds the threshold (None: none), and ranks what is left.

    Average precision is over the positives that are kept. Similarities (Q, G) are float32 or float64; `unc_QG` (Q,
    G) is the uncertainty, or similarity negated: higher means worse. Shapes that do not fit and NaN are a ValueError.
    """
    shapes = tuple(unc_QG.shape), tuple(sim_QG.shape)
    if shapes[0] != shapes[1] or len(positives) != len(sim_QG):
        raise ValueError(f"uncertainties {shapes[0]}, similarities {shapes[1]}, {len(positives)} queries")
    if bool(unc_QG.isnan().any()):
        raise ValueError(f"{int(unc_QG.isnan().sum())} of {unc_QG.numel()} uncertainties are NaN")
    kept_QG = torch.ones_like(unc_QG, dtype=torch.bool) if threshold is None else unc_QG <= threshold
    left = positives.where(kept_QG.cpu().numpy()[positives.row, positives.index])
    # deleted entries rank below all others, so they do not compete with kept ones
    sim = matrix_sim(sim_QG.masked_fill(~kept_QG, -torch.inf))
    ap_Q = rank_queries(sim, len(sim_QG), sim_QG.shape[1], left).ap(tie)
    answered_Q, answerable = left.counts > 0, int((positives.counts > 0).sum())
    pairs = int(kept_QG.sum())
    return Deletion(
        threshold=threshold,
        rate=1 - pairs / max(sim_QG.numel(), 1),
        pairs=pairs,
        positives=int(left.counts.sum()),
        queries=int(answered_Q.sum()),
        map_kept=100 * float(ap_Q[answered_Q].mean()) if answered_Q.any() else None,
        map_all=100 * float(ap_Q[answered_Q].sum()) / answerable if answerable else None,
    )


def deletion_curve(
    sim_QG: Tensor, unc_QG: Tensor, positives: Positives, rates: Sequence[float] = RATES, *, tie: str = "mid"
) -> list[Deletion]:
    """Deletes growing shares of the pairs, the most uncertain first.

    Pairs of equal uncertainty stay together, so a smaller share than the rate may be deleted. A rate outside
    [0, 1) is a ValueError.
    """
    if not all(0 <= rate < 1 for rate in rates):
        raise ValueError(f"deletion rates {tuple(rates)} do not lie in [0, 1)")
    sorted_N: NDArray[np.float64] = np.sort(unc_QG.double().cpu().numpy(), axis=None)
    curve = []
    for rate in rates:
        keep = math.ceil((1 - rate) * len(sorted_N) - 1e-9)
        threshold = None if keep >= len(sorted_N) else float(sorted_N[keep - 1])
        curve.append(delete(sim_QG, unc_QG, positives, threshold, tie=tie))
    return curve
