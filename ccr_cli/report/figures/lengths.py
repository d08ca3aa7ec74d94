"""Recall by the length of the query, with the share of each length and the gain over the baseline (NRCCR Figure 5).

Shape legend: Q queries, I items, R resamples, B classes of length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ccr_cli.artifacts.signature import HUMAN
from ccr_cli.metrics import breakdown
from ccr_cli.metrics.bootstrap import SAMPLES, ends, resamples
from ccr_cli.metrics.ranks import FloatArray
from ccr_cli.report.figures.canvas import GRID, INK, Style, legend_size, new_figure, styles, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData, figure
from ccr_cli.report.tables import comparable
from ccr_cli.report.words.numbers import percent

TOP = 5
SPREAD = 0.5
"""The share of a class's width over which methods are spread."""


@figure("lengths", "recall by length of the query", "ccr evaluate RUN")
def query_lengths(data: FigureData) -> Drawing | None:
    """Runs of the main view with known ranks."""
    captions, lang = data.data.dataset(data.main.data).captions(), data.main.lang
    if captions.empty or data.main.queries != HUMAN:
        return None
    captions = captions[captions["lang"] == lang].set_index("caption_id")
    counts, unit = breakdown.lengths(list(captions["text"]), lang)
    ranks: dict[str, list[pd.DataFrame]] = {}
    for run_id, label, result in data.results():
        part = data.data.ranks(run_id, str(result.get("signature")), "t2v")
        if part is not None and not part.empty:
            ranks.setdefault(label, []).append(part)
    baseline = comparable.counterpart(data.main.frame, data.findings.method, comparable.BASELINE)
    recall = by_length(ranks, pd.Series(counts.astype(int), captions.index), captions["item_id"], baseline)
    if recall is None:
        return None
    caption = (
        "Mean over the runs of a method, with 95% bootstrap intervals over items, each with all its queries; those of "
        "gains are paired. n: number of queries. The bars behind the lines show their share, not to scale."
    )
    return Drawing(draw(recall, unit, baseline), "R@5 by the length of the query", caption, data.queries)


@dataclass(frozen=True)
class RecallByLength:
    """Recall of methods in classes of length: by method (3, B), in percent, the value and the ends of its interval."""

    names: list[str]
    """`1`, `2`, `3-4`, `5+`"""
    count: NDArray[np.int64]
    """Of the queries."""
    recall: dict[str, FloatArray]
    """The mean over the runs of a method."""
    gain: dict[str, FloatArray]
    """The gain over the baseline, item by item; empty without a baseline."""


def by_length(
    ranks: Mapping[str, Sequence[pd.DataFrame]],
    lengths: "pd.Series[int]",
    items: "pd.Series[str]",
    baseline: str | None = None,
) -> RecallByLength | None:
    """R@5 in the classes of length by which an evaluation divides its queries, with 95% bootstrap intervals over items.

    Items are resampled with all their queries, the same ones for all methods: captions of one picture are not
    independent. `ranks` are by method `query_id` and `rank` of each of its runs; lengths and items are by query, and
    gains are over the baseline.
    """
    frames = {k: [f for f in parts if len(f) and f["query_id"].isin(lengths.index).all()] for k, parts in ranks.items()}
    frames = {label: parts for label, parts in frames.items() if parts}
    if not frames:
        return None
    lengths_Q = next(iter(frames.values()))[0]["query_id"].map(lengths).to_numpy(int)
    edges = np.array([lengths_Q[member].min() for member in breakdown.split(lengths_Q.astype(float))], dtype=int)
    if len(edges) < 2:
        return None
    codes = pd.Series(pd.factorize(items)[0], items.index)
    sums = {k: [_sums(f, lengths, codes, edges) for f in parts] for k, parts in frames.items()}
    known_I = np.any([count_IB.any(axis=1) for parts in sums.values() for _, count_IB in parts], axis=0)
    means = {k: np.mean(parts, axis=0)[:, known_I] for k, parts in sums.items()}
    n_items = int(known_I.sum())
    weights = chain([np.ones((1, n_items), dtype=np.int64)], resamples(n_items, np.random.default_rng(0), SAMPLES))
    with np.errstate(invalid="ignore"):  # nan where no query of a class was drawn
        blocks = [{k: (w_RI @ hit_IB) / (w_RI @ n_IB) for k, (hit_IB, n_IB) in means.items()} for w_RI in weights]
    drawn = {label: np.concatenate([block[label] for block in blocks]) for label in means}
    others = [label for label in drawn if label != baseline and not comparable.is_oracle(label)]
    lasts = [*(edges[1:] - 1), lengths_Q.max()]
    return RecallByLength(
        [f"{low}" if low == high else f"{low}\u2013{high}" for low, high in zip(edges, lasts, strict=True)],
        np.bincount(np.searchsorted(edges, lengths_Q, side="right") - 1, minlength=len(edges)),
        {label: _estimate(value_RB) for label, value_RB in drawn.items()},
        {label: _estimate(drawn[label] - drawn[baseline]) for label in others} if baseline in drawn else {},
    )


