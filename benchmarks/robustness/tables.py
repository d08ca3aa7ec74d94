"""The tables of `docs/noise-robustness.md` and its appendix, made from rows of results."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ccr_cli.judges.base import load_judge
from robustness import code, grid, runs
from robustness.grid import BASELINE, CHINESE, FRENCH, ORACLE, RATIOS, SEEDS, TARGETS, TWICE, Cell
from robustness.recovery import Array, Estimate, difference, recovery

Row = Mapping[str, Any]
Line = Sequence[str]
NOTHING = ""
MISSING = "\N{EN DASH}"
"""In place of what can be measured and was not."""
DIRTY = "†"
"""Behind what is from a tree with uncommitted changes, or names no commit."""
SWITCHED = {"translation": "switched translations", "pair": "switched pairs (English and translation together)"}


@dataclass(frozen=True)
class Results:
    """Rows of results, by cell."""

    rows: Sequence[Row]

    @cached_property
    def _by_place(self) -> dict[tuple[Any, ...], list[Row]]:
        places: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            places.setdefault((row["method"], *(row[name] for name in grid.WHERE)), []).append(row)
        return places

    def find(self, cell: Cell) -> Row | None:
        """The latest row of a cell."""
        return grid.find(self._by_place.get((cell.method, *cell.where), ()), cell)

    def of(self, cell: Cell) -> list[Row]:
        """The latest row of each seed of a cell, those that are there."""
        rows = [self.find(replace(cell, seed=seed)) for seed in grid.EVERY_SEED]
        return [row for row in rows if row is not None]

    def first(self) -> Results:
        """Those of the first seed alone, so that each figure of a table is of the same draw."""
        return Results([row for row in self.rows if row["seed"] == SEEDS[0]])

    def sum_r(self, cell: Cell) -> str:
        """Mean and standard deviation over the seeds, and their number."""
        rows = self.of(cell)
        return marked(spread([row["SumR"] for row in rows]), rows) if rows else MISSING

    def paired(self, *cells: Cell) -> tuple[list[Array], list[Row]] | None:
        """What each item adds to SumR, for the seeds that all cells have, and their rows."""
        by_seed = [{row["seed"]: row for row in self.of(cell)} for cell in cells]
        shared = sorted(set.intersection(*(set(rows) for rows in by_seed)))
        if not shared:
            return None
        rows = [[each[seed] for seed in shared] for each in by_seed]
        return [np.array([runs.values(row["found"]) for row in each]) for each in rows], [*itertools.chain(*rows)]

    def recovery(self, cell: Cell, against: Sequence[Cell] = (), *, brief: bool = False) -> str:
        """Matched recovery, or the gap where that is not clearly above 0; nothing for a method without a judge.

        `against` are the same method without a judge and with the oracle, if they have names of their own. A brief
        text has neither interval nor gap.
        """
        if not grid.judged(cell):
            return NOTHING
        paired = self.paired(cell, *(against or (grid.judged_by(cell, judge) for judge in ("none", "oracle"))))
        if paired is None:
            return MISSING
        found = recovery(*paired[0])
        if brief:
            return marked(f"{found.ratio.value:.2f}", paired[1]) if found.ratio else NOTHING
        text = interval(found.ratio, ".2f") if found.ratio else f"gap {interval(found.gap, '+.1f')}"
        return marked(text, paired[1])

    def gap(self, cell: Cell) -> str:
        """The mean SumR of a method with the oracle above that without a judge."""
        paired = self.paired(*(grid.judged_by(cell, judge) for judge in ("oracle", "none")))
        return MISSING if paired is None else marked(f"{difference(*paired[0]).value:+.1f}", paired[1])

    def difference(self, cells: Sequence[Cell], bases: Sequence[Cell]) -> str:
        """Mean SumR of some cells above that of others, with its interval."""
        paired = self.paired(*cells, *bases)
        if paired is None:
            return MISSING
        above, below = (np.mean(part, axis=0) for part in (paired[0][: len(cells)], paired[0][len(cells) :]))
        return marked(interval(difference(above, below), "+.1f"), paired[1])


def marked(text: str, rows: Sequence[Row]) -> str:
    """A figure, the number of seeds if there are several, and whether its rows can be reproduced."""
    seeds = len({row["seed"] for row in rows})
    dirty = any(not code.reproducible(row["code"]) for row in rows)
    return f"{text}{f' ({seeds})' if seeds > 1 else ''}{DIRTY if dirty else ''}"


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Mean ± standard deviation; the value alone where there is one, nothing where there is none."""
    if not values:
        return NOTHING
    mean = format(statistics.fmean(values), form)
    return f"{mean} ± {statistics.stdev(values):{form}}" if len(values) > 1 else mean


