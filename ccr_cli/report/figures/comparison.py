"""The figures of a comparison: SumR or mAP against noise, training, what a judge believes, risk against coverage.

Every function takes plain data, and returns a figure or None where there is nothing to draw. To be called inside
`canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter
from numpy.typing import NDArray

from ccr_cli.report.figures.canvas import CLEAN, FAINT, INK, NOISY, across, new_figure, panels, styles
from ccr_cli.report.figures.lettering import heading, legend_size, wrapped
from ccr_cli.report.tables import results

FloatArray = NDArray[np.float64]

PLAIN_NAMES = {"caption-translation": "switched translations", "image-translation": "switched translations"}
NAME: Mapping[str, Any] = {"va": "center", "fontweight": "bold", "fontsize": 10}
QUERIES = {"mt": "machine-translated", "human": "human"}


def by_noise(view: results.View, width: float = 6.8, height: float = 4.2) -> Figure | None:
    """SumR (or mAP) against noise, a line a method with a band of one standard deviation over seeds; ceilings dashed.

    There is no band where there is one run.
    """
    frame = view.frame.dropna(subset=[view.figure])
    if frame.empty:
        return None
    labels, ratios = results.methods(frame), sorted(set(frame["noise"]))
    table = results.aggregate(frame, ["label", "noise"], [view.figure])[view.figure]
    figure = new_figure(width, height if len(ratios) > 1 else 1.3 + 0.55 * len(labels))
    axes = figure.subplots()
    if len(ratios) == 1:
        _dots(axes, table, labels)
        axes.set_xlabel(_cut(f"{view.named}, {100 * ratios[0]:.3g}% noise", axes.get_xlim()))
    else:
        ends = {}
        hidden = _hidden(table, [label for label in labels if not results.is_oracle(label)])
        for label, style in styles(labels).items():
            line = table.loc[label]
            x, mean, sd = (np.asarray(v, dtype=float) for v in (100 * line.index, line["mean"], line["sd"]))
            if np.isfinite(sd).any():
                axes.fill_between(x, mean - sd, mean + sd, color=style["color"], alpha=0.18, linewidth=0)
            edge: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": "#ffffff", "markeredgewidth": 0.8}
            if len(x) == 1 and not style["marker"]:  # a line of one point would be nothing
                style, edge = style | {"marker": "_"}, {"markersize": 14, "markeredgewidth": 1.6}
            edge["zorder"] = 3 if len(x) == 1 else 2  # no line hides a lone point
            under = [hidden.get((label, ratio), 0) for ratio in line.index]
            _line(axes, x, mean, under, style | edge)
            ends[label] = (x[-1], mean[-1], style["color"])
        axes.set_xticks([100 * r for r in ratios])
        axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        span = 100 * (ratios[-1] - ratios[0])
        axes.set_xlim(100 * ratios[0] - 0.02 * span, 100 * ratios[-1] + 0.02 * span)
        axes.set_xlabel(f"training pairs with {PLAIN_NAMES.get(view.noise_kind, 'a mismatch')}")
        axes.set_ylabel(_cut(view.named, axes.get_ylim()))
        axes.grid(axis="x", visible=False)
        _label_ends(axes, ends)
    heading(figure, view.title)
    n = sorted({int(v) for v in table["n"]})
    spread = ["band: ± 1 sd" if len(ratios) > 1 else "bar: ± 1 sd"] if n[-1] > 1 else []
    notes = [*spread, f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"]
    style = {"transform": axes.transAxes, "va": "top", "fontsize": 8.5, "color": FAINT}
    axes.text(1.035, -0.03, "\n".join(notes), **style)
    return figure


def by_language(views: Sequence[results.View]) -> Figure | None:
    """The headline figure against noise, a panel a language (UML Figure 3); None for fewer than two languages.

    Args:
        views: Settings that differ in the language alone.
    """
    if len(views) < 2 or any(view.frame["noise"].nunique() < 2 for view in views):
        return None
    labels = sorted({label for view in views for label in results.methods(view.frame)}, key=results.method_order)
    columns = across(len(views))
    rows = -(-len(views) // columns)
    width = 3.1 * columns + 0.2
    ncols, lines = legend_size(labels, width, 9.5)
    figure = new_figure(width, 2.9 * rows + 0.15 + 0.2 * lines)
    axes = [ax for line in panels(figure, rows, columns) for ax in line]
    look = styles(labels)
    for ax, view in zip(axes, views, strict=False):
        table = results.aggregate(view.frame, ["label", "noise"], [view.figure])[view.figure]
        for label in results.methods(view.frame):
            line = table.loc[label]
            x, mean, sd = (np.asarray(v, dtype=float) for v in (100 * line.index, line["mean"], line["sd"]))
            if np.isfinite(sd).any():
                ax.fill_between(x, mean - sd, mean + sd, color=look[label]["color"], alpha=0.18, linewidth=0)
            ax.plot(x, mean, **look[label], markersize=5, markeredgecolor="#ffffff", markeredgewidth=0.7)
        ax.set_xticks(sorted({100 * noise for noise in view.frame["noise"]}))
        ax.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        ax.set_title(view.lang)
        ax.set_xlabel("mismatched pairs")
    for ax in axes[len(views) :]:
        ax.set_visible(False)
    for place in range(0, len(views), columns):
        axes[place].set_ylabel(views[0].named)
    handles = [axes[0].plot([], [], **look[label], label=label)[0] for label in labels]
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return figure


def _cut(name: str, limits: tuple[float, float]) -> str:
    """The name of an axis, which says so if the axis leaves out 0."""
    return f"{name} (axis does not start at 0)" if limits[0] > 0 else name


def _dots(axes: Axes, table: Any, labels: Sequence[str]) -> None:
    """One noise ratio: a dot a method, with its standard deviation."""
    places = np.arange(len(labels))[::-1]
    for place, (label, style) in zip(places, styles(labels).items(), strict=True):
        line = table.loc[label].iloc[0]
        sd = None if np.isnan(line["sd"]) else float(line["sd"])
        axes.errorbar(
            float(line["mean"]),
            place,
            xerr=sd,
            fmt=style["marker"] or "|",
            color=style["color"],
            markersize=9,
            capsize=3,
        )
        axes.annotate(
            f"{line['mean']:.1f}",
            (float(line["mean"]), float(place)),
            (0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    axes.set_yticks(places, [wrapped(label, 2.6, 0.095, 3) for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _line(axes: Axes, x: FloatArray, y: FloatArray, under: Sequence[int], look: Mapping[str, Any]) -> None:
    """A line with its markers: a ring where others lie under one, so that they are seen."""
    axes.plot(x, y, **look, markevery=[place for place, n in enumerate(under) if not n], clip_on=False)
    for place in (place for place, n in enumerate(under) if n):
        ring = {**look, "linestyle": "", "markersize": 5.5 + 3.5 * min(under[place], 2), "markerfacecolor": "none"}
        axes.plot(
            x[place], y[place], **ring | {"markeredgecolor": look["color"], "markeredgewidth": 1.4}, clip_on=False
        )


def _hidden(table: Any, labels: Sequence[str], near: float = 0.02) -> dict[tuple[str, float], int]:
    """How many markers are drawn before at the place of a point: within a share `near` of the height."""
    means = table["mean"]
    reach = near * float(means.max() - means.min())
    out: dict[tuple[str, float], int] = {}
    for place, label in enumerate(labels):
        for ratio, mean in means.loc[label].items():
            before = [other for other in labels[:place] if (other, ratio) in means.index]
            out[label, ratio] = sum(abs(means.loc[(other, ratio)] - mean) <= reach for other in before)
    return out


def _label_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]], gap: float = 0.062) -> None:
    """Names each line where it ends: right of the axes, or beside its last point; moved apart where ends are close."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    last = max(x for x, _, _ in ends.values())
    for end in sorted({x for x, _, _ in ends.values()}):
        order = sorted((label for label in ends if ends[label][0] == end), key=lambda label: ends[label][1])
        placed = apart([(ends[label][1] - low) / (high - low) for label in order], gap)
        across = 1.035 if end == last else (end - left) / (right - left) + 0.025
        for label, at in zip(order, placed, strict=True):
            text = axes.text(across, at, label, color=ends[label][2], transform=axes.transAxes, **NAME)
            if end < last:
                text.set_path_effects([withStroke(linewidth=3, foreground="#ffffff")])


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Moves sorted places as little as needed so that neighbours are at least `gap` apart."""
    groups: list[list[float]] = []
    for value in wanted:
        groups.append([value])
        while len(groups) > 1 and _start(groups[-1], gap) - _end(groups[-2], gap) < gap - 1e-12:
            last = groups.pop()
            groups[-1] += last
    return [_start(group, gap) + gap * i for group in groups for i in range(len(group))]


def _start(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _end(group: Sequence[float], gap: float) -> float:
    return _start(group, gap) + gap * (len(group) - 1)


def training(histories: Sequence[Mapping[str, Any]], figure: str = "SumR", width: float = 9.2) -> Figure | None:
    """The validation figure and the judge's AUROC by epoch, a column a noise ratio, a thin line a run.

    Args:
        histories: label, noise, seed, `select` (which validation queries: mt or human), `criterion` (which figure chose
            the epoch) and `history` (frame with epoch, val.SumR or val.mAP, judge.auroc where known).
        figure: `SumR` or `mAP`; a run that validated by the other one counted other answers as right, and is left out.
        width: In inches.
    """
    shown = f"val.{figure}"
    histories = [h for h in histories if h.get("criterion", "SumR") == figure]
    known = [h for h in histories if shown in h["history"] and h["history"][shown].notna().any()]
    if not known:
        return None
    ratios = sorted({h["noise"] for h in known})
    judged = any(_judged(h["history"]) for h in known)
    labels = sorted({h["label"] for h in known}, key=results.method_order)
    style = styles(labels)
    width = max(width * min(len(ratios), 4) / 4, 5.0)
    ncols, lines = legend_size(labels, width, 9.5)
    drawn = new_figure(width, (4.7 if judged else 2.7) + 0.2 * lines)
    axes = panels(drawn, 2 if judged else 1, len(ratios), sharex="col", sharey="row")
    for column, noise in enumerate(ratios):
        top = axes[0][column]
        top.set_title(f"{100 * noise:.3g}% noise")
        for each in (h for h in known if h["noise"] == noise):
            line = {k: v for k, v in style[each["label"]].items() if k in ("color", "linestyle")}
            frame = each["history"]
            top.plot(frame["epoch"], frame[shown], **line, linewidth=1.4, alpha=0.9)
            if "best" in frame and frame["best"].astype(bool).any():
                best = frame[frame["best"].astype(bool)].iloc[-1]
                top.plot(best["epoch"], best[shown], "o", color=line["color"], markersize=3.5)
            if judged and _judged(frame):
                axes[1][column].plot(frame["epoch"], frame["judge.auroc"], **line, linewidth=1.4, alpha=0.9)
        axes[-1][column].set_xlabel("epoch")
        axes[-1][column].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        if judged and not axes[1][column].lines:
            axes[1][column].text(
                0.5,
                0.5,
                "nothing to find" if noise == 0 else "no judge",
                color=FAINT,
                fontsize=9,
                transform=axes[1][column].transAxes,
                ha="center",
            )
    asked = " or ".join(sorted({QUERIES[h["select"]] for h in known if h.get("select") in QUERIES}))
    axes[0][0].set_ylabel(f"validation {figure},\n{asked} queries" if asked else f"validation {figure}")
    if judged:
        axes[1][0].set_ylabel("judge's AUROC")
    handles = [top.plot([], [], **{**style[m], "marker": ""}, label=m)[0] for m in labels]
    drawn.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return drawn


def _judged(history: pd.DataFrame) -> bool:
    return "judge.auroc" in history and bool(history["judge.auroc"].notna().any())


def beliefs(pairs: pd.DataFrame, title: str = "", width: float = 8.6, height: float = 3.1) -> Figure | None:
    """Histograms of sim_ST, sim_VT and P(clean) of the training pairs, intact against mismatched where it is known.

    Args:
        pairs: The table of a diagnosis.
        title: Over the figure.
        width: In inches.
        height: In inches.
    """
    if pairs.empty:
        return None
    known = bool(pairs["truth"].notna().all())
    sides = (
        {"intact": pairs["truth"] == "clean", "mismatched": pairs["truth"] == "noisy"}
        if known
        else {"called clean": pairs["verdict"] == "clean", "called noisy": pairs["verdict"] == "noisy"}
    )
    figure = new_figure(width, height)
    columns = {
        "sim_st": "similarity of source\nand translation",
        "sim_vt": "similarity of picture\nand translation",
        "p_clean": "P(clean)",
    }
    axes = panels(figure, 1, len(columns))[0]
    for ax, (column, name) in zip(axes, columns.items(), strict=True):
        values = pairs[column].to_numpy(float)
        low, high = (0.0, 1.0) if column == "p_clean" else (values.min(), values.max() + 1e-9)
        bins = np.linspace(low, high, 41)
        for (label, which), color in zip(sides.items(), (CLEAN, NOISY), strict=True):
            part = values[which.to_numpy()]
            if len(part):
                ax.hist(part, bins=bins.tolist(), color=color, alpha=0.55, label=label, linewidth=0)
                ax.hist(part, bins=bins.tolist(), color=color, histtype="step", linewidth=1.3)
        ax.set_xlabel(name)
        ax.grid(axis="x", visible=False)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes[2].set_yscale("symlog", linthresh=10)
    axes[2].set_yticks([t for t in (0, 10, 100, 1000, 10_000, 100_000) if t <= len(pairs)])
    axes[2].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes[2].yaxis.set_minor_locator(NullLocator())
    axes[2].axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes[0].set_ylabel("training pairs")
    axes[2].set_title("log scale above 10", fontsize=8.5, fontweight="normal", color=FAINT, loc="right")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=9.5)
    heading(figure, title)
    return figure


def judges(curves: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """ROC and precision-recall curves of what each diagnosis says of the mismatched pairs.

    Args:
        curves: By name, the table of a diagnosis with a known truth.
        title: Over the figure.
    """
    known = {k: p for k, p in curves.items() if p["truth"].notna().all() and p["truth"].nunique() == 2}
    if not known:
        return None
    figure = new_figure(8.2, 3.7)
    roc, pr = panels(figure, 1, 2)[0]
    style = styles(sorted(known, key=results.method_order))
    for name, look in style.items():
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
    """Share found, false alarms and precision at every threshold, equal scores passing together.

    Args:
        score: (N,) higher means more suspicious.
        truth: (N,) True where the pair is mismatched; both classes are there.

    Returns:
        Three arrays of (distinct scores + 1), beginning with nothing called (its precision is 1).
    """
    values, code = np.unique(-score, return_inverse=True)
    found = np.cumsum(np.bincount(code, weights=truth, minlength=len(values)))
    called = np.cumsum(np.bincount(code, minlength=len(values)))
    recall, alarms = found / truth.sum(), (called - found) / (~truth).sum()
    return np.r_[0.0, recall], np.r_[0.0, alarms], np.r_[1.0, found / called]
