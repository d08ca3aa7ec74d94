"""Queries that do not belong to a gallery beside those that do (FUME Figures 4 and 5).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccr_cli.report import compare
from ccr_cli.report.canvas import CLEAN, FAINT, NOISY, new_figure, panels
from ccr_cli.report.epochs import finish, two_densities
from ccr_cli.report.trust_figures import DIRECTIONS

MOST = 3
"""Methods shown."""
DOTS = 600
"""Queries of a kind in a panel, drawn by a fixed seed."""
NAMES = ("of the gallery", "not of it")


def densities(tables: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """Densities of the uncertainty of both kinds of queries, a row a method, a column a direction (FUME Figure 4).

    Args:
        tables: By method, `evaluation.OUTSIDE` of one result.
        title: Over the figure.
    """
    if not tables:
        return None
    figure, axes = _grid(tables)
    for line, label in zip(axes, _shown(tables), strict=True):
        every = tables[label]["uncertainty"].to_numpy(float)
        low, high = float(every.min()), float(every.max())
        pad = max(0.03 * (high - low), 1e-6)
        for ax, (direction, named) in zip(line, DIRECTIONS.items(), strict=True):
            own = tables[label][tables[label]["direction"] == direction]
            if own.empty:  # captions of another data set ask in one direction
                ax.set_visible(False)
                continue
            wrong_N = own["left_out"].to_numpy(bool)
            limits = (low - pad, high + pad)
            two_densities(ax, own["uncertainty"].to_numpy(float), wrong_N, limits, at=0.16, names=NAMES, higher=True)
            ax.set_title(f"{label}: {named}")
        line[0].set_ylabel("density")
        line[0].set_ylim(0, 1.2 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    finish(figure, axes[0][0], title)
    return figure


def entropy(tables: Mapping[str, pd.DataFrame], title: str = "") -> Figure | None:
    """Entropy of the categories against uncertainty, a dot a query (FUME Figure 5).

    Args:
        tables: As for `densities`; those without entropy are left out.
        title: Over the figure.
    """
    known = {label: table for label, table in tables.items() if table["entropy"].notna().any()}
    if not known:
        return None
    figure, axes = _grid(known)
    for line, label in zip(axes, _shown(known), strict=True):
        for ax, (direction, named) in zip(line, DIRECTIONS.items(), strict=True):
            _dots(ax, known[label][known[label]["direction"] == direction])
            ax.set_title(f"{label}: {named}")
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


def _grid(tables: Mapping[str, pd.DataFrame]) -> tuple[Figure, list[list[Axes]]]:
    rows = len(_shown(tables))
    figure = new_figure(8.0, 2.7 * rows + 0.4)
    return figure, panels(figure, rows, 2, sharex="row", sharey="row")


def _shown(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    return sorted(tables, key=compare.method_order)[:MOST]