def _sums(part: pd.DataFrame, lengths: "pd.Series[int]", codes: "pd.Series[int]", edges: np.ndarray) -> FloatArray:
    """For each item and class, 100 times its successful queries, and the number of its queries: (2, I, B)."""
    class_Q = np.searchsorted(edges, part["query_id"].map(lengths).to_numpy(int), side="right") - 1
    place_Q = part["query_id"].map(codes).to_numpy(int) * len(edges) + class_Q
    hit_Q, shape = 100.0 * (part["rank"].to_numpy(float) <= TOP), (int(codes.max()) + 1, len(edges))
    return np.stack([np.bincount(place_Q, weight_Q, np.prod(shape)).reshape(shape) for weight_Q in (hit_Q, None)])


def _estimate(value_RB: FloatArray) -> FloatArray:
    """From the value, in the first row, and its resamples in the others."""
    return np.stack([value_RB[0], *ends(value_RB[1:])])


def draw(recall: RecallByLength, unit: str, baseline: str | None) -> Figure:
    """R@5 above the shares, and next to it the gain of each method over the baseline; both with intervals.

    The unit is `words` or `characters`.
    """
    width, look = 9.6 if recall.gain else 6.2, styles(recall.recall)
    ncols, lines = legend_size(list(look), width, 8.5)
    drawn = new_figure(width, 4.1 + 0.2 * lines)
    axes = drawn.subplots(1, 2 if recall.gain else 1, squeeze=False)[0]
    x, left = np.arange(len(recall.names)), axes[0]
    _points(left, recall.recall, look)
    high = max(1.05 * max(float(np.nanmax(estimate)) for estimate in recall.recall.values()), 10.0)
    share = recall.count / recall.count.sum()
    left.bar(x, share * high, color=GRID, width=0.9, zorder=1)
    left.set(ylim=(0.0, high), ylabel=f"R@{TOP}, %")
    if recall.gain:
        _points(axes[1], recall.gain, {label: style for label, style in look.items() if label in recall.gain})
        axes[1].axhline(0, color=INK, linewidth=1)
        axes[1].set_ylabel(wrapped(f"gain in R@{TOP} over {baseline}, points", 3.0, 0.1, 3))
    for ax in axes:
        classes = zip(recall.names, share, recall.count, strict=True)
        ax.set_xticks(x, [f"{name}\n{percent(part, 0)}\nn = {count:,}" for name, part, count in classes], fontsize=9)
        ax.set_xlabel(f"{unit} of the query, share of the queries" + " (bars)" * (ax is left))
        ax.set_xlim(-0.55, len(x) - 0.45)
        ax.grid(axis="x", visible=False)
    drawn.legend(*left.get_legend_handles_labels(), fontsize=8.5, loc="outside lower left", ncols=ncols)
    return drawn


def _points(ax: Axes, estimates: Mapping[str, FloatArray], look: Mapping[str, Style]) -> None:
    """A line per method with an error bar in each class, the methods of a class side by side."""
    step = SPREAD / max(len(look), 1)
    for place, (label, style) in enumerate(look.items()):
        value, low, high = estimates[label]
        x = np.arange(len(value)) + step * (place - (len(look) - 1) / 2)
        span = np.nan_to_num(np.maximum([value - low, high - value], 0.0))  # few items, or rounding
        line: dict[str, Any] = style | {"linewidth": 1.5, "elinewidth": 1, "markersize": 5, "zorder": 3}
        ax.errorbar(x, value, yerr=span, **line, label=label)
