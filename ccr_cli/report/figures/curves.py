"""Curves of runs: the headline figure by noise, language and option, and training by epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from ccr_cli.metrics.ranks import FloatArray
from ccr_cli.report.content import TrainingHistory
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.figure import Drawing, FigureData, figure
from ccr_cli.report.tables import comparable
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import count_range, metric, percent

QUERIES = {"mt": "machine-translated", "human": "human"}
MOST = 6
"""Panels of loss terms."""
FEWEST_VALUES, MOST_OPTIONS = 3, 9
"""Values of an option that make a curve, and curves in a figure: those with the most values."""
WIDE = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@figure("{}", "headline figure against noise", "ccr train --noise 0.4 | ccr evaluate -")
def headline(data: FigureData) -> Drawing:
    """The main view (UML Figure 3)."""
    what = f"{data.main.named} against the share of mismatched training pairs. {data.findings.headline}"
    return Drawing(by_noise(data.main), what)


@figure("languages", "headline figure by language", "ccr train --lang fr --noise 0.4 | ccr evaluate -")
def languages(data: FigureData) -> Drawing:
    """A panel for each language."""
    drawn = by_language(comparable.same_but_language(data.views))
    caption = "Mean over runs that differ in their seeds; band: ± 1 sd. Axes do not start at 0."
    return Drawing(drawn, f"{data.main.named} against the share of mismatched pairs, a panel per language", caption)


@figure("options", "effect of an option", "ccr train --method uml --sweep beta=0.1,0.3,0.9 | ccr evaluate -")
def option_values(data: FigureData) -> Drawing:
    """The effect of options of methods, from sweeps (UML Figure 4, TCL Figure 4)."""
    curves = option_curves(data.main.frame, data.data.options)
    options = ", ".join(dict.fromkeys(curve.option for curve in curves))
    caption = "Each panel: runs that differ only in this option and their seeds. Bars: ± 1 sd over n runs."
    what = f"{data.main.named} by the value of an option: {options}"
    return Drawing(sweep(curves, data.main.figure, data.main.named), what, caption)


@figure("training", "validation by epoch", "ccr train")
def validation(data: FigureData) -> Drawing:
    """The runs of the main view."""
    runs = set(data.main.frame["run_id"])
    histories = [(data.data.label(h.run_id, "run"), h) for h in data.data.histories if h.run_id in runs]
    caption = "A line per run; the dot is the epoch that was kept. AUROC: mismatched against intact training pairs."
    if any(history.criterion != data.main.figure for _, history in histories):
        caption += " Runs that validated by another figure are left out."
    what = f"Validation {data.main.figure} and the judge's AUROC by epoch"
    return Drawing(by_epoch(histories, data.main.figure), what, caption)


@figure("losses", "terms of the loss by epoch", "ccr train")
def loss_terms(data: FigureData) -> Drawing:
    """One run per method at the headline noise."""
    frames: dict[str, pd.DataFrame] = {}
    runs = set(data.main.frame["run_id"])
    for history in sorted(data.data.histories, key=lambda h: h.seed):
        label = data.data.label(history.run_id, "run")
        if history.run_id in runs and history.noise == data.findings.noise and not comparable.is_oracle(label):
            frames.setdefault(label, history.frame)
    caption = f"Weighted terms, {data.noise}; one run per method, the lowest seed."
    ordered = {label: frames[label] for label in sorted(frames, key=data.order)}
    return Drawing(losses(ordered), "Terms of the loss by epoch", caption)


def by_noise(view: comparable.View) -> Figure | None:
    """The headline figure against noise: a line per method, a band of one standard deviation over seeds.

    Ceilings are dashed; a single run has no band.
    """
    frame = view.frame.dropna(subset=[view.figure])
    if frame.empty:
        return None
    labels, ratios = comparable.methods(frame), sorted(set(frame["noise"]))
    table = comparable.aggregate(frame, ["label", "noise"], [view.figure])[view.figure]
    drawn = canvas.new_figure(6.8, 4.2 if len(ratios) > 1 else 1.3 + 0.55 * len(labels))
    axes = drawn.subplots()
    if len(ratios) == 1:
        _dots(axes, table, labels)
        axes.set_xlabel(_axis_name(f"{view.named}, {percent(ratios[0])} noise", axes.get_xlim()))
    else:
        _noise_lines(axes, table, labels)
        axes.set_xticks([100 * r for r in ratios])
        canvas.percent_axis(axes.xaxis, whole=100)
        span = 100 * (ratios[-1] - ratios[0])
        axes.set_xlim(100 * ratios[0] - 0.02 * span, 100 * ratios[-1] + 0.02 * span)
        kind = signature_words.WORDS["wrong_translations"].get(view.noise_kind, "a mismatch")
        axes.set_xlabel(f"training pairs with {kind}")
        axes.set_ylabel(_axis_name(view.named, axes.get_ylim()))
        axes.grid(axis="x", visible=False)
        _label_ends(axes, table, labels)
    canvas.heading(drawn, view.title)
    n = [int(number) for number in table["n"]]
    notes = [f"{'band' if len(ratios) > 1 else 'bar'}: ± 1 sd"] if max(n) > 1 else []
    canvas.note(axes, 1.035, -0.03, "\n".join([*notes, f"n = {count_range(n)}"]), va="top")
    return drawn


def by_language(views: Sequence[comparable.View]) -> Figure | None:
    """The headline figure against noise, a panel per language, of views that differ in the language alone."""
    if len(views) < 2 or any(view.frame["noise"].nunique() < 2 for view in views):
        return None
    look = canvas.styles({label for view in views for label in view.frame["label"]})
    ncols, lines = canvas.legend_size(list(look), 3.1 * canvas.across(len(views)) + 0.2, 9.5)
    drawn, axes = canvas.panel_grid(len(views), 3.1, 2.9, extra=0.15 + 0.2 * lines)
    for ax, view in zip(axes, views, strict=True):
        table = comparable.aggregate(view.frame, ["label", "noise"], [view.figure])[view.figure]
        for label in comparable.methods(view.frame):
            x, mean = _line_with_band(ax, table.loc[label], look[label]["color"])
            ax.plot(x, mean, **look[label], markersize=5, markeredgecolor=canvas.WHITE, markeredgewidth=0.7)
        ax.set_xticks(sorted({100 * noise for noise in view.frame["noise"]}))
        canvas.percent_axis(ax.xaxis, whole=100)
        ax.set(title=view.lang, xlabel="mismatched pairs")
    canvas.name_rows(axes, views[0].named)
    handles = [axes[0].plot([], [], **style, label=label)[0] for label, style in look.items()]
    drawn.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return drawn


def _line_with_band(axes: Axes, line: Any, color: str) -> tuple[FloatArray, FloatArray]:
    """Draws the band of a line; returns its points."""
    x, mean, sd = (np.asarray(v, dtype=float) for v in (100 * line.index, line["mean"], line["sd"]))
    if np.isfinite(sd).any():
        axes.fill_between(x, mean - sd, mean + sd, color=color, alpha=0.18, linewidth=0)
    return x, mean


def _axis_name(name: str, limits: tuple[float, float]) -> str:
    """The name of an axis, with a note if the axis leaves out 0."""
    return f"{name} (axis does not start at 0)" if limits[0] > 0 else name


def _dots(axes: Axes, table: Any, labels: Sequence[str]) -> None:
    """One noise ratio: a dot per method, with its standard deviation."""
    places = np.arange(len(labels))[::-1]
    for place, (label, style) in zip(places, canvas.styles(labels).items(), strict=True):
        line = table.loc[label].iloc[0]
        mean, sd = float(line["mean"]), None if np.isnan(line["sd"]) else float(line["sd"])
        look: dict[str, Any] = {"fmt": style["marker"] or "|", "color": style["color"], "markersize": 9, "capsize": 3}
        axes.errorbar(mean, place, xerr=sd, **look)
        axes.annotate(metric(mean), (mean, float(place)), (0, 9), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yticks(places, [canvas.wrapped(label, 2.6, 0.095, 3) for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _noise_lines(axes: Axes, table: Any, labels: Sequence[str]) -> None:
    """Several noise ratios: a line per method; a marker over others is a ring, so that they show."""
    means = table["mean"]
    near = 0.02 * float(means.max() - means.min())
    earlier: list[tuple[float, float]] = []
    for label, style in canvas.styles(labels).items():
        x, mean = _line_with_band(axes, table.loc[label], style["color"])
        points = list(means.loc[label].items())
        rivals = [] if comparable.is_oracle(label) else earlier
        hidden = [sum(at == ratio and abs(there - own) <= near for at, there in rivals) for ratio, own in points]
        earlier += points
        edge: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": canvas.WHITE, "markeredgewidth": 0.8}
        if len(x) == 1 and not style["marker"]:  # a line of one point would be invisible
            style, edge = style | {"marker": "_"}, {"markersize": 14, "markeredgewidth": 1.6}
        # no line hides a lone point
        look: canvas.Style = style | edge | {"zorder": 3 if len(x) == 1 else 2, "clip_on": False}
        axes.plot(x, mean, **look, markevery=[place for place, n in enumerate(hidden) if not n])
        ring = look | {"linestyle": "", "markerfacecolor": "none", "markeredgecolor": look["color"]}
        for place in np.flatnonzero(hidden):
            size = {"markersize": 5.5 + 3.5 * min(hidden[place], 2), "markeredgewidth": 1.4}
            axes.plot(x[place], mean[place], **ring | size)


def _label_ends(axes: Axes, table: Any, labels: Sequence[str]) -> None:
    """Labels each line at its end: right of the axes, or beside its last point; moved apart where ends are close."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    points = {label: table.loc[label].iloc[-1] for label in labels}
    last = max(float(point.name) for point in points.values())
    look: dict[str, Any] = {"va": "center", "fontweight": "bold", "fontsize": 10, "transform": axes.transAxes}
    colors = {label: style["color"] for label, style in canvas.styles(labels).items()}
    for end in sorted({float(point.name) for point in points.values()}):
        order = sorted((label for label in labels if points[label].name == end), key=lambda k: points[k]["mean"])
        placed = canvas.spread_apart([(points[label]["mean"] - low) / (high - low) for label in order], gap=0.062)
        x = 1.035 if end == last else (100 * end - left) / (right - left) + 0.025
        for label, y in zip(order, placed, strict=True):
            text = axes.text(x, y, label, color=colors[label], **look)
            if end < last:
                text.set_path_effects([withStroke(linewidth=3, foreground=canvas.WHITE)])


