"""Confidence intervals of retrieval figures over other test items, by percentile bootstrap.

Items are drawn, each with all its queries, and both directions use the same draw: captions of one picture are not
independent, and the picture itself is a query for its captions. Variance over training is not included; for that,
compare seeds.

Every figure but the median is a ratio of sums over queries, so a resample is a row of weights (how often each item was
drawn) times a table of sums by item; the median is read off the cumulative weights of the sorted ranks.

Shape legend: Q queries, I items, R resamples, C figures, K means of one direction.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ccr_cli.metrics.ranks import KS, FloatArray, IntArray

DIRECTIONS = ("t2v", "v2t")
_VALUES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    **{f"R@{k}": lambda rank_Q, ap_Q, k=k: 100.0 * (rank_Q <= k) for k in KS},  # type: ignore[misc]
    "MeanR": lambda rank_Q, ap_Q: rank_Q,
    "mAP": lambda rank_Q, ap_Q: 100.0 * ap_Q,
    "MRR": lambda rank_Q, ap_Q: 100.0 / rank_Q,
}
"""Figures of a direction that are means over its queries, and the value of each query."""
MEANS = tuple(_VALUES)
OF_DIRECTION = (*MEANS, "MedR")  # the median last: `combined` takes directions with and without it
FIGURES = (*(f"{d}.{name}" for d in DIRECTIONS for name in OF_DIRECTION), "SumR", "mAP")
"""All figures, in the order of their columns; `mAP` is the mean of both directions."""

SAMPLES = 1000
"""Resamples for an interval of one system's figures; `paired.SAMPLES` is for a difference of two."""
LEVEL = 0.95
"""Share of the resamples between the ends of an interval."""
ROOM = 2**22
"""Maximum number of weights held at once."""


@dataclass(frozen=True)
class RankedQueries:
    """The queries of one direction that have a right answer."""

    item_Q: IntArray
    """the item of each query; any numbers, the same in both directions"""
    rank_Q: FloatArray
    """rank of the best positive"""
    ap_Q: FloatArray
    """average precision in [0, 1]"""


