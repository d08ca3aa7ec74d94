"""Does uncertainty detect wrong results, is it calibrated, what does deletion gain; and precision against recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from ccr_cli.artifacts.signature import SOFTMAX, signature_of
from ccr_cli.metrics.calibration import Reliability
from ccr_cli.metrics.calibration import reliability as binned
from ccr_cli.report.figures.canvas import (
    FAINT,
    heading,
    legend_size,
    new_figure,
    panel_grid,
    panel_title,
    panels,
    styles,
)
from ccr_cli.report.figures.figure import ONE_RUN, Drawing, FigureData, Result
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import probability

DIRECTIONS = {"t2v": "text queries", "v2t": "picture queries"}
TRIVIAL: Mapping[str, Any] = {"linewidth": 1.3, "alpha": 0.95}
DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))


def risk(data: FigureData) -> Drawing:
    """Risk against coverage of one run per method."""
    caption = (
        "If uncertainty detects failures, the surest queries fail least and the curve rises to the dotted line, the "
        f"failure rate of all queries. In brackets: area under the curve, lower is better. {ONE_RUN}"
    )
    what = "Share of wrong first results against the share of queries answered, surest first"
    return Drawing(risk_curves(data.first_by_method(_risk_curve), data.queries), what, caption)


def _risk_curve(run_id: str, result: Result) -> dict[str, Any] | None:
    scores = _calibration(result)
    if not scores.get("curve"):
        return None
    trivial = {
        name: {**score["curve"], "aurc": score.get("aurc")}
        for name, score in (scores.get("trivial") or {}).items()
        if score.get("curve")
    }
    signature = signature_of(result)
    name = SOFTMAX if signature and signature.softmax else "uncertainty"
    areas = {key: scores.get(key) for key in ("aurc_random", "aurc")}
    return {**scores["curve"], **areas, "named": name, "trivial": trivial}


def _calibration(result: Result) -> Mapping[str, Any]:
    known: Mapping[str, Any] = result.get("calibration") or {}
    scores: Mapping[str, Any] = known.get("t2v", known)
    return scores


def calibration(data: FigureData) -> Drawing:
    """Reliability of one run per method."""

    def read(run_id: str, result: Result) -> Reliability | None:
        if _calibration(result).get("ece") is None:  # its uncertainty is no probability
            return None
        ranks = data.data.ranks(run_id, str(result.get("signature")), "t2v")
        known = ranks[ranks["uncertainty"].notna()] if ranks is not None else None
        if known is None or known.empty or not known["uncertainty"].between(0, 1).all():
            return None
        return binned(known["uncertainty"].to_numpy(float), known["rank"].to_numpy(float))

    caption = (
        "Ten bins with equal numbers of queries, for methods whose uncertainty is a probability. ECE: mean distance "
        f"from the diagonal. {ONE_RUN}"
    )
    figure = reliability(data.first_by_method(read), data.queries)
    return Drawing(figure, "Share of right first results against stated confidence", caption)


def precision(data: FigureData) -> Drawing:
    """Precision against recall by category."""
    curves = data.first_by_method(lambda run_id, result: result.get("precision"))
    caption = f"The greatest precision at this recall or a higher one, mean over queries. {ONE_RUN}"
    figure = precision_curves(curves, f"Right answers of the query's category, {data.noise}")
    return Drawing(figure, "Precision against recall by category, both directions", caption)


def deletion(data: FigureData) -> Drawing:
    """MAP by the share of pairs deleted."""
    curves = data.first_by_method(lambda run_id, result: result.get("deletion"))
    caption = "Average precision over the right answers that are kept, mean over queries that keep one."
    what = "mAP against the share of pairs deleted, by uncertainty and by similarity"
    return Drawing(deletion_curves(curves, f"Deleting uncertain pairs, {data.noise}"), what, caption)


def risk_curves(curves: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure | None:
    """Risk against coverage: how often the first result is wrong when only the surest queries are answered.

    Args:
        curves: By method, `coverage`, `risk`, the overall failure rate `aurc_random`, the area `aurc`, the name of the
            uncertainty (`named`), and `trivial`: by name, `coverage`, `risk` and `aurc` of simple scores.
        title: Over the figure.
    """
    if not curves:
        return None
    compared = any(curve.get("trivial") for curve in curves.values())
    figure, axes, _ = panel_grid(
        len(curves) if compared else 1, 3.3, 3.0 if compared and len(curves) > 3 else 3.7, least=6.4, sharey=True
    )
    for place, (name, look) in enumerate(styles(sorted(curves, key=results.method_order)).items()):
        ax, curve = axes[place if compared else 0], curves[name]
        label = _area(curve.get("named", "uncertainty") if compared else name, curve)
        line: dict[str, Any] = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.9}
        ax.plot(curve["coverage"], curve["risk"], **line, label=label)
        for dash, (other, trivial) in zip(DASHES, (curve.get("trivial") or {}).items(), strict=False):
            style = {"color": FAINT, "linestyle": dash, "label": _area(other, trivial)}
            ax.plot(trivial["coverage"], trivial["risk"], **TRIVIAL, **style)
        if curve.get("aurc_random") is not None:
            ax.axhline(curve["aurc_random"], color=look["color"], linewidth=1, linestyle=":", alpha=0.8)
        if compared:
            panel_title(ax, name, 2.7)
    top = min(1.0, max(ax.get_ylim()[1] for ax in axes) * 1.08)
    for ax in axes:
        ax.set(xlabel="queries answered, surest first", xlim=(0, 1.0), ylim=(0, top))
        _percent_axes(ax)
        ax.legend(loc="lower right", fontsize=8.5 if compared else 9)
    axes[0].set_ylabel("first result wrong")
    text = title or "dotted: failure rate of all queries"
    if compared:
        heading(figure, text)
    else:
        axes[0].set_title(text, fontsize=10.5)
    return figure


def _area(name: str, curve: Mapping[str, Any]) -> str:
    return name if curve.get("aurc") is None else f"{name} ({probability(curve['aurc'])})"


def _percent_axes(ax: Axes, scale: float = 1) -> None:
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.yaxis.set_major_formatter(PercentFormatter(scale, decimals=0))


def reliability(bins: Mapping[str, Reliability], title: str = "") -> Figure | None:
    """The share of right first results against stated confidence; calibrated methods lie on the diagonal.

    Both axes end at the same value, which includes all points.

    Args:
        bins: By method.
        title: Over the figure.
    """
    known = {name: method for name, method in bins.items() if len(method.count)}
    if not known:
        return None
    figure = new_figure(5.4, 4.4)
    axes = figure.subplots()
    highest = max(max(*method.confidence, *method.accuracy) for method in known.values())
    top = next(end for end in (0.1, 0.2, 0.5, 1.0) if highest <= end * 0.95 or end == 1.0)
    axes.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle=":")
    place = (0.9 * top, 0.93 * top)
    axes.annotate("as stated", place, color=FAINT, fontsize=8.5, rotation=39, ha="center", va="center")
    for name, look in styles(sorted(known, key=results.method_order)).items():
        method = known[name]
        line = {"color": look["color"], "linestyle": look["linestyle"], "marker": look["marker"] or "o"}
        label = name if method.ece is None else f"{name} (ECE {probability(method.ece)})"
        axes.plot(method.confidence, method.accuracy, **line, linewidth=1.7, markersize=5, label=label)
    axes.set(xlabel="confidence, 1 \u2212 uncertainty", ylabel="first result right", xlim=(0, top), ylim=(0, top))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(top / 5))
    _percent_axes(axes)
    axes.legend(loc="upper left", fontsize=9)
    if title:
        axes.set_title(title)
    return figure


def precision_curves(curves: Mapping[str, Mapping[str, Sequence[float]]], title: str = "") -> Figure | None:
    """Interpolated precision against recall by category, a panel per direction.

    Args:
        curves: By method, `precision` of an evaluation.
        title: Over the figure.
    """
    if not curves:
        return None
    figure = new_figure(8.6, 3.8)
    axes = panels(figure, 1, 2, sharey=True)[0]
    for ax, (direction, name) in zip(axes, DIRECTIONS.items(), strict=True):
        for label, look in styles(sorted(curves, key=results.method_order)).items():
            curve = curves[label]
            style: dict[str, Any] = {"color": look["color"], "linestyle": look["linestyle"], "marker": look["marker"]}
            if curve.get(direction):
                ax.plot(curve["recall"], curve[direction], **style, linewidth=1.7, markersize=5, label=label)
        ax.set(xlabel="recall", xlim=(-0.02, 1.02), ylim=(0, 102), title=name)
        _percent_axes(ax, 100)
    axes[0].set_ylabel("precision")
    handles, names = axes[0].get_legend_handles_labels()
    ncols, lines = legend_size(names, figure.get_figwidth(), 9)
    figure.set_figheight(3.6 + 0.2 * lines)
    figure.legend(handles, names, loc="outside lower center", ncols=ncols, fontsize=9)
    heading(figure, title)
    return figure


def deletion_curves(curves: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure | None:
    """MAP by the share of pairs deleted, by uncertainty and by similarity (FUME Figure 3).

    Args:
        curves: By method, `deletion` of an evaluation.
        title: Over the figure.
    """
    if not curves:
        return None
    figure = new_figure(8.6, 3.8)
    axes = panels(figure, 1, 2, sharey=True)[0]
    for ax, (direction, name) in zip(axes, DIRECTIONS.items(), strict=True):
        for label, look in styles(sorted(curves, key=results.method_order)).items():
            for by, dash, short in (("uncertainty", "-", "u"), ("similarity", (0, (3, 1.5)), "s")):
                points: Sequence[Mapping[str, Any]] = (curves[label].get(direction) or {}).get(by) or []
                x = [point["rate"] for point in points]
                y = [np.nan if point["map_kept"] is None else point["map_kept"] for point in points]
                fill = look["color"] if by == "uncertainty" else "#ffffff"
                style: dict[str, Any] = {"color": look["color"], "linestyle": dash, "marker": look["marker"] or "o"}
                ax.plot(x, y, **style, linewidth=1.7, markersize=5, markerfacecolor=fill, label=f"{label} ({short})")
        ax.set_title(name)
        ax.set_xlabel("pairs deleted, worst first")
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0].set_ylabel("mAP of the kept pairs")
    axes[0].legend(loc="best", fontsize=8.5, title="u: by uncertainty, s: by similarity", title_fontsize=8.5)
    heading(figure, title)
    return figure
