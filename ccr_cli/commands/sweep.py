"""ccr train --sweep: a grid of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from ccr_cli import console
from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.build import Planned, recorded_as, recorded_words, without_option
from ccr_cli.commands import common as c

if TYPE_CHECKING:
    from ccr_cli.stages.shared.inputs import Inputs
    from ccr_cli.stages.train.options import TrainingOptions
    from ccr_cli.stages.train.sweep import SweepCell


def train_sweep(
    inputs: Inputs, options: TrainingOptions, axes: Mapping[str, Sequence[str]], shard: str | None, as_json: bool
) -> None:
    """Trains a grid of runs, or a part of it (such as `3/64`), and prints their paths in its order.

    Raises:
        CcrError: If a run could not be trained; raised after the others are trained.
    """
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.shared.sharding import parse_part
    from ccr_cli.stages.train.sweep import failure, grid, plan, train_cells

    cells = grid(options, axes)
    part = None if shard is None else parse_part(shard)
    sizes = " x ".join(f"{len(values)} {key.replace('_', '-')}" for key, values in axes.items())
    console.say(f"a sweep of {console.counted(len(cells), 'run')} ({sizes})", style="bold")
    plans = plan(inputs, cells)
    selected = cells if part is None else part.take(cells)
    states = Counter(cell.state for cell in selected)
    counts = [f"{states[state]} {state}" for state in ("done", "unfinished", "to do", "refused") if states[state]]
    console.say(f"  {f'{part}: ' if part else ''}{', '.join(counts) or 'nothing'}")
    if inputs.workspace.dry_run:
        _show_plans(selected, plans, as_json)
        if states["refused"]:
            raise typer.Exit(3)
        return

    for cell in train_cells(inputs, selected, _train):
        if cell.state != "done" and cell.run:
            show_summary(cell.run)
    for cell in selected:
        inputs.note(*cell.parents)
    runs = [cell.run for cell in selected if cell.run]
    if as_json:
        read = [a for a in inputs.read if a.path not in {run.path for run in runs}]
        _print_json({"read": [*map(c.artifact_facts, read)], "made": [*map(c.artifact_facts, runs)]}, selected)
    else:
        c.emit(inputs, runs, as_json)
    error = failure(selected)
    if error is not None:
        raise error


def _show_plans(cells: Sequence[SweepCell], plans: Sequence[Planned], as_json: bool) -> None:
    if as_json:
        own = [cell.plan for cell in cells if cell.plan]
        noise = {artifact.name for planned in own for artifact in planned.parents if artifact.kind == "noise"}
        _print_json(c.plan_facts([p for p in plans if p in own or p.path.name in noise]), cells)
        return
    rows = []
    for cell in cells:
        outcome = str(cell.plan.path) if cell.plan else cell.error.message if cell.error else ""
        rows.append([*cell.values.values(), cell.state, outcome])
    keys = [key.replace("_", "-") for key in cells[0].values] if cells else []
    c.show_table((*keys, "state", "run"), rows)


def _print_json(facts: Mapping[str, object], cells: Sequence[SweepCell]) -> None:
    failed = [
        {"sweep": dict(cell.values), "error": cell.error.message, "exit_code": cell.error.exit_code}
        for cell in cells
        if cell.error
    ]
    c.show_json({**facts, "failed": failed})


def _train(inputs: Inputs, cell: SweepCell) -> Artifact:
    """Trains one run of the sweep, which records the command that would train it alone."""
    from ccr_cli.stages.train.stage import train

    words = without_option(without_option(recorded_words(), "--sweep"), "--shard")
    with recorded_as([*words, *cell.arguments()]):
        return train(inputs, cell.options)
