"""Recall by the length of the query, with the share of each length and the gain over the baseline (NRCCR Figure 5).

To be called inside `canvas.drawing`.

Shape legend: Q queries, I items, R resamples, B classes of length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ccr_cli.metrics.bootstrap import LEVEL, SAMPLES, ends, resamples
from ccr_cli.metrics.breakdown import split
from ccr_cli.report.figures.canvas import GRID, INK, Style, new_figure, panels, styles
from ccr_cli.report.figures.lettering import heading, legend_size, wrapped
from ccr_cli.report.tables import results

FloatArray = NDArray[np.float64]

TOP = 5
SPREAD = 0.5
"""How far apart methods are drawn in a class: the share of its width that they take."""


@dataclass(frozen=True)
class Estimate:
    """A figure in each class of length, with its 95% bootstrap interval over items."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class ByLength:
    """Recall of methods in classes of length."""

    names: list[str]
    """`1`, `2`, `3-4`, `5+`"""
    count: NDArray[np.int64]
    """of the queries"""
    recall: dict[str, Estimate]
    """By method, percent; the mean over its runs."""
    gain: dict[str, Estimate]
    """By method, what that is above the baseline's, item by item; empty where there is none."""


def by_length(
    ranks: Mapping[str, Sequence[pd.DataFrame]],
    lengths: Mapping[str, int],
    items: Mapping[str, str],
    baseline: str | None = None,
) -> ByLength | None:
    """R@5 in the classes of length into which an evaluation parts its queries.

    Items are resampled, each with all its queries, the same ones for all methods: captions of one picture are not
    independent.

    Args:
        ranks: By method, `query_id` and `rank` of each of its runs.
        lengths: Of each query.
        items: Of each query, what it asks for.
        baseline: The method that gains are over, where there is one.
    """
    frames = {k: [f for f in parts if len(f) and f["query_id"].isin(list(lengths)).all()] for k, parts in ranks.items()}
    frames = {label: parts for label, parts in frames.items() if parts}
    if not frames:
        return None
    asked = next(iter(frames.values()))[0]["query_id"].map(lengths).to_numpy(int)
    edges = np.array([asked[member].min() for member in split(asked.astype(float))], dtype=int)
    if len(edges) < 2:
        return None
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items.values()))}
    codes = {query: numbers[item] for query, item in items.items()}
    sums = {k: [_sums(f, lengths, codes, edges) for f in parts] for k, parts in frames.items()}
    there_I = np.any([count_IB.any(axis=1) for parts in sums.values() for _, count_IB in parts], axis=0)
    means = {
        k: np.mean([(hit_IB[there_I], n_IB[there_I]) for hit_IB, n_IB in parts], axis=0) for k, parts in sums.items()
    }
    n_items = int(there_I.sum())
    weights = chain([np.ones((1, n_items), dtype=np.int64)], resamples(n_items, np.random.default_rng(0), SAMPLES))
    blocks = [{label: _recall(weight_RI, *mean) for label, mean in means.items()} for weight_RI in weights]
    drawn = {label: np.concatenate([block[label] for block in blocks]) for label in means}
    others = [label for label in drawn if label != baseline and not results.is_oracle(label)]
    return ByLength(
        _names(edges, int(asked.max())),
        np.bincount(np.searchsorted(edges, asked, side="right") - 1, minlength=len(edges)),
        {label: _estimate(value_RB) for label, value_RB in drawn.items()},
        {label: _estimate(drawn[label] - drawn[baseline]) for label in others} if baseline in drawn else {},
    )


def _names(edges: np.ndarray, most: int) -> list[str]:
    lasts = [*(int(edge) - 1 for edge in edges[1:]), most]
    pairs = zip((int(edge) for edge in edges), lasts, strict=True)
    return [f"{low}" if low == high else f"{low}\u2013{high}" for low, high in pairs]