def interval(estimate: Estimate, form: str = ".2f") -> str:
    """An estimate with the ends of its interval."""
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def markdown(header: Line, lines: Sequence[Line]) -> str:
    """A table; lines with nothing but their name are left out, and columns with nothing but their head."""
    return _table(header, [line for line in lines if any(map(_measured, line[1:]))])


def _table(header: Line, kept: Sequence[Line]) -> str:
    if not kept:
        return "Not measured yet."
    columns = [0, *(i for i in range(1, len(header)) if any(_measured(line[i]) for line in kept))]
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"|{'|'.join(line[i] for i in columns)}|" for line in (header, rule, *kept))


def _measured(text: str) -> bool:
    return text not in (NOTHING, MISSING)


def grouped(header: Line, lines: Sequence[tuple[Cell, Line]], least: int = 1) -> str:
    """A table in blocks of as many models, each with a line that says how many its methods train.

    Lines with fewer than `least` measured values are left out.
    """
    blocks: dict[str, list[Line]] = {}
    for cell, line in lines:
        if sum(map(_measured, line[1:])) >= least:
            blocks.setdefault(cost(cell), []).append(line)
    out: list[Line] = []
    for name in sorted(blocks, key=COSTS.index):
        out += [[f"**{name}**", *[NOTHING] * (len(header) - 1)], *blocks[name]]
    return _table(header, out)


COSTS = ("one model", "one model and its teacher", "two models", "more models")


def cost(cell: Cell) -> str:
    """How many models a method trains, of `COSTS`."""
    if cell.models == 1:
        return COSTS[1 if cell.needs_teacher else 0]
    return COSTS[2 if cell.models == 2 else 3]


def _code(label: str) -> str:
    """A label as it stands in a table; the oracle is no competitor."""
    name, _, rest = label.partition(" (")
    text = f"`{name}`" + (f" ({rest}" if rest else "")
    return f"_{text}_" if label == ORACLE else text


def _against(cell: Cell) -> str:
    """The name of a method that another one is held against, in a line below it."""
    return f"_{grid.NO_JUDGE}_" if cell.config["judge"] == "none" else f"_{grid.CEILING}_"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


def _by_label(cells: Sequence[Cell]) -> dict[str, Cell]:
    """A cell of each label (seeds and noise are replaced where it is used)."""
    return {cell.label: cell for cell in cells if cell.seed == SEEDS[0] and cell.noise}


@dataclass(frozen=True)
class Place:
    """A column: noise, its target, and its style if that is not the cell's."""

    noise: float
    target: str = TARGETS[0]
    style: str = ""

    def of(self, cell: Cell) -> Cell:
        """The cell with this noise."""
        return grid.fitted(replace(cell, noise=self.noise, target=self.target, style=self.style or cell.style))

    def title(self, several: bool) -> str:
        """The head of the column; with the target if there are several in the table."""
        what = f"{self.style} ({self.target})" if self.style else f"{self.target}s" if several and self.noise else ""
        return f"{100 * self.noise:.0f} % {what}".strip()


NEAR = Place(**grid.NEAR)


