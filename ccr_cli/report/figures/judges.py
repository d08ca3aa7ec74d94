"""Judges of training pairs: P(clean), ROC curves, evidence by epoch, and uncertainty of intact and mismatched pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

from ccr_cli.metrics.detection import auroc
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.figure import ONE_RUN, Drawing, FigureData, figure
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.diagnoses import judge_name
from ccr_cli.report.words.numbers import similarity

BINS = 32


@figure("beliefs", "beliefs of a judge", "ccr diagnose RUN")
def beliefs(data: FigureData) -> Drawing | None:
    """The diagnosis of the headline method at the headline noise."""
    diagnosis = next((d for d in data.suspects if d.noise == data.findings.noise), None)
    if diagnosis is None:
        return None
    label = data.data.label(diagnosis.run_id, str(diagnosis.summary["label"]))
    title = f"{label}, {data.noise}, seed {diagnosis.summary.get('seed')}"
    what = f"Histograms of similarities and P(clean) of intact and mismatched training pairs by {label}, {data.noise}"
    caption = f"Judge: {judge_name(diagnosis.summary)}. Pairs left of the dotted line are called noisy."
    pairs = diagnosis.load_pairs(["verdict", "truth", "sim_st", "sim_vt", "p_clean"])
    return Drawing(belief_histograms(pairs), what, caption, title)


@figure("judges", "ROC and precision-recall of the judges", "ccr train --noise 0.4 | ccr diagnose -")
def detection_curves(data: FigureData) -> Drawing:
    """One diagnosis per method."""
    drawn = roc_and_precision(data.with_judges(data.pairs))
    title = f"Finding the mismatched pairs, {data.noise}"
    return Drawing(drawn, "ROC and precision-recall curves of the judges", ONE_RUN, title)


@figure(
    "epochs",
    "intact and mismatched pairs early, midway and late",
    "ccr train --noise 0.4 --set judge=triangle | ccr diagnose -",
)
def epochs(data: FigureData) -> Drawing | None:
    """The evidence of the first method that has some, the headline method before others."""
    histories = {history.run_id: history for history in data.data.histories}
    known = with_truth(data.pairs)
    for label in sorted(known, key=lambda label: (label != data.findings.method, comparable.method_order(label))):
        history = histories.get(data.diagnoses[label].run_id)
        evidence = list(history.evidence(data.main.lang)) if history else []
        pairs = known[label].drop_duplicates("slot_id")
        truth = pd.Series((pairs["truth"] != "clean").to_numpy(bool), index=pairs["slot_id"])
        if drawn := evidence_by_epoch(evidence, truth):
            what = f"Densities of the judge's doubt and of similarity, of intact and mismatched pairs, by {label}"
            caption = "Evidence on every training pair from the first, a middle and the last epoch with a judge."
            return Drawing(drawn, what, caption, f"{label}, {data.noise}")
    return None


@figure("uncertainty", "uncertainty of training pairs", "ccr train --noise 0.4 | ccr diagnose -")
def pair_uncertainty(data: FigureData) -> Drawing:
    """One run per method."""
    caption = f"From the epoch that was kept, mean of both directions. Scales differ. {ONE_RUN}"
    what = "Densities of the uncertainty of intact and mismatched training pairs"
    return Drawing(uncertainties(data.pairs), what, caption, f"Uncertainty of training pairs, {data.noise}")


def belief_histograms(pairs: pd.DataFrame) -> Figure | None:
    """Histograms of sim_ST, sim_VT and P(clean): intact against mismatched pairs, or by verdict without a truth."""
    if pairs.empty:
        return None
    by_truth = bool(pairs["truth"].notna().all())
    column, names = ("truth", ("intact", "mismatched")) if by_truth else ("verdict", ("called clean", "called noisy"))
    clean = (pairs[column] == "clean").to_numpy()
    sides = dict(zip(names, (clean, ~clean), strict=True))
    drawn = canvas.new_figure(8.6, 3.1)
    titles = {
        "sim_st": "similarity of source\nand translation",
        "sim_vt": "similarity of picture\nand translation",
        "p_clean": "P(clean)",
    }
    axes = drawn.subplots(1, len(titles))
    for ax, (name, axis_title) in zip(axes, titles.items(), strict=True):
        values = pairs[name].to_numpy(float)
        low, high = (0.0, 1.0) if name == "p_clean" else (values.min(), values.max() + 1e-9)
        bins = np.linspace(low, high, 41).tolist()
        for (label, rows), color in zip(sides.items(), (canvas.CLEAN, canvas.NOISY), strict=True):
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
    axes[2].axvline(0.5, color=canvas.INK, linewidth=1, linestyle=":")
    axes[0].set_ylabel("training pairs")
    axes[2].set_title("log scale above 10", fontsize=8.5, fontweight="normal", color=canvas.FAINT, loc="right")
    add_legend(drawn, axes[0])
    return drawn


def roc_and_precision(curves: Mapping[str, pd.DataFrame]) -> Figure | None:
    """ROC and precision-recall curves of diagnoses by name; those without a known truth are left out."""
    from sklearn.metrics import precision_recall_curve, roc_curve

    known = with_truth(curves)
    if not known:
        return None
    drawn = canvas.new_figure(8.2, 3.7)
    roc, pr = drawn.subplots(1, 2)
    for name, look in canvas.styles(known).items():
        truth, doubt = known[name]["truth"] != "clean", 1 - known[name]["p_clean"].to_numpy(float)
        alarms, recall, _ = roc_curve(truth, doubt, drop_intermediate=False)
        precision, found, _ = precision_recall_curve(truth, doubt)
        line = {"color": look["color"], "linewidth": 1.8, "linestyle": look["linestyle"]}
        roc.plot(alarms, recall, **line, label=name)
        pr.step(found[-2::-1], precision[-2::-1], where="pre", **line, label=name)
    share = float(np.mean([(p["truth"] != "clean").mean() for p in known.values()]))
    roc.plot([0, 1], [0, 1], color=canvas.FAINT, linewidth=1, linestyle=":")
    pr.axhline(share, color=canvas.FAINT, linewidth=1, linestyle=":")
    pr.annotate("chance", (0.02, share), (0, 4), textcoords="offset points", color=canvas.FAINT, fontsize=8.5)
    roc.set(xlabel="false alarms", ylabel="share found", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    pr.set(xlabel="share found", ylabel="precision", xlim=(-0.01, 1.01), ylim=(0, 1.02))
    canvas.percent_axis(roc.xaxis, roc.yaxis, pr.xaxis, pr.yaxis)
    roc.legend(loc="lower right", fontsize=9)
    return drawn


def with_truth(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of pairs whose truth is known and of both kinds."""
    return {k: p for k, p in tables.items() if p["truth"].notna().all() and (p["truth"] == "clean").nunique() == 2}


