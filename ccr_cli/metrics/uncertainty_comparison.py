"""Whether one uncertainty knows better than another when retrieval fails: paired bootstrap over items.

Every item is drawn with all its queries, and both uncertainties see the same draw. A query drawn twice counts twice.
Queries of equal uncertainty stand in every order equally, as in `calibration`.

Shape legend: Q queries, I items, R resamples, U groups of equal uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from ccr_cli.metrics.bootstrap import LEVEL, ROOM, SAMPLES, FloatArray, IntArray, ends

FIGURES = ("auroc", "aurc")


class Doubt:
    """One uncertainty of some queries, sorted once for any number of resamples."""

    def __init__(self, uncertainty: ArrayLike, rank: ArrayLike) -> None:
        """Args: uncertainty and rank (from 1) of each query, none of them NaN."""
        u_Q = np.asarray(uncertainty, dtype=np.float64)
        self.order_Q = np.argsort(u_Q, kind="stable")
        self.failed_Q = np.asarray(rank, dtype=np.float64)[self.order_Q] > 1.0
        self.start_U = np.flatnonzero(np.diff(u_Q[self.order_Q], prepend=np.nan) != 0)

    def figures(self, weight_RQ: IntArray) -> FloatArray:
        """`auroc` and `aurc` of each resample (R, 2); nan for an AUROC where all or none fail.

        Args:
            weight_RQ: How often each query is drawn, at least one in each resample.
        """
        weight_RQ = weight_RQ[:, self.order_Q]
        n_RU = np.add.reduceat(weight_RQ, self.start_U, axis=1).astype(np.float64)
        bad_RU = np.add.reduceat(weight_RQ * self.failed_Q, self.start_U, axis=1).astype(np.float64)
        n_to_RU, bad_to_RU = n_RU.cumsum(axis=1), bad_RU.cumsum(axis=1)
        n_before_RU, bad_before_RU = n_to_RU - n_RU, bad_to_RU - bad_RU
        good_RU, good_before_RU = n_RU - bad_RU, n_before_RU - bad_before_RU
        bad_R, n_R = bad_to_RU[:, -1], n_to_RU[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            auroc_R = (bad_RU * (good_before_RU + good_RU / 2)).sum(axis=1) / (bad_R * (n_R - bad_R))
        # risk at k answered, of which n_before are surer: (bad_before + (k - n_before) * rate) / k, summed over k
        rate_RU = bad_RU / np.maximum(n_RU, 1.0)
        harmonic = np.concatenate([[0.0], (1.0 / np.arange(1, int(n_R.max()) + 1)).cumsum()])
        span_RU = harmonic[n_to_RU.astype(np.int64)] - harmonic[n_before_RU.astype(np.int64)]
        area_R = (bad_RU + (bad_before_RU - rate_RU * n_before_RU) * span_RU).sum(axis=1) / n_R
        return np.stack([auroc_R, area_R], axis=1)


def gaps(
    uncertainty: ArrayLike,
    others: Mapping[str, ArrayLike],
    rank: ArrayLike,
    item: ArrayLike,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    level: float = LEVEL,
) -> dict[str, dict[str, list[float] | None]]:
    """The interval of AUROC and AURC of an uncertainty minus those of others.

    Args:
        uncertainty: (Q,) higher means less certain.
        others: By name the same of others.
        rank: (Q,) rank of the best positive, from 1.
        item: (Q,) the item of each query, any numbers.
        seed: Of the resampling.
        samples: Number of resamples.
        level: Share of the resamples between the ends.

    Returns:
        By name `auroc` and `aurc`, low and high end each; None where no resample has both hits and failures.

    Raises:
        ValueError: If there is no query.
    """
    code_Q = np.unique(np.asarray(item), return_inverse=True)[1]
    if not len(code_Q):
        raise ValueError("there is no query to resample")
    mine, rivals = Doubt(uncertainty, rank), {name: Doubt(u, rank) for name, u in others.items()}
    rng = np.random.default_rng(seed)
    n_items = int(code_Q.max()) + 1
    found: dict[str, list[FloatArray]] = {name: [] for name in rivals}
    rows = max(1, ROOM // len(code_Q))
    for start in range(0, samples, rows):
        drawn_RI = rng.integers(0, n_items, (min(rows, samples - start), n_items))
        weight_RI = np.stack([np.bincount(drawn_I, minlength=n_items) for drawn_I in drawn_RI])
        weight_RQ = weight_RI[:, code_Q]
        own_R2 = mine.figures(weight_RQ)
        for name, rival in rivals.items():
            found[name].append(own_R2 - rival.figures(weight_RQ))
    out: dict[str, dict[str, list[float] | None]] = {}
    for name, parts in found.items():
        low, high = ends(np.concatenate(parts), level)
        out[name] = {
            figure: None if np.isnan(low[n]) else [float(low[n]), float(high[n])] for n, figure in enumerate(FIGURES)
        }
    return out
