"""Whether scores tell queries of one kind from those of another, such as intact from corrupted: bootstrap over items.

Every item is drawn with all its queries of both kinds, and all scores see the same draw.

Shape legend: Q queries of both kinds, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ccr_cli.metrics.bootstrap import LEVEL, ROOM, SAMPLES, FloatArray, ends
from ccr_cli.metrics.detection import auroc
from ccr_cli.metrics.uncertainty_comparison import FIGURES, Doubt


def apart(
    known: Mapping[str, ArrayLike],
    unknown: Mapping[str, ArrayLike],
    known_item: ArrayLike,
    unknown_item: ArrayLike,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    level: float = LEVEL,
) -> dict[str, dict[str, Any]]:
    """How well each score tells unknown queries, which should score higher, from known ones.

    Args:
        known: By name a score of every known query. The first is held against the others.
        unknown: By the same names, of every unknown query.
        known_item: The item of each known query: numbers, or names.
        unknown_item: Of each unknown query; one that has queries of both kinds is drawn with both.
        seed: Of the resampling.
        samples: Number of resamples.
        level: Share of the resamples between the ends.

    Returns:
        By name `auroc` and its `interval`; the `means` of known and unknown queries, and the interval of the `rise`
        from one to the other; and for all but the first `gap`, the interval of the first's AUROC minus its. A resample
        that lacks a kind says nothing.

    Raises:
        ValueError: If there is no query of a kind.
    """
    items = np.concatenate([np.asarray(known_item), np.asarray(unknown_item)])
    code_Q = np.unique(items, return_inverse=True)[1]
    unknown_Q = np.arange(len(items)) >= len(np.asarray(known_item))
    if unknown_Q.all() or not unknown_Q.any():
        raise ValueError("there are no queries of two kinds")
    score = {name: np.concatenate([np.asarray(known[name]), np.asarray(unknown[name])]) for name in known}
    doubts = {name: Doubt(score_Q, 1 + unknown_Q) for name, score_Q in score.items()}
    areas: dict[str, list[FloatArray]] = {name: [] for name in score}
    rises: dict[str, list[FloatArray]] = {name: [] for name in score}
    rng, n_items = np.random.default_rng(seed), int(code_Q.max()) + 1
    rows = max(1, ROOM // len(code_Q))
    for start in range(0, samples, rows):
        drawn_RI = rng.integers(0, n_items, (min(rows, samples - start), n_items))
        weight_RI = np.stack([np.bincount(drawn_I, minlength=n_items) for drawn_I in drawn_RI])
        weight_RQ = weight_RI[:, code_Q]
        for name, doubt in doubts.items():
            areas[name].append(doubt.figures(weight_RQ)[:, FIGURES.index("auroc")])
            rises[name].append(_rise(score[name], unknown_Q, weight_RQ))
    area = {name: np.concatenate(parts) for name, parts in areas.items()}
    first, out = next(iter(score)), {}
    for name, score_Q in score.items():
        rise_R = np.concatenate(rises[name])
        out[name] = {
            "auroc": auroc(score_Q, unknown_Q),
            "interval": _ends(area[name], level),
            "means": [float(score_Q[~unknown_Q].mean()), float(score_Q[unknown_Q].mean())],
            "rise": _ends(rise_R, level),
        }
        if name != first:
            out[name]["gap"] = _ends(area[first] - area[name], level)
    return out


def _rise(score_Q: FloatArray, unknown_Q: np.ndarray, weight_RQ: np.ndarray) -> FloatArray:
    """The mean of unknown queries less that of known ones, by resample (R,); nan where one kind was not drawn."""
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [
            weight_RQ[:, kind_Q] @ score_Q[kind_Q] / weight_RQ[:, kind_Q].sum(axis=1)
            for kind_Q in (unknown_Q, ~unknown_Q)
        ]
    rise_R: FloatArray = means[0] - means[1]
    return rise_R


def _ends(value_R: FloatArray, level: float) -> list[float] | None:
    low, high = ends(value_R[:, None], level)
    return None if np.isnan(low[0]) else [float(low[0]), float(high[0])]
