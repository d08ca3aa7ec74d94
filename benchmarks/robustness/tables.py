"""The tables of `docs/noise-robustness.md` and its appendix, made from rows of results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ccr_cli.judges.base import load_judge
from robustness import grid, runs
from robustness.grid import BASELINE, CHINESE, FRENCH, ORACLE, RATIOS, SEEDS, TARGETS, Cell
from robustness.recovery import Array, Estimate, difference, recovery

Row = Mapping[str, Any]
Line = Sequence[str]
NOTHING = ""
SWITCHED = {"translation": "switched translations", "pair": "switched pairs (English and translation together)"}


@dataclass(frozen=True)
class Results:
    """Rows of results, by cell."""

    rows: Sequence[Row]

    def of(self, cell: Cell) -> list[Row]:
        """The latest row of each seed of a cell, those that are there."""
        rows = [grid.find(self.rows, replace(cell, seed=seed)) for seed in SEEDS]
        return [row for row in rows if row is not None]

    def first(self) -> Results:
        """Those of the first seed alone, so that each figure of a table is of the same draw."""
        return Results([row for row in self.rows if row["seed"] == SEEDS[0]])

    def sum_r(self, cell: Cell) -> str:
        """Mean and standard deviation over the seeds."""
        return spread([row["SumR"] for row in self.of(cell)])

    def paired(self, *cells: Cell) -> list[Array] | None:
        """What each item adds to SumR, for the seeds that all cells have."""
        by_seed = [{row["seed"]: row for row in self.of(cell)} for cell in cells]
        shared = sorted(set.intersection(*(set(rows) for rows in by_seed)))
        if not shared:
            return None
        return [np.array([runs.values(rows[seed]["found"]) for seed in shared]) for rows in by_seed]

    def recovery(self, cell: Cell, base: Cell, oracle: Cell) -> str:
        """Share of the gap between base and oracle, with its interval."""
        sums = self.paired(cell, base, oracle)
        return NOTHING if sums is None or cell in (base, oracle) else interval(recovery(*sums))

    def difference(self, cell: Cell, base: Cell) -> str:
        """SumR above the base, with its interval."""
        sums = self.paired(cell, base)
        return NOTHING if sums is None or cell == base else interval(difference(*sums), "+.1f")


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Mean ± standard deviation; the value alone where there is one, nothing where there is none."""
    if not values:
        return NOTHING
    mean = format(statistics.fmean(values), form)
    return f"{mean} ± {statistics.stdev(values):{form}}" if len(values) > 1 else mean