class _Side:
    """One direction as sums over items."""

    def __init__(self, queries: RankedQueries, item_Q: IntArray, n_items: int) -> None:
        self.count_I = np.bincount(item_Q, minlength=n_items).astype(np.float64)
        values = (value(queries.rank_Q, queries.ap_Q) for value in _VALUES.values())
        self.sum_IK: FloatArray = np.stack([np.bincount(item_Q, weights=v, minlength=n_items) for v in values], axis=1)
        order = np.argsort(queries.rank_Q, kind="stable")
        self.rank_Q, self.item_Q = queries.rank_Q[order], item_Q[order]

    def figures(self, weight_RI: IntArray) -> FloatArray:
        """The means and the median of each resample, (R, K + 1); nan for one without a query."""
        return np.concatenate([self.means(weight_RI, self.sum_IK), self._median(weight_RI)[:, None]], axis=1)

    def means(self, weight_RI: IntArray, sum_IK: FloatArray) -> FloatArray:
        """The means of each resample (R, K), from sums by item."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_RK: FloatArray = (weight_RI @ sum_IK) / (weight_RI @ self.count_I)[:, None]
        return mean_RK

    def _median(self, weight_RI: IntArray) -> FloatArray:
        out = np.full(len(weight_RI), np.nan)
        rows = max(1, ROOM // max(len(self.rank_Q), 1))
        for start in range(0, len(weight_RI) if len(self.rank_Q) else 0, rows):
            reached_rQ = weight_RI[start : start + rows, self.item_Q].cumsum(axis=1)
            total_r = reached_rQ[:, -1]
            # the first place in each (rising) row that exceeds half of the queries
            low_r, high_r = (
                np.argmax(reached_rQ > at_r[:, None], axis=1) for at_r in ((total_r - 1) // 2, total_r // 2)
            )
            middle_r = (self.rank_Q[low_r] + self.rank_Q[high_r]) / 2
            out[start : start + rows] = np.where(total_r > 0, middle_r, np.nan)
        return out


class RankedGallery:
    """The queries of both directions of one gallery, as sums over items."""

    def __init__(self, t2v: RankedQueries, v2t: RankedQueries) -> None:
        """Takes the queries of each direction, at least one in total; an item has the same number in both."""
        items, codes = np.unique(np.concatenate([t2v.item_Q, v2t.item_Q]), return_inverse=True)
        if not len(items):
            raise ValueError("0 queries have a positive: there is nothing to resample")
        self.n_items = len(items)
        split = np.split(codes.astype(np.int64), [len(t2v.item_Q)])
        self.sides = [_Side(queries, code_Q, len(items)) for queries, code_Q in zip((t2v, v2t), split, strict=True)]

    def figures(self, weight_RI: IntArray | None = None) -> FloatArray:
        """Every figure of each resample, (R, C), columns as `FIGURES`; without weights, of the original queries."""
        weights = np.ones((1, self.n_items), dtype=np.int64) if weight_RI is None else weight_RI
        return combined([side.figures(weights) for side in self.sides])


def resamples(n_items: int, rng: np.random.Generator, samples: int, width: int = 0) -> Iterator[IntArray]:
    """Draws resamples of items, in blocks (R, I) of how often each item was drawn.

    `width` is the number of values that the caller computes per resample, if it exceeds the number of items.
    """
    rows = max(1, ROOM // max(n_items, width))
    for start in range(0, samples, rows):
        drawn_RI = rng.integers(0, n_items, (min(rows, samples - start), n_items))
        drawn_RI += np.arange(len(drawn_RI))[:, None] * n_items
        yield np.bincount(drawn_RI.ravel(), minlength=drawn_RI.size).reshape(drawn_RI.shape)


def combined(sides: Sequence[FloatArray]) -> FloatArray:
    """Joins both directions' columns, (R, K + 1) or without a median (R, K), and adds SumR and mAP, as in `FIGURES`."""
    n_recalls, m = len(KS), MEANS.index("mAP")
    total_R = sum(side[:, :n_recalls].sum(axis=1) for side in sides)
    mean_R = sum(side[:, m] for side in sides) / len(sides)
    return np.concatenate([*sides, np.stack([total_R, mean_R], axis=1)], axis=1)


@dataclass(frozen=True)
class Estimate:
    """A figure of the original queries, or one system's minus another's, with the ends of its bootstrap interval."""

    estimate: float
    low: float
    high: float
    p: float | None = None
    """of the two-sided sign-flip test; None without a test, and for a median, which has no parts to flip"""


def intervals(folds: Sequence[RankedGallery], *, seed: int = 0, samples: int = SAMPLES) -> dict[str, Estimate]:
    """The interval of every figure, or of its mean over folds, by name in `FIGURES`.

    Items are drawn inside their fold, so all folds keep their size. A figure ignores the resamples in which
    a direction that it covers has no query in some fold.
    """
    rng = np.random.default_rng(seed)
    values_RC = np.mean(
        [np.concatenate([f.figures(w) for w in resamples(f.n_items, rng, samples)]) for f in folds], axis=0
    )
    estimate_C = np.mean([fold.figures()[0] for fold in folds], axis=0)
    rows = np.stack([estimate_C, *ends(values_RC)], axis=1).tolist()
    return {name: Estimate(*row) for name, row in zip(FIGURES, rows, strict=True)}


def ends(values_RC: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of each column, with `LEVEL` of the resamples between them; nan where all are nan."""
    tail = 50.0 * (1.0 - LEVEL)
    mute_C = np.isnan(values_RC).all(axis=0)
    low_C, high_C = np.nanpercentile(np.where(mute_C, 0.0, values_RC), [tail, 100.0 - tail], axis=0)
    return np.where(mute_C, np.nan, low_C), np.where(mute_C, np.nan, high_C)
