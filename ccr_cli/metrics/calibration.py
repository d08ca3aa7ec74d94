"""How well the stated uncertainty of a query predicts that retrieval fails.

A query *fails* if its best positive is not first (rank above 1, under the caller's tie rule). Queries without a
positive (rank nan) are left out. Queries of equal uncertainty have no order, so the curve takes the expectation
over all orders, and a constant uncertainty gives a flat curve at the overall failure rate.

Everywhere `uncertainty` is (Q,), higher means less certain; `rank` is (Q,), that of the best positive. Different
lengths and NaN uncertainties raise ValueError.

Shape legend: Q queries, B bins.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccr_cli.metrics.detection import BoolArray, auroc
from ccr_cli.metrics.ranks import FloatArray

BINS = 10
CURVE_POINTS = 50


def risk_coverage(uncertainty: ArrayLike, rank: ArrayLike) -> FloatArray:
    """The share of failures (Q,) among the 1, 2, ... Q most certain queries: risk = 1 - hit@1."""
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    _, code, count = np.unique(uncertainty_Q, return_inverse=True, return_counts=True)
    # every query of a group of equal uncertainty carries the group's failure rate
    rate = np.bincount(code, weights=failed_Q, minlength=len(count)) / count
    risk_Q: FloatArray = np.cumsum(np.repeat(rate, count)) / np.arange(1, len(failed_Q) + 1)
    return risk_Q


@dataclass(frozen=True)
class Reliability:
    """Stated confidence against the share of hits, bin by bin (empty bins are left out)."""

    confidence: FloatArray
    """(B,) mean confidence in the bin"""
    accuracy: FloatArray
    """(B,) share of queries whose best positive is first"""
    count: NDArray[np.int64]
    """(B,) queries in the bin"""

    @property
    def ece(self) -> float | None:
        """Calibration error: mean |accuracy - confidence|, weighted by count; None without a query."""
        total = int(self.count.sum())
        return float((self.count * np.abs(self.accuracy - self.confidence)).sum() / total) if total else None


def reliability(uncertainty: ArrayLike, rank: ArrayLike) -> Reliability:
    """Sorts queries into at most ten bins of confidence = 1 - uncertainty (in [0, 1]), about equally many in each.

    Evidential uncertainty often lies in a narrow range, where bins of equal width show nothing. Equal uncertainties are
    always in one bin.
    """
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    if len(uncertainty_Q) == 0:
        return Reliability(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
    if uncertainty_Q.min() < 0.0 or uncertainty_Q.max() > 1.0:
        raise ValueError("reliability needs uncertainties in [0, 1]")
    confidence_Q = 1.0 - uncertainty_Q
    edges = np.unique(np.quantile(confidence_Q, np.arange(1, BINS) / BINS))
    filled, code_Q, count = np.unique(
        np.searchsorted(edges, confidence_Q, side="right"), return_inverse=True, return_counts=True
    )
    values = (confidence_Q, ~failed_Q)
    mean_B, hits_B = (np.bincount(code_Q, weights=value_Q, minlength=len(filled)) / count for value_Q in values)
    return Reliability(mean_B, hits_B, count.astype(np.int64))


def calibration(uncertainty: ArrayLike, rank: ArrayLike) -> dict[str, Any]:
    """Figures of an uncertainty on any scale.

    Returns:
        `auroc` of uncertainty against failure (None if all or none fail), `aurc` (mean risk over all coverages, lower
        is better), `aurc_random` (its value for an uninformative uncertainty: the failure rate), `aurc_best` (for one
        that ranks all failures last), `risk` at coverages of 20, 40, 60, 80 and 100 %, the number of `queries`, and up
        to 50 points of the `curve`. None where there is no query.
    """
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    rank_Q, n = np.where(failed_Q, 2.0, 1.0), len(failed_Q)
    risk_Q, best_Q = risk_coverage(uncertainty_Q, rank_Q), risk_coverage(failed_Q, rank_Q)
    answered = {f"{share}%": max(math.ceil(share / 100 * n - 1e-9), 1) for share in (20, 40, 60, 80, 100)}
    at = np.linspace(0, n - 1, min(CURVE_POINTS, n)).round().astype(int)
    return {
        "auroc": auroc(uncertainty_Q, failed_Q),
        "aurc": float(risk_Q.mean()) if n else None,
        "aurc_random": float(failed_Q.mean()) if n else None,
        "aurc_best": float(best_Q.mean()) if n else None,
        "risk": {share: float(risk_Q[count - 1]) if n else None for share, count in answered.items()},
        "queries": n,
        "curve": {"coverage": ((at + 1) / max(n, 1)).tolist(), "risk": risk_Q[at].tolist()},
    }


def _outcome(uncertainty: ArrayLike, rank: ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Uncertainty and failure of the queries that have a rank."""
    uncertainty_Q = np.asarray(uncertainty, dtype=np.float64)
    rank_Q = np.asarray(rank, dtype=np.float64)
    if uncertainty_Q.ndim != 1 or uncertainty_Q.shape != rank_Q.shape:
        raise ValueError(f"uncertainties of shape {uncertainty_Q.shape}, ranks of shape {rank_Q.shape}")
    valid_Q = ~np.isnan(rank_Q)
    uncertainty_Q, rank_Q = uncertainty_Q[valid_Q], rank_Q[valid_Q]
    if np.isnan(uncertainty_Q).any():
        raise ValueError(f"{int(np.isnan(uncertainty_Q).sum())} of {len(rank_Q)} uncertainties are NaN")
    return uncertainty_Q, rank_Q > 1.0
