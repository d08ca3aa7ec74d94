"""Judges of training pairs: P(clean), ROC curves, evidence by epoch, and uncertainty of intact and mismatched pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

from ccr_cli.metrics.detection import auroc
from ccr_cli.report.figures.canvas import (
    CLEAN,
    FAINT,
    INK,
    NOISY,
    heading,
    new_figure,
    panel_grid,
    panel_title,
    panels,
    styles,
)
from ccr_cli.report.figures.figure import ONE_RUN, Drawing, FigureData
from ccr_cli.report.tables import results
from ccr_cli.report.tables.diagnoses import judge_name
from ccr_cli.report.words.numbers import similarity

BINS = 32


def beliefs(data: FigureData) -> Drawing | None:
    """The diagnosis of the headline method at the headline noise."""
    diagnosis = next((d for d in data.suspects if d.noise == data.findings.noise), None)
    if diagnosis is None:
        return None
    label = data.data.label(diagnosis.run_id, str(diagnosis.summary["label"]))
    title = f"{label}, {data.noise}, seed {diagnosis.summary.get('seed')}"
    what = f"Histograms of similarities and P(clean) of intact and mismatched training pairs by {label}, {data.noise}"
    caption = f"Judge: {judge_name(diagnosis.summary)}. Pairs left of the dotted line are called noisy."
    return Drawing(belief_histograms(diagnosis.load_pairs(), title), what, caption)


def detection_curves(data: FigureData) -> Drawing:
    """One diagnosis per method."""
    figure = roc_and_precision(data.with_judges(data.pairs), f"Finding the mismatched pairs, {data.noise}")
    return Drawing(figure, "ROC and precision-recall curves of the judges", ONE_RUN)


def epochs(data: FigureData) -> Drawing | None:
    """The evidence of the first method that has some, the headline method before others."""
    histories = {history.run_id: history for history in data.data.histories}
    known = data.pairs_with_truth
    for label in sorted(known, key=lambda label: (label != data.findings.method, results.method_order(label))):
        history = histories.get(data.diagnoses[label].run_id)
        evidence = list(history.evidence(data.main.lang)) if history else []
        truth = pd.Series((known[label]["truth"] == "noisy").to_numpy(bool), index=known[label]["slot_id"])
        figure = evidence_by_epoch(evidence, truth, f"{label}, {data.noise}")
        if figure is not None:
            what = f"Densities of the judge's doubt and of similarity, of intact and mismatched pairs, by {label}"
            caption = "Evidence on every training pair from the first, a middle and the last epoch with a judge."
            return Drawing(figure, what, caption)
    return None


def pair_uncertainty(data: FigureData) -> Drawing:
    """One run per method."""
    figure = uncertainties(data.pairs_with_truth, f"Uncertainty of training pairs, {data.noise}")
    caption = f"From the epoch that was kept, mean of both directions. Scales differ. {ONE_RUN}"
    return Drawing(figure, "Densities of the uncertainty of intact and mismatched training pairs", caption)


def belief_histograms(pairs: pd.DataFrame, title: str = "", width: float = 8.6, height: float = 3.1) -> Figure | None:
    """Histograms of sim_ST, sim_VT and P(clean): intact against mismatched pairs, or by verdict without a truth.

    Args:
        pairs: The table of a diagnosis.
        title: Over the figure.
        width: In inches.
        height: In inches.
    """
    if pairs.empty:
        return None
    by_truth = bool(pairs["truth"].notna().all())
    column, names = ("truth", ("intact", "mismatched")) if by_truth else ("verdict", ("called clean", "called noisy"))
    sides = {name: (pairs[column] == kind).to_numpy() for name, kind in zip(names, ("clean", "noisy"), strict=True)}
    figure = new_figure(width, height)
    titles = {
        "sim_st": "similarity of source\nand translation",
        "sim_vt": "similarity of picture\nand translation",
        "p_clean": "P(clean)",
    }
    axes = panels(figure, 1, len(titles))[0]
    for ax, (name, axis_title) in zip(axes, titles.items(), strict=True):
        values = pairs[name].to_numpy(float)
        low, high = (0.0, 1.0) if name == "p_clean" else (values.min(), values.max() + 1e-9)
        bins = np.linspace(low, high, 41).tolist()
        for (label, rows), color in zip(sides.items(), (CLEAN, NOISY), strict=True):
            if rows.any():
                ax.hist(values[rows], bins=bins, color=color, alpha=0.55, label=label, linewidth=0)
                ax.hist(values[rows], bins=bins, color=color, histtype="step", linewidth=1.3)
        ax.set_xlabel(axis_title)
        ax.grid(axis="x", visible=False)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes[2].set_yscale("symlog", linthresh=10)
    axes[2].set_yticks([t for t in (0, 10, 100, 1000, 10_000, 100_000) if t <= len(pairs)])
    axes[2].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes[2].yaxis.set_minor_locator(NullLocator())
    axes[2].axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes[0].set_ylabel("training pairs")
    axes[2].set_title("log scale above 10", fontsize=8.5, fontweight="normal", color=FAINT, loc="right")
    add_legend(figure, axes[0], title)
    return figure


def roc_and_precision(curves: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """ROC and precision-recall curves of diagnoses.

    Args:
        curves: By name, the table of a diagnosis; those without a known truth are left out.
        title: Over the figure.
    """
    known = {k: p for k, p in curves.items() if p["truth"].notna().all() and p["truth"].nunique() == 2}
    if not known:
        return None
    figure = new_figure(8.2, 3.7)
    roc, pr = panels(figure, 1, 2)[0]
    for name, look in styles(sorted(known, key=results.method_order)).items():
        truth = (known[name]["truth"] == "noisy").to_numpy()
        recall, alarms, precision = roc_points(1 - known[name]["p_clean"].to_numpy(float), truth)
        line = {"color": look["color"], "linewidth": 1.8, "linestyle": look["linestyle"]}
        roc.plot(alarms, recall, **line, label=name)
        pr.step(recall[1:], precision[1:], where="pre", **line, label=name)
    share = float(np.mean([(p["truth"] == "noisy").mean() for p in known.values()]))
    roc.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=":")
    pr.axhline(share, color=FAINT, linewidth=1, linestyle=":")
    pr.annotate("chance", (0.02, share), (0, 4), textcoords="offset points", color=FAINT, fontsize=8.5)
    roc.set(xlabel="false alarms", ylabel="share found", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    pr.set(xlabel="share found", ylabel="precision", xlim=(-0.01, 1.01), ylim=(0, 1.02))
    for ax in (roc, pr):
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    roc.legend(loc="lower right", fontsize=9)
    heading(figure, title)
    return figure


def roc_points(score: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recall, false alarms and precision at every threshold; equal scores pass together.

    Args:
        score: (N,) higher means more suspicious.
        truth: (N,) True where the pair is mismatched; both classes occur.

    Returns:
        Three arrays of (distinct scores + 1), beginning with nothing called (its precision is 1).
    """
    values, code = np.unique(-score, return_inverse=True)
    hits = np.cumsum(np.bincount(code, weights=truth, minlength=len(values)))
    called = np.cumsum(np.bincount(code, minlength=len(values)))
    recall, alarms = hits / truth.sum(), (called - hits) / (~truth).sum()
    return np.r_[0.0, recall], np.r_[0.0, alarms], np.r_[1.0, hits / called]


