"""Examples: searches, soft targets, query pictures, scored pairs, maps of embeddings and cross-attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from ccr_cli.report.content import CrossAttention, EmbeddingMap, ExampleHit, ExampleSearch
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.figure import Drawing, FigureData, figure
from ccr_cli.report.thumbnails import thumbnail
from ccr_cli.report.words.numbers import MISSING, percent, similarity

SIDE = 160
"""Longest side of a picture in pixels."""
ROW, COLUMN = 1.22, 1.12
"""Height of a query and width of a result in a strip, in inches."""
WIDTH, LINE = 9.0, 0.27
"""Width of a figure, and height of a caption found for a picture, in inches."""
TOP = 5
"""Most pictures in a strip per query."""
FEWEST_RUNS, MOST_RUNS = 2, 6
"""Fewest runs that make a comparison of pairs, and most runs in it."""
CELL, BAR, NAME = 3.1, 0.27, 0.15
"""Width of a scored pair, heights of a bar and of a line of a name above it, in inches."""
_KEYS = ["slot_id", "lang", "translation"]
_TEXTS = ["item_id", "source_text", "back", "truth"]
TRUTH = {"clean": "intact", "noisy": "synthetic mismatch", "partly": "partly wrong"}
FEWEST_POINTS, MOST_MAPS = 4, 4
"""Fewest points of a map, and most maps."""
COLORS = (*canvas.TERMS, canvas.GREY)
ATTENTIONS = 3
"""Number of captions whose attention is shown."""


@figure("scored", "pairs scored by several runs", "ccr diagnose RUN RUN")
def scored_pairs(data: FigureData) -> Drawing | None:
    """The diagnosed runs of the main view at the headline noise (UML Figure 8)."""
    chosen = choose(data.with_judges(dict(list(data.pairs.items())[:MOST_RUNS])))
    if not chosen:
        return None
    dataset = data.data.dataset_of_run(next(iter(data.diagnoses.values())).run_id)
    title = f"Three training pairs scored by {len(chosen[0].p_clean)} runs, {data.noise}"
    caption = "Chosen by rule: from the upper quarter, by the largest difference of P(clean), by the lowest mean."
    drawn = draw_pairs(chosen, dataset.image, title, dataset.source_lang)
    return Drawing(drawn, "Training pairs with the scores of each run", caption)


@figure("where", "map of items with their captions", "ccr report --map 20")
def item_map(data: FigureData) -> Drawing:
    """The maps of the report (UML Figure 6)."""
    caption = (
        "t-SNE of the embeddings by cosine distance; items drawn by a fixed seed, with a line from each caption to its "
        "item. Distances between groups have no meaning."
    )
    return Drawing(draw_maps(data.data.maps), "Map of items with their captions", caption)


@figure("pictures", "query pictures", "ccr report --inside 3")
def picture_queries(data: FigureData) -> Drawing:
    """Query pictures with the captions found for them (UML Figure 7, a to c)."""
    lang = data.data.dataset(data.main.data).source_lang
    source = f" in {lang}" if lang else ""
    caption = (
        "The most similar captions, a tick at the picture's own; grey: a caption of their item"
        f"{source}. Pictures drawn by a fixed seed."
    )
    return Drawing(draw_pictures(data.data.inside.pictures), "Query pictures with the captions found", caption)


@figure("targets", "soft targets", "ccr train --method disncl, then ccr report --inside 3")
def soft_targets(data: FigureData) -> Drawing:
    """Captions with the shares that soft targets give to pictures (DisNCL Figure 5)."""
    caption = (
        "Shares of the pictures in a batch of pairs, the five largest; the caption's own picture is framed. Captions "
        "chosen by rule: evenly from the surest to the least sure of the batch, which is drawn by a fixed seed without "
        "noise."
    )
    return Drawing(strip(data.data.inside.targets, shares=True), "Captions with their soft targets", caption)


@figure("attention", "cross-attention", "ccr train --method nrccr, then ccr report --inside 3")
def attention(data: FigureData) -> Drawing:
    """From the tokens of a caption to those of its translation (NRCCR Figure 3)."""
    caption = (
        "Share of the attention of a row, mean over heads, over the tokens of the translation: a row adds up to 1. "
        "Colours run from the least to the largest share of a panel. Captions drawn by a fixed seed."
    )
    what = "Attention from the tokens of a caption to the tokens of its translation"
    examples = data.data.inside.attention
    return Drawing(draw_attention(examples), what, caption, _method(examples[0].run) if examples else "")


@figure("searches", "example searches", "ccr report --searches 3")
def text_queries(data: FigureData) -> Drawing:
    """The example searches of the report."""
    return Drawing(strip(data.data.searches), "Searches in several languages with the first images found")


def _method(run: str) -> str:
    return run.partition("-seed")[0]


def strip(searches: Sequence[ExampleSearch], shares: bool = False) -> Figure | None:
    """A row per query: its text and meaning, then the images found with their similarity.

    With `shares`, similarities are shares of one, which are drawn as bars too.
    """
    if not searches:
        return None
    columns = min(TOP, max(len(search.results) for search in searches))
    drawn, axes = canvas.blank(WIDTH, ROW * len(searches) + 0.12)
    width = WIDTH - columns * COLUMN - 0.1
    for line, search in enumerate(searches):
        bottom = ROW * (len(searches) - 1 - line) + 0.12
        query = canvas.wrapped(search.query, width - 0.2, 0.135, 2)
        gloss = canvas.wrapped(_gloss(search), width - 0.2, 0.082, 2)
        axes.text(0.12, bottom + 0.65, query, fontsize=13, va="bottom", fontweight="bold")
        axes.text(0.12, bottom + 0.55, gloss, fontsize=9.5, va="top", color=canvas.FAINT)
        if line:
            axes.plot([0.12, WIDTH - 0.12], [bottom + ROW - 0.06] * 2, color=canvas.GRID, linewidth=0.8)
        for place, hit in enumerate(search.results[:columns]):
            _hit(axes, hit, width + place * COLUMN + 0.14, bottom, shares)
    return drawn


def _hit(axes: Axes, hit: ExampleHit, left: float, bottom: float, shares: bool) -> None:
    image = thumbnail(hit.image, SIDE)
    centre: dict[str, Any] = {"ha": "center", "va": "center"}
    if image is None:
        text = canvas.wrapped(hit.caption or hit.item_id, 0.84, 0.058, 3)
        axes.text(left + 0.42, bottom + 0.66, text, fontsize=7, color=canvas.FAINT, **centre)
    else:
        foot = 0.08 if shares else 0.0
        draw_picture(axes, image, left + foot / 2, bottom + 0.24 + foot, 0.84 - foot)
    if hit.correct:
        frame: dict[str, Any] = {"edgecolor": canvas.RIGHT, "linewidth": 2.6, "fill": False, "zorder": 3}
        style = "round,pad=0.02,rounding_size=0.08"
        axes.add_patch(FancyBboxPatch((left - 0.02, bottom + 0.22), 0.88, 0.88, boxstyle=style, **frame))
    if shares:
        _bar(axes, left, bottom + 0.24, 0.84, 0.05, min(max(hit.similarity, 0.0), 1.0), canvas.CLEAN)
    color, weight = (canvas.RIGHT, "bold") if hit.correct else (canvas.INK, "normal")
    text = similarity(hit.similarity) + ("  ✓" if hit.correct else "")
    axes.text(left + 0.42, bottom + 0.1, text, fontsize=8.5, color=color, fontweight=weight, **centre)


def _bar(axes: Axes, left: float, bottom: float, width: float, height: float, share: float, color: Any) -> None:
    for part, fill in ((1.0, canvas.GRID), (share, color)):
        axes.add_patch(Rectangle((left, bottom), width * part, height, facecolor=fill, edgecolor="none", zorder=4))


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
    drawn, axes = canvas.blank(WIDTH, height)
    for number, search in enumerate(searches):
        top = height - 0.1 - number * row
        draw_picture(axes, thumbnail(search.image, SIDE), 0.2, top - 1.12, 1.0)
        if search.uncertainty is not None:
            text = f"uncertainty {similarity(search.uncertainty)}"
            axes.text(0.7, top - 1.26, text, fontsize=8.5, ha="center", va="center", color=canvas.FAINT)
        for place, hit in enumerate(search.results):
            y = top - 0.24 - LINE * place
            color, weight = (canvas.RIGHT, "bold") if hit.correct else (canvas.INK, "normal")
            mark = "\u2713" if hit.correct else "\u2717"
            axes.text(1.6, y, mark, fontsize=11, va="center", color=canvas.RIGHT if hit.correct else canvas.NOISY)
            axes.text(1.85, y, similarity(hit.similarity), fontsize=9.5, va="center", color=color, fontweight=weight)
            caption, gloss = canvas.wrapped(hit.caption, 3.45, 0.112, 1), canvas.wrapped(hit.gloss or "", 2.8, 0.085, 1)
            axes.text(2.4, y, caption, fontsize=10.5, va="center", fontweight=weight)
            axes.text(6.0, y, gloss, fontsize=9.5, va="center", color=canvas.FAINT)
        if number:
            axes.plot([0.12, WIDTH - 0.12], [top, top], color=canvas.GRID, linewidth=0.8)
    return drawn


def draw_picture(axes: Axes, picture: Image.Image | None, left: float, bottom: float, side: float) -> None:
    """Draws a picture into a square, in inches; the words `no image` without one."""
    if picture is None:
        place = (left + side / 2, bottom + side / 2)
        axes.text(*place, "no image", fontsize=8.5, ha="center", va="center", color=canvas.FAINT)
    else:
        box = (left, left + side, bottom, bottom + side)
        axes.imshow(squared(picture), extent=box, aspect="auto", interpolation="lanczos", zorder=2)


def squared(picture: Image.Image) -> np.ndarray:
    """Pads a picture with white to a square."""
    side = max(picture.size)
    out = Image.new("RGB", (side, side), "white")
    out.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return np.asarray(out)


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the scores of each run."""

    why: str
    texts: Mapping[str, Any]
    p_clean: Mapping[str, float]
    similarity: Mapping[str, float]