def _grid(results: Results, cells: Sequence[Cell], places: Sequence[Place]) -> str:
    """SumR and matched recovery of every method; below each, the same without its judge and with the oracle."""
    first: dict[str, Cell] = {}
    for cell in cells:
        if cell.noise:
            first.setdefault(cell.label, cell)
    named = {cell.name for cell in first.values()}
    where = [
        place.title(len({each.target for each in places if each.noise and not each.style}) > 1) for place in places
    ]
    header = ["SumR", *where, *(f"recovery {text}" for text, place in zip(where, places, strict=True) if place.noise)]
    lines: list[tuple[Cell, Line]] = []
    for label, cell in first.items():
        each = [place.of(cell) for place in places]
        sums = [results.sum_r(one) for one in each]
        lines.append((cell, [_code(label), *sums, *(results.recovery(one) for one in each if one.noise)]))
        for other in grid.matched(cell):
            if other.name not in named:  # it has a line of its own
                judge = dict(other.options)["judge"]
                sums = [
                    results.sum_r(grid.judged_by(one, judge)) if one.noise or judge == "none" else NOTHING
                    for one in each
                ]
                lines.append((cell, [_against(other), *sums, *[NOTHING] * sum(bool(one.noise) for one in each)]))
    return grouped(header, lines)


def _titled(target: str, table: str) -> str:
    return f"**{SWITCHED[target][0].upper()}{SWITCHED[target][1:]}**\n\n{table}"


def _by_target(results: Results, cells: Sequence[Cell], places: Mapping[str, Sequence[Place]]) -> str:
    """A table for each target."""
    return "\n\n".join(_titled(target, _grid(results, cells, places[target])) for target in TARGETS)


def main_block(results: Results) -> str:
    """SumR and matched recovery; a method that trains on no translation is near chance and left out."""
    cells = [cell for cell in grid.main_part() if cell.method not in grid.UNJUDGED]
    places = {target: [Place(ratio, target) for ratio in RATIOS] for target in TARGETS}
    return _by_target(results, cells, places | {TARGETS[0]: [*places[TARGETS[0]], NEAR]})


def _bases(cell: Cell) -> list[Cell]:
    """`infonce` of as many models; for one of the best methods also itself without its judge."""
    label = BASELINE if cell.models == 1 or cell.label == TWICE else TWICE
    bases = [Cell(label, *grid.methods()[label])] if label != cell.label else []
    if cell.label in grid.BEST and grid.judged(cell) and cell.method != BASELINE:  # `infonce` without a judge is there
        bases.append(replace(grid.judged_by(cell, "none"), label=grid.NO_JUDGE))
    return bases


def _contrasts(
    results: Results, cells: Sequence[Cell], columns: Mapping[str, Mapping[str, Any]], least: int = 1
) -> str:
    """Differences in SumR, each a line, by column, which says where it is measured."""
    lines: list[tuple[Cell, Line]] = []
    for cell in cells:
        for base in _bases(cell):
            pairs = [[grid.fitted(replace(each, **where)) for each in (cell, base)] for where in columns.values()]
            name = base.label if base.label == grid.NO_JUDGE else _code(base.label)
            models = " (one model)" if base.label == BASELINE and cell.models > 1 else ""
            gains = [results.difference([one], [other]) for one, other in pairs]
            lines.append((cell, [f"{_code(cell.label)} above {name}{models}", *gains]))
    return grouped(["SumR", *columns], lines, least)


def _competitors() -> list[Cell]:
    apart = (ORACLE, "basic", *grid.UNJUDGED)
    return [Cell(label, *what) for label, what in grid.methods().items() if label not in apart]


def contrasts_block(results: Results) -> str:
    """Who is above whom at which cost, without noise and at 40 %."""
    columns = {
        f"{100 * noise:.0f} % {f'{target}s' if noise else ''}".strip(): {"noise": noise, "target": target}
        for noise, target in WHERES
    } | {NEAR.title(True): grid.NEAR}
    return _contrasts(results, _competitors(), columns)


