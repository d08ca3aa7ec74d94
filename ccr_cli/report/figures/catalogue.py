"""The figures of a report in the order of the page.

A new figure is a function with the decorator `figure` in one of these modules.
"""

from __future__ import annotations

from collections.abc import Mapping

from ccr_cli.report.figures import curves, examples, judges, lengths, uncertainty
from ccr_cli.report.figures.canvas import heading
from ccr_cli.report.figures.figure import Drawing, FigureData, FigureKind

_MODULES = (curves, judges, uncertainty, lengths, examples)
FIGURES = [kind for module in _MODULES for kind in vars(module).values() if isinstance(kind, FigureKind)]


def drawn(data: FigureData) -> dict[str, Drawing]:
    """The figures whose data are there, by name. Only inside `canvas.drawing`."""
    drawings = {}
    for kind in FIGURES:
        drawing = kind.draw(data)
        if drawing and drawing.figure:
            heading(drawing.figure, drawing.title)
            drawings[_name(kind, data)] = drawing
    return drawings


def absent(data: FigureData, drawings: Mapping[str, Drawing]) -> list[FigureKind]:
    """The figures whose data are missing."""
    return [kind for kind in FIGURES if _name(kind, data) not in drawings]


def _name(kind: FigureKind, data: FigureData) -> str:
    return kind.name.format(data.main.figure.lower())
