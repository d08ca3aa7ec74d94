"""Comparison of query uncertainties: which one better predicts failures, or queries without a match.

Uncertainties are compared by a paired bootstrap over items: every item is drawn with all its queries, and all scores
see the same draw. A query drawn twice counts twice.

Shape legend: Q queries, I items, R resamples, U groups of equal uncertainty.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ccr_cli.metrics.bootstrap import SAMPLES, ends, resamples
from ccr_cli.metrics.calibration import calibration, reliability
from ccr_cli.metrics.detection import auroc
from ccr_cli.metrics.ranks import FloatArray, IntArray


class SortedUncertainty:
    """One uncertainty of some queries, sorted once for any number of resamples."""

    def __init__(self, uncertainty: ArrayLike, rank: ArrayLike) -> None:
        """Takes the uncertainty and rank (from 1) of each query, none of them NaN."""
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
    """Calibration of an uncertainty (Q,), higher where less certain, compared with others by name.

    Returns the figures of `calibration`, `ece` for a `probability` of failing, and `trivial`: for each of the others
    `auroc`, `aurc`, `curve`, and the `gaps` to it. Without `own_Q`, only what does not need it.
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

    `rank` (Q,) is that of the best positive, from 1; `item` (Q,) any numbers. Returns, by the other's name, low and
    high end of `auroc` (None if no resample has both hits and failures) and of `aurc`.
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

    Items are numbers or names; one with queries of both kinds is drawn with both. Returns by name: `auroc` and its
    `interval`; the `means` of known and unknown queries, and the interval of the `rise` from one to the other; for all
    but the first, `gap`, the interval of the first's AUROC minus its own. Resamples that lack one kind are left out.
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
