"""The headline figure against noise, for the main view and by language (UML Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from ccr_cli.report.figures.canvas import (
    FAINT,
    Style,
    across,
    heading,
    legend_size,
    new_figure,
    panel_grid,
    styles,
    wrapped,
)
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import count_range, metric, percent

FloatArray = NDArray[np.float64]

SWITCHED = {"caption-translation": "switched translations", "image-translation": "switched translations"}
NAME: Mapping[str, Any] = {"va": "center", "fontweight": "bold", "fontsize": 10}


def headline(data: FigureData) -> Drawing:
    """The main view."""
    what = f"{data.main.named} against the share of mismatched training pairs. {data.findings.headline}"
    return Drawing(by_noise(data.main), what)


def languages(data: FigureData) -> Drawing:
    """A panel for each language."""
    figure = by_language(results.same_but_language(data.views))
    caption = "Mean over runs that differ in their seeds; band: ± 1 sd. Axes do not start at 0."
    return Drawing(figure, f"{data.main.named} against the share of mismatched pairs, a panel per language", caption)


def by_noise(view: results.View, width: float = 6.8, height: float = 4.2) -> Figure | None:
    """SumR (or mAP) against noise: a line per method, a band of one standard deviation over seeds; ceilings dashed.

    A single run has no band.
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
        axes.set_xlabel(_axis_name(f"{view.named}, {percent(ratios[0])} noise", axes.get_xlim()))
    else:
        ends = {}
        hidden = _hidden(table, [label for label in labels if not results.is_oracle(label)])
        for label, style in styles(labels).items():
            x, mean = _line_with_band(axes, table.loc[label], style["color"])
            edge: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": "#ffffff", "markeredgewidth": 0.8}
            if len(x) == 1 and not style["marker"]:  # a line of one point would be invisible
                style, edge = style | {"marker": "_"}, {"markersize": 14, "markeredgewidth": 1.6}
            edge["zorder"] = 3 if len(x) == 1 else 2  # no line hides a lone point
            under = [hidden.get((label, ratio), 0) for ratio in table.loc[label].index]
            _line(axes, x, mean, under, style | edge)
            ends[label] = (x[-1], mean[-1], style["color"])
        axes.set_xticks([100 * r for r in ratios])
        axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        span = 100 * (ratios[-1] - ratios[0])
        axes.set_xlim(100 * ratios[0] - 0.02 * span, 100 * ratios[-1] + 0.02 * span)
        axes.set_xlabel(f"training pairs with {SWITCHED.get(view.noise_kind, 'a mismatch')}")
        axes.set_ylabel(_axis_name(view.named, axes.get_ylim()))
        axes.grid(axis="x", visible=False)
        _label_ends(axes, ends)
    heading(figure, view.title)
    n = [int(number) for number in table["n"]]
    notes = [f"{'band' if len(ratios) > 1 else 'bar'}: ± 1 sd"] if max(n) > 1 else []
    text = "\n".join([*notes, f"n = {count_range(n)}"])
    axes.text(1.035, -0.03, text, transform=axes.transAxes, va="top", fontsize=8.5, color=FAINT)
    return figure


