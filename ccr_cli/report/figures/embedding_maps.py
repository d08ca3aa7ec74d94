"""A map of items with their captions: t-SNE of the embeddings (UML Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from ccr_cli.report.content import EmbeddingMap
from ccr_cli.report.figures.canvas import FAINT, panel_grid
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.figures.searches import squared
from ccr_cli.report.thumbnails import thumbnail
from ccr_cli.report.words.numbers import percent

SIDE, INCHES = 96, 0.24
LEAST = 4
"""Number of points that a map needs."""
MOST = 4
"""Number of maps in the figure."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6bb1", "#7a5c3d", "#56b4e9", "#e69f00", "#737a85")


def item_map(data: FigureData) -> Drawing:
    """The maps of the report."""
    caption = (
        "t-SNE of the embeddings by cosine distance; items drawn by a fixed seed, with a line from each caption to its "
        "item. Distances between groups have no meaning."
    )
    return Drawing(draw(data.data.maps), "Map of items with their captions", caption)


def place(drawn: EmbeddingMap) -> np.ndarray:
    """Points (V + T, 2): t-SNE by cosine distance, deterministic."""
    from sklearn.manifold import TSNE

    whole = np.concatenate([drawn.item_VD, drawn.text_TD]).astype(np.float64)
    near = max(1.0, min(15.0, (len(whole) - 1) / 3))
    points: np.ndarray = TSNE(2, perplexity=near, metric="cosine", init="random", random_state=0).fit_transform(whole)
    return points


def draw(maps: Sequence[EmbeddingMap]) -> Figure | None:
    """A panel per map: the picture of each item, and its captions as dots with a line to it."""
    shown = [drawn for drawn in maps if len(drawn.item_ids) + len(drawn.item_T) >= LEAST][:MOST]
    if not shown:
        return None
    figure, axes, _ = panel_grid(len(shown), 4.6, 4.6, least=6.0)
    for ax, drawn in zip(axes, shown, strict=True):
        _panel(ax, drawn)
    return figure


def _panel(ax: Axes, drawn: EmbeddingMap) -> None:
    points = place(drawn)
    items, texts = points[: len(drawn.item_ids)], points[len(drawn.item_ids) :]
    for row, item in enumerate(drawn.item_ids):
        color, captions = COLORS[row % len(COLORS)], texts[drawn.item_T == row]
        for x, y in captions:
            ax.plot([items[row, 0], x], [items[row, 1], y], color=color, linewidth=0.9, alpha=0.65, zorder=2)
        ax.plot(captions[:, 0], captions[:, 1], "o", color=color, markersize=5, markeredgecolor="#ffffff", zorder=3)
        picture = thumbnail(drawn.image(item), SIDE)
        if picture is None:
            ax.plot(*items[row], "s", color=color, markersize=9, markeredgecolor="#ffffff", zorder=4)
        else:
            box = OffsetImage(squared(np.asarray(picture)), zoom=72 * INCHES / max(picture.size))
            frame: dict[str, Any] = {"edgecolor": color, "linewidth": 1.2}
            ax.add_artist(AnnotationBbox(box, tuple(items[row]), pad=0.12, bboxprops=frame, zorder=4))
    ax.set_title(f"{drawn.run.partition('-seed')[0]}, {drawn.lang}", fontsize=9.5)
    text = f"{percent(drawn.nearest, 0)} of {len(drawn.item_T)} captions are nearest to their own item"
    ax.set_xlabel(text, fontsize=8.5, color=FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.margins(0.08)
