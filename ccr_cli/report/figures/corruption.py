"""The uncertainty of intact and corrupted queries (TCL Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, heading, new_figure, panels
from ccr_cli.report.figures.figure import Drawing, FigureData, Result
from ccr_cli.report.figures.uncertainty import DIRECTIONS
from ccr_cli.report.tables import results
from ccr_cli.report.tables.corruption import CorruptionLevel, corrupted_results

BINS = 40
TAIL = 0.005
"""The share of all queries at either end that the outermost bars hold."""
MOST = 3
"""Methods drawn."""
LINES: Sequence[tuple[str, Any]] = (
    (CLEAN, "-"),
    ("#8c6bb1", (0, (4, 1.5))),
    (NOISY, (0, (3, 1))),
    ("#7a5c3d", (0, (1, 1))),
)
"""Colour and dash of the levels, from the intact one on."""


def corrupted_queries(data: FigureData) -> Drawing:
    """One run per method."""

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
    order = sorted(tables, key=lambda label: (label != data.findings.method, results.method_order(label)))
    caption = (
        "A corrupted side is the query in one direction and the gallery in the other (`both`: in both). Area 1; scales "
        f"differ. The outermost bars hold what lies beyond. At most {MOST} methods; one run of each, the lowest seed."
    )
    figure = densities({label: tables[label] for label in order}, f"Corrupted queries, {data.noise}")
    return Drawing(figure, "Densities of the uncertainty of intact and corrupted queries, both directions", caption)


def shown_levels(levels: Sequence[CorruptionLevel]) -> list[CorruptionLevel]:
    """The levels that are drawn: intact, and up to three evenly chosen from the kind with the most levels."""
    kinds = [level.kind for level in levels if level.kind]
    if not kinds:
        return []
    kind = max(sorted(set(kinds)), key=kinds.count)
    of_kind = sorted(level for level in set(levels) if level.kind == kind)
    chosen = np.unique(np.linspace(0, len(of_kind) - 1, min(len(of_kind), len(LINES) - 1)).round().astype(int))
    return [CorruptionLevel(), *(of_kind[place] for place in chosen)]


def densities(tables: Mapping[str, Mapping[CorruptionLevel, pd.DataFrame]], title: str = "") -> Figure | None:
    """Densities of the uncertainty of queries at every level, a row per method, a column per direction.

    Args:
        tables: By method and level, `direction` and `uncertainty` of the queries of one result.
        title: Over the figure.
    """
    rows = list(tables.items())[:MOST]
    if not rows:
        return None
    figure = new_figure(8.0, 2.85 * len(rows) + 0.4)
    axes = panels(figure, len(rows), 2, sharex="row", sharey="row")
    legend: dict[str, Any] = {}
    for line, (label, levels) in zip(axes, rows, strict=True):
        values = np.concatenate([frame["uncertainty"].to_numpy(float) for frame in levels.values()])
        low, high = np.quantile(values, [TAIL, 1 - TAIL])
        pad = max(0.03 * float(high - low), 1e-6)
        edges = np.linspace(low - pad, high + pad, BINS + 1).tolist()
        for ax, (direction, name) in zip(line, DIRECTIONS.items(), strict=True):
            legend |= _panel(ax, levels, direction, edges)
            ax.set_title(f"{label if ax is line[0] else ''}\n{name}")  # a long label may use the room of both
        line[0].set_ylabel("density")
        line[0].set_ylim(0, 1.22 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    figure.legend(list(legend.values()), list(legend), loc="outside upper right", ncols=len(legend), fontsize=9.5)
    heading(figure, title)
    return figure


def _panel(
    ax: Axes, levels: Mapping[CorruptionLevel, pd.DataFrame], direction: str, edges: list[float]
) -> dict[str, Any]:
    """The densities of one direction with their means; returns the handles of the legend."""
    handles, means = {}, []
    for (level, frame), (color, dash) in zip(levels.items(), LINES, strict=False):
        values = frame.loc[frame["direction"] == direction, "uncertainty"].to_numpy(float)
        inside = np.clip(values, edges[0], edges[-1])
        ax.hist(inside, edges, density=True, histtype="stepfilled", color=color, alpha=0.16)
        style: dict[str, Any] = {"color": color, "linewidth": 1.4, "linestyle": dash}
        *_, patches = ax.hist(inside, edges, density=True, histtype="step", **style)
        handles[level.name] = cast(Any, patches)[0]
        means.append(float(values.mean()))
    text = f"mean {' → '.join(f'{mean:.3g}' for mean in means)}"
    look: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": 8.5, "color": FAINT}
    ax.text(0.98, 0.97, text, transform=ax.transAxes, bbox={"facecolor": "#ffffff", "linewidth": 0, "pad": 2}, **look)
    ax.grid(axis="x", visible=False)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
    ax.set_xlim(edges[0], edges[-1])
    return handles
