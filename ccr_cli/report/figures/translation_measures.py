"""Distributions of what is known of translations, caption by caption: a row a translation, a column a measure.

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr_cli.metrics.mtquality import LENGTH_Z
from ccr_cli.report.figures.canvas import CLEAN, FAINT, INK, NOISY, new_figure, panels
from ccr_cli.report.tables.flagged_translations import Captions

MEASURES = {
    "length_z": "length, z",
    "round_trip_chrf": "round trip, chrF2",
    "reference_chrf": "human references, chrF2",
    "score": "engine's score",
}
BINS = 40
LENGTHS = 6.0
"""Lengths further from the usual are drawn at this."""
LABEL_LETTERS = 22


def distributions(loaded: Sequence[Captions], width: float = 9.2, row_height: float = 1.05) -> Figure | None:
    """Histograms of each measure with their medians; of lengths, what is flagged.

    Args:
        loaded: The captions of each translation.
        width: In inches.
        row_height: In inches.
    """
    shown = [name for name in MEASURES if any(each.frame[name].notna().any() for each in loaded)]
    if not shown:
        return None
    figure = new_figure(width, row_height * len(loaded) + 0.75)
    axes = panels(figure, len(loaded), len(shown), sharex="col")
    for c, name in enumerate(shown):
        known = np.concatenate([each.frame[name].dropna().to_numpy(float) for each in loaded])
        low, high = _range(name, known)
        bins = np.linspace(low, high, BINS + 1)
        for r, each in enumerate(loaded):
            _histogram(axes[r][c], each.frame[name].dropna().to_numpy(float), bins, name == "length_z")
        axes[0][c].set_title(MEASURES[name], fontsize=10)
        axes[0][c].set_xlim(low, high)
    for r, each in enumerate(loaded):
        label = f"{each.of.data}, {each.of.lang}\n" + textwrap.fill(each.of.label, LABEL_LETTERS)
        if each.frame["length_ratio"].notna().any():
            label += f"\nlength ratio {each.frame['length_ratio'].median():.2f}"
        axes[r][0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8.5)
    return figure


def _range(name: str, values: np.ndarray) -> tuple[float, float]:
    """What is drawn of a measure; what lies outside is put to its ends."""
    if name.endswith("chrf"):
        return 0.0, 100.0
    if name == "length_z":
        return -LENGTHS, LENGTHS
    low, high = np.percentile(values, [0.5, 100])
    pad = 0.05 * (high - low) or 0.5
    return float(low - pad), float(high + pad)


def _histogram(axes: Axes, values: np.ndarray, bins: np.ndarray, lengths: bool) -> None:
    axes.grid(axis="y", visible=False)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    if not len(values):
        axes.text(0.5, 0.4, "not known", color=FAINT, fontsize=8.5, ha="center", transform=axes.transAxes)
        return
    counts, _, _ = axes.hist(
        np.clip(values, bins[0], bins[-1]), bins=bins.tolist(), color=CLEAN, alpha=0.75, linewidth=0
    )
    axes.set_ylim(-0.14 * float(np.max(counts)), 1.25 * float(np.max(counts)))
    if lengths:
        flagged = values[np.abs(values) > LENGTH_Z]
        # few among many: marks, since bars would not be seen
        places = np.full(len(flagged), -0.07 * float(np.max(counts)))
        axes.plot(np.clip(flagged, bins[0], bins[-1]), places, "|", color=NOISY, markersize=6)
        axes.set_xticks([-LENGTH_Z, 0, LENGTH_Z])
        for edge in (-LENGTH_Z, LENGTH_Z):
            axes.axvline(edge, color=FAINT, linewidth=0.9, linestyle=":")
        return
    median = float(np.median(values))
    axes.axvline(median, color=INK, linewidth=1)
    right = median > (bins[0] + bins[-1]) / 2
    axes.annotate(
        f"{median:.0f}" if bins[-1] == 100 else f"{median:.2f}",
        (median, 0.97),
        (-4 if right else 4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=8.5,
    )
