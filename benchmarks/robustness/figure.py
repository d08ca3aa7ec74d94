"""The figures of `docs/noise-robustness.md`: SumR against noise, as UML's Figure 3, and epoch by epoch."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ccr_cli.report.figures.canvas import FAINT, INK, drawing, new_figure, spread_apart, to_svg
from robustness import grid
from robustness.grid import ORACLE, RATIOS, TARGETS, TWICE
from robustness.tables import WHERES, Results, by_epoch

TITLES = {"translation": "translations switched", "pair": "English and translation switched together"}
LEFT_OUT = ("source-only", "infonce (two-group)")
"""Never sees a translation, so that its line is flat and far below; and the weaker of two judges of `infonce`."""
LOOKS = {
    "basic": (FAINT, "o"),
    "infonce": ("#0072b2", "s"),
    "infonce (two-group, both)": ("#8c6bb1", "h"),
    "uml": ("#d55e00", "^"),
    "nrccr": ("#009e73", "D"),
    "tcl": ("#cc79a7", "v"),
    "disncl": ("#e69f00", "P"),
    "decl": ("#56b4e9", "X"),
    "distil": ("#00441b", "p"),
    "distil (MiniLM)": ("#66c2a4", "H"),
    "gsc": ("#b8860b", "<"),
    "ncr": ("#7f3b08", ">"),
    "in2r": ("#35978f", "8"),
    "l2rm": ("#762a83", "d"),
    "cream": ("#1b7837", "<"),
    TWICE: ("#0072b2", "d"),
}
OWN = ("#a50f15", "*")
"""Of a method that is in no paper."""
SEVERAL = (0, (1.2, 0.8))
"""Line of a method that trains several models."""
GAP = 0.052
"""Least distance of two names at the right, in heights of a panel."""

Point = tuple[float, float, float | None]


def points(results: Results) -> dict[str, dict[str, list[Point]]]:
    """Noise, mean SumR and its standard deviation over seeds, by target and method that is measured to the end."""
    place = {(c.target, c.label, c.noise): c for c in grid.main_part() if c.seed == grid.SEEDS[0]}
    out: dict[str, dict[str, list[Point]]] = {}
    for target, label in itertools.product(TARGETS, grid.methods()):
        line: list[Point] = []
        for ratio in RATIOS:
            found = [row["SumR"] for row in results.of(place[target if ratio else TARGETS[0], label, ratio])]
            if found:
                sd = statistics.stdev(found) if len(found) > 1 else None
                line.append((ratio, statistics.fmean(found), sd))
        if line and line[-1][0] == RATIOS[-1] and label not in LEFT_OUT:
            out.setdefault(target, {})[label] = line
    return out


def style(label: str) -> dict[str, Any]:
    """Colour, marker and line of a method; the oracle is dashed."""
    if label == ORACLE:
        return {"color": INK, "linestyle": (0, (4, 2)), "marker": "", "linewidth": 1.5}
    color, mark = LOOKS.get(label, OWN)
    width, size = (1.8, 5.5) if label in LOOKS else (2.6, 9)
    edge = {"markeredgecolor": "#ffffff", "markeredgewidth": 0.7}
    line = SEVERAL if _models(label) > 1 else "-"
    return {"color": color, "marker": mark, "linewidth": width, "markersize": size, "linestyle": line, **edge}


def _models(label: str) -> int:
    return grid.Cell(label, *grid.methods()[label]).models


def _title(label: str) -> str:
    """The name of a line, with the number of models where it is not one, and a judge that cannot see the picture."""
    config = grid.Cell(label, *grid.methods()[label]).config
    if grid.usual_side(config["judge"]) and config["judge_side"] == "cross_lingual":
        return f"{label}, judge of S-T"
    return label if _models(label) == 1 or label == TWICE else f"{label} ({_models(label)} models)"


def draw(results: Results) -> str:
    """The figure as SVG."""
    lines = points(results)
    with drawing():
        figure = new_figure(11.5, 5.2)
        for axes, target in zip(figure.subplots(1, len(TARGETS), squeeze=False, sharey=True)[0], TARGETS, strict=True):
            for label, line in lines.get(target, {}).items():
                look = style(label)
                axes.plot([100 * r for r, _, _ in line], [mean for _, mean, _ in line], **look, clip_on=False)
                for ratio, mean, sd in line:
                    if sd is not None:
                        axes.errorbar(100 * ratio, mean, sd, color=look["color"], capsize=2.5, linewidth=1.1, zorder=1)
            axes.set_title(TITLES[target] if target in lines else f"{TITLES[target]}: not measured yet")
            axes.set_xticks([100 * r for r in RATIOS])
            axes.set_xlim(-1.5, 100 * RATIOS[-1] + 1.5)
            axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
            axes.set_xlabel("share of the training captions")
            axes.grid(axis="x", visible=False)
        left = figure.axes[0]
        left.set_ylabel("SumR, human Chinese queries (not from 0)")
        left.set_xlabel(f"{left.get_xlabel()}\n(bars: ± 1 sd of several seeds; dotted: two models)")
        for axes, target in zip(figure.axes, TARGETS, strict=True):
            _names(axes, {label: line[-1][1] for label, line in lines.get(target, {}).items()})
        return to_svg(figure)


def _names(axes: Axes, ends: Mapping[str, float]) -> None:
    """Names the lines at their right ends, moved apart where they are close."""
    low, high = axes.get_ylim()
    order = sorted(ends, key=lambda label: ends[label])
    heights = [(ends[label] - low) / (high - low) for label in order]
    for label, end, at in zip(order, heights, spread_apart(heights, GAP), strict=True):
        color = style(label)["color"]
        axes.annotate(
            _title(label),
            (1.0, end),
            (1.05, at),
            xycoords="axes fraction",
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "shrinkA": 0, "relpos": (0, 0.5)},
            color=color,
            va="center",
            fontsize=9.5,
            fontweight="normal" if label in LOOKS or label == ORACLE else "bold",
            annotation_clip=False,
        )


def epochs(results: Results) -> str:
    """SumR of the queries that choose the epoch, epoch by epoch, a panel a kind of noise, first seed; as SVG."""
    known = by_epoch(results)
    with drawing():
        drawn = new_figure(11.5, 4.8)
        for axes, (noise, target) in zip(
            drawn.subplots(1, len(WHERES), squeeze=False, sharey=True)[0], WHERES, strict=True
        ):
            for label in (name for name in grid.methods() if name not in LEFT_OUT):
                each = known.get((label, noise, target))
                if each and (noise or label != ORACLE):  # without noise the oracle is `infonce`
                    look = style(label) | {"marker": "", "linewidth": 1.8}
                    axes.plot(range(1, len(each) + 1), each, **look, label=_title(label))
                    axes.plot(1 + each.index(max(each)), max(each), "o", color=look["color"], markersize=4.5)
            axes.set_title(f"{100 * noise:.0f} % of the {target}s switched" if noise else "nothing switched")
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        drawn.axes[0].set_ylabel("validation SumR, machine-translated queries\n(not from 0)")
        lines = {str(line.get_label()): line for axes in drawn.axes for line in axes.get_legend_handles_labels()[0]}
        if lines:
            drawn.legend([*lines.values()], [*lines], loc="outside upper center", ncols=5)
        return to_svg(drawn)


def write(folder: Path, results: Results) -> None:
    """Draws both figures."""
    for name, text in (("noise-robustness", draw(results)), ("noise-robustness-epochs", epochs(results))):
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
