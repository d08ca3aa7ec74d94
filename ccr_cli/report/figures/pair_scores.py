"""Single pairs as several runs score them, with translation and back-translation (UML Figure 8).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from ccr_cli.report.figures.canvas import FAINT, GRID, INK, new_figure, styles
from ccr_cli.report.figures.lettering import wrapped
from ccr_cli.report.figures.search_strip import squared
from ccr_cli.report.tables import results
from ccr_cli.report.thumbnails import thumbnail

SIDE = 220
LEAST, MOST = 2, 6
"""Runs that make a comparison, and that are shown."""
SHORT = 12
"""Names of at most so many letters stand beside their bars, all others above them."""
BAR, NAME = 0.27, 0.15
"""Inches: what a bar takes, and a line of a name above it."""
_KEYS = ["slot_id", "lang", "translation"]
_TEXTS = ["item_id", "source_text", "back", "truth"]
TRUTH = {"clean": "intact", "noisy": "mismatched on purpose"}


@dataclass(frozen=True)
class Scored:
    """A pair, and what each run says of it."""

    why: str
    pair: Mapping[str, Any]
    p_clean: Mapping[str, float]
    similarity: Mapping[str, float]


def together(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The pairs that all runs have, a row each: texts, `p_clean.LABEL` and `sim_vt.LABEL`."""
    whole: pd.DataFrame | None = None
    for label, table in tables.items():
        part = table[[*_KEYS, *(_TEXTS if whole is None else []), "p_clean", "sim_vt"]].drop_duplicates(_KEYS)
        part = part.rename(columns={"p_clean": f"p_clean.{label}", "sim_vt": f"sim_vt.{label}"})
        whole = part if whole is None else whole.merge(part, on=_KEYS, validate="one_to_one")
    return pd.DataFrame() if whole is None else whole