def clean_block(results: Results) -> str:
    """Without synthetic noise: SumR of English queries."""
    lines = []
    for label, cell in {cell.label: cell for cell in grid.clean_part()}.items():
        if label != ORACLE:
            rows = results.of(cell)
            english = spread([row["others"]["source language"] for row in rows])
            lines.append((cell, [_code(label), marked(english, rows)]))
    return grouped(["no synthetic noise", "SumR"], lines)


FOUND = ("AUROC", "precision, %", "recall, %", "false alarms, %")


def detection_block(results: Results) -> str:
    """What the judges of the methods find at 40 %, and what they call noisy where nothing is."""
    header = ["at 40 %", "judge", *FOUND, "called noisy at 0 %, %"]
    blocks = []
    for target in TARGETS:
        lines: list[tuple[Cell, Line]] = []
        for label, cell in _by_label([c for c in grid.main_part() if c.noise == 0.4 and c.target == target]).items():
            judge, side = cell.config["judge"], cell.config["judge_side"]
            name = f"{judge}, {side}" if load_judge(judge).takes_side else judge
            called = _mean(results.of(replace(cell, noise=0.0)), "share_noisy")
            cells = _detection(results, cell)
            if any(cells):
                lines.append((cell, [_code(label), name, *cells, _percent(called)]))
        blocks.append(_titled(target, grouped(header, lines)))
    return "\n\n".join(blocks)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [row["judge"][name] for row in rows if row["judge"][name] is not None]
    return statistics.fmean(known) if known else None


def _detection(results: Results, cell: Cell) -> list[str]:
    rows = results.of(cell)
    auroc = [row["judge"]["auroc"] for row in rows if row["judge"]["auroc"] is not None]
    return [spread(auroc, ".4f"), *(_percent(_mean(rows, name)) for name in ("precision", "recall", "false_alarms"))]


FASTER = "2026-11-28T18:54"
"""When steps with n-grams became faster: seconds before do not compare with seconds after."""


def cost_block(results: Results) -> str:
    """Parameters, optimiser steps and seconds of processor time, these since `FASTER` alone; epochs chosen, by seed."""
    header = [
        "",
        "models",
        "parameters",
        "steps",
        "CPU seconds",
        f"times `{BASELINE}`",
        "epoch chosen at 0 %",
        "at 40 %",
    ]
    every = grid.main_part()
    rows = {
        label: [
            row
            for cell in every
            if cell.label == label and cell.noise and cell.seed == SEEDS[0]
            for row in results.of(cell)
            if "cpu_seconds" in row and row["when"] > FASTER
        ]
        for label in grid.methods()
    }
    typical = {label: statistics.median(r["cpu_seconds"] for r in same) for label, same in rows.items() if same}
    lines = []
    teacher = typical.get("source-only", 0.0)  # rows count the seconds of the method alone
    for label, same in rows.items():
        if same and label != ORACLE:
            cell = next(each for each in every if (each.label, each.noise, each.target) == (label, 0.4, TARGETS[0]))
            learns = cell.needs_teacher and not cell.config["teacher"]
            seconds = typical[label] + (teacher if learns else 0)
            times = f"{seconds / typical[BASELINE]:.1f}" if BASELINE in typical else NOTHING
            counts = [f"{cell.models}{' and a teacher' if cell.needs_teacher else ''}"]
            counts += [f"{same[-1][name]:,}" for name in ("parameters", "steps")]
            chosen = [
                ", ".join(str(row["best_epoch"]) for row in results.of(replace(cell, noise=noise)))
                for noise in (0.0, 0.4)
            ]
            lines.append([_code(label), *counts, f"{seconds:.0f}", times, *chosen])
    return markdown(header, lines)