def by_language(views: Sequence[results.View]) -> Figure | None:
    """The headline figure against noise, a panel per language; None for fewer than two languages.

    Args:
        views: Settings that differ in the language alone.
    """
    if len(views) < 2 or any(view.frame["noise"].nunique() < 2 for view in views):
        return None
    labels = sorted({label for view in views for label in results.methods(view.frame)}, key=results.method_order)
    ncols, lines = legend_size(labels, 3.1 * across(len(views)) + 0.2, 9.5)
    figure, axes, first = panel_grid(len(views), 3.1, 2.9, extra=0.15 + 0.2 * lines)
    look = styles(labels)
    for ax, view in zip(axes, views, strict=True):
        table = results.aggregate(view.frame, ["label", "noise"], [view.figure])[view.figure]
        for label in results.methods(view.frame):
            x, mean = _line_with_band(ax, table.loc[label], look[label]["color"])
            ax.plot(x, mean, **look[label], markersize=5, markeredgecolor="#ffffff", markeredgewidth=0.7)
        ax.set_xticks(sorted({100 * noise for noise in view.frame["noise"]}))
        ax.xaxis.set_major_formatter(PercentFormatter(decimals=0))
        ax.set_title(view.lang)
        ax.set_xlabel("mismatched pairs")
    for ax in first:
        ax.set_ylabel(views[0].named)
    handles = [axes[0].plot([], [], **look[label], label=label)[0] for label in labels]
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, fontsize=9.5)
    return figure


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
    for place, (label, style) in zip(places, styles(labels).items(), strict=True):
        line = table.loc[label].iloc[0]
        mean, sd = float(line["mean"]), None if np.isnan(line["sd"]) else float(line["sd"])
        look: dict[str, Any] = {"fmt": style["marker"] or "|", "color": style["color"], "markersize": 9, "capsize": 3}
        axes.errorbar(mean, place, xerr=sd, **look)
        axes.annotate(metric(mean), (mean, float(place)), (0, 9), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yticks(places, [wrapped(label, 2.6, 0.095, 3) for label in labels])
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)


def _line(axes: Axes, x: FloatArray, y: FloatArray, under: Sequence[int], look: Style) -> None:
    """A line with its markers; a marker over others is a ring, so that they show."""
    axes.plot(x, y, **look, markevery=[place for place, n in enumerate(under) if not n], clip_on=False)
    for place in (place for place, n in enumerate(under) if n):
        ring = {**look, "linestyle": "", "markersize": 5.5 + 3.5 * min(under[place], 2), "markerfacecolor": "none"}
        ring |= {"markeredgecolor": look["color"], "markeredgewidth": 1.4}
        axes.plot(x[place], y[place], **ring, clip_on=False)


def _hidden(table: Any, labels: Sequence[str], near: float = 0.02) -> dict[tuple[str, float], int]:
    """The number of earlier markers at the place of a point: within a share `near` of the height."""
    means = table["mean"]
    reach = near * float(means.max() - means.min())
    hidden: dict[tuple[str, float], int] = {}
    for place, label in enumerate(labels):
        for ratio, mean in means.loc[label].items():
            before = [other for other in labels[:place] if (other, ratio) in means.index]
            hidden[label, ratio] = sum(abs(means.loc[(other, ratio)] - mean) <= reach for other in before)
    return hidden


def _label_ends(axes: Axes, ends: Mapping[str, tuple[float, float, str]], gap: float = 0.062) -> None:
    """Labels each line at its end: right of the axes, or beside its last point; moved apart where ends are close."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    last = max(x for x, _, _ in ends.values())
    for end in sorted({x for x, _, _ in ends.values()}):
        order = sorted((label for label in ends if ends[label][0] == end), key=lambda label: ends[label][1])
        placed = spread_apart([(ends[label][1] - low) / (high - low) for label in order], gap)
        x = 1.035 if end == last else (end - left) / (right - left) + 0.025
        for label, y in zip(order, placed, strict=True):
            text = axes.text(x, y, label, color=ends[label][2], transform=axes.transAxes, **NAME)
            if end < last:
                text.set_path_effects([withStroke(linewidth=3, foreground="#ffffff")])


def spread_apart(places: Sequence[float], gap: float) -> list[float]:
    """Moves sorted places as little as needed so that neighbours are at least `gap` apart."""
    groups: list[list[float]] = []
    for value in places:
        groups.append([value])
        while len(groups) > 1 and _start(groups[-1], gap) - _end(groups[-2], gap) < gap - 1e-12:
            last = groups.pop()
            groups[-1] += last
    return [_start(group, gap) + gap * i for group in groups for i in range(len(group))]


def _start(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _end(group: Sequence[float], gap: float) -> float:
    return _start(group, gap) + gap * (len(group) - 1)
