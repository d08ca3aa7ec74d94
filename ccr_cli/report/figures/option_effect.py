"""What an option of a method does: the figure of a sweep (UML Figure 4, TCL Figure 4).

To be called inside `canvas.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ccr_cli.report.figures.canvas import FAINT, across, new_figure, panels
from ccr_cli.report.figures.lettering import over
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import percent

LEAST = 3
"""Values of an option that make a curve."""
MOST = 9
"""Curves in one figure: those of most values."""
WIDE = 20
"""Of the largest to the smallest value, from which an axis is logarithmic."""


@dataclass(frozen=True)
class Curve:
    """Runs that differ in one option and in their seeds alone."""

    method: str
    option: str
    noise: float
    frame: pd.DataFrame
    """Rows of a results frame, with the column `value`."""


def curves(frame: pd.DataFrame, options: Mapping[str, Mapping[str, Any]]) -> list[Curve]:
    """The curves that results hold, those of most values first.

    Args:
        frame: Rows of a results frame that may be compared.
        options: By run, all options in effect.
    """
    found = []
    known = frame[frame["run_id"].isin(list(options))]
    for key, rows in known.groupby([known["label"].map(results.base_label), "noise"], sort=True):
        base, noise = cast(tuple[str, float], key)
        settings = {run: options[run] for run in rows["run_id"].unique()}
        names = sorted({name for each in settings.values() for name in each})
        varying = [n for n in names if len({repr(each.get(n)) for each in settings.values()}) > 1]
        for name in varying:
            numeric: dict[str, Any] = {r: each[name] for r, each in settings.items() if _number(each.get(name))}
            rest = {r: repr([settings[r].get(n) for n in varying if n != name]) for r in numeric}
            part = rows[rows["run_id"].isin(list(numeric))]
            for _, alike in part.groupby(part["run_id"].map(rest), sort=True):
                values = pd.Series(alike["run_id"].map(numeric).to_numpy(float), index=alike.index)
                if values.nunique() >= LEAST:
                    found.append(Curve(base, name, noise, alike.assign(value=values)))
    return sorted(found, key=lambda curve: -curve.frame["value"].nunique())[:MOST]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def sweep(found: list[Curve], figure: str, named: str) -> Figure | None:
    """A panel a curve: mean and standard deviation over seeds by the value of the option.

    Args:
        found: From `curves`.
        figure: Column that stands for a result.
        named: What that is called.
    """
    if not found:
        return None
    columns = across(len(found))
    rows = -(-len(found) // columns)
    drawn = new_figure(max(3.1 * columns, 4.2), 2.8 * rows)
    axes = [ax for line in panels(drawn, rows, columns) for ax in line]
    for ax, curve in zip(axes, found, strict=False):
        table = results.aggregate(curve.frame, ["value"], [figure])[figure]
        x, mean = table.index.to_numpy(float), table["mean"].to_numpy(float)
        sd = np.nan_to_num(table["sd"].to_numpy(float))
        ax.errorbar(x, mean, yerr=sd if sd.any() else None, color="#0072b2", marker="o", capsize=3, linewidth=1.8)
        if x.min() > 0 and x.max() >= WIDE * x.min():
            ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(list(x)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(list(x), [f"{value:g}" for value in x], rotation=0 if len(x) < 7 else 45)
        ax.margins(x=0.08, y=0.2)
        ax.set_xlabel(curve.option)
        over(ax, f"{curve.method}, {percent(curve.noise)} noise", 2.5)
        few, many = int(table["n"].min()), int(table["n"].max())
        said = f"n = {few}" if few == many else f"n = {few} to {many}"
        ax.text(0.98, 0.03, said, transform=ax.transAxes, ha="right", fontsize=8.5, color=FAINT)
        cut = f"{named} (not from 0)" if ax.get_ylim()[0] > 0 else named
        ax.set_ylabel(cut)
    for ax in axes[len(found) :]:
        ax.set_visible(False)
    return drawn