def uncertainty_block(results: Results) -> str:
    """How well a query's uncertainty tells that its first result is wrong, beside plain scores; first seed."""
    results, blocks = results.first(), []
    cells = _by_label([c for c in grid.main_part() if c.noise == 0.4 and c.target == TARGETS[0]])
    for direction, title in zip(runs.DIRECTIONS, ("Captions search pictures", "Pictures search captions"), strict=True):
        lines = []
        for label, cell in cells.items():
            line = [_code(label)]
            for noise in (0.0, 0.4):
                known = [row["uncertainty"][direction] for row in results.of(replace(cell, noise=noise))]
                line += [spread([k[name]["auroc"] for k in known if name in k], ".3f") for name in SCORES]
            lines.append((cell, line))
        header = [f"AUROC, {100 * noise:.0f} %: {name}" for noise in (0.0, 0.4) for name in SCORES]
        blocks.append(f"**{title}**\n\n{grouped(['', *header], lines)}")
    return "\n\n".join(blocks)


def by_epoch(results: Results) -> dict[tuple[str, float, str], list[float]]:
    """SumR of the queries that choose the epoch, epoch by epoch, first seed: by label, noise and its target."""
    cells = [c for c in grid.main_part() if c.seed == SEEDS[0] and (c.noise, c.target) in WHERES]
    rows = {(c.label, c.noise, c.target): results.find(replace(c, by_epoch=True)) for c in cells}
    return {place: row["epochs"] for place, row in rows.items() if row is not None}


def epochs_block(results: Results) -> str:
    """SumR of the queries that choose the epoch: at the epoch chosen, and after the last, first seed."""
    known, lines = by_epoch(results), []
    for label, (method, options) in grid.methods().items():
        line = [_code(label)]
        for where in WHERES:
            each = known.get((label, *where))
            line += [f"{max(each):.1f} ({1 + each.index(max(each))})", f"{each[-1]:.1f}"] if each else [NOTHING] * 2
        lines.append((Cell(label, method, options), line))
    named = [f"{100 * noise:.0f} % {target if noise else ''}".strip() for noise, target in WHERES]
    return grouped(["", *(f"{name}, {what}" for name in named for what in ("best (epoch)", "last"))], lines)


SCORES = ("own", "softmax", "top similarity")
WHERES = ((0.0, TARGETS[0]), *((0.4, target) for target in TARGETS))
"""Noise and its target, where epochs are looked at one by one."""


def judges_block(results: Results) -> str:
    """Every judge with every method, first seed: SumR and matched recovery; with `infonce` also what each finds."""
    results = results.first()
    cells = [cell for cell in grid.judges_part() if cell.seed == SEEDS[0]]
    models = {cell.method: cell.models for cell in reversed(cells)}
    names = sorted(dict.fromkeys(cell.method for cell in cells), key=lambda name: models[name])  # stable
    heads = [f"`{name}`{f', {models[name]} models' if models[name] > 1 else ''}" for name in names]
    blocks = []
    for target in TARGETS:
        place = {(cell.method, cell.label.partition(" (")[2]): cell for cell in cells if cell.target == target}
        rows = list(dict.fromkeys(judge for name, judge in place if name != BASELINE))
        gaps = [
            "oracle above none",
            *(results.gap(next(c for c in place.values() if c.method == name)) for name in names),
        ]
        for head, first, show in (
            ("SumR, judge", [], results.sum_r),
            ("recovery, judge", [gaps], partial(results.recovery, brief=True)),
        ):
            shown = {each: show(cell) for each, cell in place.items()}
            lines = [[row.rstrip(")"), *(shown.get((name, row), NOTHING) for name in names)] for row in rows]
            blocks.append(_titled(target, markdown([head, *heads], [*first, *lines])))
        own = [
            [row.rstrip(")"), results.sum_r(c), *_detection(results, c)]
            for (n, row), c in place.items()
            if n == BASELINE
        ]
        blocks.append(markdown([f"`{BASELINE}`, judge", "SumR", *FOUND], own))
    return "\n\n".join(blocks)