def interval(estimate: Estimate | None, form: str = ".2f") -> str:
    """An estimate with the ends of its interval."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return format(estimate.value, form)
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def markdown(header: Line, lines: Sequence[Line]) -> str:
    """A table; lines with nothing but their name are left out."""
    kept = [line for line in lines if any(line[1:])]
    if not kept:
        return "Not measured yet."
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"|{'|'.join(line)}|" for line in (header, rule, *kept))


def _code(label: str) -> str:
    """A label as it stands in a table; the oracle is no competitor."""
    name, _, rest = label.partition(" (")
    text = f"`{name}`" + (f" ({rest}" if rest else "")
    return f"_{text}_" if label == ORACLE else text


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def _by_label(cells: Sequence[Cell]) -> dict[str, Cell]:
    """A cell of each label (seeds and noise are replaced where it is used)."""
    return {cell.label: cell for cell in cells if cell.seed == SEEDS[0] and cell.noise}


def _grid(results: Results, cells: Sequence[Cell], ratios: Sequence[float], targets: Sequence[str] = TARGETS) -> str:
    """SumR and recovery of every method, a table a target."""
    place = {(cell.label, cell.noise, cell.target): cell for cell in cells if cell.seed == SEEDS[0]}
    labels = list(dict.fromkeys(cell.label for cell in cells))
    noisy = [ratio for ratio in ratios if ratio]
    header = ["SumR", *(f"{100 * r:.0f} %" for r in ratios), *(f"recovery {100 * r:.0f} %" for r in noisy)]
    blocks = []
    for target in targets:

        def at(label: str, ratio: float, target: str = target) -> Cell:
            return place[label, ratio, target if ratio else targets[0]]

        lines = []
        for label in labels:
            shares = [results.recovery(at(label, r), at(BASELINE, r), at(ORACLE, r)) for r in noisy]
            lines.append([_code(label), *(results.sum_r(at(label, r)) for r in ratios), *shares])
        blocks.append(f"**{SWITCHED[target][0].upper()}{SWITCHED[target][1:]}**\n\n{markdown(header, lines)}")
    return "\n\n".join(blocks)


def main_block(results: Results) -> str:
    """SumR and recovery."""
    return _grid(results, grid.main_part(), RATIOS)


def clean_block(results: Results) -> str:
    """Without synthetic noise: SumR, and what a method has above `infonce`."""
    cells = {cell.label: cell for cell in grid.clean_part()}
    header = ["no synthetic noise", "SumR", f"above `{BASELINE}`", "queries in English"]
    lines = []
    for label, cell in cells.items():
        if label == ORACLE:
            continue
        english = [row["others"]["source language"] for row in results.of(cell)]
        above = results.difference(cell, cells[BASELINE])
        lines.append([_code(label), results.sum_r(cell), above, spread(english)])
    return markdown(header, lines)


def detection_block(results: Results) -> str:
    """What the judges of the methods find at 40 %, and what they call noisy where nothing is."""
    header = ["40 %", "judge", "AUROC", "precision", "recall", "false alarms", "called at 0 %"]
    blocks = []
    for target in TARGETS:
        lines = []
        for label, cell in _by_label([c for c in grid.main_part() if c.noise == 0.4 and c.target == target]).items():
            judge, side = cell.config["judge"], cell.config["judge_side"]
            name = f"{judge}, {side}" if load_judge(judge).takes_side else judge
            called = _mean(results.of(replace(cell, noise=0.0)), "share_noisy")
            cells = _detection(results, cell)
            lines.append(
                [_code(label), name if any(cells) else NOTHING, *cells, _percent(called)] if any(cells) else [""]
            )
        lines = [line for line in lines if len(line) > 1]
        blocks.append(f"**{SWITCHED[target][0].upper()}{SWITCHED[target][1:]}**\n\n{markdown(header, lines)}")
    return "\n\n".join(blocks)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [row["judge"][name] for row in rows if row["judge"][name] is not None]
    return statistics.fmean(known) if known else None


def _detection(results: Results, cell: Cell) -> list[str]:
    rows = results.of(cell)
    auroc = [row["judge"]["auroc"] for row in rows if row["judge"]["auroc"] is not None]
    return [spread(auroc, ".4f"), *(_percent(_mean(rows, name)) for name in ("precision", "recall", "false_alarms"))]


def cost_block(results: Results) -> str:
    """Parameters, optimiser steps and seconds of processor time; the epoch that validation chose, by seed."""
    header = ["", "parameters", "steps", "CPU seconds", f"times `{BASELINE}`", "epoch chosen at 0 %", "at 40 %"]
    every = grid.main_part()
    rows = {
        label: [
            row
            for cell in every
            if cell.label == label and cell.noise
            for row in results.of(cell)
            if "cpu_seconds" in row
        ]
        for label in grid.methods()
    }
    typical = {label: statistics.median(r["cpu_seconds"] for r in same) for label, same in rows.items() if same}
    lines = []
    for label, same in rows.items():
        if same and label != ORACLE:
            times = f"{typical[label] / typical[BASELINE]:.1f}" if BASELINE in typical else NOTHING
            counts = [f"{same[-1][name]:,}" for name in ("parameters", "steps")]
            cell = next(each for each in every if (each.label, each.noise, each.target) == (label, 0.4, TARGETS[0]))
            chosen = [
                ", ".join(str(row["best_epoch"]) for row in results.of(replace(cell, noise=noise)))
                for noise in (0.0, 0.4)
            ]
            lines.append([_code(label), *counts, f"{typical[label]:.0f}", times, *chosen])
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
            lines.append(line)
        header = [f"AUROC, {100 * noise:.0f} %: {name}" for noise in (0.0, 0.4) for name in SCORES]
        blocks.append(f"**{title}**\n\n{markdown(['', *header], lines)}")
    return "\n\n".join(blocks)


def by_epoch(results: Results) -> dict[tuple[str, float, str], list[float]]:
    """SumR of the queries that choose the epoch, epoch by epoch, first seed: by label, noise and its target."""
    cells = [c for c in grid.main_part() if c.seed == SEEDS[0] and (c.noise, c.target) in WHERES]
    rows = {(c.label, c.noise, c.target): grid.find(results.rows, c) for c in cells}
    return {place: row["epochs"] for place, row in rows.items() if row is not None and "epochs" in row}


def epochs_block(results: Results) -> str:
    """SumR of the queries that choose the epoch: at the epoch chosen, and after the last, first seed."""
    known, lines = by_epoch(results), []
    for label in grid.methods():
        line = [_code(label)]
        for where in WHERES:
            each = known.get((label, *where))
            line += [f"{max(each):.1f} ({1 + each.index(max(each))})", f"{each[-1]:.1f}"] if each else [NOTHING] * 2
        lines.append(line)
    named = [f"{100 * noise:.0f} % {target if noise else ''}".strip() for noise, target in WHERES]
    return markdown(["", *(f"{name}, {what}" for name in named for what in ("best (epoch)", "last"))], lines)


SCORES = ("own", "softmax", "top similarity")
WHERES = ((0.0, TARGETS[0]), *((0.4, target) for target in TARGETS))
"""Noise and its target, where epochs are looked at one by one."""


def judges_block(results: Results) -> str:
    """Every judge with every method, first seed: SumR; with `infonce` also what each judge finds."""
    results = results.first()
    cells = [cell for cell in grid.judges_part() if cell.seed == SEEDS[0]]
    names = list(dict.fromkeys(cell.method for cell in cells))
    blocks = []
    for target in TARGETS:
        part = [cell for cell in cells if cell.target == target]
        usual = {cell.label.partition(" (")[2] for cell in part if cell.method != BASELINE}
        rows = list(dict.fromkeys(c.label.partition(" (")[2] for c in part if c.label.partition(" (")[2] in usual))
        place = {(cell.method, cell.label.partition(" (")[2]): cell for cell in part}
        lines = [
            [row.rstrip(")"), *(results.sum_r(place[n, row]) if (n, row) in place else NOTHING for n in names)]
            for row in rows
        ]
        title = f"**{SWITCHED[target][0].upper()}{SWITCHED[target][1:]}, 40 %**"
        own = [
            [row.rstrip(")"), results.sum_r(c), *_detection(results, c)]
            for (n, row), c in place.items()
            if n == BASELINE
        ]
        detection = markdown([f"`{BASELINE}`, judge", "SumR", "AUROC", "precision", "recall", "false alarms"], own)
        blocks.append(f"{title}\n\n{markdown(['SumR, judge', *(f'`{n}`' for n in names)], lines)}\n\n{detection}")
    return "\n\n".join(blocks)


def style_image_block(results: Results) -> str:
    """As the main block, captions of an item moved together."""
    return _grid(results, grid.style_image_part(), RATIOS[1:])


def accurate_block(results: Results) -> str:
    """As the main block, with simulated features."""
    return _grid(results, grid.accurate_part(), (0.0, 0.4, 0.6))


def real_block(results: Results) -> str:
    """No synthetic noise: SumR by engine, and by number of round trips."""
    cells = [cell for cell in grid.real_part() if cell.seed == SEEDS[0]]
    labels = list(dict.fromkeys(cell.label for cell in cells))
    place = {(cell.label, cell.translations): cell for cell in cells}
    chinese = [[_code(label), *(results.sum_r(place[label, e]) for e in CHINESE)] for label in labels]
    above = [
        [_code(label), *(results.difference(place[label, e], place[BASELINE, e]) for e in CHINESE)] for label in labels
    ]
    french = []
    for label in labels:
        line = [_code(label)]
        for engine in FRENCH:
            rows = results.of(place[label, engine])
            fused = [[row["others"][name] for row in rows if name in row["others"]] for name in FUSED]
            line += [results.sum_r(place[label, engine]), *(spread(values) for values in fused)]
        french.append(line)
    french_above = [
        [_code(label), *(results.difference(place[label, e], place[BASELINE, e]) for e in FRENCH)] for label in labels
    ]
    how = ("as it is", "fused 0.8", "translate-test")
    header = [f"{NAMES[engine]}, {queries}" for engine in FRENCH for queries in how]
    return "\n\n".join(
        (
            markdown(["Chinese, SumR", *(NAMES[e] for e in CHINESE)], chinese),
            markdown([f"Chinese, above `{BASELINE}`", *(NAMES[e] for e in CHINESE)], above),
            markdown(["French, SumR", *header], french),
            markdown([f"French as it is, above `{BASELINE}`", *(NAMES[e] for e in FRENCH)], french_above),
        )
    )


NAMES = {
    "baidu-2016": "Baidu, early 2016",
    "google-2016": "Google, early 2016",
    "baidu-20160815": "Baidu, August 2016",
    "google-20160816": "Google, August 2016",
    "apertium-1": "one trip",
    "apertium-2": "two trips",
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
            line = [label, *(results.sum_r(cell) for cell in each)]
            for reading in readings:
                known = [row["others"] for row in results.of(each[0])]
                line.append(spread([others[reading] for others in known if reading in others]))
            lines.append([*line, *(_detection(results, cell)[0] for cell in each if cell.noise)])
        where = [f"{100 * noise:.0f} % {target if noise else ''}".strip() for noise, target in table.conditions]
        judged = [f"AUROC, {w}" for w, (noise, _) in zip(where, table.conditions, strict=True) if noise]
        header = ["", *(f"SumR, {w}" for w in where), *readings, *judged]
        blocks.append(f"**{name}**\n\n{markdown(header, lines)}")
    return "\n\n".join(blocks)


def _readings(row: Row) -> list[str]:
    return [name for name in row["others"] if name != "source language" and not name.startswith("fused")]


def about_block(results: Results) -> str:
    """Where the figures come from."""
    if not results.rows:
        return "Not measured yet."
    known = {name: sorted({row[name] for row in results.rows}) for name in ("torch", "machine")}
    shown = "; ".join(f"{name} {', '.join(values)}" for name, values in known.items())
    states = len({row["code"] for row in results.rows})
    return f"{len(results.rows)} runs by {states} states of the code, which `runs.jsonl` names by run; {shown}."


BLOCKS: dict[str, Callable[[Results], str]] = {
    "main": main_block,
    "clean": clean_block,
    "detection": detection_block,
    "judges": judges_block,
    "style-image": style_image_block,
    "accurate": accurate_block,
    "real": real_block,
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
