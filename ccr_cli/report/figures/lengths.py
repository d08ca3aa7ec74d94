"""Recall by the length of the query, with the share of each length and the gain over the baseline (NRCCR Figure 5).

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

from ccr_cli.metrics import breakdown
from ccr_cli.metrics.bootstrap import LEVEL, SAMPLES, ends, resamples
from ccr_cli.report.figures.canvas import GRID, INK, Style, heading, legend_size, new_figure, panels, styles, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import percent

FloatArray = NDArray[np.float64]

TOP = 5
SPREAD = 0.5
"""The share of a class's width over which methods are spread."""


def query_lengths(data: FigureData) -> Drawing | None:
    """Runs of the main view with known ranks."""
    dataset = data.data.dataset(data.main.data)
    captions = dataset.captions() if dataset else None
    if captions is None or captions.empty:
        return None
    lang = data.main.lang
    captions = captions[captions["lang"] == lang]
    counts, unit = breakdown.lengths(list(captions["text"]), lang)
    lengths = dict(zip(captions["caption_id"], counts.astype(int).tolist(), strict=True))
    items = dict(zip(captions["caption_id"], captions["item_id"], strict=True))
    ranks: dict[str, list[pd.DataFrame]] = {}
    for run_id, label, result in data.results():
        part = data.data.ranks(run_id, str(result.get("signature")), "t2v")
        if part is not None and not part.empty:
            ranks.setdefault(label, []).append(part)
    baseline = results.counterpart(data.main.frame, data.findings.method, results.BASELINE)
    recall = by_length(ranks, lengths, items, baseline)
    if recall is None:
        return None
    caption = (
        "Mean over the runs of a method, with 95% bootstrap intervals over items, each with all its queries; those of "
        "gains are paired. n: number of queries. The bars behind the lines show their share, not to scale."
    )
    return Drawing(draw(recall, unit, baseline, data.queries), "R@5 by the length of the query", caption)


