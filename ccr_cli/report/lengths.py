"""Recall by the length of the query, with the share of each length and the gain over the baseline (NRCCR Figure 5).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ccr_cli.metrics.breakdown import split
from ccr_cli.report import compare
from ccr_cli.report.canvas import FAINT, GRID, INK, new_figure, panels, styles

TOP = 5


@dataclass(frozen=True)
class ByLength:
    """Recall of one method in classes of length."""

    names: list[str]
    """`1`, `2`, `3-4`, `5+`"""
    share: np.ndarray
    """of the queries"""
    recall: dict[str, np.ndarray]
    """By method, percent; the mean over its runs."""


def by_length(ranks: Mapping[str, Sequence[pd.DataFrame]], lengths: Mapping[str, int]) -> ByLength | None:
    """R@5 in the classes of length into which an evaluation parts its queries.

    Args:
        ranks: By method, `query_id` and `rank` of each of its runs.
        lengths: Of each query.
    """
    frames = {k: [f for f in parts if len(f) and f["query_id"].isin(list(lengths)).all()] for k, parts in ranks.items()}
    frames = {label: parts for label, parts in frames.items() if parts}
    if not frames:
        return None
    asked = next(iter(frames.values()))[0]["query_id"].map(lengths).to_numpy(int)
    edges = np.array([asked[member].min() for member in split(asked.astype(float))], dtype=int)
    if len(edges) < 2:
        return None
    code = np.searchsorted(edges, asked, side="right") - 1
    share = np.bincount(code, minlength=len(edges)) / len(asked)
    recall = {
        label: np.mean([_recall(part, lengths, edges) for part in parts], axis=0) for label, parts in frames.items()
    }
    return ByLength(_names(edges, int(asked.max())), share, recall)


def _names(edges: np.ndarray, most: int) -> list[str]:
    ends = [*(int(edge) - 1 for edge in edges[1:]), most]
    pairs = zip((int(edge) for edge in edges), ends, strict=True)
    return [f"{low}" if low == high else f"{low}\u2013{high}" for low, high in pairs]


def _recall(part: pd.DataFrame, lengths: Mapping[str, int], edges: np.ndarray) -> np.ndarray:
    code = np.searchsorted(edges, part["query_id"].map(lengths).to_numpy(int), side="right") - 1
    hit = 100.0 * (part["rank"].to_numpy(float) <= TOP)
    count = np.bincount(code, minlength=len(edges))
    return np.bincount(code, weights=hit, minlength=len(edges)) / np.maximum(count, 1)


def draw(found: ByLength, counted: str, baseline: str | None, title: str = "") -> Figure | None:
    """The figure: R@5 above the shares; beside it what each method gains over the baseline.

    Args:
        found: What to draw.
        counted: words or characters.
        baseline: The method that gains are over, where there is one.
        title: Over the figure.
    """
    labels = sorted(found.recall, key=compare.method_order)
    others = [label for label in labels if label != baseline and not compare.is_oracle(label)]
    gains = baseline in labels and bool(others)
    figure = new_figure(9.0 if gains else 5.6, 3.7 + 0.2 * -(-len(labels) // 5))
    axes = panels(figure, 1, 2 if gains else 1)[0]
    x = np.arange(len(found.names))
    left, look = axes[0], styles(labels)
    for label in labels:
        line: dict[str, Any] = {k: v for k, v in look[label].items() if k != "linewidth"}
        left.plot(x, found.recall[label], **line, linewidth=1.7, markersize=5, label=label, zorder=3)
    low, high = 0.0, max(float(np.max(values)) for values in found.recall.values())
    high = max(1.1 * high, 10.0)
    bars = left.bar(x, found.share * high, color=GRID, width=0.8, zorder=1)
    for bar, share in zip(bars, found.share, strict=True):
        middle = bar.get_x() + bar.get_width() / 2
        left.text(middle, 0.012 * high, f"{100 * share:.0f} %", ha="center", fontsize=8, color=FAINT, zorder=4)
    left.set(ylim=(low, high), ylabel=f"R@{TOP}, %")
    if gains:
        right, width = axes[1], 0.8 / len(others)
        for place, label in enumerate(others):
            gain = found.recall[label] - found.recall[str(baseline)]
            at = x - 0.4 + width * (place + 0.5)
            right.bar(at, gain, width=0.92 * width, color=look[label]["color"], label=label, zorder=3)
        right.axhline(0, color=INK, linewidth=1)
        right.set_ylabel(f"R@{TOP} \u2212 that of {baseline}, points")
    for ax in axes:
        ax.set_xticks(x, found.names)
        ax.set_xlabel(
            f"{counted} of the query (bars: share of the queries)" if ax is left else f"{counted} of the query"
        )
        ax.grid(axis="x", visible=False)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8.5, loc="outside lower center", ncols=min(5, len(names)))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure
