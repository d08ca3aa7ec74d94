"""What corrupted queries do to the figures and to the uncertainty (TCL Figure 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ccr_cli.artifacts.signature import signature_of
from ccr_cli.metrics.corruption import Corruption
from ccr_cli.report.content import ReportData
from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, new_figure, panels
from ccr_cli.report.figures.lettering import heading
from ccr_cli.report.figures.trust import DIRECTIONS
from ccr_cli.report.tables import results
from ccr_cli.report.tables.summaries import BEST_NOTE, SPREAD_NOTE, few_to_many, spread
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words.numbers import percent

BINS = 40
TAIL = 0.005
"""The share of all queries at either end that the outermost bar holds."""
MOST = 3
"""Methods drawn."""
LINES: Sequence[tuple[str, Any]] = (
    (CLEAN, "-"),
    ("#8c6bb1", (0, (4, 1.5))),
    (NOISY, (0, (3, 1))),
    ("#7a5c3d", (0, (1, 1))),
)
"""Colour and dash of the levels that are drawn, from the intact one on."""
_WORDS = {"t2v": "text → image", "v2t": "image → text"}


@dataclass(frozen=True, order=True)
class Level:
    """How queries were corrupted, and which share of them; without a kind they are intact."""

    kind: str = ""
    share: float = 0.0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.kind} {percent(self.share)}" if self.kind else "intact"


def level(result: Mapping[str, Any]) -> Level:
    """The level of a result of `metrics.json`."""
    corruption = Corruption.parse(str(result.get("corrupt") or ""))
    return Level(corruption.kind, corruption.share) if corruption else Level()


def intact(result: Mapping[str, Any]) -> str:
    """The signature of the intact result that stands beside a corrupted one; empty where it cannot be read."""
    signed = signature_of(result)
    return str(replace(signed, protocol=str(replace(signed.rules, change="")))) if signed else ""


def beside(material: ReportData, run_id: str, signature: str) -> Iterator[tuple[Level, str]]:
    """The corrupted results that stand beside an intact one: level and signature."""
    for other, result in material.corrupted:
        if other == run_id and intact(result) == signature:
            yield level(result), str(result["signature"])


def table(material: ReportData, view: results.View) -> Table | None:
    """The headline figure, and the mean uncertainty of both directions, at every level; None without a corrupted one.

    Args:
        material: Its corrupted results, and the intact ones of the same runs.
        view: Whose results are shown.
    """
    frame = _frame(material, view)
    if frame.empty:
        return None
    levels = sorted(set(frame["level"]))
    figures = {view.figure: view.named} | {
        f"{d}.uncertainty": f"uncertainty, {words}"
        for d, words in _WORDS.items()
        if frame[f"{d}.uncertainty"].notna().any()
    }
    columns = [
        Column("noise", "noise", format=".3g", text=True),
        Column("method", "method", text=True),
        Column("n", "n", format=".0f"),
    ]
    for figure, group in figures.items():
        for each in levels:
            key = f"{figure.lower().replace('.', '_')}_{f'{each.kind}{each.share:g}' if each.kind else 'intact'}"
            better: Any = "high" if figure == view.figure else None
            columns.append(Column(key, each.name, better, ".1f" if better else ".3f", group))
    made: Any = results.aggregate(frame, ["noise", "label", "level"], list(figures))
    rows = []
    for noise, label in dict.fromkeys(cast(tuple[float, str], key[:2]) for key in made.index):
        known = {each: made.loc[(noise, label, each)] for each in levels if (noise, label, each) in made.index}
        many = few_to_many([int(line[(view.figure, "n")]) for line in known.values()])
        cells = [Cell(noise, shown=percent(noise)), Cell(label), many]
        cells += [spread(known[each][figure]) if each in known else Cell() for figure in figures for each in levels]
        rows.append(Row(cells, block=percent(noise), ceiling=results.is_oracle(label)))
    notes = [
        "Corrupted is that share of every caption's words, in languages without spaces of its characters, or of the "
        "features; what is corrupted asks in one direction and is found in the other. Scales of uncertainty differ "
        f"between methods. {SPREAD_NOTE}. {BEST_NOTE}"
    ]
    return Table("corruption", f"Intact and corrupted queries: {view.title}", columns, rows, notes)


def _frame(material: ReportData, view: results.View) -> pd.DataFrame:
    """The corrupted results that belong to a view with the intact ones beside them, each with its level."""
    known = set(zip(view.frame["run_id"], view.frame["signature"], strict=True))
    worse = [(run_id, r) for run_id, r in material.corrupted if (run_id, intact(r)) in known]
    wanted = {(run_id, intact(r)) for run_id, r in worse}
    whole = [(run_id, r) for run_id, r in material.results if (run_id, str(r["signature"])) in wanted]
    frame = results.results_frame([*whole, *worse], material.facts)
    told = {(run_id, str(r["signature"])): r for run_id, r in [*whole, *worse]}
    rows = [told[key] for key in zip(frame["run_id"], frame["signature"], strict=True)]
    unc = {d: [(r.get("uncertainty") or {}).get(d) for r in rows] for d in _WORDS}
    return frame.assign(
        level=pd.Series([level(r) for r in rows], dtype=object),
        **{f"{d}.uncertainty": pd.to_numeric(pd.Series(values, dtype=object)) for d, values in unc.items()},
    )


def shown(levels: Sequence[Level]) -> list[Level]:
    """The levels that are drawn: the intact one and, of the kind with the most, up to three evenly chosen."""
    kinds = [each.kind for each in levels if each.kind]
    if not kinds:
        return []
    kind = max(sorted(set(kinds)), key=kinds.count)
    own = sorted(each for each in set(levels) if each.kind == kind)
    chosen = np.unique(np.linspace(0, len(own) - 1, min(len(own), len(LINES) - 1)).round().astype(int))
    return [Level(), *(own[place] for place in chosen)]


def densities(tables: Mapping[str, Mapping[Level, pd.DataFrame]], title: str = "") -> Figure | None:
    """Densities of the uncertainty of queries at every level, a row a method, a column a direction.

    To be called inside `canvas.drawing`.

    Args:
        tables: By method and level, `direction` and `uncertainty` of the queries of one result.
        title: Over the figure.
    """
    rows = list(tables.items())[:MOST]
    if not rows:
        return None
    figure = new_figure(8.0, 2.85 * len(rows) + 0.4)
    axes = panels(figure, len(rows), 2, sharex="row", sharey="row")
    names: dict[str, Any] = {}
    for line, (label, found) in zip(axes, rows, strict=True):
        every = np.concatenate([frame["uncertainty"].to_numpy(float) for frame in found.values()])
        low, high = np.quantile(every, [TAIL, 1 - TAIL])
        pad = max(0.03 * float(high - low), 1e-6)
        edges = np.linspace(low - pad, high + pad, BINS + 1).tolist()
        for ax, (direction, named) in zip(line, DIRECTIONS.items(), strict=True):
            names |= _panel(ax, found, direction, edges)
            ax.set_title(f"{label if ax is line[0] else ''}\n{named}")  # a long name has the room of both
        line[0].set_ylabel("density")
        line[0].set_ylim(0, 1.22 * line[0].get_ylim()[1])
    for ax in axes[-1]:
        ax.set_xlabel("uncertainty")
    figure.legend(list(names.values()), list(names), loc="outside upper right", ncols=len(names), fontsize=9.5)
    heading(figure, title)
    return figure


def _panel(ax: Axes, found: Mapping[Level, pd.DataFrame], direction: str, edges: list[float]) -> dict[str, Any]:
    """The densities of one direction with their means; what to call the lines."""
    drawn, means = {}, []
    for (each, frame), (color, dash) in zip(found.items(), LINES, strict=False):
        values = frame.loc[frame["direction"] == direction, "uncertainty"].to_numpy(float)
        inside = np.clip(values, edges[0], edges[-1])
        ax.hist(inside, edges, density=True, histtype="stepfilled", color=color, alpha=0.16)
        style: dict[str, Any] = {"color": color, "linewidth": 1.4, "linestyle": dash}
        *_, patches = ax.hist(inside, edges, density=True, histtype="step", **style)
        drawn[each.name] = cast(Any, patches)[0]
        means.append(float(values.mean()))
    said = f"mean {' → '.join(f'{mean:.3g}' for mean in means)}"
    look: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": 8.5, "color": FAINT}
    ax.text(0.98, 0.97, said, transform=ax.transAxes, bbox={"facecolor": "#ffffff", "linewidth": 0, "pad": 2}, **look)
    ax.grid(axis="x", visible=False)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
    ax.set_xlim(edges[0], edges[-1])
    return drawn
