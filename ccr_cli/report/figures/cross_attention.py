"""Attention from the tokens of a caption to those of its translation (NRCCR Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ccr_cli.report.content import CrossAttention
from ccr_cli.report.figures.canvas import FAINT, heading, new_figure, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.words.numbers import similarity

MOST = 3
"""Number of captions shown."""


def attention(data: FigureData) -> Drawing:
    """The examples of the report."""
    caption = (
        "Share of the attention of a row, mean over heads, over the tokens of the translation: a row adds up to 1. "
        "Colours run from the least to the largest share of a panel. Captions drawn by a fixed seed."
    )
    what = "Attention from the tokens of a caption to the tokens of its translation"
    return Drawing(draw(data.data.inside.attention), what, caption)


def draw(examples: Sequence[CrossAttention]) -> Figure | None:
    """A panel per caption: its tokens down, those of its translation across, with the share of attention."""
    shown = examples[:MOST]
    if not shown:
        return None
    widths = [1.0 + 0.62 * len(example.target) for example in shown]
    longest = max(len(example.source) for example in shown)
    figure = new_figure(max(sum(widths) + 0.6, 5.0), 1.6 + 0.42 * longest)
    axes = figure.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
    for ax, example in zip(axes, shown, strict=True):
        low, high = (
            float(example.share_LM.min()),
            max(float(example.share_LM.max()), float(example.share_LM.min()) + 1e-6),
        )
        ax.imshow(example.share_LM, cmap="Blues", vmin=low, vmax=high + 0.25 * (high - low), aspect="auto")
        for row, column in np.ndindex(example.share_LM.shape):
            share = float(example.share_LM[row, column])
            color = "#fefefe" if share > low + 0.65 * (high - low) else "#22262d"
            ax.text(column, row, similarity(share), ha="center", va="center", fontsize=8, color=color)
        ax.set_xticks(range(len(example.target)), [_short(word) for word in example.target], rotation=35, ha="right")
        ax.set_yticks(range(len(example.source)), [_short(word) for word in example.source])
        ax.tick_params(length=0, labelsize=9.5)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"tokens of the translation ({example.lang})", fontsize=8.5, color=FAINT)
    axes[0].set_ylabel("tokens of the caption", fontsize=8.5, color=FAINT)
    heading(figure, shown[0].run.partition("-seed")[0])
    return figure


def _short(word: str) -> str:
    return wrapped(word, 14, 1, 1)
