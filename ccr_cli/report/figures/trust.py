"""Figures of trust: does uncertainty know what is wrong, does it mean what it says, what is gained by deleting?

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from ccr_cli.metrics.calibration import Reliability
from ccr_cli.report.figures.canvas import FAINT, across, new_figure, panels, styles
from ccr_cli.report.figures.lettering import heading, legend_size, over
from ccr_cli.report.tables import results

TRIVIAL: Mapping[str, Any] = {"linewidth": 1.3, "alpha": 0.95}
DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))


def risk(curves: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure | None:
    """Risk against coverage: how often the first result is wrong when only the surest queries are answered.

    Args:
        curves: By method, `coverage`, `risk`, the overall failure rate `aurc_random`, the area `aurc`, what the
            uncertainty is called (`named`), and `trivial`: by name, `coverage`, `risk` and `aurc` of others.
        title: Over the figure.
    """
    if not curves:
        return None
    beside = any(curve.get("trivial") for curve in curves.values())
    columns = across(len(curves)) if beside else 1
    rows = -(-len(curves) // columns) if beside else 1
    figure = new_figure(max(3.3 * columns, 6.4), 3.7 if rows == 1 else 3.0 * rows)
    axes = [ax for line in panels(figure, rows, columns, sharey=True) for ax in line]
    order = sorted(curves, key=results.method_order)
    for place, (name, look) in enumerate(styles(order).items()):
        ax, curve = axes[place if beside else 0], curves[name]
        line: dict[str, Any] = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.9}
        ax.plot(
            curve["coverage"],
            curve["risk"],
            **line,
            label=_area(curve.get("named", "uncertainty") if beside else name, curve),
        )
        for dash, (other, told) in zip(DASHES, (curve.get("trivial") or {}).items(), strict=False):
            ax.plot(told["coverage"], told["risk"], color=FAINT, linestyle=dash, **TRIVIAL, label=_area(other, told))
        if curve.get("aurc_random") is not None:
            ax.axhline(curve["aurc_random"], color=look["color"], linewidth=1, linestyle=":", alpha=0.8)
        if beside:
            over(ax, name, 2.7)
    for ax in axes[len(curves) if beside else 1 :]:
        ax.set_visible(False)
    top = min(1.0, axes[0].get_ylim()[1] * 1.08)
    for ax in (ax for ax in axes if ax.get_visible()):
        ax.set(xlabel="queries answered, surest first", xlim=(0, 1.0), ylim=(0, top))
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.legend(loc="lower right", fontsize=8.5 if beside else 9)
    axes[0].set_ylabel("first result wrong")
    said = title or "dotted: an uncertainty that knows nothing"
    if beside:
        heading(figure, said)
    else:
        axes[0].set_title(said, fontsize=10.5)
    return figure


def _area(name: str, curve: Mapping[str, Any]) -> str:
    return name if curve.get("aurc") is None else f"{name} ({curve['aurc']:.3f})"


def reliability(found: Mapping[str, Reliability], title: str = "") -> Figure | None:
    """The share of first results that are right against stated confidence; on the diagonal it means what it says.

    Both axes end alike, as soon as they hold all points.

    Args:
        found: By method.
        title: Over the figure.
    """
    known = {name: each for name, each in found.items() if len(each.count)}
    if not known:
        return None
    figure = new_figure(5.4, 4.4)
    axes = figure.subplots()
    highest = max(max(*each.confidence, *each.accuracy) for each in known.values())
    top = next(end for end in (0.1, 0.2, 0.5, 1.0) if highest <= end * 0.95 or end == 1.0)
    axes.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle=":")
    where = (0.9 * top, 0.93 * top)
    axes.annotate("as stated", where, color=FAINT, fontsize=8.5, rotation=39, ha="center", va="center")
    for name, look in styles(sorted(known, key=results.method_order)).items():
        each = known[name]
        line = {"color": look["color"], "linestyle": look["linestyle"], "marker": look["marker"] or "o"}
        said = name if each.ece is None else f"{name} (ECE {each.ece:.3f})"
        axes.plot(each.confidence, each.accuracy, **line, linewidth=1.7, markersize=5, label=said)
    axes.set(xlabel="confidence, 1 \u2212 uncertainty", ylabel="first result right", xlim=(0, top), ylim=(0, top))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(top / 5))
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(loc="upper left", fontsize=9)
    if title:
        axes.set_title(title)
    return figure


DIRECTIONS = {"t2v": "text queries", "v2t": "picture queries"}


def precision(curves: Mapping[str, Mapping[str, Sequence[float]]], title: str = "") -> Figure | None:
    """Interpolated precision against recall by category, a panel a direction.

    Args:
        curves: By method, what an evaluation holds as `precision`.
        title: Over the figure.
    """
    if not curves:
        return None
    figure = new_figure(8.6, 3.8)
    axes = panels(figure, 1, 2, sharey=True)[0]
    for ax, (direction, named) in zip(axes, DIRECTIONS.items(), strict=True):
        for name, look in styles(sorted(curves, key=results.method_order)).items():
            told = curves[name]
            style: dict[str, Any] = {"color": look["color"], "linestyle": look["linestyle"], "marker": look["marker"]}
            if told.get(direction):
                ax.plot(told["recall"], told[direction], **style, linewidth=1.7, markersize=5, label=name)
        ax.set(xlabel="recall", xlim=(-0.02, 1.02), ylim=(0, 102), title=named)
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes[0].set_ylabel("precision")
    handles, names = axes[0].get_legend_handles_labels()
    ncols, lines = legend_size(names, figure.get_figwidth(), 9)
    figure.set_figheight(3.6 + 0.2 * lines)
    figure.legend(handles, names, loc="outside lower center", ncols=ncols, fontsize=9)
    heading(figure, title)
    return figure


def deletion(curves: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure | None:
    """How mAP grows with the share of pairs deleted, by uncertainty and by similarity (FUME Figure 3).

    Args:
        curves: By method, what an evaluation holds as `deletion`.
        title: Over the figure.
    """
    if not curves:
        return None
    figure = new_figure(8.6, 3.8)
    axes = panels(figure, 1, 2, sharey=True)[0]
    for ax, (direction, named) in zip(axes, DIRECTIONS.items(), strict=True):
        for name, look in styles(sorted(curves, key=results.method_order)).items():
            told = curves[name].get(direction) or {}
            for by, dash, short in (("uncertainty", "-", "u"), ("similarity", (0, (3, 1.5)), "s")):
                points: Sequence[Mapping[str, Any]] = told.get(by) or []
                x = [point["rate"] for point in points]
                y = [np.nan if point["map_kept"] is None else point["map_kept"] for point in points]
                filled = look["color"] if by == "uncertainty" else "#ffffff"
                style: dict[str, Any] = {"color": look["color"], "linestyle": dash, "marker": look["marker"] or "o"}
                ax.plot(x, y, **style, linewidth=1.7, markersize=5, markerfacecolor=filled, label=f"{name} ({short})")
        ax.set_title(named)
        ax.set_xlabel("pairs deleted, worst first")
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0].set_ylabel("mAP of what is kept")
    axes[0].legend(loc="best", fontsize=8.5, title="u: by uncertainty, s: by similarity", title_fontsize=8.5)
    heading(figure, title)
    return figure