@dataclass(frozen=True)
class RecallEstimate:
    """A figure in each class of length, with its 95% bootstrap interval over items."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class RecallByLength:
    """Recall of methods in classes of length."""

    names: list[str]
    """`1`, `2`, `3-4`, `5+`"""
    count: NDArray[np.int64]
    """Of the queries."""
    recall: dict[str, RecallEstimate]
    """By method, in percent; the mean over its runs."""
    gain: dict[str, RecallEstimate]
    """By method, the gain over the baseline, item by item; empty without a baseline."""


def by_length(
    ranks: Mapping[str, Sequence[pd.DataFrame]],
    lengths: Mapping[str, int],
    items: Mapping[str, str],
    baseline: str | None = None,
) -> RecallByLength | None:
    """R@5 in the classes of length by which an evaluation divides its queries.

    Items are resampled with all their queries, the same ones for all methods: captions of one picture are not
    independent.

    Args:
        ranks: By method, `query_id` and `rank` of each of its runs.
        lengths: Of each query.
        items: The item of each query.
        baseline: The method over which gains are computed, if any.
    """
    frames = {k: [f for f in parts if len(f) and f["query_id"].isin(list(lengths)).all()] for k, parts in ranks.items()}
    frames = {label: parts for label, parts in frames.items() if parts}
    if not frames:
        return None
    lengths_Q = next(iter(frames.values()))[0]["query_id"].map(lengths).to_numpy(int)
    edges = np.array([lengths_Q[member].min() for member in breakdown.split(lengths_Q.astype(float))], dtype=int)
    if len(edges) < 2:
        return None
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items.values()))}
    codes = {query: numbers[item] for query, item in items.items()}
    sums = {k: [_sums(f, lengths, codes, edges) for f in parts] for k, parts in frames.items()}
    known_I = np.any([count_IB.any(axis=1) for parts in sums.values() for _, count_IB in parts], axis=0)
    means = {
        k: np.mean([(hit_IB[known_I], n_IB[known_I]) for hit_IB, n_IB in parts], axis=0) for k, parts in sums.items()
    }
    n_items = int(known_I.sum())
    weights = chain([np.ones((1, n_items), dtype=np.int64)], resamples(n_items, np.random.default_rng(0), SAMPLES))
    blocks = [{label: _recall(weight_RI, *mean) for label, mean in means.items()} for weight_RI in weights]
    drawn = {label: np.concatenate([block[label] for block in blocks]) for label in means}
    others = [label for label in drawn if label != baseline and not results.is_oracle(label)]
    return RecallByLength(
        _class_names(edges, int(lengths_Q.max())),
        np.bincount(np.searchsorted(edges, lengths_Q, side="right") - 1, minlength=len(edges)),
        {label: _estimate(value_RB) for label, value_RB in drawn.items()},
        {label: _estimate(drawn[label] - drawn[baseline]) for label in others} if baseline in drawn else {},
    )


def _class_names(edges: np.ndarray, most: int) -> list[str]:
    lasts = [*(int(edge) - 1 for edge in edges[1:]), most]
    pairs = zip((int(edge) for edge in edges), lasts, strict=True)
    return [f"{low}" if low == high else f"{low}\u2013{high}" for low, high in pairs]


def _sums(
    part: pd.DataFrame, lengths: Mapping[str, int], codes: Mapping[str, int], edges: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """For each item and class, 100 times its successful queries, and the number of its queries."""
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


def _estimate(value_RB: FloatArray) -> RecallEstimate:
    """From the value, in the first row, and its resamples in the others."""
    return RecallEstimate(value_RB[0], *ends(value_RB[1:], LEVEL))


def draw(recall: RecallByLength, unit: str, baseline: str | None, title: str = "") -> Figure | None:
    """R@5 above the shares, and next to it the gain of each method over the baseline; both with intervals.

    Args:
        recall: From `by_length`.
        unit: `words` or `characters`.
        baseline: The method over which gains are computed, if any.
        title: Over the figure.
    """
    labels = sorted(recall.recall, key=results.method_order)
    width = 9.6 if recall.gain else 6.2
    ncols, lines = legend_size(labels, width, 8.5)
    figure = new_figure(width, 4.1 + 0.2 * lines)
    axes = panels(figure, 1, 2 if recall.gain else 1)[0]
    x, left, look = np.arange(len(recall.names)), axes[0], styles(labels)
    _points(left, recall.recall, labels, look)
    high = max(1.05 * max(float(np.nanmax(estimate.high)) for estimate in recall.recall.values()), 10.0)
    share = recall.count / recall.count.sum()
    left.bar(x, share * high, color=GRID, width=0.9, zorder=1)
    left.set(ylim=(0.0, high), ylabel=f"R@{TOP}, %")
    if recall.gain:
        _points(axes[1], recall.gain, [label for label in labels if label in recall.gain], look)
        axes[1].axhline(0, color=INK, linewidth=1)
        axes[1].set_ylabel(wrapped(f"gain in R@{TOP} over {baseline}, points", 3.0, 0.1, 3))
    for ax in axes:
        classes = zip(recall.names, share, recall.count, strict=True)
        ax.set_xticks(x, [f"{name}\n{percent(part, 0)}\nn = {count:,}" for name, part, count in classes], fontsize=9)
        ax.set_xlabel(f"{unit} of the query, share of the queries" + " (bars)" * (ax is left))
        ax.set_xlim(-0.55, len(x) - 0.45)
        ax.grid(axis="x", visible=False)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8.5, loc="outside lower center", ncols=ncols)
    heading(figure, title)
    return figure


def _points(
    ax: Axes, estimates: Mapping[str, RecallEstimate], labels: Sequence[str], look: Mapping[str, Style]
) -> None:
    """A line per method with an error bar in each class, the methods of a class side by side."""
    step = SPREAD / max(len(labels), 1)
    for place, label in enumerate(labels):
        estimate, style = estimates[label], look[label]
        x = np.arange(len(estimate.value)) + step * (place - (len(labels) - 1) / 2)
        line: dict[str, Any] = {k: v for k, v in style.items() if k != "linewidth"}
        span = np.maximum(
            [estimate.value - estimate.low, estimate.high - estimate.value], 0.0
        )  # few items, or rounding
        ax.errorbar(
            x,
            estimate.value,
            yerr=np.nan_to_num(span),
            **line,
            linewidth=1.5,
            elinewidth=1,
            markersize=5,
            label=label,
            zorder=3,
        )
