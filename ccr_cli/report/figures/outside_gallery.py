"""Uncertainty of queries without a match in the gallery, compared with the others (FUME Figures 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr_cli.artifacts.signature import HALVES, read_data
from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, TITLE_LETTER, new_figure, panels, wrapped
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.figures.judges import add_legend, padded_limits, two_densities
from ccr_cli.report.figures.uncertainty import DIRECTIONS
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import similarity

MOST = 3
"""Methods shown."""
DOTS = 600
"""Queries of each kind in a panel, drawn by a fixed seed."""
NAMES = ("with a match", "without a match")
CAPTION = f"At most {MOST} methods; one run of each, the lowest seed."

Kinds = Mapping[str, Mapping[str, pd.DataFrame]]
"""By kind of queries without a match, and by method, `evaluation.OUTSIDE` of one result."""


def out_of_distribution(data: FigureData) -> Drawing:
    """Densities of uncertainty."""
    kinds = _kinds(data)
    names = "; ".join(kinds)
    caption = f"Without a match: {names}. AUROC: these are the more uncertain. {CAPTION}"
    what = f"Densities of the uncertainty of queries with and without a match in the gallery: {names}"
    return Drawing(densities(kinds, "Uncertainty in and out of distribution"), what, caption)


def category_entropy(data: FigureData) -> Drawing:
    """Entropy against uncertainty."""
    caption = f"Entropy of the shares of the categories; 1: all equal. At most {DOTS} dots of each kind. {CAPTION}"
    what = "Entropy of a query's categories against its uncertainty, a dot per query"
    return Drawing(entropy(_kinds(data), "Entropy against uncertainty"), what, caption)


def _kinds(data: FigureData) -> Kinds:
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


def densities(kinds: Kinds, title: str = "") -> Figure | None:
    """Densities of the uncertainty of both kinds of queries, a row per method, a column per direction (FUME Figure 4).

    Several kinds of queries without a match have rows of their own.
    """
    rows = _rows(kinds)
    if not rows:
        return None
    figure, axes = _grid(rows)
    for line, (label, kind, table) in zip(axes, rows, strict=True):
        limits = padded_limits(table["uncertainty"].to_numpy(float))
        for ax, (direction, side) in zip(line, DIRECTIONS.items(), strict=True):
            queries = table[table["direction"] == direction]
            if queries.empty:  # captions of another data set are queries in one direction only
                ax.set_visible(False)
                continue
            outside_N = queries["left_out"].to_numpy(bool)
            values = queries["uncertainty"].to_numpy(float)
            two_densities(ax, values, outside_N, limits, at=0.16, names=NAMES, higher=True)
            ax.set_title(wrapped(f"{label}: {side}", 3.5, TITLE_LETTER, 3) + kind)
        line[0].set_ylabel("density")
        line[0].set_ylim(0, 1.2 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    add_legend(figure, axes[0][0], title)
    return figure


def entropy(kinds: Kinds, title: str = "") -> Figure | None:
    """Entropy of the categories against uncertainty, a dot per query (FUME Figure 5), for results that have it."""
    rows = _rows(
        {kind: {k: t for k, t in tables.items() if t["entropy"].notna().any()} for kind, tables in kinds.items()}
    )
    if not rows:
        return None
    figure, axes = _grid(rows)
    for line, (label, kind, table) in zip(axes, rows, strict=True):
        for ax, (direction, side) in zip(line, DIRECTIONS.items(), strict=True):
            _dots(ax, table[table["direction"] == direction])
            ax.set_title(wrapped(f"{label}: {side}", 3.5, TITLE_LETTER, 3) + kind)
        line[0].set_ylabel("entropy of the categories")
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    add_legend(figure, axes[0][0], title)
    return figure


def _dots(ax: Axes, queries: pd.DataFrame) -> None:
    for name, left_out, color, mark in zip(NAMES, (False, True), (CLEAN, NOISY), "ox", strict=True):
        rows = queries[queries["left_out"] == left_out]
        shown = rows.iloc[np.sort(np.random.default_rng(0).permutation(len(rows))[:DOTS])]
        look: dict[str, Any] = {"color": color, "marker": mark, "markersize": 3.4, "linestyle": "", "alpha": 0.55}
        ax.plot(shown["uncertainty"].to_numpy(float), shown["entropy"].to_numpy(float), **look, label=name)
    if queries["uncertainty"].nunique() > 1 and queries["entropy"].nunique() > 1:
        text = f"rank correlation {similarity(queries['uncertainty'].corr(queries['entropy'], method='spearman'))}"
        ax.text(0.97, 0.04, text, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5, color=FAINT)


def _grid(rows: Sequence[Any]) -> tuple[Figure, list[list[Axes]]]:
    figure = new_figure(8.0, 2.7 * len(rows) + 0.4)
    return figure, panels(figure, len(rows), 2, sharex="row", sharey="row")


def _rows(kinds: Kinds) -> list[tuple[str, str, pd.DataFrame]]:
    """Method, kind of queries without a match (where there are several), and table of each row."""
    several = sum(map(bool, kinds.values())) > 1
    return [
        (label, f"\n{kind}" if several else "", tables[label])
        for kind, tables in kinds.items()
        for label in sorted(tables, key=results.method_order)[:MOST]
    ]