@dataclass(frozen=True)
class OptionCurve:
    """Runs that differ only in one option and in their seeds."""

    method: str
    option: str
    noise: float
    frame: pd.DataFrame
    """Rows of a results frame, with the column `value`."""


def option_curves(frame: pd.DataFrame, options: Mapping[str, Mapping[str, Any]]) -> list[OptionCurve]:
    """The curves among comparable results, those with the most values first; `options` in effect by run."""
    curves = []
    known = frame[frame["run_id"].isin(list(options))]
    for key, rows in known.groupby([known["label"].map(comparable.base_label), "noise"], sort=True):
        base, noise = cast(tuple[str, float], key)
        settings = {run: options[run] for run in rows["run_id"].unique()}
        names = sorted({name for values in settings.values() for name in values})
        varying = [n for n in names if len({repr(values.get(n)) for values in settings.values()}) > 1]
        for name in varying:
            numeric = {r: v[name] for r, v in settings.items() if type(v.get(name)) in (int, float)}
            rest = {r: repr([settings[r].get(n) for n in varying if n != name]) for r in numeric}
            part = rows[rows["run_id"].isin(list(numeric))]
            for _, alike in part.groupby(part["run_id"].map(rest), sort=True):
                values = pd.Series(alike["run_id"].map(numeric).to_numpy(float), index=alike.index)
                if values.nunique() >= FEWEST_VALUES:
                    curves.append(OptionCurve(base, name, noise, alike.assign(value=values)))
    return sorted(curves, key=lambda curve: -curve.frame["value"].nunique())[:MOST_OPTIONS]


