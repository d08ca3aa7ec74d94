"""The strip of searches: each query with its first images, the right one framed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.figures.canvas import CLEAN, FAINT, GRID, INK, new_figure
from ccr_cli.report.figures.lettering import wrapped
from ccr_cli.report.thumbnails import thumbnail

RIGHT = "#009e73"
SIDE = 160


def strip(searches: Sequence[ExampleSearch], top: int = 5, width: float = 9.0, shares: bool = False) -> Figure | None:
    """Draws searches, a row a query: its text and meaning, then the images found with their similarity.

    Args:
        searches: The queries with their results.
        top: Most images a query.
        width: In inches.
        shares: Whether what stands as similarity are shares of one, and drawn as bars too.
    """
    if not searches:
        return None
    columns = min(top, max(len(s.results) for s in searches))
    row = 1.22
    figure = new_figure(width, row * len(searches) + 0.12)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, row * len(searches) + 0.12))
    axes.axis("off")
    text_width = width - columns * 1.12 - 0.1
    for line, search in enumerate(searches):
        bottom = row * (len(searches) - 1 - line) + 0.12
        middle = bottom + 0.62
        axes.text(
            0.12,
            middle + 0.03,
            wrapped(search.query, text_width - 0.2, 0.135, 2),
            fontsize=13,
            va="bottom",
            fontweight="bold",
        )
        axes.text(
            0.12,
            middle - 0.07,
            wrapped(_gloss(search), text_width - 0.2, 0.082, 2),
            fontsize=9.5,
            va="top",
            color=FAINT,
        )
        if line:
            axes.plot([0.12, width - 0.12], [bottom + row - 0.06] * 2, color=GRID, linewidth=0.8)
        for place, found in enumerate(search.results[:columns]):
            left = text_width + place * 1.12 + 0.14
            image = thumbnail(found.image, SIDE)
            foot = 0.08 if shares else 0.0
            box = (left + foot / 2, left + 0.84 - foot / 2, bottom + 0.24 + foot, bottom + 1.08)
            if image is None:
                axes.text(
                    left + 0.42,
                    middle + 0.04,
                    wrapped(found.caption or found.item_id, 0.84, 0.058, 3),
                    fontsize=7,
                    ha="center",
                    va="center",
                    color=FAINT,
                )
            else:
                square = squared(np.asarray(image))
                axes.imshow(square, extent=box, aspect="auto", interpolation="lanczos", zorder=2)
            if found.correct:
                frame = FancyBboxPatch(
                    (left - 0.02, bottom + 0.22),
                    0.88,
                    0.88,
                    boxstyle="round,pad=0.02,rounding_size=0.08",
                    fill=False,
                    edgecolor=RIGHT,
                    linewidth=2.6,
                    zorder=3,
                )
                axes.add_patch(frame)
            if shares:
                look: dict[str, Any] = {"edgecolor": "none", "zorder": 4}
                axes.add_patch(Rectangle((left, bottom + 0.24), 0.84, 0.05, facecolor=GRID, **look))
                filled = 0.84 * min(max(found.similarity, 0.0), 1.0)
                axes.add_patch(Rectangle((left, bottom + 0.24), filled, 0.05, facecolor=CLEAN, **look))
            axes.text(
                left + 0.42,
                bottom + 0.1,
                f"{found.similarity:.2f}" + ("  ✓" if found.correct else ""),
                fontsize=8.5,
                ha="center",
                va="center",
                color=RIGHT if found.correct else INK,
                fontweight="bold" if found.correct else "normal",
            )
    return figure


def _gloss(search: ExampleSearch) -> str:
    meant = f"{search.gloss_lang}: “{search.gloss}”" if search.gloss_lang else f"“{search.gloss}”"
    parts = [search.lang, *([meant] if search.gloss else [])]
    parts += [] if search.uncertainty is None else [f"uncertainty {search.uncertainty:.2f}"]
    return "  ".join(parts)


def squared(image: np.ndarray) -> np.ndarray:
    """Pads an image (H, W, 3) with white to a square."""
    height, width = image.shape[:2]
    side = max(height, width)
    out = np.full((side, side, 3), 255, dtype=np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    out[top : top + height, left : left + width] = image
    return out