def choose(tables: Mapping[str, pd.DataFrame]) -> list[ScoredPair]:
    """Three pairs, by rule: the least believed by all, the one on which runs differ most, one that all believe.

    By method comes the table of a diagnosis of the same triplets; pairs that not all of them have are left out.
    """
    if len(tables) < FEWEST_RUNS:
        return []
    first, *others = (table.drop_duplicates(_KEYS).set_index(_KEYS) for table in tables.values())
    whole = first[[*_TEXTS, "p_clean", "sim_vt"]]
    for number, other in enumerate(others):
        whole = whole.merge(other[["p_clean", "sim_vt"]], on=_KEYS, suffixes=("", str(number)))
    if whole.empty:
        return []
    p_NR, sim_NR = (whole.filter(regex=rf"^{name}\d*$").to_numpy(float) for name in ("p_clean", "sim_vt"))
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
    texts: Any = whole[_TEXTS].reset_index().astype(object).where(lambda cell: cell.notna(), None).to_dict("records")
    figures = [[dict(zip(tables, of_NR[i].tolist(), strict=True)) for of_NR in (p_NR, sim_NR)] for i in places]
    return [ScoredPair(why, texts[i], *both) for (i, why), both in zip(places.items(), figures, strict=True)]


def draw_pairs(
    chosen: Sequence[ScoredPair], image: Callable[[str], Path | None], title: str = "", source: str = ""
) -> Figure | None:
    """A column per pair: picture (if any), source, translation, back-translation, and a bar per run.

    `source` is the language of the source captions, where it is known.
    """
    if not chosen:
        return None
    colors = {label: look["color"] for label, look in canvas.styles(chosen[0].p_clean).items()}
    names = {label: canvas.wrapped(label, 2.76, 0.076, 4) for label in colors}
    above = sum(1 + name.count("\n") for name in names.values())
    foot = 0.42 + BAR * len(colors) + NAME * above
    pictures = [thumbnail(image(str(pair.texts["item_id"])), 220) for pair in chosen]
    aside, head, below = (1.42, 1.5, 0.78) if any(picture is not None for picture in pictures) else (0.0, 0.95, 0.42)
    height = 0.4 + head + 1.72 + foot
    drawn, axes = canvas.blank(CELL * len(chosen), height)
    axes.text(0.1, height - 0.2, title, fontsize=11, fontweight="bold", va="center")
    for column, (pair, picture) in enumerate(zip(chosen, pictures, strict=True)):
        left, top = column * CELL + 0.1, height - 0.4
        if aside:
            draw_picture(axes, picture, left, top - 1.38, 1.3)
            frame: dict[str, Any] = {"fill": False, "edgecolor": canvas.GRID, "linewidth": 0.8, "zorder": 3}
            axes.add_patch(Rectangle((left, top - 1.38), 1.3, 1.3, **frame))
        room = CELL - 0.23 - aside
        why = canvas.wrapped(pair.why, room, 0.085, 3)
        truth = canvas.wrapped(TRUTH.get(str(pair.texts.get("truth")), ""), room, 0.08, 2)
        axes.text(left + aside, top - 0.14, why, fontsize=9.5, va="top", fontweight="bold")
        axes.text(left + aside, top - below, truth, fontsize=9, va="top", color=canvas.FAINT)
        down = top - head
        texts = ((source or "source", "source_text"), (str(pair.texts["lang"]), "translation"), ("back", "back"))
        for name, key in texts:
            axes.text(left, down, name, fontsize=8, va="top", color=canvas.FAINT)
            text = canvas.wrapped(str(pair.texts.get(key) or MISSING), 2.35, 0.088, 3)
            axes.text(left + 0.52, down, text, fontsize=9.5, va="top")
            down -= 0.55
        axes.text(left, foot - 0.1, "P(clean)", fontsize=8, color=canvas.FAINT, va="center")
        axes.text(left + 2.86, foot - 0.1, "similarity", fontsize=8, color=canvas.FAINT, va="center", ha="right")
        y = foot - 0.34
        for label, name in names.items():
            axes.text(left, y + 0.07, name, fontsize=8.5, va="top", linespacing=1.1)
            y -= NAME * (1 + name.count("\n"))
            _bar(axes, left, y - 0.065, 1.9, 0.13, pair.p_clean[label], colors[label])
            axes.text(left + 1.96, y, similarity(pair.p_clean[label]), fontsize=8.5, va="center")
            axes.text(left + 2.86, y, similarity(pair.similarity[label]), fontsize=8.5, va="center", ha="right")
            y -= BAR
    return drawn


