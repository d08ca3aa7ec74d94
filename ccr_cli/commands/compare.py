"""ccr compare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError
from ccr_cli.report.words.numbers import decimal, ends, mean_sd
from ccr_cli.stages.evaluate.options import ComparisonOptions
from ccr_cli.stages.shared.options import option

if TYPE_CHECKING:
    from ccr_cli.stages.evaluate.compare import ComparedFigure, Comparison


@c.guarded
def compare(
    *,
    options: ComparisonOptions,
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
    if latex and call.json:
        raise UsageError("--json and --latex are two forms of one output", hint="leave one out")
    inputs = call.inputs()
    from ccr_cli.stages.evaluate.compare import compare as stage
    from ccr_cli.stages.evaluate.compare import latex as to_latex

    comparisons = stage(inputs, every=options.every, by=options.by or ())
    if call.json:
        c.show_json({"comparisons": [_facts(comparison) for comparison in comparisons]})
    elif latex:
        print(to_latex(comparisons))
    elif sys.stdout.isatty():
        for comparison in comparisons:
            heads = ("figure", comparison.first, comparison.second, "difference", "95% interval", "p")
            c.show_table(heads, [_row(line) for line in comparison.lines], title=comparison.what)
            for signature in dict.fromkeys(comparison.signatures):
                console.say(signature, level=1, style="dim")
    else:
        cells = [_cells(cmp, line, 6 if call.verbose else 4) for cmp in comparisons for line in cmp.lines]
        columns = [name for name in cells[0] if call.verbose or not (name == "p" or name.endswith(_WIDE))]
        c.show_table(columns, [[row[name] for name in columns] for row in cells])
    for comparison in comparisons:
        console.say(f"{comparison.what}: {comparison.words()}")
    if any(1 in (comparison.lines[0].first.seeds, comparison.lines[0].second.seeds) for comparison in comparisons):
        console.say("one seed has no standard deviation: another seed may move a difference by more than its interval")


_WIDE = ("_sd", "_seeds", "_signature")
"""Suffixes of columns that, like `p`, only -v shows."""


def _cells(comparison: Comparison, line: ComparedFigure, digits: int) -> dict[str, object]:
    """A row of the table for programs."""
    cells = comparison.cells(line)
    for name, value in cells.items():
        if name in ("p", "p_holm"):
            cells[name] = _p(value, digits - 2)
        elif isinstance(value, float):
            cells[name] = f"{value:.{digits}g}"
    return cells


def _p(value: float | None, digits: int = 2) -> str:
    """A p value; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"


def _row(line: ComparedFigure) -> list[object]:
    """A row of the table on a terminal."""
    means = [mean_sd(v.mean, v.sd) + ("" if v.sd is None else f" (n = {v.seeds})") for v in (line.first, line.second)]
    d = line.difference
    return [line.figure, *means, decimal(d.estimate, sign=True), ends(d.low, d.high, sign=True), _p(line.p_holm)]


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
