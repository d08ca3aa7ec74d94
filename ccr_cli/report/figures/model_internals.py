"""What models do within, by example, as a report shows it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ccr_cli.report.content import CrossAttention
from ccr_cli.report.figures.canvas import FAINT, new_figure
from ccr_cli.report.figures.lettering import heading, wrapped

MOST = 3
"""Captions in the figure of attention."""


def attention(maps: Sequence[CrossAttention]) -> Figure | None:
    """A panel a caption: its tokens down, those of its translation across, and how much each reads of each.

    To be called inside `canvas.drawing`.
    """
    shown = maps[:MOST]
    if not shown:
        return None
    widths = [1.0 + 0.62 * len(each.target) for each in shown]
    longest = max(len(each.source) for each in shown)
    figure = new_figure(max(sum(widths) + 0.6, 5.0), 1.6 + 0.42 * longest)
    axes = figure.subplots(1, len(shown), squeeze=False, width_ratios=widths)[0]
    for ax, each in zip(axes, shown, strict=True):
        low, high = float(each.share_LM.min()), max(float(each.share_LM.max()), float(each.share_LM.min()) + 1e-6)
        ax.imshow(each.share_LM, cmap="Blues", vmin=low, vmax=high + 0.25 * (high - low), aspect="auto")
        for row, column in np.ndindex(each.share_LM.shape):
            share = float(each.share_LM[row, column])
            color = "#fefefe" if share > low + 0.65 * (high - low) else "#22262d"
            ax.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=8, color=color)
        ax.set_xticks(range(len(each.target)), [_short(word) for word in each.target], rotation=35, ha="right")
        ax.set_yticks(range(len(each.source)), [_short(word) for word in each.source])
        ax.tick_params(length=0, labelsize=9.5)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"tokens of the translation ({each.lang})", fontsize=8.5, color=FAINT)
    axes[0].set_ylabel("tokens of the caption", fontsize=8.5, color=FAINT)
    heading(figure, shown[0].run.partition("-seed")[0])
    return figure


def _short(word: str) -> str:
    return wrapped(word, 14, 1, 1)
