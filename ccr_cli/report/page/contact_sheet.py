"""The contact sheet of a search: what each query found, as one HTML file that needs nothing else, or as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.figures.canvas import FAINT, GRID, INK, drawing, new_figure, to_png
from ccr_cli.report.figures.lettering import wrapped
from ccr_cli.report.figures.search_strip import squared
from ccr_cli.report.page import markup
from ccr_cli.report.page.style import CSS
from ccr_cli.report.thumbnails import Embedded, thumbnail

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
SIDE = 240
COLUMNS = 5
CELL, PICTURE = 1.5, 1.3
"""Inches: the width of a place of the grid, and of the picture in it."""
HEAD, BELOW = 0.62, 0.62
"""Inches: over the results of a query, and under each picture."""

_GRID = """
.query { border-top: 1px solid var(--line); padding: 1.1rem 0 .4rem; }
.query:first-of-type { border-top: 0; }
.query h2 { font-size: 1.3rem; margin: 0; } .query > small { color: var(--faint); }
.query .asked { max-width: 9rem; max-height: 9rem; display: block; border-radius: 10px; margin: .5rem 0; }
.hits { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); margin: .9rem 0 1.2rem; gap: 1.1rem .9rem; }
.hits .bar { display: block; width: 100%; margin: .45rem 0 .1rem; }
.hits code { color: var(--faint); font-size: .7rem; }
@media (max-width: 480px) { .hits { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
"""


def to_html(searches: Sequence[ExampleSearch], title: str) -> str:
    """The page; every text is escaped, and nothing in it can run.

    Args:
        searches: The queries with their results.
        title: What was searched.
    """
    images = Embedded(SIDE)
    return document(title, "\n".join(_query(search, images) for search in searches), _GRID)


def document(title: str, body: str, style: str = "") -> str:
    """A page that needs nothing else, and in which nothing can run.

    Args:
        title: Text.
        body: Markup.
        style: Rules beside those of all pages.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{markup.text(title)}</title>\n<style>{CSS}{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{markup.text(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _query(search: ExampleSearch, images: Embedded) -> str:
    hits = []
    for place, found in enumerate(search.results, 1):
        address = images.address(found.image)
        alternative = markup.text(found.caption or found.item_id)
        shown = f'<img src="{address}" alt="{alternative}">' if address else "<span class=none>no image</span>"
        width = max(0.0, min(1.0, found.similarity))
        hits.append(
            f'<li><div class="frame">{shown}</div><span class=bar><i style="width:{width:.0%}"></i></span>'
            f"<b>{place} · {found.similarity:.3f}</b><span>{markup.foreign(found.caption, found.lang)}</span>"
            f"<code>{markup.text(found.item_id)}</code></li>"
        )
    said = [search.lang, "" if search.uncertainty is None else f"uncertainty {search.uncertainty:.3f}"]
    asked = images.address(search.image)
    picture = f'<img class=asked src="{asked}" alt="the picture that was searched with">' if asked else ""
    return (
        f'<div class="query"><h2>{markup.foreign(search.query, search.lang)}</h2>{picture}'
        f"<small>{markup.text(' · '.join(part for part in said if part))}</small>"
        f"<ol class=hits>{''.join(hits)}</ol></div>"
    )


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
        asked = thumbnail(search.image, SIDE)
        if asked is not None:
            box = (left, left + 0.5, top - 0.56, top - 0.06)
            axes.imshow(squared(np.asarray(asked)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)
            left += 0.62
        name = wrapped(search.query, width - left - 2.2, 0.125, 1)
        axes.text(left, top - 0.31, name, fontsize=13, va="center", fontweight="bold")
        if search.uncertainty is not None:
            said = f"uncertainty {search.uncertainty:.3f}"
            axes.text(width - 0.2, top - 0.31, said, fontsize=9, ha="right", va="center", color=FAINT)
        for place, found in enumerate(search.results):
            across, down = place % COLUMNS, place // COLUMNS
            x = 0.15 + across * CELL + (CELL - PICTURE) / 2
            y = top - HEAD - down * line
            image = thumbnail(found.image, SIDE)
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
                f"{place + 1} · {found.similarity:.3f}",
                fontsize=8.5,
                ha="center",
                va="center",
                color=INK,
                fontweight="bold",
            )
            caption = wrapped(found.caption or found.item_id, CELL - 0.1, 0.068, 2)
            axes.text(middle, y - PICTURE - 0.22, caption, fontsize=7.5, ha="center", va="top", color=FAINT)
        top -= HEAD + count * line
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure


def write(path: Path, searches: Sequence[ExampleSearch], title: str) -> bytes:
    """The sheet as the file's name says it: `.png`, else HTML."""
    return to_picture(searches, title) if path.suffix == ".png" else to_html(searches, title).encode()
