"""Figures over epochs: what a judge makes of intact and mismatched pairs early, midway and late; loss terms.

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from ccr_cli.metrics.detection import auroc
from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, across, new_figure, panels
from ccr_cli.report.figures.lettering import heading, over

BINS = 32
TERMS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6bb1", "#7a5c3d", "#56b4e9", "#e69f00")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MOST = 6
"""Panels of loss terms."""


def thirds(count: int) -> list[int]:
    """Places of the first, the middle and the last of `count`; fewer where there are fewer."""
    return sorted({0, (count - 1) // 2, count - 1}) if count else []


def densities(epochs: Sequence[tuple[int, pd.DataFrame]], truth: pd.Series[Any], title: str = "") -> Figure | None:
    """What the judge doubts, and the similarity that it reads, of intact and of mismatched pairs (UML Figure 5).

    Args:
        epochs: Number and evidence table of each; those at the beginning, in the middle and at the end are drawn.
        truth: True where a pair is mismatched, by slot.
        title: Over the figure.
    """
    if truth.nunique() != 2:
        return None
    chosen = [epochs[place] for place in thirds(len(epochs))]
    if not chosen:
        return None
    figure = new_figure(3.0 * len(chosen) + 0.3, 4.6)
    axes = panels(figure, 2, len(chosen), sharex="row", sharey="row")
    for column, (epoch, frame) in enumerate(chosen):
        wrong = frame["slot_id"].map(truth)
        known = frame[wrong.notna()]
        wrong_N = wrong[wrong.notna()].to_numpy(bool)
        for line, values in enumerate((1 - known["p_clean"].to_numpy(float), known["sim_vt"].to_numpy(float))):
            low, high = (0.0, 1.0) if line == 0 else (-0.5, 1.0)
            two_densities(axes[line][column], values, wrong_N, (low, high), at=0.5 if line == 0 else 0.2)
        axes[0][column].set_title(f"epoch {epoch}")
        axes[0][column].set_xlabel("doubt of the judge, 1 \u2212 P(clean)")
        axes[1][column].set_xlabel("similarity of picture and translation")
    for first, *_ in axes:
        first.set_ylabel("density")
        first.set_ylim(0, 1.12 * first.get_ylim()[1])
    finish(figure, axes[0][0], title)
    return figure


def uncertainties(tables: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """The uncertainty of intact and mismatched training pairs after training, a panel a method.

    Args:
        tables: By method, the table of a diagnosis with known truth.
        title: Over the figure.
    """
    known = {k: p for k, p in tables.items() if p["truth"].notna().all() and p["truth"].nunique() == 2}
    if not known:
        return None
    columns = across(len(known))
    rows = -(-len(known) // columns)
    figure = new_figure(max(3.1 * columns, 4.6), 2.5 * rows + 0.4)
    axes = panels(figure, rows, columns)
    flat = [ax for line in axes for ax in line]
    for ax, (label, pairs) in zip(flat, known.items(), strict=False):
        values, wrong_N = pairs["uncertainty"].to_numpy(float), (pairs["truth"] == "noisy").to_numpy()
        low, high = float(values.min()), float(values.max())
        pad = max(0.03 * (high - low), 1e-6)
        two_densities(ax, values, wrong_N, (low - pad, high + pad), at=0.85)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        over(ax, label, 2.6)
        ax.set_xlabel("uncertainty")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
    for ax in flat[len(known) :]:
        ax.set_visible(False)
    for line in axes:
        line[0].set_ylabel("density")
    finish(figure, flat[0], title)
    return figure


def two_densities(
    ax: Axes,
    values: np.ndarray,
    wrong_N: np.ndarray,
    limits: tuple[float, float],
    at: float,
    names: tuple[str, str] = ("intact", "mismatched"),
    higher: bool = False,
) -> None:
    """Histograms of area 1 of both kinds, and `at` a place along the axis how well the value tells them apart.

    With `higher` only higher values of the second kind count as such, else those on either side.
    """
    low, high = limits
    edges = np.linspace(low, high, BINS + 1).tolist()
    inside = np.clip(values, low, high)
    for name, rows, color, dash in zip(names, (~wrong_N, wrong_N), (CLEAN, NOISY), ("-", (0, (3, 1))), strict=True):
        ax.hist(inside[rows], edges, density=True, histtype="stepfilled", color=color, alpha=0.3)
        style: dict[str, Any] = {"color": color, "linewidth": 1.3, "linestyle": dash}
        ax.hist(inside[rows], edges, density=True, histtype="step", **style, label=name)
    apart = auroc(values, wrong_N)
    if apart is not None:
        said = f"AUROC {apart if higher else max(apart, 1 - apart):.2f}"
        ax.text(at, 0.97, said, transform=ax.transAxes, ha="center", va="top", fontsize=8.5, color=FAINT)
    ax.set_xlim(low, high)
    ax.grid(axis="x", visible=False)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))


def finish(figure: Figure, ax: Axes, title: str) -> None:
    """The legend of both kinds, and the title at the left."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=9.5)
    heading(figure, title)


def losses(histories: Mapping[str, pd.DataFrame]) -> Figure | None:
    """The terms of the loss by epoch, a panel a method; the sum dotted.

    Args:
        histories: By method, a frame with `epoch` and `loss.NAME`.
    """
    known = {label: _terms(frame) for label, frame in histories.items()}
    known = {label: terms for label, terms in known.items() if not terms.empty}
    shown = list(known.items())[:MOST]
    if not shown:
        return None
    columns = across(len(shown))
    rows = -(-len(shown) // columns)
    lines = max(-(-terms.shape[1] // 2) for _, terms in shown)
    figure = new_figure(max(3.3 * columns, 4.6), (2.7 + 0.17 * lines) * rows)
    axes = [ax for line in panels(figure, rows, columns) for ax in line]
    for ax, (label, terms) in zip(axes, shown, strict=False):
        for place, name in enumerate(n for n in terms if n != "total" or terms.shape[1] == 1):
            style: dict[str, Any] = {"color": TERMS[place % len(TERMS)], "linestyle": DASHES[place % len(DASHES)]}
            ax.plot(terms.index, terms[name], **style, linewidth=1.7, label=name, marker="." if len(terms) == 1 else "")
        if "total" in terms and terms.shape[1] > 2:
            ax.plot(terms.index, terms["total"], color=FAINT, linewidth=1.2, linestyle=":", label="sum")
        values = terms.to_numpy()
        values = values[np.isfinite(values)]
        if len(values) and values.min() > 0 and values.max() > 60 * values.min():
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.yaxis.set_minor_locator(NullLocator())
        over(ax, label, 2.6)
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}  # never over a curve
        ax.legend(fontsize=8, handlelength=2.4, labelspacing=0.3, columnspacing=1.0, borderpad=0, **below)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    for place in range(0, len(shown), columns):
        axes[place].set_ylabel("loss")
    return figure


def _terms(history: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in history if str(name).startswith("loss.")]
    columns = {str(name).removeprefix("loss."): pd.to_numeric(history[name], errors="coerce") for name in names}
    return pd.DataFrame(columns).set_axis(history["epoch"], axis=0).dropna(axis=1, how="all")