def styles_block(results: Results) -> str:
    """The best methods under the other noise styles."""
    places = [Place(0.4, target, style) for style, target in grid.OTHER_STYLES]
    return _grid(results, grid.styles_part(), places)


def accurate_block(results: Results) -> str:
    """As the main block, with simulated features."""
    places = [Place(0.0), *(Place(ratio, target) for target in TARGETS for ratio in (0.4, 0.6))]
    return _grid(results, grid.accurate_part(), places)


def real_block(results: Results) -> str:
    """No synthetic noise: SumR above what a method is held against, by engine and by number of round trips.

    What is measured with one engine alone stands in the block of contrasts, as 0 %.
    """
    measured = {cell.label for cell in grid.real_part()}
    cells = [cell for cell in (*_competitors(), grid.BY_TRANSLATION) if cell.label in measured]
    columns = {NAMES[engine]: {"translations": engine} for engine in (*CHINESE, *FRENCH)}
    return _contrasts(results, cells, columns, least=2)


def real_sums_block(results: Results) -> str:
    """The same as SumR; in French also with the queries' translations into English."""
    cells = [cell for cell in grid.real_part() if cell.seed == SEEDS[0]]
    place = {(cell.label, cell.translations): cell for cell in cells}
    firsts = {label: place[label, CHINESE[0]] for label in dict.fromkeys(cell.label for cell in cells)}
    chinese, french = [], []
    for label, cell in firsts.items():
        chinese.append((cell, [_code(label), *(results.sum_r(place[label, engine]) for engine in CHINESE)]))
        line = [_code(label)]
        for engine in FRENCH:
            rows = results.of(place[label, engine])
            fused = [[row["others"][name] for row in rows if name in row["others"]] for name in FUSED]
            line += [results.sum_r(place[label, engine]), *(spread(values) for values in fused)]
        french.append((cell, line))
    how = ("as it is", "fused 0.8", "translate-test")
    header = [f"{NAMES[engine]}, {queries}" for engine in FRENCH for queries in how]
    return "\n\n".join(
        (
            grouped(["Chinese, SumR", *(NAMES[engine] for engine in CHINESE)], chinese),
            grouped(["French, SumR", *(name.removeprefix("French, ") for name in header)], french),
        )
    )


NAMES = {
    "baidu-2016": "Baidu, early 2016",
    "google-2016": "Google, early 2016",
    "baidu-20160815": "Baidu, August 2016",
    "google-20160816": "Google, August 2016",
    "apertium-1": "French, one trip",
    "apertium-2": "French, two trips",
}
FUSED = ("fused 0.8raw", runs.WEIGHTLESS)


def ablations_block(results: Results) -> str:
    """The papers' tables of ablations, and ours, first seed."""
    results = results.first()
    cells = {(c.label, c.noise, c.target): c for c in grid.ablations_part() if c.seed == SEEDS[0]}
    blocks = []
    for name, table in grid.ABLATIONS.items():
        labels = [label for label, *_ in table.rows if (f"{name}: {label}", *table.conditions[0]) in cells]
        mine = {label: [cells[f"{name}: {label}", *where] for where in table.conditions] for label in labels}
        seen = [row for each in mine.values() for cell in each for row in results.of(cell)]
        readings = list(dict.fromkeys(other for row in seen for other in _readings(row)))
        lines = []
        for label, each in mine.items():
            sums = [results.sum_r(cell) for cell in each]
            models = str(each[0].models) if any(map(_measured, sums)) else NOTHING
            line = [label, models, *sums]
            for reading in readings:
                known = [row["others"] for row in results.of(each[0])]
                line.append(spread([others[reading] for others in known if reading in others]))
            lines.append([*line, *(_detection(results, cell)[0] for cell in each if cell.noise)])
        where = [f"{100 * noise:.0f} % {target if noise else ''}".strip() for noise, target in table.conditions]
        judged = [f"AUROC, {w}" for w, (noise, _) in zip(where, table.conditions, strict=True) if noise]
        header = ["", "models", *(f"SumR, {w}" for w in where), *readings, *judged]
        blocks.append(f"**{name}**\n\n{markdown(header, lines)}")
    return "\n\n".join(blocks)


