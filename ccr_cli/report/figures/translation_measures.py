"""Distributions of the quality of translations over captions: a row per translation, a column per measure."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ccr_cli.metrics.mtquality import LENGTH_Z
from ccr_cli.report.figures.canvas import CLEAN, FAINT, INK, NOISY, new_figure, note
from ccr_cli.report.figures.figure import Drawing
from ccr_cli.report.tables.translations import TranslatedCaptions
from ccr_cli.report.words.numbers import decimal

MEASURES = {
    "length_z": "length, z",
    "round_trip_chrf": "round trip, chrF2",
    "reference_chrf": "human references, chrF2",
    "score": "engine's score",
}
BINS = 40
LENGTHS = 6.0
"""Lengths beyond this are drawn at it."""
LABEL_LETTERS = 22


def quality_measures(loaded: Sequence[TranslatedCaptions]) -> Drawing:
    """Histograms of each measure with their medians; flagged lengths are marked."""
    what = "Histograms of length, round-trip chrF2, chrF2 against human references and the engine's score"
    caption = (
        "Translated captions of all splits. Length: how unusual it is for the length of the source; captions beyond "
        "the dotted lines are flagged and marked. Length ratio: median of translation to source, in characters. Other "
        "lines: medians."
    )
    shown = [name for name in MEASURES if any(captions.frame[name].notna().any() for captions in loaded)]
    if not shown:
        return Drawing(None, what, caption)
    figure = new_figure(9.2, 1.05 * len(loaded) + 0.75)
    axes = figure.subplots(len(loaded), len(shown), squeeze=False, sharex="col")
    for c, name in enumerate(shown):
        known = np.concatenate([captions.frame[name].dropna().to_numpy(float) for captions in loaded])
        low, high = _range(name, known)
        bins = np.linspace(low, high, BINS + 1)
        for r, captions in enumerate(loaded):
            _histogram(axes[r][c], captions.frame[name].dropna().to_numpy(float), bins, name == "length_z")
        axes[0][c].set_title(MEASURES[name], fontsize=10)
        axes[0][c].set_xlim(low, high)
    for r, captions in enumerate(loaded):
        label = f"{captions.of.data}, {captions.of.lang}\n" + textwrap.fill(captions.of.label, LABEL_LETTERS)
        if captions.frame["length_ratio"].notna().any():
            label += f"\nlength ratio {decimal(captions.frame['length_ratio'].median(), 2)}"
        axes[r][0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8.5)
    return Drawing(figure, what, caption)


def _range(name: str, values: np.ndarray) -> tuple[float, float]:
    """The range in which a measure is drawn; values outside are drawn at its ends."""
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
        note(axes, 0.5, 0.4, "unknown", ha="center")
        return
    counts, _, _ = axes.hist(np.clip(values, bins[0], bins[-1]), bins.tolist(), color=CLEAN, alpha=0.75, linewidth=0)
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
    beside: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if right else "left", "va": "top"}
    text, place = decimal(median, 0 if bins[-1] == 100 else 2), (median, 0.97)
    axes.annotate(text, place, (-4 if right else 4, 0), ("data", "axes fraction"), fontsize=8.5, **beside)
