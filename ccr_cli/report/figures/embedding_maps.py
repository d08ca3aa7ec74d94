"""A map of items with their captions: t-SNE of the embeddings (UML Figure 6).

To be called inside `canvas.drawing`, but for `place`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from ccr_cli.report.content import EmbeddingMap
from ccr_cli.report.figures.canvas import FAINT, across, new_figure, panels
from ccr_cli.report.figures.search_strip import squared
from ccr_cli.report.thumbnails import thumbnail

SIDE, INCHES = 96, 0.24
LEAST = 4
"""Points of which a map is drawn."""
MOST = 4
"""Maps in one figure."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6bb1", "#7a5c3d", "#56b4e9", "#e69f00", "#737a85")


def place(drawn: EmbeddingMap) -> np.ndarray:
    """Points (V + T, 2): t-SNE by cosine distance, the same each time."""
    from sklearn.manifold import TSNE

    whole = np.concatenate([drawn.item_VD, drawn.text_TD]).astype(np.float64)
    near = max(1.0, min(15.0, (len(whole) - 1) / 3))
    found: np.ndarray = TSNE(2, perplexity=near, metric="cosine", init="random", random_state=0).fit_transform(whole)
    return found


def draw(maps: Sequence[EmbeddingMap]) -> Figure | None:
    """A panel a map: each item's picture, its captions as dots, each on a line to its item."""
    shown = [each for each in maps if len(each.item_ids) + len(each.item_T) >= LEAST][:MOST]
    if not shown:
        return None
    columns = across(len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(max(4.6 * columns, 6.0), 4.6 * rows)
    axes = [ax for line in panels(figure, rows, columns) for ax in line]
    for ax, each in zip(axes, shown, strict=False):
        _panel(ax, each)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    return figure


def _panel(ax: Axes, drawn: EmbeddingMap) -> None:
    points = place(drawn)
    items, texts = points[: len(drawn.item_ids)], points[len(drawn.item_ids) :]
    for row, item in enumerate(drawn.item_ids):
        color, own = COLORS[row % len(COLORS)], texts[drawn.item_T == row]
        for x, y in own:
            ax.plot([items[row, 0], x], [items[row, 1], y], color=color, linewidth=0.9, alpha=0.65, zorder=2)
        ax.plot(own[:, 0], own[:, 1], "o", color=color, markersize=5, markeredgecolor="#ffffff", zorder=3)
        picture = thumbnail(drawn.image(item), SIDE)
        if picture is None:
            ax.plot(*items[row], "s", color=color, markersize=9, markeredgecolor="#ffffff", zorder=4)
        else:
            box = OffsetImage(squared(np.asarray(picture)), zoom=72 * INCHES / max(picture.size))
            frame: dict[str, Any] = {"edgecolor": color, "linewidth": 1.2}
            ax.add_artist(AnnotationBbox(box, tuple(items[row]), pad=0.12, bboxprops=frame, zorder=4))
    ax.set_title(f"{drawn.run.partition('-seed')[0]}, {drawn.lang}", fontsize=9.5)
    said = f"of {len(drawn.item_T)} captions {100 * drawn.nearest:.0f}% are nearest to their own item"
    ax.set_xlabel(said, fontsize=8.5, color=FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.margins(0.08)
