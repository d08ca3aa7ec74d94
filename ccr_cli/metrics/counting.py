"""Count how many numbers of a row lie above, and level with, each of a few scores of that row. No sort.

Shape legend: q rows, g numbers a row, M scores a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

EXACT = 2**24
"""most numbers a row: flags are added up in float32 (fastest by far), exact up to here"""
COUNT_EACH = 16
"""up to so many scores a row, each is compared with all numbers; beyond, the numbers are binned"""


def count(values_qg: Tensor, score_qM: Tensor) -> tuple[Tensor, Tensor]:
    """Count, for each score (ascending, nan last), the values of its row above it and equal to it.

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
