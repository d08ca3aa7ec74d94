"""The effect of an option of a method, from a sweep (UML Figure 4, TCL Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ccr_cli.report.figures.canvas import FAINT, panel_grid, panel_title
from ccr_cli.report.figures.figure import Drawing, FigureData
from ccr_cli.report.tables import results
from ccr_cli.report.words.numbers import count_range, percent

LEAST = 3
"""Number of values of an option that make a curve."""
MOST = 9
"""Curves in the figure: those with the most values."""
WIDE = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@dataclass(frozen=True)
class OptionCurve:
    """Runs that differ only in one option and in their seeds."""

    method: str
    option: str
    noise: float
    frame: pd.DataFrame
    """Rows of a results frame, with the column `value`."""


def option_values(data: FigureData) -> Drawing:
    """The runs of the main view."""
    curves = option_curves(data.main.frame, data.data.options)
    options = ", ".join(dict.fromkeys(curve.option for curve in curves))
    caption = "Each panel: runs that differ only in this option and their seeds. Bars: ± 1 sd over n runs."
    what = f"{data.main.named} by the value of an option: {options}"
    return Drawing(sweep(curves, data.main.figure, data.main.named), what, caption)


def option_curves(frame: pd.DataFrame, options: Mapping[str, Mapping[str, Any]]) -> list[OptionCurve]:
    """The curves among results, those with the most values first.

    Args:
        frame: Comparable rows of a results frame.
        options: By run, all options in effect.
    """
    curves = []
    known = frame[frame["run_id"].isin(list(options))]
    for key, rows in known.groupby([known["label"].map(results.base_label), "noise"], sort=True):
        base, noise = cast(tuple[str, float], key)
        settings = {run: options[run] for run in rows["run_id"].unique()}
        names = sorted({name for values in settings.values() for name in values})
        varying = [n for n in names if len({repr(values.get(n)) for values in settings.values()}) > 1]
        for name in varying:
            numeric: dict[str, Any] = {r: values[name] for r, values in settings.items() if _number(values.get(name))}
            rest = {r: repr([settings[r].get(n) for n in varying if n != name]) for r in numeric}
            part = rows[rows["run_id"].isin(list(numeric))]
            for _, alike in part.groupby(part["run_id"].map(rest), sort=True):
                values = pd.Series(alike["run_id"].map(numeric).to_numpy(float), index=alike.index)
                if values.nunique() >= LEAST:
                    curves.append(OptionCurve(base, name, noise, alike.assign(value=values)))
    return sorted(curves, key=lambda curve: -curve.frame["value"].nunique())[:MOST]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def sweep(curves: Sequence[OptionCurve], figure: str, name: str) -> Figure | None:
    """A panel per curve: mean and standard deviation over seeds by the value of the option.

    Args:
        curves: From `option_curves`.
        figure: The column of the headline figure.
        name: Its name.
    """
    if not curves:
        return None
    drawn, axes, _ = panel_grid(len(curves), 3.1, 2.8, least=4.2)
    for ax, curve in zip(axes, curves, strict=True):
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
        panel_title(ax, f"{curve.method}, {percent(curve.noise)} noise", 2.5)
        text = f"n = {count_range([int(n) for n in table['n']])}"
        ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", fontsize=8.5, color=FAINT)
        ax.set_ylabel(f"{name} (not from 0)" if ax.get_ylim()[0] > 0 else name)
    return drawn
