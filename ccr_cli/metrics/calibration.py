"""Does the stated uncertainty of a query know when retrieval fails, and does it so better than other uncertainties?

A query *fails* if its best positive is not first (rank above 1, under the caller's tie rule). Queries without a
positive (rank nan) are left out. Queries of equal uncertainty have no order, so the curve takes the expectation
over all orders, and a constant uncertainty gives a flat curve at the overall failure rate.

Uncertainties are compared by a paired bootstrap over items: every item is drawn with all its queries, and all scores
see the same draw. A query drawn twice counts twice.

Everywhere `uncertainty` is (Q,), higher means less certain; `rank` is (Q,), that of the best positive. Lengths that
differ and an uncertainty that is NaN raise ValueError.

Shape legend: Q queries, B bins, I items, R resamples, U groups of equal uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccr_cli.metrics.bootstrap import SAMPLES, ends, resamples
from ccr_cli.metrics.detection import BoolArray, auroc
from ccr_cli.metrics.ranks import FloatArray, IntArray

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
    """At most ten bins of confidence = 1 - uncertainty (in [0, 1]), about equally many queries in each.

    Evidential uncertainty often lies in a narrow range, where bins of equal width tell nothing. Equal uncertainties are
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
        that knows every failure), `risk` at coverages of 20, 40, 60, 80 and 100 %, the number of `queries`, and at most
        50 points of the `curve`. None where there is no query.
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


def logistic(x_NI: ArrayLike, y_N: ArrayLike) -> FloatArray:
    """Slopes and constant (I + 1,) of a logistic regression of outcomes (N,) on scores (N, I).

    Platt scaling: "Probabilistic outputs for support vector machines", 1999. `y_N` holds both outcomes.
    """
    from sklearn.linear_model import LogisticRegression  # a second, for this alone

    x_NI = np.asarray(x_NI, dtype=np.float64)
    middle, scale = x_NI.mean(axis=0), x_NI.std(axis=0) + 1e-12
    regression = LogisticRegression(C=1e3, max_iter=1000).fit((x_NI - middle) / scale, y_N)
    slopes = regression.coef_[0] / scale
    return np.append(slopes, regression.intercept_[0] - slopes @ middle)


@dataclass(frozen=True)
class HitProbability:
    """The probability that a result of a query is right: a logistic regression on its similarity and its place."""

    similarity: float
    """Slope of the similarity, greater than 0."""
    log_place: float
    """Slope of the logarithm of the place, at most 0."""
    constant: float

    @classmethod
    def fitted(cls, results: Iterable[Sequence[tuple[float, bool]]], least: int) -> HitProbability | None:
        """Fits it to queries with their results, best first: similarity, and whether it is right.

        None where fewer than `least` results are right, or wrong, or the more similar ones are not right more often.
        """
        rows = [(sim, math.log(place), right) for found in results for place, (sim, right) in enumerate(found, 1)]
        x_N3 = np.array(rows, dtype=np.float64).reshape(-1, 3)
        right = int(x_N3[:, 2].sum())
        if min(right, len(rows) - right) < least:
            return None
        slopes = logistic(x_N3[:, :2], x_N3[:, 2])
        if slopes[1] > 0:  # a later place never makes a result more probable
            slopes = np.insert(logistic(x_N3[:, :1], x_N3[:, 2]), 1, 0.0)
        return cls(*slopes.tolist()) if slopes[0] > 0 else None

    def of(self, similarities: Sequence[float]) -> list[float]:
        """The probability of each result of a query, best first."""
        place_K = np.arange(1, len(similarities) + 1)
        logit_K = self.similarity * np.asarray(similarities) + self.log_place * np.log(place_K) + self.constant
        return list(((1 + np.tanh(logit_K / 2)) / 2).tolist())


class SortedUncertainty:
    """One uncertainty of some queries, sorted once for any number of resamples."""

    def __init__(self, uncertainty: ArrayLike, rank: ArrayLike) -> None:
        """Args: uncertainty and rank (from 1) of each query, none of them NaN."""
        u_Q = np.asarray(uncertainty, dtype=np.float64)
        self.order_Q = np.argsort(u_Q, kind="stable")
        self.failed_Q = np.asarray(rank, dtype=np.float64)[self.order_Q] > 1.0
        self.start_U = np.flatnonzero(np.diff(u_Q[self.order_Q], prepend=np.nan) != 0)

    def figures(self, weight_RQ: IntArray) -> FloatArray:
        """`auroc` and `aurc` (R, 2) of resamples of at least one query each; nan for an AUROC if all or none fail."""
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


