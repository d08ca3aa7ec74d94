"""Example searches: queries with the pictures found, soft targets, and query pictures with the captions found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from ccr_cli.report.content import ExampleHit, ExampleSearch
from ccr_cli.report.figures.canvas import CLEAN, FAINT, GRID, INK, NOISY, new_figure, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.thumbnails import thumbnail
from ccr_cli.report.words.numbers import similarity

RIGHT = "#009e73"
SIDE = 160
ROW, COLUMN = 1.22, 1.12
"""Height of a query and width of a result in a strip, in inches."""
WIDTH, LINE = 9.0, 0.27
"""Width of a figure, and height of a caption found for a picture, in inches."""


def text_queries(data: FigureData) -> Drawing:
    """The example searches of the report."""
    return Drawing(strip(data.data.searches), "Searches in several languages with the first images found")


def soft_targets(data: FigureData) -> Drawing:
    """Captions with the shares that soft targets give to pictures (DisNCL Figure 5)."""
    caption = (
        "Shares of the pictures in a batch of pairs, the five largest; the caption's own picture is framed. Captions "
        "chosen by rule: evenly from the surest to the least sure of the batch, which is drawn by a fixed seed without "
        "noise."
    )
    figure = strip(data.data.inside.targets, shares=True)
    return Drawing(figure, "Captions with their soft targets", caption)


def picture_queries(data: FigureData) -> Drawing:
    """Query pictures with the captions found for them (UML Figure 7, a to c)."""
    dataset = data.data.dataset(data.main.data)
    source = f" in {dataset.source_lang}" if dataset else ""
    caption = (
        "The most similar captions, a tick at the picture's own; grey: a caption of their item"
        f"{source}. Pictures drawn by a fixed seed."
    )
    return Drawing(draw_pictures(data.data.inside.pictures), "Query pictures with the captions found", caption)


def strip(searches: Sequence[ExampleSearch], top: int = 5, width: float = WIDTH, shares: bool = False) -> Figure | None:
    """A row per query: its text and meaning, then the images found with their similarity.

    Args:
        searches: The queries with their results.
        top: Most images per query.
        width: In inches.
        shares: Whether similarities are shares of one, which are drawn as bars too.
    """
    if not searches:
        return None
    columns = min(top, max(len(search.results) for search in searches))
    height = ROW * len(searches) + 0.12
    figure, axes = _blank(width, height)
    text_width = width - columns * COLUMN - 0.1
    for line, search in enumerate(searches):
        bottom = ROW * (len(searches) - 1 - line) + 0.12
        middle = bottom + 0.62
        query, gloss = wrapped(search.query, text_width - 0.2, 0.135, 2), _gloss(search)
        axes.text(0.12, middle + 0.03, query, fontsize=13, va="bottom", fontweight="bold")
        meaning = wrapped(gloss, text_width - 0.2, 0.082, 2)
        axes.text(0.12, middle - 0.07, meaning, fontsize=9.5, va="top", color=FAINT)
        if line:
            axes.plot([0.12, width - 0.12], [bottom + ROW - 0.06] * 2, color=GRID, linewidth=0.8)
        for place, hit in enumerate(search.results[:columns]):
            _hit(axes, hit, text_width + place * COLUMN + 0.14, bottom, shares)
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure


def _blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure whose only axes are in inches."""
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def _hit(axes: Axes, hit: ExampleHit, left: float, bottom: float, shares: bool) -> None:
    """A result in a strip: its image, framed if it is right, and its similarity."""
    image = thumbnail(hit.image, SIDE)
    centre: dict[str, Any] = {"ha": "center", "va": "center"}
    if image is None:
        text = wrapped(hit.caption or hit.item_id, 0.84, 0.058, 3)
        axes.text(left + 0.42, bottom + 0.66, text, fontsize=7, color=FAINT, **centre)
    else:
        foot = 0.08 if shares else 0.0
        draw_picture(axes, image, left + foot / 2, bottom + 0.24 + foot, 0.84 - foot)
    if hit.correct:
        style: dict[str, Any] = {"boxstyle": "round,pad=0.02,rounding_size=0.08", "fill": False, "zorder": 3}
        axes.add_patch(
            FancyBboxPatch((left - 0.02, bottom + 0.22), 0.88, 0.88, edgecolor=RIGHT, linewidth=2.6, **style)
        )
    if shares:
        look: dict[str, Any] = {"edgecolor": "none", "zorder": 4}
        filled = 0.84 * min(max(hit.similarity, 0.0), 1.0)
        axes.add_patch(Rectangle((left, bottom + 0.24), 0.84, 0.05, facecolor=GRID, **look))
        axes.add_patch(Rectangle((left, bottom + 0.24), filled, 0.05, facecolor=CLEAN, **look))
    color, weight = (RIGHT, "bold") if hit.correct else (INK, "normal")
    text = similarity(hit.similarity) + ("  ✓" if hit.correct else "")
    axes.text(left + 0.42, bottom + 0.1, text, fontsize=8.5, color=color, fontweight=weight, **centre)


