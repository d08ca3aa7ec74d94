"""Summaries for people, on standard error: standard output carries paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact

if TYPE_CHECKING:
    from ccr_cli.report.compose import Overview

_DIRECTIONS = ("t2v", "v2t")


_SHOWN = ("R@1", "R@5", "R@10", "MedR", "mAP")


def show_training(artifact: Artifact) -> None:
    """Says how training ended."""
    from ccr_cli.artifacts import run

    counts, seconds = artifact.counts, float(artifact.about["environment"].get("seconds", 0.0))
    best = run.history(artifact).set_index("epoch").loc[counts["best_epoch"]]
    figure = run.config(artifact).get("criterion", "SumR")
    reached = f", {figure} {best[f'val.{figure}']:.1f} on validation" if f"val.{figure}" in best else ""
    console.say(f"  epoch {counts['best_epoch']} of {counts['epochs']} kept{reached}; {seconds:.0f} s of training")


def show_evaluation(artifact: Artifact) -> None:
    """Shows an evaluation's figures and their signatures: a table on a terminal, lines otherwise."""
    from ccr_cli.artifacts.evaluation import headline, mean_ap, results

    found = results(artifact)
    name = headline(found[0])  # one protocol an evaluation, one headline
    values = [_number(mean_ap(r) if name == "mAP" else r[name]) for r in found]
    if console.brief:
        say = ", ".join(f"{_what(r)} {value}" for r, value in zip(found, values, strict=True))
        console.say(f"  {name}: {say}")
        return
    if console.stderr().is_terminal and console.verbosity >= 0:
        _draw(artifact.name, found, name, values)
    else:
        for result, value in zip(found, values, strict=True):
            parts = {d: " ".join(f"{k} {_number(result[d][k])}" for k in _SHOWN) for d in _DIRECTIONS}
            figures = [f"{d.upper()} {text}" for d, text in parts.items()]
            console.say(f"{_what(result)}: {name} {value}; {'; '.join(figures)}")
    for result in found:
        console.say(result["signature"], style="dim")


def _what(result: dict[str, Any]) -> str:
    role = " (source)" if result["role"] == "source" else ""
    fusion = "" if result["fusion"] == "none" else f", fused {result['fusion']}"
    reading = f", {result['reading']} alone" if result.get("reading") else ""
    return f"{result['data']} {result['lang']}{role}{fusion}{reading}"


def _draw(title: str, found: list[dict[str, Any]], name: str, values: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title)
    table.add_column("queries")
    table.add_column(name, justify="right")
    for direction in _DIRECTIONS:
        table.add_column(f"{direction.upper()} {' / '.join(_SHOWN)}", justify="right")
    for result, value in zip(found, values, strict=True):
        figures = [" / ".join(_number(result[d][k]) for k in _SHOWN) for d in _DIRECTIONS]
        table.add_row(Text(console.plain(_what(result))), value, *figures)
    console.stderr().print(table)


def show_diagnosis(artifact: Artifact) -> None:
    """Shows what a diagnosis found."""
    from ccr_cli.artifacts.diagnosis import summary

    found = summary(artifact)
    console.say(
        f"{found['called_noisy']} of {found['pairs']} training pairs ({found['share_noisy']:.1%}) are called "
        f"mismatched by {found['judge']} ({found['judge_side']}), {found['called_noisy_rare']} of them "
        "for words too rare to be known"
    )
    if found["detection"]:
        d = found["detection"]
        console.say(
            f"against the synthetic truth: AUROC {_number(d['auroc'], 3)}, found {_number(d['recall'], 3)} of the "
            f"mismatched, false alarms {_number(d['false_alarms'], 3)}"
        )
    for pair in [] if console.brief else found["most_suspicious"][:5]:
        console.say(f"  {pair['p_clean']:.2f}  {pair['source_text']}  ->  {pair['translation']}")


def show_report(found: Overview, path: Path) -> None:
    """Shows what a report says: its headline and its tables, drawn on a terminal, Markdown otherwise."""
    from ccr_cli.report.tables import to_markdown, to_rich

    err = console.stderr()
    console.say(f"  the page: {path}")
    console.say(found.findings.headline, style="bold")
    for table in found.tables.values():
        if console.verbosity >= 0:
            err.print()
            err.print(
                to_rich(table) if err.is_terminal else to_markdown(table), markup=False, soft_wrap=not err.is_terminal
            )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
