"""Training by epoch: the validation figure, the judge's AUROC, and the terms of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from ccr_cli.report.content import TrainingHistory
from ccr_cli.report.figures.canvas import FAINT, legend_size, new_figure, panel_grid, panel_title, panels, styles
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import percent

QUERIES = {"mt": "machine-translated", "human": "human"}
TERMS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6bb1", "#7a5c3d", "#56b4e9", "#e69f00")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MOST = 6
"""Panels of loss terms."""


@dataclass(frozen=True)
class LabelledHistory:
    """The history of a run with the label of its method."""

    label: str
    run: TrainingHistory


def validation(data: FigureData) -> Drawing:
    """The runs of the main view."""
    runs = set(data.main.frame["run_id"])
    histories = [LabelledHistory(data.data.label(h.run_id, "run"), h) for h in data.data.histories if h.run_id in runs]
    caption = "A line per run; the dot is the epoch that was kept. AUROC: mismatched against intact training pairs."
    if any(history.run.criterion != data.main.figure for history in histories):
        caption += " Runs that validated by another figure are left out."
    what = f"Validation {data.main.figure} and the judge's AUROC by epoch"
    return Drawing(by_epoch(histories, data.main.figure), what, caption)


def loss_terms(data: FigureData) -> Drawing:
    """One run per method at the headline noise."""
    frames: dict[str, pd.DataFrame] = {}
    runs = set(data.main.frame["run_id"])
    for history in sorted(data.data.histories, key=lambda h: h.seed):
        label = data.data.label(history.run_id, "run")
        if history.run_id in runs and history.noise == data.findings.noise and not results.is_oracle(label):
            frames.setdefault(label, history.frame)
    caption = f"Weighted terms, {data.noise}; one run per method, the lowest seed."
    ordered = {label: frames[label] for label in sorted(frames, key=data.order)}
    return Drawing(losses(ordered), "Terms of the loss by epoch", caption)


def by_epoch(histories: Sequence[LabelledHistory], figure: str = "SumR", width: float = 9.2) -> Figure | None:
    """The validation figure and the judge's AUROC by epoch, a column per noise ratio, a thin line per run.

    Args:
        histories: The runs; their frames have epoch, val.SumR or val.mAP, and judge.auroc where known.
        figure: `SumR` or `mAP`; a run that validated by the other one counted other answers as right and is left out.
        width: In inches.
    """
    shown = f"val.{figure}"
    histories = [h for h in histories if h.run.criterion == figure]
    known = [h for h in histories if shown in h.run.frame and h.run.frame[shown].notna().any()]
    if not known:
        return None
    ratios = sorted({h.run.noise for h in known})
    judged = any(_judged(h.run.frame) for h in known)
    labels = sorted({h.label for h in known}, key=results.method_order)
    look = styles(labels)
    width = max(width * min(len(ratios), 4) / 4, 5.0)
    ncols, lines = legend_size(labels, width, 9.5)
    drawn = new_figure(width, (4.7 if judged else 2.7) + 0.2 * lines)
    axes = panels(drawn, 2 if judged else 1, len(ratios), sharex="col", sharey="row")
    for column, noise in enumerate(ratios):
        top, bottom = axes[0][column], axes[-1][column]
        top.set_title(f"{percent(noise)} noise")
        for history in (h for h in known if h.run.noise == noise):
            line = {key: look[history.label][key] for key in ("color", "linestyle")}
            frame = history.run.frame
            top.plot(frame["epoch"], frame[shown], **line, linewidth=1.4, alpha=0.9)
            if "best" in frame and frame["best"].astype(bool).any():
                best = frame[frame["best"].astype(bool)].iloc[-1]
                top.plot(best["epoch"], best[shown], "o", color=line["color"], markersize=3.5)
            if _judged(frame):
                bottom.plot(frame["epoch"], frame["judge.auroc"], **line, linewidth=1.4, alpha=0.9)
        bottom.set_xlabel("epoch")
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if judged and not bottom.lines:
            text = "no mismatched pairs" if noise == 0 else "no judge"
            bottom.text(0.5, 0.5, text, color=FAINT, fontsize=9, transform=bottom.transAxes, ha="center")
    queries = " or ".join(sorted({QUERIES[h.run.select] for h in known if h.run.select in QUERIES}))
    axes[0][0].set_ylabel(f"validation {figure},\n{queries} queries" if queries else f"validation {figure}")
    if judged:
        axes[1][0].set_ylabel("judge's AUROC")
    handles = [axes[0][-1].plot([], [], **{**look[label], "marker": ""}, label=label)[0] for label in labels]
    drawn.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return drawn


def _judged(history: pd.DataFrame) -> bool:
    return "judge.auroc" in history and bool(history["judge.auroc"].notna().any())


def losses(histories: Mapping[str, pd.DataFrame]) -> Figure | None:
    """The terms of the loss by epoch, a panel per method; their sum dotted.

    Args:
        histories: By method, a frame with `epoch` and `loss.NAME`.
    """
    known = {label: _terms(frame) for label, frame in histories.items()}
    shown = [(label, terms) for label, terms in known.items() if not terms.empty][:MOST]
    if not shown:
        return None
    lines = max(-(-terms.shape[1] // 2) for _, terms in shown)
    figure, axes, first = panel_grid(len(shown), 3.3, 2.7 + 0.17 * lines, least=4.6)
    for ax, (label, terms) in zip(axes, shown, strict=True):
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
        panel_title(ax, label, 2.6)
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}  # never over a curve
        ax.legend(fontsize=8, handlelength=2.4, labelspacing=0.3, columnspacing=1.0, borderpad=0, **below)
    for ax in first:
        ax.set_ylabel("loss")
    return figure


def _terms(history: pd.DataFrame) -> pd.DataFrame:
    names = [str(name) for name in history if str(name).startswith("loss.")]
    columns = {name.removeprefix("loss."): pd.to_numeric(history[name], errors="coerce") for name in names}
    return pd.DataFrame(columns).set_axis(history["epoch"], axis=0).dropna(axis=1, how="all")
