"""Whether one system retrieves better than another, on the same queries of the same items.

The interval of a difference weights both systems by the same resample of items (`bootstrap`). The test (Fisher's
randomisation) asks how often a difference as large arises if a coin toss swaps the two systems for each item: it flips
the sign of the item's part in the difference, with its queries of both directions together.
Several seeds of a system count as the mean of their figures: interval and test then describe these trained models on
other items, not other seeds.

Shape legend: I items, R resamples or flips, C figures, K means of one direction, E an estimate and its ends.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from ccr_cli.metrics.bootstrap import FIGURES, ROOM, Estimate, RankedGallery, combined, ends, resamples
from ccr_cli.metrics.ranks import FloatArray

SAMPLES, FLIPS = 2000, 10_000
"""Resamples for the interval of a difference, and random flips for its p value."""
ALPHA = 0.05
ROUNDING = 1e-9
"""A smaller difference is a rounding error between equal figures."""
_MEANS = tuple(name for name in FIGURES if not name.endswith(".MedR"))

System = Sequence[Sequence[RankedGallery]]
"""A system: the folds of each seed, each a gallery with the same items and queries in the same order for all seeds."""


def differences(
    first: System, second: System, *, seed: int = 0, samples: int = SAMPLES, flips: int = FLIPS
) -> dict[str, Estimate]:
    """Every figure of the second system minus that of the first, as a mean over folds, by name.

    Items are drawn inside their fold. p is (1 + flips that differ as much) / (1 + flips).

    Raises:
        ValueError: If seeds or systems differ in their folds or queries.
    """
    _check([*first, *second])
    rng = np.random.default_rng(seed)
    n_folds = len(first[0])
    estimate_C = _mean([fold.figures() for run in second for fold in run])[0]
    estimate_C = estimate_C - _mean([fold.figures() for run in first for fold in run])[0]
    values_RC = np.zeros((samples, len(FIGURES)))
    for n in range(n_folds):
        start = 0
        for weight_RI in resamples(first[0][n].n_items, rng, samples):
            rows = slice(start, start := start + len(weight_RI))
            gap_RC = _mean([run[n].figures(weight_RI) for run in second])
            values_RC[rows] += (gap_RC - _mean([run[n].figures(weight_RI) for run in first])) / n_folds
    p_of = _flipped(first, second, rng, flips)
    rows_CE = np.stack([estimate_C, *ends(values_RC)], axis=1)
    rows_CE[np.abs(rows_CE) < ROUNDING] = 0.0
    values = zip(FIGURES, rows_CE.tolist(), strict=True)
    return {name: Estimate(estimate, low, high, p_of.get(name)) for name, (estimate, low, high) in values}


def interval_of_difference(
    first: System, second: System, figure: str, *, seed: int = 0, samples: int = SAMPLES
) -> Estimate:
    """One figure (no median) of the second system minus that of the first, as in `differences`, without a test.

    Many seeds take no longer than one: their parts in the difference are averaged item by item first.
    """
    _check([*first, *second])
    rng, column = np.random.default_rng(seed), _MEANS.index(figure)
    values_R = np.zeros(1 + samples)  # the first: of the queries as they are
    for fold, gap in zip(first[0], _gaps(first, second), strict=True):
        values = []
        for weight_RI in chain([np.ones((1, fold.n_items), dtype=np.int64)], resamples(fold.n_items, rng, samples)):
            means = [side.means(weight_RI, gap_IK) for side, gap_IK in zip(fold.sides, gap, strict=True)]
            values.append(combined(means)[:, column] / len(first[0]))
        values_R += np.concatenate(values)
    low_C, high_C = ends(values_R[1:, None])
    return Estimate(float(values_R[0]), float(low_C[0]), float(high_C[0]))


def _gaps(first: System, second: System) -> list[list[FloatArray]]:
    """For each fold and direction: each item's part in the sums, second system minus first, (I, K)."""
    return [
        [
            _mean([run[n].sides[side].sum_IK for run in second]) - _mean([run[n].sides[side].sum_IK for run in first])
            for side in range(2)
        ]
        for n in range(len(first[0]))
    ]


def _mean(values: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(np.mean(values, axis=0))


def _flipped(first: System, second: System, rng: np.random.Generator, flips: int) -> dict[str, float]:
    """The share of sign assignments with a difference as large, for each figure that is a mean."""
    gap = [  # for each fold and direction: each item's part in the difference, (I, K)
        [sum_IK / max(side.count_I.sum(), 1.0) for side, sum_IK in zip(fold.sides, sums, strict=True)]
        for fold, sums in zip(first[0], _gaps(first, second), strict=True)
    ]
    found_C = _mean([combined([side.sum(axis=0)[None] for side in sides]) for sides in gap])[0]
    least_C = np.abs(found_C) * (1 - 1e-9) - 1e-12  # as large but for rounding
    as_large_C = np.zeros(len(_MEANS))
    n_items = sum(len(sides[0]) for sides in gap)
    cuts = np.cumsum([len(sides[0]) for sides in gap])[:-1]
    rows = max(1, ROOM // n_items)
    for start in range(0, flips, rows):
        sign_RI = 2.0 * rng.integers(0, 2, (min(rows, flips - start), n_items), dtype=np.int8) - 1.0
        parts = zip(np.split(sign_RI, cuts, axis=1), gap, strict=True)
        drawn_RC = _mean([combined([sign @ side for side in sides]) for sign, sides in parts])
        as_large_C += (np.abs(drawn_RC) >= least_C).sum(axis=0)
    return {name: float(p) for name, p in zip(_MEANS, (1 + as_large_C) / (1 + flips), strict=True)}


def holm(p: Sequence[float | None]) -> list[float | None]:
    """P values of several comparisons, corrected for the family-wise error rate; None stays None.

    Holm's step-down: the smallest is multiplied by their number, the next by one less, and so on; none falls below
    one before it.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((value, at) for at, value in enumerate(p) if value is not None)
    out: list[float | None] = [None] * len(p)
    highest = 0.0
    for place, (value, at) in enumerate(known):
        out[at] = highest = max(highest, min(1.0, (len(known) - place) * value))
    return out


def _check(runs: Sequence[Sequence[RankedGallery]]) -> None:
    first, *others = ([side.count_I for fold in run for side in fold.sides] for run in runs)
    if any(len(other) != len(first) or not all(map(np.array_equal, first, other)) for other in others):
        counts = " and ".join(str([int(side.sum()) for side in run]) for run in (first, *others))
        raise ValueError(f"the compared systems have different queries: {counts}")
