"""Single pairs scored by several runs, with translation and back-translation (UML Figure 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ccr_cli.report.figures.canvas import FAINT, GRID, INK, new_figure, styles, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.figures.searches import draw_picture
from ccr_cli.report.tables import results
from ccr_cli.report.thumbnails import thumbnail
from ccr_cli.report.words.numbers import MISSING, similarity

SIDE = 220
LEAST, MOST = 2, 6
"""Number of runs that make a comparison, and of runs shown."""
SHORT = 12
"""Names of at most this many letters are left of their bars, others above them."""
BAR, NAME = 0.27, 0.15
"""Heights of a bar, and of a line of a name above it, in inches."""
_KEYS = ["slot_id", "lang", "translation"]
_TEXTS = ["item_id", "source_text", "back", "truth"]
TRUTH = {"clean": "intact", "noisy": "synthetic mismatch"}


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the scores of each run."""

    why: str
    texts: Mapping[str, Any]
    p_clean: Mapping[str, float]
    similarity: Mapping[str, float]


def scored_pairs(data: FigureData) -> Drawing | None:
    """The diagnosed runs of the main view at the headline noise."""
    chosen = choose(data.with_judges(dict(list(data.pairs.items())[:MOST])))
    if not chosen:
        return None
    fact = data.data.facts.get(next(iter(data.diagnoses.values())).run_id)
    dataset = data.data.dataset(fact.data) if fact else None
    image = dataset.image if dataset else lambda item_id: None
    title = f"Three training pairs scored by {len(chosen[0].p_clean)} runs, {data.noise}"
    caption = (
        "PairSelection by rule: from the upper quarter, by the largest difference of P(clean), by the lowest mean."
    )
    figure = draw(chosen, image, title, dataset.source_lang if dataset else "")
    return Drawing(figure, "Training pairs with the scores of each run", caption)


def together(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The pairs that all runs have: texts, `p_clean.LABEL` and `sim_vt.LABEL`."""
    whole: pd.DataFrame | None = None
    for label, table in tables.items():
        part = table[[*_KEYS, *(_TEXTS if whole is None else []), "p_clean", "sim_vt"]].drop_duplicates(_KEYS)
        part = part.rename(columns={"p_clean": f"p_clean.{label}", "sim_vt": f"sim_vt.{label}"})
        whole = part if whole is None else whole.merge(part, on=_KEYS, validate="one_to_one")
    return pd.DataFrame() if whole is None else whole


def choose(tables: Mapping[str, pd.DataFrame]) -> list[ScoredPair]:
    """Three pairs, by rule: the least believed by all, the one on which runs differ most, one that all believe.

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
    rules = (
        ("believed by all", int(believed[len(believed) // 4])),
        ("where the runs differ most", int(np.ptp(p_NR, axis=1).argmax())),
        ("least believed by all", int(np.lexsort((sim_NR.mean(axis=1), mean_N))[0])),
    )
    for why, place in rules:
        places.setdefault(place, why)
    rows = whole.astype(object).where(whole.notna(), None).to_dict("records")
    return [
        ScoredPair(
            why,
            {str(k): v for k, v in rows[place].items() if "." not in str(k)},
            {label: float(p_NR[place, r]) for r, label in enumerate(tables)},
            {label: float(sim_NR[place, r]) for r, label in enumerate(tables)},
        )
        for place, why in places.items()
    ]


def draw(
    chosen: Sequence[ScoredPair], image: Callable[[str], Path | None], title: str = "", source: str = ""
) -> Figure | None:
    """A column per pair: picture (if any), source, translation, back-translation, and a bar per run.

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
    pictures = [thumbnail(image(str(pair.texts["item_id"])), SIDE) for pair in chosen]
    aside, head = (1.42, 1.5) if any(picture is not None for picture in pictures) else (0.0, 0.95)
    height = 0.4 + head + 1.72 + foot
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    axes.text(0.1, height - 0.2, title, fontsize=11, fontweight="bold", va="center")
    for column, (pair, picture) in enumerate(zip(chosen, pictures, strict=True)):
        left, top = column * cell + 0.1, height - 0.4
        if aside:
            draw_picture(axes, picture, left, top - 1.38, 1.3)
            axes.add_patch(Rectangle((left, top - 1.38), 1.3, 1.3, fill=False, edgecolor=GRID, linewidth=0.8, zorder=3))
        words = cell - 0.23 - aside
        axes.text(
            left + aside, top - 0.14, wrapped(pair.why, words, 0.085, 3), fontsize=9.5, va="top", fontweight="bold"
        )
        truth = TRUTH.get(str(pair.texts.get("truth")), "")
        below = 0.78 if aside else 0.42
        axes.text(left + aside, top - below, wrapped(truth, words, 0.08, 2), fontsize=9, va="top", color=FAINT)
        down = top - head
        texts = ((source or "source", "source_text"), (str(pair.texts["lang"]), "translation"), ("back", "back"))
        for name, key in texts:
            axes.text(left, down, name, fontsize=8, va="top", color=FAINT)
            axes.text(
                left + 0.52, down, wrapped(str(pair.texts.get(key) or MISSING), 2.35, 0.088, 3), fontsize=9.5, va="top"
            )
            down -= 0.55
        _bars(axes, pair, names, look, (left, foot))
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure


def _bars(
    axes: Any, pair: ScoredPair, names: Mapping[str, str], look: Mapping[str, Any], corner: tuple[float, float]
) -> None:
    """A bar of P(clean) for each run, and its similarity."""
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
        axes.add_patch(Rectangle((start, y - 0.065), room * pair.p_clean[label], facecolor=look[label]["color"], **bar))
        axes.text(start + room + 0.06, y, similarity(pair.p_clean[label]), fontsize=8.5, va="center", color=INK)
        axes.text(left + 2.86, y, similarity(pair.similarity[label]), fontsize=8.5, va="center", ha="right", color=INK)
        y -= BAR
