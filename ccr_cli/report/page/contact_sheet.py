"""The contact sheet of a search: the results of each query, as one self-contained HTML file or as a picture."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.errors import UsageError
from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.figures.canvas import FAINT, GRID, INK, drawing, new_figure, to_png, wrapped
from ccr_cli.report.figures.searches import squared
from ccr_cli.report.page.rendering import render, static
from ccr_cli.report.thumbnails import Embedded, thumbnail
from ccr_cli.report.words.numbers import probability

SIDE = 240
LIMITS = {".html": 20_000, ".png": 200}
"""Most pictures on one sheet."""
COLUMNS = 5
CELL, PICTURE = 1.5, 1.3
"""Width of a cell of the grid and of the picture in it, in inches."""
HEAD, BELOW = 0.62, 0.62
"""Height of a query's heading and of the text under a picture, in inches."""


def to_html(searches: Sequence[ExampleSearch], title: str) -> str:
    """The sheet as a page.

    Args:
        searches: The queries with their results.
        title: What was searched.
    """
    style = static("page.css", "contact_sheet.css")
    return render("contact_sheet.html.j2", title=title, style=style, searches=searches, images=Embedded(SIDE))


def to_picture(searches: Sequence[ExampleSearch], title: str) -> bytes:
    """The sheet as PNG."""
    with drawing():
        return to_png(_draw(searches, title))


def _draw(searches: Sequence[ExampleSearch], title: str) -> Figure:
    rows = [max(1, math.ceil(len(search.results) / COLUMNS)) for search in searches]
    line = PICTURE + BELOW
    height = 0.45 + sum(HEAD + count * line for count in rows)
    width = COLUMNS * CELL + 0.3
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    axes.text(0.2, height - 0.25, wrapped(title, width - 0.4, 0.075, 1), fontsize=9, va="center", color=FAINT)
    top = height - 0.45
    for search, count in zip(searches, rows, strict=True):
        left = 0.2
        axes.plot([left, width - left], [top, top], color=GRID, linewidth=0.8)
        picture = thumbnail(search.image, SIDE)
        if picture is not None:
            box = (left, left + 0.5, top - 0.56, top - 0.06)
            axes.imshow(squared(np.asarray(picture)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)
            left += 0.62
        name = wrapped(search.query, width - left - 2.2, 0.125, 1)
        axes.text(left, top - 0.31, name, fontsize=13, va="center", fontweight="bold")
        if search.uncertainty is not None:
            text = f"uncertainty {probability(search.uncertainty)}"
            axes.text(width - 0.2, top - 0.31, text, fontsize=9, ha="right", va="center", color=FAINT)
        for place, result in enumerate(search.results):
            across, down = place % COLUMNS, place // COLUMNS
            x = 0.15 + across * CELL + (CELL - PICTURE) / 2
            y = top - HEAD - down * line
            image = thumbnail(result.image, SIDE)
            axes.add_patch(Rectangle((x, y - PICTURE), PICTURE, PICTURE, fill=False, edgecolor=GRID, linewidth=0.8))
            if image is not None:
                box = (x + 0.03, x + PICTURE - 0.03, y - PICTURE + 0.03, y - 0.03)
                axes.imshow(squared(np.asarray(image)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)
            else:
                axes.text(x + PICTURE / 2, y - PICTURE / 2, "no image", fontsize=8, ha="center", color=FAINT)
            middle = x + PICTURE / 2
            axes.text(
                middle,
                y - PICTURE - 0.12,
                f"{place + 1} · {probability(result.similarity)}",
                fontsize=8.5,
                ha="center",
                va="center",
                color=INK,
                fontweight="bold",
            )
            caption = wrapped(result.caption or result.item_id, CELL - 0.1, 0.068, 2)
            axes.text(middle, y - PICTURE - 0.22, caption, fontsize=7.5, ha="center", va="top", color=FAINT)
        top -= HEAD + count * line
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure


def write(path: Path | None, searches: Sequence[ExampleSearch], title: str) -> Path:
    """Writes a sheet.

    Args:
        path: A `.html` or `.png` file; None: a temporary `.html`.
        searches: The queries with their results.
        title: What was searched.

    Returns:
        The path of the sheet.

    Raises:
        UsageError: If there are too many results for one sheet, or its folder does not exist.
    """
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="ccr-search-")) / "sheet.html"
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    total, limit = sum(len(search.results) for search in searches), LIMITS[path.suffix]
    if total > limit:
        raise UsageError(f"{total:,} results are too many for one {path.suffix} sheet (at most {limit:,})")
    data = to_picture(searches, title) if path.suffix == ".png" else to_html(searches, title).encode()
    with atomic_open(path) as handle:
        handle.write(data)
    return path