def _gloss(search: ExampleSearch) -> str:
    parts = [search.lang]
    if search.gloss:
        parts.append(f"{search.gloss_lang}: “{search.gloss}”" if search.gloss_lang else f"“{search.gloss}”")
    parts += [] if search.uncertainty is None else [f"uncertainty {similarity(search.uncertainty)}"]
    return "  ".join(parts)


def draw_pictures(searches: Sequence[ExampleSearch]) -> Figure | None:
    """A row per picture, with its uncertainty, and the captions found with their similarity and a gloss."""
    if not searches:
        return None
    row = LINE * max(5, *(len(search.results) for search in searches)) + 0.25
    height = row * len(searches) + 0.1
    figure, axes = _blank(WIDTH, height)
    for number, search in enumerate(searches):
        top = height - 0.1 - number * row
        draw_picture(axes, thumbnail(search.image, SIDE), 0.2, top - 1.12, 1.0)
        if search.uncertainty is not None:
            text = f"uncertainty {similarity(search.uncertainty)}"
            axes.text(0.7, top - 1.26, text, fontsize=8.5, ha="center", va="center", color=FAINT)
        for place, hit in enumerate(search.results):
            y = top - 0.24 - LINE * place
            color, weight = (RIGHT, "bold") if hit.correct else (INK, "normal")
            mark = "\u2713" if hit.correct else "\u2717"
            axes.text(1.6, y, mark, fontsize=11, va="center", color=RIGHT if hit.correct else NOISY)
            axes.text(1.85, y, similarity(hit.similarity), fontsize=9.5, va="center", color=color, fontweight=weight)
            axes.text(2.4, y, wrapped(hit.caption, 3.45, 0.112, 1), fontsize=10.5, va="center", fontweight=weight)
            axes.text(6.0, y, wrapped(hit.gloss or "", 2.8, 0.085, 1), fontsize=9.5, va="center", color=FAINT)
        if number:
            axes.plot([0.12, WIDTH - 0.12], [top, top], color=GRID, linewidth=0.8)
    axes.set(xlim=(0, WIDTH), ylim=(0, height))
    return figure


def draw_picture(axes: Axes, picture: Image.Image | None, left: float, bottom: float, side: float) -> None:
    """Draws a picture into a square, in inches; the words `no image` without one."""
    if picture is None:
        place = (left + side / 2, bottom + side / 2)
        axes.text(*place, "no image", fontsize=8.5, ha="center", va="center", color=FAINT)
    else:
        box = (left, left + side, bottom, bottom + side)
        axes.imshow(squared(np.asarray(picture)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)


def squared(image: np.ndarray) -> np.ndarray:
    """Pads an image (H, W, 3) with white to a square."""
    height, width = image.shape[:2]
    side = max(height, width)
    out = np.full((side, side, 3), 255, dtype=np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    out[top : top + height, left : left + width] = image
    return out