def sweep(curves: Sequence[OptionCurve], metric: str, name: str) -> Figure | None:
    """A panel per curve: mean and standard deviation over seeds by the value of the option; `metric` is a column."""
    if not curves:
        return None
    drawn, axes = canvas.panel_grid(len(curves), 3.1, 2.8, least=4.2)
    for ax, curve in zip(axes, curves, strict=True):
        table = comparable.aggregate(curve.frame, ["value"], [metric])[metric]
        x, mean = table.index.to_numpy(float), table["mean"].to_numpy(float)
        sd = np.nan_to_num(table["sd"].to_numpy(float))
        ax.errorbar(x, mean, yerr=sd if sd.any() else None, color=canvas.BLUE, marker="o", capsize=3, linewidth=1.8)
        if x.min() > 0 and x.max() >= WIDE * x.min():
            ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(list(x)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(list(x), [f"{value:g}" for value in x], rotation=0 if len(x) < 7 else 45)
        ax.margins(x=0.08, y=0.2)
        ax.set_xlabel(curve.option)
        canvas.panel_title(ax, f"{curve.method}, {percent(curve.noise)} noise", 2.5)
        canvas.note(ax, 0.98, 0.03, f"n = {count_range([int(n) for n in table['n']])}", ha="right")
        ax.set_ylabel(f"{name} (not from 0)" if ax.get_ylim()[0] > 0 else name)
    return drawn


def by_epoch(histories: Sequence[tuple[str, TrainingHistory]], metric: str = "SumR") -> Figure | None:
    """The validation figure and the judge's AUROC by epoch, a column per noise ratio, a thin line per run.

    Runs come with their labels. One that validated by the other figure, counting other answers as right, is left out.
    """
    shown = f"val.{metric}"
    known = [(label, h) for label, h in histories if h.criterion == metric and _has(h.frame, shown)]
    if not known:
        return None
    ratios = sorted({history.noise for _, history in known})
    judged = any(_has(history.frame, "judge.auroc") for _, history in known)
    look = canvas.styles({label for label, _ in known})
    width = max(9.2 * min(len(ratios), 4) / 4, 5.0)
    ncols, lines = canvas.legend_size(list(look), width, 9.5)
    drawn = canvas.new_figure(width, (4.7 if judged else 2.7) + 0.2 * lines)
    axes = drawn.subplots(2 if judged else 1, len(ratios), squeeze=False, sharex="col", sharey="row")
    for column, noise in enumerate(ratios):
        top, bottom = axes[0][column], axes[-1][column]
        top.set_title(f"{percent(noise)} noise")
        for label, frame in ((label, history.frame) for label, history in known if history.noise == noise):
            line = {key: look[label][key] for key in ("color", "linestyle")}
            top.plot(frame["epoch"], frame[shown], **line, linewidth=1.4, alpha=0.9)
            if "best" in frame and frame["best"].astype(bool).any():
                best = frame[frame["best"].astype(bool)].iloc[-1]
                top.plot(best["epoch"], best[shown], "o", color=line["color"], markersize=3.5)
            if _has(frame, "judge.auroc"):
                bottom.plot(frame["epoch"], frame["judge.auroc"], **line, linewidth=1.4, alpha=0.9)
        bottom.set_xlabel("epoch")
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if judged and not bottom.lines:
            canvas.note(bottom, 0.5, 0.5, "no mismatched pairs" if noise == 0 else "no judge", fontsize=9, ha="center")
    queries = " or ".join(sorted({QUERIES[h.select] for _, h in known if h.select in QUERIES}))
    axes[0][0].set_ylabel(f"validation {metric},\n{queries} queries" if queries else f"validation {metric}")
    if judged:
        axes[1][0].set_ylabel("judge's AUROC")
    handles = [axes[0][-1].plot([], [], **style | {"marker": ""}, label=label)[0] for label, style in look.items()]
    drawn.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return drawn


def _has(history: pd.DataFrame, column: str) -> bool:
    return column in history and bool(history[column].notna().any())


def losses(histories: Mapping[str, pd.DataFrame]) -> Figure | None:
    """The terms of the loss (`loss.NAME`) by epoch, a panel per method; their sum dotted."""
    known = {label: _terms(frame) for label, frame in histories.items()}
    shown = [(label, terms) for label, terms in known.items() if not terms.empty][:MOST]
    if not shown:
        return None
    lines = max(-(-terms.shape[1] // 2) for _, terms in shown)
    drawn, axes = canvas.panel_grid(len(shown), 3.3, 2.7 + 0.17 * lines, least=4.6)
    for ax, (label, terms) in zip(axes, shown, strict=True):
        for place, name in enumerate(n for n in terms if n != "total" or terms.shape[1] == 1):
            color, dash = (looks[place % len(looks)] for looks in (canvas.TERMS, canvas.DASHES))
            style: dict[str, Any] = {"color": color, "linestyle": dash, "marker": "." if len(terms) == 1 else ""}
            ax.plot(terms.index, terms[name], **style, linewidth=1.7, label=name)
        if "total" in terms and terms.shape[1] > 2:
            ax.plot(terms.index, terms["total"], color=canvas.FAINT, linewidth=1.2, linestyle=":", label="sum")
        values = terms.to_numpy()
        values = values[np.isfinite(values)]
        if len(values) and values.min() > 0 and values.max() > 60 * values.min():
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.yaxis.set_minor_locator(NullLocator())
        canvas.panel_title(ax, label, 2.6)
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}  # never over a curve
        ax.legend(fontsize=8, handlelength=2.4, labelspacing=0.3, columnspacing=1.0, borderpad=0, **below)
    canvas.name_rows(axes, "loss")
    return drawn


def _terms(history: pd.DataFrame) -> pd.DataFrame:
    names = [str(name) for name in history if str(name).startswith("loss.")]
    columns = {name.removeprefix("loss."): pd.to_numeric(history[name], errors="coerce") for name in names}
    return pd.DataFrame(columns).set_axis(history["epoch"], axis=0).dropna(axis=1, how="all")
