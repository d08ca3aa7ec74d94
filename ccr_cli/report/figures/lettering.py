"""Words in figures: broken into lines where they would be cut, and legends in as many columns as fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr_cli.console import plain

TITLE, TITLE_LETTER = 11, 0.112
"""The size of a title, and the inches that a letter of it takes."""
MOST = 5
"""Columns of a legend."""


def heading(figure: Figure, title: str, lines: int = 4) -> None:
    """Writes a title over a whole figure, in as many lines as it needs; nothing where it is empty."""
    if title:
        said = wrapped(title, figure.get_figwidth() - 0.2, TITLE_LETTER, lines)
        figure.suptitle(said, x=0.01, ha="left", fontsize=TITLE, fontweight="bold")


def over(ax: Axes, title: str, width: float, lines: int = 3) -> None:
    """Writes the title of a panel of a width in inches."""
    ax.set_title(wrapped(title, width, TITLE_LETTER, lines))


def legend_size(names: Sequence[str], width: float, size: float) -> tuple[int, int]:
    """In how many columns a legend fits, and how many lines it then has.

    Args:
        names: What it says.
        width: Of the figure, in inches.
        size: Of its letters, in points.
    """
    each = max(map(_letters, names)) * size * 0.0088 + 5 * size / 72
    columns = max(1, min(MOST, len(names), int(width / each)))
    return columns, -(-len(names) // columns)


def wrapped(text: str, width: float, per_letter: float, lines: int) -> str:
    """Breaks a text into lines of a width in inches and cuts what does not fit; wide (CJK) letters count more."""
    out = [""]
    room = width / per_letter
    for word in re.findall(r"[\u2e80-\uffff]|[^\s\u2e80-\uffff]+|\s+", plain(text).strip()):
        if out[-1] and _letters(out[-1] + word.rstrip()) > room:
            out.append("")
        out[-1] += word if out[-1] else word.lstrip()
    cut = len(out) > lines
    out = out[:lines]
    while _letters(out[-1] + "…" * cut) > room:
        out[-1], cut = out[-1][:-1], True
    return "\n".join(line.rstrip() for line in out) + "…" * cut


def _letters(text: str) -> float:
    return sum(1.5 if ord(char) > 0x2E80 else 1.0 for char in text)
