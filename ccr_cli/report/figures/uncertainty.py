"""Uncertainty of queries: does it detect wrong results, queries without a match and corrupted ones; is it calibrated?

Also what deletion of uncertain pairs gains, and precision against recall.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from ccr_cli.artifacts.signature import HALVES, SOFTMAX, read_data, signature_of
from ccr_cli.metrics.calibration import Reliability
from ccr_cli.metrics.calibration import reliability as binned
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.figure import ONE_RUN, Drawing, FigureData, Result, figure
from ccr_cli.report.figures.judges import add_legend, densities, padded, two_densities
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.corruption import CorruptionLevel, corrupted_results
from ccr_cli.report.words.numbers import probability, similarity

DIRECTIONS = {"t2v": "text queries", "v2t": "picture queries"}
DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))
MOST = 3
"""Methods in figures with a row per method."""
DOTS = 600
"""Queries of each kind in a panel, drawn by a fixed seed."""
KINDS = ("with a match", "without a match")
BINS = 40
TAIL = 0.005
"""The share of the queries of all corruptions at either end that the outermost bars hold."""
LEVELS: Any = (
    (canvas.CLEAN, "-"),
    (canvas.VIOLET, (0, (4, 1.5))),
    (canvas.NOISY, (0, (3, 1))),
    (canvas.BROWN, (0, (1, 1))),
)
"""Colour and dash of the levels of corruption, from the intact one on."""
_UML = "ccr train --method uml | ccr evaluate -"
_LABELLED = "ccr train --method fume | ccr evaluate - --protocol labelled"

Content = TypeVar("Content")
Outside = Mapping[str, Mapping[str, pd.DataFrame]]
"""By kind of queries without a match, and by method, `evaluation.OUTSIDE` of one result."""


@figure("risk", "risk against coverage", _UML)
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
    trivial = {k: score for k, score in (scores.get("trivial") or {}).items() if score.get("curve")}
    signature = signature_of(result)
    return {
        **{**scores["curve"], "aurc_random": scores.get("aurc_random"), "aurc": scores.get("aurc")},
        "named": SOFTMAX if signature and signature.unc == SOFTMAX else "uncertainty",
        "trivial": {k: {**score["curve"], "aurc": score.get("aurc")} for k, score in trivial.items()},
    }


def _calibration(result: Result) -> Mapping[str, Any]:
    known: Mapping[str, Any] = result.get("calibration") or {}
    scores: Mapping[str, Any] = known.get("t2v", known)
    return scores


@figure("calibration", "right answers against stated confidence", "ccr train --method infonce | ccr evaluate -")
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
    what = "Share of right first results against stated confidence"
    return Drawing(reliability(data.first_by_method(read)), what, caption, data.queries)


@figure("precision", "precision against recall", _LABELLED)
def precision(data: FigureData) -> Drawing:
    """Precision against recall by category."""
    curves = data.first_by_method(lambda run_id, result: result.get("precision"))
    caption = f"The greatest precision at this recall or a higher one, mean over queries. {ONE_RUN}"
    title = f"Right answers of the query's category, {data.noise}"
    return Drawing(precision_curves(curves), "Precision against recall by category, both directions", caption, title)


@figure("deletion", "mAP against deletion", _LABELLED)
def deletion(data: FigureData) -> Drawing:
    """MAP by the share of pairs deleted."""
    curves = data.first_by_method(lambda run_id, result: result.get("deletion"))
    caption = "Average precision over the right answers that are kept, mean over queries that keep one."
    what = "mAP against the share of pairs deleted, by uncertainty and by similarity"
    return Drawing(deletion_curves(curves), what, caption, f"Deleting uncertain pairs, {data.noise}")


@figure("outside", "uncertainty of queries without a match in the gallery", f"{_UML} --ood half")
def out_of_distribution(data: FigureData) -> Drawing:
    """Densities of uncertainty."""
    kinds = _outside(data)
    names = "; ".join(kinds)
    caption = (
        f"Without a match: {names}. AUROC: these are the more uncertain. At most {MOST} methods; one run of each, the "
        "lowest seed."
    )
    what = f"Densities of the uncertainty of queries with and without a match in the gallery: {names}"
    return Drawing(outside_densities(kinds), what, caption, "Uncertainty in and out of distribution")


@figure("entropy", "entropy against uncertainty", "ccr train --method fume --set left_out=3,8 | ccr evaluate -")
def category_entropy(data: FigureData) -> Drawing:
    """Entropy against uncertainty."""
    caption = (
        f"Entropy of the shares of the categories; 1: all equal. At most {DOTS} dots of each kind. At most {MOST} "
        "methods; one run of each, the lowest seed."
    )
    what = "Entropy of a query's categories against its uncertainty, a dot per query"
    return Drawing(entropy(_outside(data)), what, caption, "Entropy against uncertainty")


def _outside(data: FigureData) -> Outside:
    """By name; two states of a data set share a name, and the second adds what the first lacks."""
    by_name: dict[str, dict[str, pd.DataFrame]] = {}
    for kind, tables in data.outside.items():
        name = kind_name(kind)
        by_name[name] = {**tables, **by_name.get(name, {})}
    return by_name


def kind_name(kind: str) -> str:
    """A kind of queries without a match, in words.

    >>> kind_name(""), kind_name("half-seed0"), kind_name("noto-emoji@0a1b2c3d")
    ('categories left out of training', 'queries whose items were removed', 'captions of noto-emoji')
    """
    if not kind:
        return "categories left out of training"
    return "queries whose items were removed" if kind == HALVES else f"captions of {read_data(kind)[0]}"


@figure("corruption", "uncertainty of corrupted queries", f"{_UML} --corrupt 0.3, then {_UML} --corrupt 0.6")
def corrupted_queries(data: FigureData) -> Drawing:
    """One run per method (TCL Figure 5)."""

    def read(run_id: str, result: Result) -> dict[CorruptionLevel, pd.DataFrame] | None:
        signature = str(result.get("signature"))
        signatures = {**dict(corrupted_results(data.data, run_id, signature)), CorruptionLevel(): signature}
        tables = {}
        for level in shown_levels(list(signatures)):
            parts = [data.data.ranks(run_id, signatures[level], direction) for direction in DIRECTIONS]
            tables[level] = pd.concat([part for part in parts if part is not None] or [pd.DataFrame()])
        known = all(len(table) and table["uncertainty"].notna().all() for table in tables.values())
        return tables if known else None

    tables = data.first_by_method(read)
    order = sorted(tables, key=lambda label: (label != data.findings.method, comparable.method_order(label)))
    caption = (
        "A corrupted side is the query in one direction and the gallery in the other (`both`: in both). Area 1; scales "
        f"differ. The outermost bars hold what lies beyond. At most {MOST} methods; one run of each, the lowest seed."
    )
    what = "Densities of the uncertainty of intact and corrupted queries, both directions"
    drawn = corruption_densities({label: tables[label] for label in order})
    return Drawing(drawn, what, caption, f"Corrupted queries, {data.noise}")


def risk_curves(curves: Mapping[str, Mapping[str, Any]], title: str = "") -> Figure | None:
    """Risk against coverage: how often the first result is wrong when only the surest queries are answered.

    Curves have `coverage`, `risk`, the overall failure rate `aurc_random`, the area `aurc`, the name of the uncertainty
    (`named`), and `trivial`: by name, `coverage`, `risk` and `aurc` of simple scores.
    """
    if not curves:
        return None
    compared = any(curve.get("trivial") for curve in curves.values())
    height = 3.0 if compared and len(curves) > 3 else 3.7
    drawn, axes = canvas.panel_grid(len(curves) if compared else 1, 3.3, height, least=6.4, sharey=True)
    for place, (name, look) in enumerate(canvas.styles(curves).items()):
        ax, curve = axes[place if compared else 0], curves[name]
        label = _area(curve.get("named", "uncertainty") if compared else name, curve)
        line: dict[str, Any] = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.9}
        ax.plot(curve["coverage"], curve["risk"], **line, label=label)
        for dash, (other, trivial) in zip(DASHES, (curve.get("trivial") or {}).items(), strict=False):
            line = {"color": canvas.FAINT, "linestyle": dash, "linewidth": 1.3, "alpha": 0.95}
            ax.plot(trivial["coverage"], trivial["risk"], **line, label=_area(other, trivial))
        if curve.get("aurc_random") is not None:
            ax.axhline(curve["aurc_random"], color=look["color"], linewidth=1, linestyle=":", alpha=0.8)
        if compared:
            canvas.panel_title(ax, name, 2.7)
    top = min(1.0, max(ax.get_ylim()[1] for ax in axes) * 1.08)
    for ax in axes:
        ax.set(xlabel="queries answered, surest first", xlim=(0, 1.0), ylim=(0, top))
        canvas.percent_axis(ax.xaxis, ax.yaxis)
        ax.legend(loc="lower right", fontsize=8.5 if compared else 9)
    axes[0].set_ylabel("first result wrong")
    text = title or "dotted: failure rate of all queries"
    if compared:
        canvas.heading(drawn, text)
    else:
        axes[0].set_title(text, fontsize=10.5)
    return drawn


def _area(name: str, curve: Mapping[str, Any]) -> str:
    return name if curve.get("aurc") is None else f"{name} ({probability(curve['aurc'])})"


def reliability(bins: Mapping[str, Reliability]) -> Figure | None:
    """The share of right first results against stated confidence; calibrated methods lie on the diagonal.

    Both axes end at the same value, which includes all points.
    """
    known = {name: method for name, method in bins.items() if len(method.count)}
    if not known:
        return None
    drawn = canvas.new_figure(5.4, 4.4)
    axes = drawn.subplots()
    highest = max(max(*method.confidence, *method.accuracy) for method in known.values())
    top = next(end for end in (0.1, 0.2, 0.5, 1.0) if highest <= end * 0.95 or end == 1.0)
    axes.plot([0, top], [0, top], color=canvas.FAINT, linewidth=1, linestyle=":")
    place = (0.9 * top, 0.93 * top)
    axes.annotate("as stated", place, color=canvas.FAINT, fontsize=8.5, rotation=39, ha="center", va="center")
    for name, look in canvas.styles(known).items():
        method = known[name]
        line = {"color": look["color"], "linestyle": look["linestyle"], "marker": look["marker"] or "o"}
        label = name if method.ece is None else f"{name} (ECE {probability(method.ece)})"
        axes.plot(method.confidence, method.accuracy, **line, linewidth=1.7, markersize=5, label=label)
    axes.set(xlabel="confidence, 1 \u2212 uncertainty", ylabel="first result right", xlim=(0, top), ylim=(0, top))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(top / 5))
    canvas.percent_axis(axes.xaxis, axes.yaxis)
    axes.legend(loc="upper left", fontsize=9)
    return drawn


def precision_curves(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure | None:
    """Interpolated precision against recall by category (`precision` by method), a panel per direction."""

    def lines(curve: Mapping[str, Any], direction: str, look: Mapping[str, Any], label: str) -> Iterator[Any]:
        if curve.get(direction):
            yield curve["recall"], curve[direction], {"linestyle": look["linestyle"], "label": label}

    if not curves:
        return None
    drawn, axes = _panel_per_direction(curves, lines)
    for ax in axes:
        ax.set(xlabel="recall", xlim=(-0.02, 1.02), ylim=(0, 102))
        canvas.percent_axis(ax.yaxis, whole=100)
    axes[0].set_ylabel("precision")
    handles, names = axes[0].get_legend_handles_labels()
    ncols, count = canvas.legend_size(names, drawn.get_figwidth(), 9)
    drawn.set_figheight(3.6 + 0.2 * count)
    drawn.legend(handles, names, loc="outside lower left", ncols=ncols, fontsize=9)
    return drawn


def deletion_curves(curves: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """MAP by the share of pairs deleted, by uncertainty and by similarity (`deletion` by method; FUME Figure 3)."""

    def lines(curve: Mapping[str, Any], direction: str, look: Mapping[str, Any], label: str) -> Iterator[Any]:
        looks = {"uncertainty": ("-", look["color"]), "similarity": ((0, (3, 1.5)), canvas.WHITE)}
        for by, (dash, fill) in looks.items():
            points: Sequence[Mapping[str, Any]] = (curve.get(direction) or {}).get(by) or []
            kept = [np.nan if point["map_kept"] is None else point["map_kept"] for point in points]
            style = {"linestyle": dash, "markerfacecolor": fill, "label": f"{label} ({by[0]})"}
            yield [point["rate"] for point in points], kept, style

    if not curves:
        return None
    drawn, axes = _panel_per_direction(curves, lines)
    for ax in axes:
        ax.set_xlabel("pairs deleted, worst first")
    axes[0].set_ylabel("mAP of the kept pairs")
    axes[0].legend(loc="best", fontsize=8.5, title="u: by uncertainty, s: by similarity", title_fontsize=8.5)
    return drawn


def _panel_per_direction(
    curves: Mapping[str, Any], lines: Callable[[Any, str, Mapping[str, Any], str], Iterator[Any]]
) -> tuple[Figure, list[Axes]]:
    """A panel per direction with the lines (x, y, style) of every method."""
    drawn = canvas.new_figure(8.6, 3.8)
    axes = list(drawn.subplots(1, 2, sharey=True))
    for ax, (direction, name) in zip(axes, DIRECTIONS.items(), strict=True):
        for label, look in canvas.styles(curves).items():
            for x, y, style in lines(curves[label], direction, look, label):
                mark = {"color": look["color"], "marker": look["marker"] or "o", "markersize": 5}
                ax.plot(x, y, linewidth=1.7, **mark, **style)
        ax.set_title(name)
        canvas.percent_axis(ax.xaxis)
    return drawn, axes


def outside_densities(kinds: Outside) -> Figure | None:
    """Densities of the uncertainty of queries with and without a match, by method and direction (FUME Figure 4).

    Several kinds of queries without a match have rows of their own.
    """

    def panel(ax: Axes, table: pd.DataFrame, direction: str) -> None:
        queries = table[table["direction"] == direction]
        if queries.empty:  # captions of another data set are queries in one direction only
            ax.set_visible(False)
            return
        limits = padded(table["uncertainty"].min(), table["uncertainty"].max())
        values, outside_N = queries["uncertainty"].to_numpy(float), queries["left_out"].to_numpy(bool)
        two_densities(ax, values, outside_N, limits, at=0.16, names=KINDS, higher=True)

    return _row_per_method(_outside_rows(kinds), "density", panel)


def entropy(kinds: Outside) -> Figure | None:
    """Entropy of the categories against uncertainty, a dot per query (FUME Figure 5), for results that have it."""

    def panel(ax: Axes, table: pd.DataFrame, direction: str) -> None:
        queries = table[table["direction"] == direction]
        for name, left_out, color, mark in zip(KINDS, (False, True), (canvas.CLEAN, canvas.NOISY), "ox", strict=True):
            rows = queries[queries["left_out"] == left_out]
            shown = rows.iloc[np.sort(np.random.default_rng(0).permutation(len(rows))[:DOTS])]
            look: dict[str, Any] = {"color": color, "marker": mark, "markersize": 3.4, "linestyle": "", "alpha": 0.55}
            ax.plot(shown["uncertainty"].to_numpy(float), shown["entropy"].to_numpy(float), **look, label=name)
        if queries["uncertainty"].nunique() > 1 and queries["entropy"].nunique() > 1:
            correlation = queries["uncertainty"].corr(queries["entropy"], method="spearman")
            canvas.note(ax, 0.97, 0.04, f"rank correlation {similarity(correlation)}", ha="right", va="bottom")

    known = {kind: {k: t for k, t in tables.items() if t["entropy"].notna().any()} for kind, tables in kinds.items()}
    return _row_per_method(_outside_rows(known), "entropy of the categories", panel)


def _outside_rows(kinds: Outside) -> list[tuple[str, str, pd.DataFrame]]:
    """Method, kind of queries without a match (where there are several), and table of each row."""
    several = sum(map(bool, kinds.values())) > 1
    return [
        (label, f"\n{kind}" if several else "", tables[label])
        for kind, tables in kinds.items()
        for label in sorted(tables, key=comparable.method_order)[:MOST]
    ]


def shown_levels(levels: Sequence[CorruptionLevel]) -> list[CorruptionLevel]:
    """The levels that are drawn: intact, and up to three evenly chosen from the kind with the most levels."""
    kinds = [level.kind for level in levels if level.kind]
    if not kinds:
        return []
    kind = max(sorted(set(kinds)), key=kinds.count)
    of_kind = sorted(level for level in set(levels) if level.kind == kind)
    chosen = np.unique(np.linspace(0, len(of_kind) - 1, min(len(of_kind), len(LEVELS) - 1)).round().astype(int))
    return [CorruptionLevel(), *(of_kind[place] for place in chosen)]


def corruption_densities(tables: Mapping[str, Mapping[CorruptionLevel, pd.DataFrame]]) -> Figure | None:
    """Densities of the uncertainty of queries at every level, by method and direction.

    By method and level come `direction` and `uncertainty` of the queries of one result.
    """

    def panel(ax: Axes, levels: Mapping[CorruptionLevel, pd.DataFrame], direction: str) -> None:
        every = np.concatenate([frame["uncertainty"].to_numpy(float) for frame in levels.values()])
        edges = np.linspace(*padded(*np.quantile(every, [TAIL, 1 - TAIL])), BINS + 1)
        shown = {level.name: frame[frame["direction"] == direction] for level, frame in levels.items()}
        kinds = {name: frame["uncertainty"].to_numpy(float) for name, frame in shown.items()}
        densities(ax, kinds, LEVELS, edges, alpha=0.16)
        means = " → ".join(f"{values.mean():.3g}" for values in kinds.values())
        box = {"facecolor": canvas.WHITE, "linewidth": 0, "pad": 2}
        canvas.note(ax, 0.98, 0.97, f"mean {means}", ha="right", va="top", bbox=box)

    rows = [(label, "", levels) for label, levels in list(tables.items())[:MOST]]
    return _row_per_method(rows, "density", panel, max((len(levels) for *_, levels in rows), default=0))


def _row_per_method(
    rows: Sequence[tuple[str, str, Content]], ylabel: str, panel: Callable[[Axes, Content, str], None], ncols: int = 2
) -> Figure | None:
    """A row per method and a column per direction; rows are a label, more of the title, and what `panel` draws."""
    if not rows:
        return None
    drawn = canvas.new_figure(8.0, 2.7 * len(rows) + 0.4)
    axes = drawn.subplots(len(rows), 2, squeeze=False, sharex="row", sharey="row")
    for line, (label, more, content) in zip(axes, rows, strict=True):
        for ax, (direction, side) in zip(line, DIRECTIONS.items(), strict=True):
            panel(ax, content, direction)
            ax.set_title(canvas.wrapped(f"{label}: {side}", 3.5, canvas.TITLE_LETTER, 3) + more)
        line[0].set_ylabel(ylabel)
        if ylabel == "density":
            line[0].set_ylim(0, 1.2 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    add_legend(drawn, axes[0][0], ncols)
    return drawn
