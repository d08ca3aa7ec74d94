"""ccr compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.report.words.numbers import decimal, ends, mean_sd, metric
from ccr_cli.stages.shared.options import option

if TYPE_CHECKING:
    from ccr_cli.report.tables.table import Table
    from ccr_cli.stages.evaluate.compare import ComparedFigure, Comparison


@c.guarded
def compare(
    *,
    every: bool = option(
        False,
        "Also compare queries in the source language, queries fused with their translations, and the other embeddings "
        "of methods that have several.",
        "--all",
    ),
    by: list[str] | None = option(
        None,
        "Compare only systems trained under the same condition: noise, mt (engine), or none (any with any); repeat for "
        "several.",
        show_default="noise, where it differs",
    ),
    latex: bool = option(False, "Print LaTeX tables (booktabs): one per condition, a row for each system."),
    call: c.ListCall,
) -> None:
    """Test whether one system is better than another on the same queries, and by how much.

    Compares the first of two or more evaluations, or of runs that were evaluated, with each of the others, a block for
    each condition (--by). Runs that differ only in their seeds count as one system, with the mean of their figures.
    Intervals and p values are
    computed over items; all queries of an item stay together. The table goes to standard output, the verdict in words
    to standard error; -v adds signatures, and standard deviations in TSV.
    """
    inputs = call.inputs()
    from ccr_cli.stages.evaluate.compare import compare as stage

    comparisons = stage(inputs, every=every, by=by or ())
    if call.json:
        c.show_json({"comparisons": [_facts(comparison) for comparison in comparisons]})
    elif latex:
        from ccr_cli.report.tables.table import PREAMBLE, to_latex

        print("\n".join([PREAMBLE, *(to_latex(table, preamble=False) for table in _tables(comparisons))]))
    elif sys.stdout.isatty():
        for comparison in comparisons:
            heads = ("figure", comparison.first, comparison.second, "difference", "95% interval", "p")
            c.show_table(heads, [_row(line) for line in comparison.lines], title=comparison.what)
            for signature in dict.fromkeys(comparison.signatures):
                console.say(signature, level=1, style="dim")
    else:
        cells = [_cells(cmp, line, 6 if call.verbose else 4) for cmp in comparisons for line in cmp.lines]
        columns = [name for name in cells[0] if call.verbose or not name.endswith(_WIDE)]
        c.show_table(columns, [[row[name] for name in columns] for row in cells])
    for comparison in comparisons:
        console.say(f"{comparison.what}: {comparison.words()}")
    if any(1 in (comparison.lines[0].first.seeds, comparison.lines[0].second.seeds) for comparison in comparisons):
        console.say("one seed has no standard deviation: another seed may move a difference by more than its interval")


_WIDE = ("_sd", "_seeds", "_signature", "p")
"""Ends of columns that only -v shows."""


def _cells(comparison: Comparison, line: ComparedFigure, digits: int) -> dict[str, object]:
    """A line of the table that programs read."""

    def shown(value: float | None) -> str | None:
        return None if value is None else f"{value:.{digits}g}"

    d, names = line.difference, ("first", "second")
    cells: dict[str, object] = {"data": comparison.what, "figure": line.figure}
    cells |= {"first": comparison.first, "second": comparison.second}
    for name, value in zip(names, (line.first, line.second), strict=True):
        cells |= {f"{name}_mean": shown(value.mean), f"{name}_sd": shown(value.sd), f"{name}_seeds": value.seeds}
    cells |= {"difference": shown(d.estimate), "low": shown(d.low), "high": shown(d.high)}
    cells |= {"p": _p(d.p, digits - 2), "p_holm": _p(line.p_holm, digits - 2), "verdict": line.verdict}
    return cells | {f"{name}_signature": text for name, text in zip(names, comparison.signatures, strict=True)}


def _p(value: float | None, digits: int = 2) -> str:
    """A p value; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"


def _row(line: ComparedFigure) -> list[object]:
    """A line of the table on a terminal."""
    means = [mean_sd(v.mean, v.sd) + ("" if v.sd is None else f" (n = {v.seeds})") for v in (line.first, line.second)]
    d = line.difference
    return [line.figure, *means, decimal(d.estimate, sign=True), ends(d.low, d.high, sign=True), _p(line.p_holm)]


def _tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Tables like those of a report, one per setting and condition: a row for each system, the baseline first."""
    from ccr_cli.report.tables import results, retrieval
    from ccr_cli.report.tables.table import Cell, Column, Row, Table

    tables: list[Table] = []
    for what, group in groupby(comparisons, key=lambda comparison: comparison.what):
        others = list(group)
        head, figure = others[0], others[0].lines[0].figure
        recalls = {f"{d}.{r}": (d, r) for d in retrieval.DIRECTION_TITLES for r in results.RECALLS}
        shown = [Column(k, r, "high", group=retrieval.DIRECTION_TITLES[d]) for k, (d, r) in recalls.items()]
        columns = [retrieval.METHOD, retrieval.NUMBER, *shown, Column(figure, results.HEADLINES[figure][0], "high")]
        columns += [Column("difference", "difference", signed=True), Column("interval", "95% interval", text=True)]
        columns.append(Column("p", "p"))
        rows = []
        for label, each in [(head.first, head), *((other.second, other) for other in others)]:
            values = {line.figure: line.first if label == head.first else line.second for line in each.lines}
            line, cells = each.lines[0], [Cell(values[name].mean, values[name].sd) for name in (*recalls, figure)]
            compared = [Cell(), Cell(), Cell()]
            if label != head.first:
                d = line.difference
                compared = [Cell(d.estimate), Cell(ends(d.low, d.high, sign=True)), Cell(shown=_p(line.p_holm))]
            rows.append(
                Row([Cell(label), Cell(values[figure].seeds), *cells, *compared], ceiling=results.is_oracle(label))
            )
        notes = [*retrieval.NOTES, f"Differences are from {head.first}, paired over items."]
        notes += [] if head.chance is None else [f"A random ranking would reach SumR {metric(head.chance)}."]
        tables.append(Table(f"comparison-{len(tables) + 1}", what, columns, rows, notes))
    return tables


def _facts(comparison: Comparison) -> dict[str, Any]:
    from dataclasses import asdict

    from ccr_cli.metrics.bootstrap import LEVEL
    from ccr_cli.metrics.paired import FLIPS, SAMPLES

    lines = [{**asdict(line), "verdict": line.verdict} for line in comparison.lines]
    for line in lines:  # a direction without queries
        line["difference"] = {k: None if v != v else v for k, v in line["difference"].items()}
    how = {"level": LEVEL, "resamples": SAMPLES, "flips": FLIPS, "drawn": "items", "seed": 0}
    return {**asdict(comparison), "lines": lines, "words": comparison.words(), "how": how}


EPILOG = c.examples(
    "ccr compare runs/noto-emoji-es-infonce-seed0 runs/noto-emoji-es-uml-seed0",
    "ccr train --sweep method=infonce,uml --sweep seed=0,1,2 | ccr evaluate - | ccr compare -",
    "ccr train --sweep method=infonce,uml --sweep noise=0.2,0.4 | ccr evaluate - | ccr compare -",
    "ccr compare runs/*infonce* runs/*",
    "ccr compare evaluations/a evaluations/b evaluations/c --all --json",
)