def thirds(count: int) -> list[int]:
    """Places of the first, the middle and the last of `count`; fewer where there are fewer."""
    return sorted({0, (count - 1) // 2, count - 1}) if count else []


def evidence_by_epoch(
    evidence: Sequence[tuple[int, pd.DataFrame]], truth: pd.Series[Any], title: str = ""
) -> Figure | None:
    """The judge's doubt and the similarity it reads, of intact and mismatched pairs, by epoch (UML Figure 5).

    Args:
        evidence: Number and evidence table of each epoch; the first, the middle and the last are drawn.
        truth: True where a pair is mismatched, by slot.
        title: Over the figure.
    """
    chosen = [evidence[place] for place in thirds(len(evidence))]
    if truth.nunique() != 2 or not chosen:
        return None
    figure = new_figure(3.0 * len(chosen) + 0.3, 4.6)
    axes = panels(figure, 2, len(chosen), sharex="row", sharey="row")
    for column, (epoch, frame) in enumerate(chosen):
        mismatched = frame["slot_id"].map(truth)
        known = frame[mismatched.notna()]
        wrong_N = mismatched[mismatched.notna()].to_numpy(bool)
        top, bottom = axes[0][column], axes[1][column]
        two_densities(top, 1 - known["p_clean"].to_numpy(float), wrong_N, (0.0, 1.0), at=0.5)
        two_densities(bottom, known["sim_vt"].to_numpy(float), wrong_N, (-0.5, 1.0), at=0.2)
        top.set_title(f"epoch {epoch}")
        top.set_xlabel("doubt of the judge, 1 \u2212 P(clean)")
        bottom.set_xlabel("similarity of picture and translation")
    for first, *_ in axes:
        first.set_ylabel("density")
        first.set_ylim(0, 1.12 * first.get_ylim()[1])
    add_legend(figure, axes[0][0], title)
    return figure


def uncertainties(tables: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """The uncertainty of intact and mismatched training pairs after training, a panel per method.

    Args:
        tables: By method, the table of a diagnosis with known truth.
        title: Over the figure.
    """
    known = {k: p for k, p in tables.items() if p["truth"].notna().all() and p["truth"].nunique() == 2}
    if not known:
        return None
    figure, axes, first = panel_grid(len(known), 3.1, 2.5, least=4.6, extra=0.4)
    for ax, (label, pairs) in zip(axes, known.items(), strict=True):
        values, wrong_N = pairs["uncertainty"].to_numpy(float), (pairs["truth"] == "noisy").to_numpy()
        two_densities(ax, values, wrong_N, padded_limits(values), at=0.85)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        panel_title(ax, label, 2.6)
        ax.set_xlabel("uncertainty")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
    for ax in first:
        ax.set_ylabel("density")
    add_legend(figure, axes[0], title)
    return figure


def padded_limits(values: np.ndarray) -> tuple[float, float]:
    """The range of values, with a margin."""
    low, high = float(values.min()), float(values.max())
    pad = max(0.03 * (high - low), 1e-6)
    return low - pad, high + pad


def two_densities(
    ax: Axes,
    values: np.ndarray,
    second_N: np.ndarray,
    limits: tuple[float, float],
    at: float,
    names: tuple[str, str] = ("intact", "mismatched"),
    higher: bool = False,
) -> None:
    """Histograms of area 1 of two kinds, and, at a place along the axis, how well the value separates them.

    With `higher` only higher values of the second kind count as separation, else those on either side.
    """
    low, high = limits
    edges = np.linspace(low, high, BINS + 1).tolist()
    inside = np.clip(values, low, high)
    for name, rows, color, dash in zip(names, (~second_N, second_N), (CLEAN, NOISY), ("-", (0, (3, 1))), strict=True):
        ax.hist(inside[rows], edges, density=True, histtype="stepfilled", color=color, alpha=0.3)
        style: dict[str, Any] = {"color": color, "linewidth": 1.3, "linestyle": dash}
        ax.hist(inside[rows], edges, density=True, histtype="step", **style, label=name)
    separation = auroc(values, second_N)
    if separation is not None:
        text = f"AUROC {similarity(separation if higher else max(separation, 1 - separation))}"
        ax.text(at, 0.97, text, transform=ax.transAxes, ha="center", va="top", fontsize=8.5, color=FAINT)
    ax.set_xlim(low, high)
    ax.grid(axis="x", visible=False)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))


def add_legend(figure: Figure, ax: Axes, title: str) -> None:
    """The legend of both kinds at the right, and the title at the left."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=9.5)
    heading(figure, title)
