"""ccr compare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.report.words.numbers import mean_sd

if TYPE_CHECKING:
    from ccr_cli.stages.evaluate.compare import ComparedFigure, Comparison, Value


@c.guarded
def compare(
    *,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Also compare source-language queries, fused queries and further readings of a model."
        ),
    ] = False,
    call: c.ListCall,
) -> None:
    """Test whether one system is better than another on the same queries, and by how much.

    Compares the first of two or more evaluations, or of runs that were evaluated, with each of the others. Runs that
    differ only in their seeds count as one system, with the mean of their figures. Intervals and p values are
    computed over items; all queries of an item stay together. The table goes to standard output, the verdict in words
    to standard error; -v adds signatures, and standard deviations in TSV.
    """
    inputs = call.inputs()
    from ccr_cli.stages.evaluate.compare import compare as stage

    comparisons = stage(inputs, every=every)
    if call.json:
        c.show_json({"comparisons": [_facts(comparison) for comparison in comparisons]})
    elif sys.stdout.isatty():
        for comparison in comparisons:
            rows = [_row(line) for line in comparison.lines]
            heads = ("figure", comparison.first, comparison.second, "difference", "95% interval", "p")
            c.show_table(heads, rows, title=comparison.what)
            for signature in dict.fromkeys(comparison.signatures):
                console.say(signature, level=1, style="dim")
    else:
        columns = _COLUMNS if call.verbose else _NARROW
        rows = [[row[name] for name in columns] for cmp in comparisons for row in _plain(cmp, 6 if call.verbose else 4)]
        c.show_table(columns, rows)
    for comparison in comparisons:
        console.say(f"{comparison.what}: {comparison.words()}")
    if not call.json and any(line.p_holm is None for comparison in comparisons for line in comparison.lines):
        console.say("p is - for a median, which is no sum over items whose signs could be flipped; see its interval")
    headlines = [comparison.lines[0] for comparison in comparisons]
    if any(value.seeds == 1 for line in headlines for value in (line.first, line.second)):
        console.say("one seed has no standard deviation: another seed may move a difference by more than its interval")


_COLUMNS = (
    "data", "figure", "first", "second", "first_mean", "first_sd", "first_seeds", "second_mean", "second_sd",
    "second_seeds", "difference", "low", "high", "p", "p_holm", "verdict", "first_signature", "second_signature",
)  # fmt: skip
_NARROW = ("data", "figure", "first", "second", "first_mean", "second_mean", *_COLUMNS[10:13], "p_holm", "verdict")


def _plain(comparison: Comparison, digits: int) -> list[dict[str, object]]:
    def _digits(value: float | None) -> str | None:
        return None if value is None else f"{value:.{digits}g}"

    rows: list[dict[str, object]] = []
    for line in comparison.lines:
        values = [x for v in (line.first, line.second) for x in (_digits(v.mean), _digits(v.sd), v.seeds)]
        d = line.difference
        tested = [*map(_digits, (d.estimate, d.low, d.high)), _p(d.p, digits - 2), _p(line.p_holm, digits - 2)]
        cells = [
            comparison.what,
            line.figure,
            comparison.first,
            comparison.second,
            *values,
            *tested,
            line.verdict,
            *comparison.signatures,
        ]
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    return rows


def _p(value: float | None, digits: int = 2) -> str:
    """A p value; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"


def _row(line: ComparedFigure) -> list[object]:
    d = line.difference
    interval = f"{_signed(d.low)} to {_signed(d.high)}"
    return [line.figure, _value(line.first), _value(line.second), _signed(d.estimate), interval, _p(line.p_holm)]


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # no negative zero


def _value(value: Value) -> str:
    text = mean_sd(value.mean, value.sd)
    return text if value.sd is None else f"{text} (n = {value.seeds})"


def _facts(comparison: Comparison) -> dict[str, Any]:
    from dataclasses import asdict

    from ccr_cli.metrics import bootstrap, paired

    lines = [{**asdict(line), "verdict": line.verdict} for line in comparison.lines]
    for line in lines:  # a direction without queries
        line["difference"] = {k: None if v != v else v for k, v in line["difference"].items()}
    how = {"level": bootstrap.LEVEL, "resamples": paired.SAMPLES, "flips": paired.FLIPS, "drawn": "items", "seed": 0}
    return {**asdict(comparison), "lines": lines, "words": comparison.words(), "how": how}


EPILOG = c.examples(
    "ccr compare runs/noto-emoji-es-infonce-seed0 runs/noto-emoji-es-uml-seed0",
    "ccr train --sweep method=infonce,uml --sweep seed=0,1,2 | ccr evaluate - | ccr compare -",
    "ccr compare evaluations/a evaluations/b evaluations/c --all --json",
)
