"""The contact sheet of a search: the results of each query, as one self-contained HTML file or as a picture."""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ccr_cli.artifacts.base import atomic_open
from ccr_cli.errors import UsageError
from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.figures.canvas import FAINT, GRID, INK, blank, drawing, to_png, wrapped
from ccr_cli.report.figures.examples import draw_picture
from ccr_cli.report.page.rendering import render, static
from ccr_cli.report.thumbnails import Embedded, thumbnail
from ccr_cli.report.words.numbers import likely, similarity

SIDE = 240
LIMITS = {".html": 20_000, ".png": 200}
"""Most pictures on one sheet."""
COLUMNS = 5
CELL, PICTURE = 1.5, 1.3
"""Width of a cell of the grid and of the picture in it, in inches."""
HEAD, BELOW = 0.62, 0.62
"""Height of a query's heading and of the text under a picture, in inches."""


def _draw(searches: Sequence[ExampleSearch], title: str) -> Figure:
    rows = [max(1, math.ceil(len(search.results) / COLUMNS)) for search in searches]
    line, width = PICTURE + BELOW, COLUMNS * CELL + 0.3
    top = sum(HEAD + count * line for count in rows)
    figure, axes = blank(width, top + 0.45)
    axes.text(0.2, top + 0.2, wrapped(title, width - 0.4, 0.075, 1), fontsize=9, va="center", color=FAINT)
    for search, count in zip(searches, rows, strict=True):
        left = 0.2
        axes.plot([left, width - left], [top, top], color=GRID, linewidth=0.8)
        picture = thumbnail(search.image, SIDE)
        if picture is not None:
            draw_picture(axes, picture, left, top - 0.56, 0.5)
            left += 0.62
        name = wrapped(search.query, width - left - 0.2, 0.125, 1)
        axes.text(left, top - 0.31, name, fontsize=13, va="center", fontweight="bold")
        for place, result in enumerate(search.results):
            x = 0.15 + place % COLUMNS * CELL + (CELL - PICTURE) / 2
            y = top - HEAD - place // COLUMNS * line - PICTURE
            shown = thumbnail(result.image, SIDE)
            if shown is not None:
                axes.add_patch(Rectangle((x, y), PICTURE, PICTURE, fill=False, edgecolor=GRID, linewidth=0.8))
                draw_picture(axes, shown, x + 0.03, y + 0.03, PICTURE - 0.06)
            middle: dict[str, Any] = {"x": x + PICTURE / 2, "ha": "center"}
            score = " · ".join(
                filter(None, [str(place + 1), similarity(result.similarity), likely(result.probability)])
            )
            axes.text(y=y - 0.12, s=score, fontsize=8.5, va="center", color=INK, fontweight="bold", **middle)
            caption = wrapped(result.caption or result.item_id, CELL - 0.1, 0.068, 2)
            axes.text(y=y - 0.22, s=caption, fontsize=7.5, va="top", color=FAINT, **middle)
        top -= HEAD + count * line
    return figure


def page(searches: Sequence[ExampleSearch], title: str) -> str:
    """The sheet as one self-contained HTML page."""
    style = static("page.css", "contact_sheet.css")
    return render("contact_sheet.html.j2", title=title, style=style, searches=searches, images=Embedded(SIDE))


def write(path: Path | None, searches: Sequence[ExampleSearch], title: str) -> Path:
    """Writes a sheet to a `.html` or `.png` file, by default a temporary `.html`, and returns its path.

    Raises:
        UsageError: If its name ends otherwise, its folder does not exist, or there are too many results for one sheet.
    """
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="ccr-search-")) / "sheet.html"
    if path.suffix not in LIMITS:
        raise UsageError(f"a sheet is a {' or '.join(LIMITS)} file, not {path.name!r}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    total, limit = sum(len(search.results) for search in searches), LIMITS[path.suffix]
    if total > limit:
        raise UsageError(f"{total:,} results are too many for one {path.suffix} sheet (at most {limit:,})")
    if path.suffix == ".png":
        with drawing():
            data = to_png(_draw(searches, title))
    else:
        data = page(searches, title).encode()
    with atomic_open(path) as handle:
        handle.write(data)
    return path
