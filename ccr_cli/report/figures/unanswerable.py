"""Queries that do not belong to a gallery beside those that do (FUME Figures 4 and 5).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr_cli.artifacts.signature import HALVES, read_data
from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, new_figure, panels
from ccr_cli.report.figures.epochs import finish, two_densities
from ccr_cli.report.figures.lettering import TITLE_LETTER, wrapped
from ccr_cli.report.figures.trust import DIRECTIONS
from ccr_cli.report.tables import results

MOST = 3
"""Methods shown."""
DOTS = 600
"""Queries of a kind in a panel, drawn by a fixed seed."""
NAMES = ("of the gallery", "not of it")


Kinds = Mapping[str, Mapping[str, pd.DataFrame]]
"""By what does not belong to the gallery, and by method, `evaluation.OUTSIDE` of one result."""


def named(kind: str) -> str:
    """What queries that do not belong to the gallery are.

    >>> named(""), named("half-seed0"), named("noto-emoji@0a1b2c3d")
    ('categories left out of training', 'queries whose items were taken out', 'captions of noto-emoji')
    """
    if not kind:
        return "categories left out of training"
    if kind == HALVES:
        return "queries whose items were taken out"
    return f"captions of {read_data(kind)[0]}"


def densities(kinds: Kinds, title: str = "") -> Figure | None:
    """Densities of the uncertainty of both kinds of queries, a row a method, a column a direction (FUME Figure 4).

    What does not belong to the gallery may be of several kinds: then each has its rows.
    """
    rows = _rows(kinds)
    if not rows:
        return None
    figure, axes = _grid(rows)
    for line, (label, kind, table) in zip(axes, rows, strict=True):
        every = table["uncertainty"].to_numpy(float)
        low, high = float(every.min()), float(every.max())
        pad = max(0.03 * (high - low), 1e-6)
        for ax, (direction, side) in zip(line, DIRECTIONS.items(), strict=True):
            own = table[table["direction"] == direction]
            if own.empty:  # captions of another data set ask in one direction
                ax.set_visible(False)
                continue
            wrong_N = own["left_out"].to_numpy(bool)
            limits = (low - pad, high + pad)
            two_densities(ax, own["uncertainty"].to_numpy(float), wrong_N, limits, at=0.16, names=NAMES, higher=True)
            ax.set_title(wrapped(f"{label}: {side}", 3.5, TITLE_LETTER, 3) + kind)
        line[0].set_ylabel("density")
        line[0].set_ylim(0, 1.2 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    finish(figure, axes[0][0], title)
    return figure


def entropy(kinds: Kinds, title: str = "") -> Figure | None:
    """Entropy of the categories against uncertainty, a dot a query (FUME Figure 5), of the results that have it."""
    known = {kind: {k: t for k, t in tables.items() if t["entropy"].notna().any()} for kind, tables in kinds.items()}
    rows = _rows(known)
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
    finish(figure, axes[0][0], title)
    return figure


def _dots(ax: Axes, own: pd.DataFrame) -> None:
    for name, left_out, color, mark in zip(NAMES, (False, True), (CLEAN, NOISY), "ox", strict=True):
        rows = own[own["left_out"] == left_out]
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:DOTS])
        look: dict[str, Any] = {"color": color, "marker": mark, "markersize": 3.4, "linestyle": "", "alpha": 0.55}
        shown = rows.iloc[chosen]
        ax.plot(shown["uncertainty"].to_numpy(float), shown["entropy"].to_numpy(float), **look, label=name)
    if own["uncertainty"].nunique() > 1 and own["entropy"].nunique() > 1:
        said = f"rank correlation {own['uncertainty'].corr(own['entropy'], method='spearman'):.2f}"
        ax.text(0.97, 0.04, said, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5, color=FAINT)


def _grid(rows: Sequence[Any]) -> tuple[Figure, list[list[Axes]]]:
    figure = new_figure(8.0, 2.7 * len(rows) + 0.4)
    return figure, panels(figure, len(rows), 2, sharex="row", sharey="row")


def _rows(kinds: Kinds) -> list[tuple[str, str, pd.DataFrame]]:
    """The method of each row, what does not belong to the gallery where that must be said, and the table."""
    several = sum(map(bool, kinds.values())) > 1
    return [
        (label, f"\n{kind}" * several, tables[label])
        for kind, tables in kinds.items()
        for label in sorted(tables, key=results.method_order)[:MOST]
    ]