def compared(
    own_Q: FloatArray | None,
    others: Mapping[str, FloatArray],
    rank_Q: FloatArray,
    item_Q: IntArray,
    *,
    probability: bool = False,
) -> dict[str, Any]:
    """What `calibration` says of an uncertainty (Q,), higher where less certain, next to others by their names.

    With `ece` for a `probability` of failing, and `trivial`: of the others `auroc`, `aurc`, `curve`, and the `gaps` to
    them. Without an uncertainty of its own only what needs none.
    """
    figures = {name: calibration(unc_Q, rank_Q) for name, unc_Q in others.items()}
    trivial: dict[str, Any] = {
        name: {key: of[key] for key in ("auroc", "aurc", "curve")} for name, of in figures.items()
    }
    if own_Q is None:
        some = next(iter(figures.values()))
        return {**{key: some[key] for key in ("aurc_random", "aurc_best", "queries")}, "trivial": trivial}
    own = calibration(own_Q, rank_Q)
    if probability:
        own["ece"] = reliability(own_Q, rank_Q).ece
    valid_Q = ~np.isnan(rank_Q)
    if valid_Q.any():
        rivals = {name: unc_Q[valid_Q] for name, unc_Q in others.items()}
        for name, gap in gaps(own_Q[valid_Q], rivals, rank_Q[valid_Q], item_Q[valid_Q]).items():
            trivial[name]["gaps"] = gap
    return {**own, "trivial": trivial}


def gaps(
    uncertainty: ArrayLike,
    others: Mapping[str, ArrayLike],
    rank: ArrayLike,
    item: ArrayLike,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
) -> dict[str, dict[str, list[float] | None]]:
    """Intervals of the AUROC and AURC of an uncertainty (Q,), higher where less certain, minus those of others.

    `rank` (Q,) is that of the best positive, from 1; `item` (Q,) any numbers. By name `auroc` and `aurc`, low and high
    end each; None where no resample has both hits and failures.
    """
    code_Q = np.unique(np.asarray(item), return_inverse=True)[1]
    if not len(code_Q):
        raise ValueError("0 queries: there is nothing to resample")
    own, rivals = SortedUncertainty(uncertainty, rank), {name: SortedUncertainty(u, rank) for name, u in others.items()}
    differences: dict[str, list[FloatArray]] = {name: [] for name in rivals}
    for weight_RQ in _weights(code_Q, seed, samples):
        own_R2 = own.figures(weight_RQ)
        for name, rival in rivals.items():
            differences[name].append(own_R2 - rival.figures(weight_RQ))
    intervals = {name: map(_interval, np.concatenate(parts).T) for name, parts in differences.items()}
    return {name: dict(zip(("auroc", "aurc"), pair, strict=True)) for name, pair in intervals.items()}


def separation(
    known: Mapping[str, ArrayLike],
    unknown: Mapping[str, ArrayLike],
    known_item: ArrayLike,
    unknown_item: ArrayLike,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
) -> dict[str, dict[str, Any]]:
    """How well each score, by its name, separates unknown queries, which should score higher, from known ones.

    Items are numbers or names; one with queries of both kinds is drawn with both. By name `auroc` and its `interval`;
    the `means` of known and unknown queries, and the interval of the `rise` from one to the other; and for all but the
    first `gap`, the interval of the first's AUROC minus its own. Resamples that lack one kind are left out.
    """
    items = np.concatenate([np.asarray(known_item), np.asarray(unknown_item)])
    code_Q = np.unique(items, return_inverse=True)[1]
    unknown_Q = np.arange(len(items)) >= len(np.asarray(known_item))
    if unknown_Q.all() or not unknown_Q.any():
        raise ValueError(f"{len(items) - unknown_Q.sum()} known and {unknown_Q.sum()} unknown queries: both are needed")
    score = {name: np.concatenate([np.asarray(known[name]), np.asarray(unknown[name])]) for name in known}
    ordered = {name: SortedUncertainty(score_Q, 1 + unknown_Q) for name, score_Q in score.items()}
    areas: dict[str, list[FloatArray]] = {name: [] for name in score}
    rises: dict[str, list[FloatArray]] = {name: [] for name in score}
    for weight_RQ in _weights(code_Q, seed, samples):
        for name in score:
            areas[name].append(ordered[name].figures(weight_RQ)[:, 0])
            with np.errstate(invalid="ignore", divide="ignore"):  # nan where one kind was not drawn
                unknown_R, known_R = (
                    weight_RQ[:, kind_Q] @ score[name][kind_Q] / weight_RQ[:, kind_Q].sum(axis=1)
                    for kind_Q in (unknown_Q, ~unknown_Q)
                )
            rises[name].append(unknown_R - known_R)
    area = {name: np.concatenate(parts) for name, parts in areas.items()}
    first, out = next(iter(score)), {}
    for name, score_Q in score.items():
        out[name] = {
            "auroc": auroc(score_Q, unknown_Q),
            "interval": _interval(area[name]),
            "means": [float(score_Q[~unknown_Q].mean()), float(score_Q[unknown_Q].mean())],
            "rise": _interval(np.concatenate(rises[name])),
        }
        if name != first:
            out[name]["gap"] = _interval(area[first] - area[name])
    return out


def _weights(code_Q: IntArray, seed: int, samples: int) -> Iterator[IntArray]:
    """Blocks (R, Q) of how often each query is drawn."""
    for weight_RI in resamples(int(code_Q.max()) + 1, np.random.default_rng(seed), samples, width=len(code_Q)):
        yield weight_RI[:, code_Q]


def _interval(value_R: FloatArray) -> list[float] | None:
    low, high = ends(value_R[:, None])
    return None if np.isnan(low[0]) else [float(low[0]), float(high[0])]