def place_points(drawn: EmbeddingMap) -> np.ndarray:
    """Points (V + T, 2): t-SNE by cosine distance, deterministic."""
    from sklearn.manifold import TSNE

    whole = np.concatenate([drawn.item_VD, drawn.text_TD]).astype(np.float64)
    near = max(1.0, min(15.0, (len(whole) - 1) / 3))
    points: np.ndarray = TSNE(2, perplexity=near, metric="cosine", init="random", random_state=0).fit_transform(whole)
    return points


def draw_maps(maps: Sequence[EmbeddingMap]) -> Figure | None:
    """A panel per map: the picture of each item, and its captions as dots with a line to it."""
    shown = [drawn for drawn in maps if len(drawn.item_ids) + len(drawn.item_T) >= FEWEST_POINTS][:MOST_MAPS]
    if not shown:
        return None
    drawn, axes = canvas.panel_grid(len(shown), 4.6, 4.6, least=6.0)
    for ax, embedding_map in zip(axes, shown, strict=True):
        _map(ax, embedding_map)
    return drawn


def _map(ax: Axes, drawn: EmbeddingMap) -> None:
    points = place_points(drawn)
    items, texts = points[: len(drawn.item_ids)], points[len(drawn.item_ids) :]
    for row, item in enumerate(drawn.item_ids):
        color, captions = COLORS[row % len(COLORS)], texts[drawn.item_T == row]
        for x, y in captions:
            ax.plot([items[row, 0], x], [items[row, 1], y], color=color, linewidth=0.9, alpha=0.65, zorder=2)
        ax.plot(captions[:, 0], captions[:, 1], "o", color=color, markersize=5, markeredgecolor=canvas.WHITE, zorder=3)
        picture = thumbnail(drawn.image(item), 96)
        if picture is None:
            ax.plot(*items[row], "s", color=color, markersize=9, markeredgecolor=canvas.WHITE, zorder=4)
        else:
            box = OffsetImage(squared(picture), zoom=72 * 0.24 / max(picture.size))
            frame: dict[str, Any] = {"edgecolor": color, "linewidth": 1.2}
            ax.add_artist(AnnotationBbox(box, tuple(items[row]), pad=0.12, bboxprops=frame, zorder=4))
    ax.set_title(f"{_method(drawn.run)}, {drawn.lang}", fontsize=9.5)
    text = f"{percent(drawn.nearest, 0)} of {len(drawn.item_T)} captions are nearest to their own item"
    ax.set_xlabel(text, fontsize=8.5, color=canvas.FAINT)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.margins(0.08)