def evidence_by_epoch(evidence: Sequence[tuple[int, pd.DataFrame]], truth: "pd.Series[Any]") -> Figure | None:
    """The judge's doubt and the similarity it reads, of intact and mismatched pairs, by epoch (UML Figure 5).

    Of the epochs, with their numbers, the first, the middle and the last are drawn. `truth` is by slot, True where a
    pair is mismatched.
    """
    last = len(evidence) - 1
    chosen = [evidence[place] for place in sorted({0, last // 2, last})] if evidence else []
    if truth.nunique() != 2 or not chosen:
        return None
    drawn = canvas.new_figure(3.0 * len(chosen) + 0.3, 4.6)
    axes = drawn.subplots(2, len(chosen), squeeze=False, sharex="row", sharey="row")
    for column, (epoch, frame) in enumerate(chosen):
        mismatched = frame["slot_id"].map(truth)
        known = frame[mismatched.notna()]
        wrong_N = mismatched[mismatched.notna()].to_numpy(bool)
        top, bottom = axes[0][column], axes[1][column]
        two_densities(top, 1 - known["p_clean"].to_numpy(float), wrong_N, (0.0, 1.0), at=0.5)
        two_densities(bottom, known["sim_vt"].to_numpy(float), wrong_N, (-0.5, 1.0), at=0.2)
        top.set(title=f"epoch {epoch}", xlabel="doubt of the judge, 1 \u2212 P(clean)")
        bottom.set_xlabel("similarity of picture and translation")
    for first, *_ in axes:
        first.set(ylabel="density", ylim=(0, 1.12 * first.get_ylim()[1]))
    add_legend(drawn, axes[0][0])
    return drawn


def uncertainties(tables: Mapping[str, pd.DataFrame]) -> Figure | None:
    """The uncertainty of intact and mismatched training pairs after training, a panel per method."""
    known = with_truth(tables)
    if not known:
        return None
    drawn, axes = canvas.panel_grid(len(known), 3.1, 2.5, least=4.6, extra=0.4)
    for ax, (label, pairs) in zip(axes, known.items(), strict=True):
        values, wrong_N = pairs["uncertainty"].to_numpy(float), (pairs["truth"] != "clean").to_numpy()
        two_densities(ax, values, wrong_N, padded(values.min(), values.max()), at=0.85)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        canvas.panel_title(ax, label, 2.6)
        ax.set_xlabel("uncertainty")
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
    canvas.name_rows(axes, "density")
    add_legend(drawn, axes[0])
    return drawn


def padded(low: float, high: float) -> tuple[float, float]:
    """A range with a margin."""
    pad = max(0.03 * float(high - low), 1e-6)
    return float(low) - pad, float(high) + pad


def densities(
    ax: Axes, kinds: Mapping[str, np.ndarray], looks: Sequence[tuple[str, Any]], edges: np.ndarray, alpha: float
) -> None:
    """Histograms of area 1 of several kinds of values, by name; the outermost bars hold what lies beyond the edges.

    `looks` are the colours and dashes of the kinds.
    """
    for (name, values), (color, dash) in zip(kinds.items(), looks, strict=False):
        inside = np.clip(values, edges[0], edges[-1])
        ax.hist(inside, edges.tolist(), density=True, histtype="stepfilled", color=color, alpha=alpha)
        style: dict[str, Any] = {"color": color, "linewidth": 1.3, "linestyle": dash}
        ax.hist(inside, edges.tolist(), density=True, histtype="step", **style, label=name)
    ax.set_xlim(edges[0], edges[-1])
    ax.grid(axis="x", visible=False)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))


def two_densities(
    ax: Axes,
    values: np.ndarray,
    second_N: np.ndarray,
    limits: tuple[float, float],
    at: float,
    names: tuple[str, str] = ("intact", "mismatched"),
    higher: bool = False,
) -> None:
    """Densities of two kinds, and, at a place along the axis, how well the value separates them.

    With `higher` only higher values of the second kind count as separation, else those on either side.
    """
    looks = ((canvas.CLEAN, "-"), (canvas.NOISY, (0, (3, 1))))
    kinds = dict(zip(names, (values[~second_N], values[second_N]), strict=True))
    densities(ax, kinds, looks, np.linspace(*limits, BINS + 1), alpha=0.3)
    separation = auroc(values, second_N)
    if separation is not None:
        shown = similarity(separation if higher else max(separation, 1 - separation))
        canvas.note(ax, at, 0.97, f"AUROC {shown}", ha="center", va="top")


def add_legend(drawn: Figure, ax: Axes, ncols: int = 2) -> None:
    """The legend of all kinds below the panels at the left, which a phone shows first."""
    drawn.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=ncols, fontsize=9.5)