def _readings(row: Row) -> list[str]:
    return [name for name in row["others"] if name != "source language" and not name.startswith("fused")]


def factorial_block(results: Results) -> str:
    """Models, S-T and judge, each with each, at 40 %; and what each of them gives on average over the others."""
    every = [*itertools.product((1, 2), (False, True), grid.FACTORS)]
    found = [{row["seed"] for row in results.of(_factorial(*each, target))} for each in every for target in TARGETS]
    shared = set.intersection(*(seeds for seeds in found if seeds)) if any(found) else set()
    results = Results([row for row in results.rows if row["seed"] in shared])  # so that all cells are of the same draws
    header = ["SumR", *grid.FACTORS]
    blocks = []
    for target in TARGETS:
        lines: list[tuple[Cell, Line]] = []
        for models, cross_lingual in itertools.product((1, 2), (False, True)):
            cells = {judge: _factorial(models, cross_lingual, judge, target) for judge in grid.FACTORS}
            sums = map(results.sum_r, cells.values())
            lines.append((cells["none"], [f"{'with' if cross_lingual else 'without'} S-T", *sums]))
        blocks.append(_titled(target, grouped(header, lines)))
    effects = {
        "the second model": [[each for each in every if each[0] == models] for models in (2, 1)],
        "S-T": [[each for each in every if each[1] == cross_lingual] for cross_lingual in (True, False)],
        **{
            f"{judge} instead of none": [[each for each in every if each[2] == name] for name in (judge, "none")]
            for judge in grid.FACTORS
            if judge != "none"
        },
    }
    gains = [
        [
            name,
            *(
                results.difference(*([_factorial(*each, target) for each in side] for side in sides))
                for target in TARGETS
            ),
        ]
        for name, sides in effects.items()
    ]
    if any(_measured(text) for _, *texts in gains for text in texts):
        header = ["SumR by, mean over the other factors", *(SWITCHED[target] for target in TARGETS)]
        blocks.append(markdown(header, gains))
    return "\n\n".join(blocks)


def _factorial(models: int, cross_lingual: bool, judge: str, target: str) -> Cell:
    return grid.factorial_cell(models, cross_lingual, judge, noise=0.4, target=target)


BEST_SOFTNESS, BEST_SETTING = "best softness", "best setting"


def tuning_block(results: Results) -> str:
    """SumR of the selecting half at 0 and 40 % by setting, and of the reported half with the settings of the best mean.

    Chosen are the best softness and the best of all settings, each once all that it is chosen from are measured.
    """
    place = {(cell.label, cell.noise): cell for cell in grid.tuning_part()}
    kinds = ["default", *(f"learning rates x {factor:g}" for factor in grid.LEARNING_RATES if factor != 1)]
    kinds += [f"{epochs} epochs" for epochs in grid.EPOCHS if epochs != 12]
    lines, chosen = [], dict[str, dict[str, Cell]]({BEST_SOFTNESS: {}, BEST_SETTING: {}})
    for label in dict.fromkeys(label.rpartition(": ")[0] for label, _ in place):
        texts, means = dict[str, str](), dict[str, float]()
        tried = list(grid.settings(*grid.methods()[label]))
        for name in tried:
            rows = [results.find(place[f"{label}: {name}", noise]) for noise in (0.0, 0.4)]
            best = [max(row["epochs"]) for row in rows if row]
            if len(best) == len(rows):
                means[name] = statistics.fmean(best)
            if best:
                texts[name] = "/".join(f"{max(row['epochs']):.1f}" if row else MISSING for row in rows)
        soft = [name for name in tried if name.startswith(tuple(grid.SOFTNESS))]
        softer = "; ".join(f"{name.rpartition(' ')[2]}: {texts[name]}" for name in soft if name in texts)
        option = soft[0].rpartition(" ")[0] if softer else ""
        preferred = []
        for rule, names in ((BEST_SOFTNESS, ["default", *soft] if soft else []), (BEST_SETTING, tried)):
            found = max(names, key=means.__getitem__) if names and set(names) <= means.keys() else MISSING
            preferred.append(found)
            if found != MISSING:
                chosen[rule][label] = replace(place[f"{label}: {found}", 0.4], by_epoch=False)
        others = [texts.get(name, MISSING) for name in kinds]
        lines.append([_code(label), others[0], f"{option} {softer}".strip() or MISSING, *others[1:], *preferred])
    header = ["selecting half", "default", "softness", *kinds[1:], *chosen]
    return "\n\n".join([markdown(header, lines), *(_tuned(results, rule, cells) for rule, cells in chosen.items())])