def _sums(
    part: pd.DataFrame, lengths: Mapping[str, int], codes: Mapping[str, int], edges: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Of each item and class the queries that found it, in percent, and all of them."""
    shape = (max(codes.values()) + 1, len(edges))
    class_Q = np.searchsorted(edges, part["query_id"].map(lengths).to_numpy(int), side="right") - 1
    place_Q = part["query_id"].map(codes).to_numpy(int) * len(edges) + class_Q
    hit_IB, count_IB = np.zeros(shape), np.zeros(shape)
    np.add.at(hit_IB.ravel(), place_Q, 100.0 * (part["rank"].to_numpy(float) <= TOP))
    np.add.at(count_IB.ravel(), place_Q, 1.0)
    return hit_IB, count_IB


def _recall(weight_RI: NDArray[np.int64], hit_IB: FloatArray, count_IB: FloatArray) -> FloatArray:
    """Recall in each resample and class, (R, B); nan where no query of the class was drawn."""
    with np.errstate(invalid="ignore"):
        recall_RB: FloatArray = (weight_RI @ hit_IB) / (weight_RI @ count_IB)
    return recall_RB


def _estimate(value_RB: FloatArray) -> Estimate:
    """From the figure itself, in the first row, and its resamples in the others."""
    return Estimate(value_RB[0], *ends(value_RB[1:], LEVEL))


def draw(found: ByLength, counted: str, baseline: str | None, title: str = "") -> Figure | None:
    """The figure: R@5 above the shares; beside it what each method gains over the baseline; both with intervals.

    Args:
        found: What to draw.
        counted: words or characters.
        baseline: The method that gains are over, where there is one.
        title: Over the figure.
    """
    labels = sorted(found.recall, key=results.method_order)
    width = 9.6 if found.gain else 6.2
    ncols, lines = legend_size(labels, width, 8.5)
    figure = new_figure(width, 4.1 + 0.2 * lines)
    axes = panels(figure, 1, 2 if found.gain else 1)[0]
    x, left, look = np.arange(len(found.names)), axes[0], styles(labels)
    _points(left, found.recall, labels, look)
    high = max(1.05 * max(float(np.nanmax(each.high)) for each in found.recall.values()), 10.0)
    share = found.count / found.count.sum()
    left.bar(x, share * high, color=GRID, width=0.9, zorder=1)
    left.set(ylim=(0.0, high), ylabel=f"R@{TOP}, %")
    if found.gain:
        _points(axes[1], found.gain, [label for label in labels if label in found.gain], look)
        axes[1].axhline(0, color=INK, linewidth=1)
        axes[1].set_ylabel(wrapped(f"R@{TOP} \u2212 that of {baseline}, points", 3.0, 0.1, 3))
    for ax in axes:
        told = zip(found.names, share, found.count, strict=True)
        ax.set_xticks(x, [f"{name}\n{100 * part:.0f} %\nn = {count:,}" for name, part, count in told], fontsize=9)
        ax.set_xlabel(f"{counted} of the query, share of the queries" + " (bars)" * (ax is left))
        ax.set_xlim(-0.55, len(x) - 0.45)
        ax.grid(axis="x", visible=False)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8.5, loc="outside lower center", ncols=ncols)
    heading(figure, title)
    return figure


def _points(ax: Axes, found: Mapping[str, Estimate], labels: Sequence[str], look: Mapping[str, Style]) -> None:
    """A line a method with a bar at each class, the methods of a class side by side."""
    step = SPREAD / max(len(labels), 1)
    for place, label in enumerate(labels):
        each, style = found[label], look[label]
        x = np.arange(len(each.value)) + step * (place - (len(labels) - 1) / 2)
        line: dict[str, Any] = {k: v for k, v in style.items() if k != "linewidth"}
        span = np.maximum([each.value - each.low, each.high - each.value], 0.0)  # rounding, or a few items alone
        ax.errorbar(
            x,
            each.value,
            yerr=np.nan_to_num(span),
            **line,
            linewidth=1.5,
            elinewidth=1,
            markersize=5,
            label=label,
            zorder=3,
        )
