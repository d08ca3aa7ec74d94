"""Does the stated uncertainty of a query know when retrieval fails?

A query *fails* if its best positive is not first (rank above 1, under the caller's tie rule). Queries without a
positive (rank nan) are left out. Queries of equal uncertainty have no order, so the curve takes the expectation
over all orders, and a constant uncertainty gives a flat curve at the overall failure rate.

Shape legend: Q queries, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccr_cli.metrics.detection import auroc

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

CURVE_POINTS = 50


@dataclass(frozen=True)
class RiskCoverage:
    """Failure rate among the most certain queries, as ever more of them are answered."""

    coverage: FloatArray
    """(Q,) share of queries answered: 1/Q, 2/Q, ..., 1"""
    risk: FloatArray
    """(Q,) share of failures among these"""

    @property
    def aurc(self) -> float | None:
        """Mean risk over all coverages; lower is better. None without a query."""
        return float(self.risk.mean()) if len(self.risk) else None

    def at(self, coverage: float) -> float | None:
        """Risk when this share of the queries (at least one) is answered. None without a query.

        Raises:
            ValueError: If the share lies outside (0, 1].
        """
        if not 0.0 < coverage <= 1.0:
            raise ValueError(f"coverage is {coverage}, not in (0, 1]")
        n = len(self.risk)
        return float(self.risk[max(int(np.ceil(coverage * n - 1e-9)), 1) - 1]) if n else None

    def points(self, most: int = CURVE_POINTS) -> dict[str, list[float]]:
        """At most so many points of the curve, equally far from each other."""
        at = np.linspace(0, len(self.coverage) - 1, min(most, len(self.coverage))).round().astype(int)
        return {"coverage": self.coverage[at].tolist(), "risk": self.risk[at].tolist()}


def risk_coverage(uncertainty: ArrayLike, rank: ArrayLike) -> RiskCoverage:
    """The risk-coverage curve, risk = 1 - hit@1, on the same queries at every coverage.

    Args:
        uncertainty: (Q,) higher means less certain.
        rank: (Q,) rank of the best positive (from 1, nan: left out).

    Raises:
        ValueError: If the lengths differ or an uncertainty is NaN.
    """
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    n = len(failed_Q)
    _, code, count = np.unique(uncertainty_Q, return_inverse=True, return_counts=True)
    # every query of a group of equal uncertainty carries the group's failure rate
    rate = np.bincount(code, weights=failed_Q, minlength=len(count)) / count
    answered = np.arange(1, n + 1)
    return RiskCoverage(answered / max(n, 1), np.cumsum(np.repeat(rate, count)) / answered)


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


def reliability(uncertainty: ArrayLike, rank: ArrayLike, *, bins: int = 10, binning: str = "mass") -> Reliability:
    """Bins of confidence = 1 - uncertainty.

    Args:
        uncertainty: (Q,) in [0, 1].
        rank: (Q,) rank of the best positive (from 1, nan: left out).
        bins: Most bins.
        binning: `mass` for about equally many queries a bin (evidential uncertainty often lies in a narrow
            range), equal uncertainties always in one bin; `width` for equal widths over [0, 1].

    Raises:
        ValueError: If an uncertainty lies outside [0, 1] or is NaN, lengths differ, or an option is unknown.
    """
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    if bins < 1:
        raise ValueError(f"{bins} bins")
    if binning not in ("mass", "width"):
        raise ValueError(f"unknown binning {binning!r}; known are mass, width")
    if len(uncertainty_Q) == 0:
        return Reliability(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
    if uncertainty_Q.min() < 0.0 or uncertainty_Q.max() > 1.0:
        raise ValueError("reliability needs uncertainties in [0, 1]")
    confidence_Q = 1.0 - uncertainty_Q
    inner = np.arange(1, bins) / bins
    edges = inner if binning == "width" else np.unique(np.quantile(confidence_Q, inner))
    code = np.searchsorted(edges, confidence_Q, side="right")
    count = np.bincount(code, minlength=len(edges) + 1)
    filled = count > 0
    count = count[filled]
    mean = np.bincount(code, weights=confidence_Q, minlength=len(filled))[filled] / count
    hits = np.bincount(code, weights=~failed_Q, minlength=len(filled))[filled] / count
    return Reliability(mean, hits, count.astype(np.int64))


def calibration(uncertainty: ArrayLike, rank: ArrayLike) -> dict[str, Any]:
    """Figures of an uncertainty in one go.

    Args:
        uncertainty: (Q,) higher means less certain, any scale.
        rank: (Q,) rank of the best positive (from 1, nan: left out).

    Returns:
        `auroc` of uncertainty against failure (None if all or none fail), `aurc`, `aurc_random` (its value
        for an uninformative uncertainty: the failure rate), `aurc_best` (for one that knows every failure),
        `risk` at coverages of 20, 40, 60, 80 and 100 %, and the number of `queries`. None where there is no
        query.

    Raises:
        ValueError: If the lengths differ or an uncertainty is NaN.
    """
    uncertainty_Q, failed_Q = _outcome(uncertainty, rank)
    rank_Q = np.where(failed_Q, 2.0, 1.0)
    curve = risk_coverage(uncertainty_Q, rank_Q)
    return {
        "auroc": auroc(uncertainty_Q, failed_Q),
        "aurc": curve.aurc,
        "aurc_random": float(failed_Q.mean()) if len(failed_Q) else None,
        "aurc_best": risk_coverage(failed_Q, rank_Q).aurc,
        "risk": {f"{share}%": curve.at(share / 100) for share in (20, 40, 60, 80, 100)},
        "queries": len(failed_Q),
        "curve": curve.points(),
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