def _tuned(results: Results, rule: str, chosen: Mapping[str, Cell]) -> str:
    """SumR of the reported half with the chosen settings, and above `infonce` of as many models with its own."""
    places = [Place(0.0), *(Place(0.4, target) for target in TARGETS)]
    lines = []
    for label, cell in chosen.items():
        base = chosen.get(BASELINE if cell.models == 1 else TWICE)
        above = [MISSING] * len(places)
        if base is not None and base != cell:
            above = [results.difference([place.of(cell)], [place.of(base)]) for place in places]
        name = f"{_code(label)}{cell.label.removeprefix(label)}"
        lines.append((cell, [name, *(results.sum_r(place.of(cell)) for place in places), *above]))
    shares = [place.title(several=True) for place in places]
    return grouped([f"reported half, {rule}", *shares, *(f"above `infonce`, {share}" for share in shares)], lines)


def about_block(results: Results) -> str:
    """Where the figures come from."""
    if not results.rows:
        return "Not measured yet."
    known = {name: sorted({row[name] for row in results.rows}) for name in ("torch", "machine")}
    shown = "; ".join(f"{name} {', '.join(values)}" for name, values in known.items())
    states = len({row["code"] for row in results.rows})
    dirty = sum(not code.reproducible(row["code"]) for row in results.rows)
    unknown = sum("sources" not in row for row in results.rows)
    carried = sum("sources_before" in row for row in results.rows)
    return (
        f"{len(results.rows)} runs by {states} states of the code, which `runs.jsonl` names by run; {dirty} ({DIRTY}) "
        f"name no clean commit; {unknown} have no hash of their method's files; {carried} are of "
        f"files that changed since, with the same bits where old and new code were compared. {shown}."
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "main": main_block,
    "contrasts": contrasts_block,
    "real": real_block,
    "accurate": accurate_block,
    "factorial": factorial_block,
    "tuning": tuning_block,
    "clean": clean_block,
    "detection": detection_block,
    "judges": judges_block,
    "styles": styles_block,
    "real-sums": real_sums_block,
    "ablations": ablations_block,
    "uncertainty": uncertainty_block,
    "epochs": epochs_block,
    "cost": cost_block,
    "about": about_block,
}


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """Puts generated blocks between their markers.

    Raises:
        ValueError: If a block has no place in the text.
    """
    for name, block in blocks.items():
        place = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        match = place.search(text)
        if match is None:
            raise ValueError(f"the page has no place for the block {name}")
        begin, end = match.span(1)[1], match.span(2)[0]
        text = f"{text[:begin]}{block}\n{text[end:]}"
    return text


def write(pages: Sequence[Path], results: Results) -> None:
    """Brings every table up to date, on the page that has its place.

    Raises:
        ValueError: If no page has a place for a block.
    """
    texts = {page: page.read_text("utf-8") for page in pages}
    for name, make in BLOCKS.items():
        place = next((page for page, text in texts.items() if f"<!-- begin {name} -->" in text), pages[0])
        texts[place] = fill(texts[place], {name: make(results)})
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