def draw_attention(examples: Sequence[CrossAttention]) -> Figure | None:
    """A panel per caption: its tokens down, those of its translation across, with the share of attention."""
    shown = examples[:ATTENTIONS]
    if not shown:
        return None
    widths = [1.0 + 0.62 * len(example.target) for example in shown]
    longest = max(len(example.source) for example in shown)
    drawn = canvas.new_figure(max(sum(widths) + 0.6, 5.0), 1.6 + 0.42 * longest)
    axes = drawn.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
    for ax, example in zip(axes, shown, strict=True):
        low = float(example.share_LM.min())
        high = max(float(example.share_LM.max()), low + 1e-6)
        ax.imshow(example.share_LM, cmap="Blues", vmin=low, vmax=high + 0.25 * (high - low), aspect="auto")
        for (row, column), share in np.ndenumerate(example.share_LM):
            color = canvas.ON_DARK if share > low + 0.65 * (high - low) else canvas.ON_LIGHT
            ax.text(column, row, similarity(float(share)), ha="center", va="center", fontsize=8, color=color)
        source, target = ([canvas.wrapped(w, 14, 1, 1) for w in words] for words in (example.source, example.target))
        ax.set_xticks(range(len(target)), target, rotation=35, ha="right")
        ax.set_yticks(range(len(source)), source)
        ax.tick_params(length=0, labelsize=9.5)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"tokens of the translation ({example.lang})", fontsize=8.5, color=canvas.FAINT)
    axes[0].set_ylabel("tokens of the caption", fontsize=8.5, color=canvas.FAINT)
    return drawn