def choose(tables: Mapping[str, pd.DataFrame]) -> list[Scored]:
    """Three pairs, by rule: the one most doubted by all, the one that runs differ on most, one in the middle.

    Args:
        tables: By method, the table of a diagnosis of the same triplets.
    """
    if len(tables) < LEAST:
        return []
    whole = together(tables)
    if whole.empty:
        return []
    p_NR = whole[[f"p_clean.{label}" for label in tables]].to_numpy(float)
    sim_NR = whole[[f"sim_vt.{label}" for label in tables]].to_numpy(float)
    mean_N = p_NR.mean(axis=1)
    places: dict[int, str] = {}
    believed = np.lexsort((-sim_NR.mean(axis=1), -mean_N))
    wanted = (
        ("believed by all", int(believed[len(believed) // 4])),
        ("where the runs differ most", int(np.ptp(p_NR, axis=1).argmax())),
        ("most doubted by all", int(np.lexsort((sim_NR.mean(axis=1), mean_N))[0])),
    )
    for why, place in wanted:
        places.setdefault(place, why)
    rows = whole.astype(object).where(whole.notna(), None).to_dict("records")
    return [
        Scored(
            why,
            {str(k): v for k, v in rows[place].items() if "." not in str(k)},
            {label: float(p_NR[place, r]) for r, label in enumerate(tables)},
            {label: float(sim_NR[place, r]) for r, label in enumerate(tables)},
        )
        for place, why in places.items()
    ]


def draw(
    chosen: Sequence[Scored], image: Callable[[str], Path | None], title: str = "", source: str = ""
) -> Figure | None:
    """A column a pair: picture (where there is any), source, translation, the way back; under them a bar a run.

    Args:
        chosen: The pairs.
        image: Where the picture of an item lies.
        title: Over the figure.
        source: Language of the source captions, or empty.
    """
    if not chosen:
        return None
    labels = sorted(chosen[0].p_clean, key=results.method_order)
    look = styles(labels)
    cell = 3.1
    beside = max(map(len, labels)) <= SHORT
    names = {label: label if beside else wrapped(label, 2.76, 0.076, 4) for label in labels}
    above = 0 if beside else sum(1 + name.count("\n") for name in names.values())
    width, foot = cell * len(chosen), 0.42 + BAR * len(labels) + NAME * above
    pictures = [thumbnail(image(str(each.pair["item_id"])), SIDE) for each in chosen]
    aside, head = (1.42, 1.5) if any(picture is not None for picture in pictures) else (0.0, 0.95)
    height = 0.4 + head + 1.72 + foot
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    axes.text(0.1, height - 0.2, title, fontsize=11, fontweight="bold", va="center")
    for column, (each, picture) in enumerate(zip(chosen, pictures, strict=True)):
        left, top = column * cell + 0.1, height - 0.4
        if aside:
            _picture(axes, picture, left, top)
        words = cell - 0.23 - aside
        axes.text(
            left + aside, top - 0.14, wrapped(each.why, words, 0.085, 3), fontsize=9.5, va="top", fontweight="bold"
        )
        truth = TRUTH.get(str(each.pair.get("truth")), "")
        below = 0.78 if aside else 0.42
        axes.text(left + aside, top - below, wrapped(truth, words, 0.08, 2), fontsize=9, va="top", color=FAINT)
        down = top - head
        texts = ((source or "source", "source_text"), (str(each.pair["lang"]), "translation"), ("back", "back"))
        for name, key in texts:
            axes.text(left, down, name, fontsize=8, va="top", color=FAINT)
            axes.text(
                left + 0.52, down, wrapped(str(each.pair.get(key) or "\u2013"), 2.35, 0.088, 3), fontsize=9.5, va="top"
            )
            down -= 0.55
        _bars(axes, each, names, look, (left, foot))
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure


def _picture(axes: Axes, picture: Image.Image | None, left: float, top: float) -> None:
    if picture is None:
        axes.text(left + 0.65, top - 0.73, "no image", fontsize=8.5, ha="center", va="center", color=FAINT)
    else:
        box = (left, left + 1.3, top - 1.38, top - 0.08)
        axes.imshow(squared(np.asarray(picture)), extent=box, aspect="auto", interpolation="lanczos", zorder=2)
    axes.add_patch(Rectangle((left, top - 1.38), 1.3, 1.3, fill=False, edgecolor=GRID, linewidth=0.8, zorder=3))


def _bars(
    axes: Any, each: Scored, names: Mapping[str, str], look: Mapping[str, Any], corner: tuple[float, float]
) -> None:
    """A bar of P(clean) for each run, and the similarity that it sees."""
    left, top = corner
    beside = max(map(len, names)) <= SHORT
    start, room = (left + 0.98, 1.0) if beside else (left, 1.9)
    axes.text(start, top - 0.1, "P(clean)", fontsize=8, color=FAINT, va="center")
    axes.text(left + 2.86, top - 0.1, "similarity", fontsize=8, color=FAINT, va="center", ha="right")
    y = top - 0.34
    for label, name in names.items():
        if beside:
            axes.text(start - 0.08, y, name, fontsize=8.5, ha="right", va="center")
        else:
            axes.text(start, y + 0.07, name, fontsize=8.5, va="top", linespacing=1.1)
            y -= NAME * (1 + name.count("\n"))
        bar: dict[str, Any] = {"height": 0.13, "edgecolor": "none"}
        axes.add_patch(Rectangle((start, y - 0.065), room, facecolor=GRID, **bar))
        axes.add_patch(Rectangle((start, y - 0.065), room * each.p_clean[label], facecolor=look[label]["color"], **bar))
        axes.text(start + room + 0.06, y, f"{each.p_clean[label]:.2f}", fontsize=8.5, va="center", color=INK)
        axes.text(left + 2.86, y, f"{each.similarity[label]:.2f}", fontsize=8.5, va="center", ha="right", color=INK)
        y -= BAR
