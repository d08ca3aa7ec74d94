"""Pictures with the captions that they find, the right ones marked (UML Figure 7, a to c).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ccr_cli.report.content import ExampleSearch
from ccr_cli.report.figures.canvas import FAINT, GRID, INK, NOISY, new_figure
from ccr_cli.report.figures.lettering import wrapped
from ccr_cli.report.figures.search_strip import RIGHT, SIDE, squared
from ccr_cli.report.thumbnails import thumbnail

WIDTH, LINE = 9.0, 0.27


def draw(searches: Sequence[ExampleSearch]) -> Figure | None:
    """A row a picture: it, how uncertain it is, and the captions found with their similarity and in English."""
    if not searches:
        return None
    row = LINE * max(5, *(len(search.results) for search in searches)) + 0.25
    height = row * len(searches) + 0.1
    figure = new_figure(WIDTH, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    for number, search in enumerate(searches):
        top = height - 0.1 - number * row
        picture = thumbnail(search.image, SIDE)
        box = (0.2, 1.2, top - 1.12, top - 0.12)
        if picture is not None:
            axes.imshow(squared(np.asarray(picture)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)
        else:
            axes.text(0.7, top - 0.62, "no image", fontsize=8.5, ha="center", va="center", color=FAINT)
        if search.uncertainty is not None:
            said = f"uncertainty {search.uncertainty:.2f}"
            axes.text(0.7, top - 1.26, said, fontsize=8.5, ha="center", va="center", color=FAINT)
        for place, found in enumerate(search.results):
            y = top - 0.24 - LINE * place
            color, weight = (RIGHT, "bold") if found.correct else (INK, "normal")
            mark = "\u2713" if found.correct else "\u2717"
            axes.text(1.6, y, mark, fontsize=11, va="center", color=RIGHT if found.correct else NOISY)
            axes.text(1.85, y, f"{found.similarity:.2f}", fontsize=9.5, va="center", color=color, fontweight=weight)
            axes.text(2.4, y, wrapped(found.caption, 3.45, 0.112, 1), fontsize=10.5, va="center", fontweight=weight)
            axes.text(6.0, y, wrapped(found.gloss or "", 2.8, 0.085, 1), fontsize=9.5, va="center", color=FAINT)
        if number:
            axes.plot([0.12, WIDTH - 0.12], [top, top], color=GRID, linewidth=0.8)
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    return figure
