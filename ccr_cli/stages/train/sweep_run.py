"""Making the runs of a sweep, one after the other."""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import in_work
from ccr_cli.console import counted, say
from ccr_cli.errors import CcrError, LockedError, ResourceError, Terminated, as_user_error
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.stage import make
from ccr_cli.stages.train.sweep import Cell

POLL_SECONDS = 2.0
"""How often it is looked whether another process is done with a run."""


def run(
    inputs: Inputs, cells: Sequence[Cell], work: Callable[[Inputs, Cell], base.Artifact] | None = None
) -> Iterator[Cell]:
    """Makes the runs of a grid that `plan` has seen, one after the other.

    What stops one of them does not stop the others: it is said, and noted. A run that another process is at is passed
    over; when the others are made it is waited for, or gone on with if that process was stopped.

    Args:
        inputs: As for `plan`.
        cells: Those to make.
        work: Makes one of them; by default as `ccr train` does.

    Yields:
        Each as soon as it is made.

    Raises:
        OSError: If the disk is full, which concerns all of them.
    """
    work = work or (lambda own, cell: make(own, cell.wanted))
    queue, seconds = [cell for cell in cells if cell.error is None], _Seconds(cells)
    waiting = False
    try:
        while queue:
            later: list[Cell] = []
            for position, cell in enumerate(queue):
                assert cell.plan is not None
                if waiting and in_work(cell.plan.path):
                    later.append(cell)
                    continue
                if cell.state != "done":
                    left = seconds.of([*queue[position:], *later])
                    say(f"[{cells.index(cell) + 1}/{len(cells)}] {cell}{left}", style="bold")
                own = replace(inputs, read=[])
                try:
                    cell.made = work(own, cell)
                except LockedError as error:
                    say(f"  {error.message}")
                    cell.wanted = replace(cell.wanted, force=False)  # who is at it makes it anew
                    later.append(cell)
                    continue
                except Exception as error:  # whatever is wrong with one, the others go on
                    cell.error = _noted(error)
                    hint = f"\n  try: {cell.error.hint}" if cell.error.hint else ""
                    say(f"error: {cell}: {cell.error.message}{hint}", level=-1, style="bold red")
                    continue
                cell.read = own.read
                seconds.learn(cell)
                yield cell
            if later and not waiting:
                say(f"waiting for {counted(len(later), 'run')} that other processes are at")
            elif len(later) == len(queue):
                time.sleep(POLL_SECONDS)
            queue, waiting = later, True
    except (KeyboardInterrupt, Terminated):
        made = sum(cell.made is not None for cell in cells)
        say(f"{made} of {counted(len(cells), 'run')} of the sweep are made", level=-1)
        raise


def _noted(error: Exception) -> CcrError:
    """What to remember of an error: without the frames that it came through, for these hold the model.

    Raises:
        OSError: If it concerns all runs: the disk is full, or nobody listens.
    """
    known = error if isinstance(error, CcrError) else as_user_error(error)
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and isinstance(known, ResourceError)):
        raise error
    if known is None:
        say("".join(traceback.format_exception(error)), level=-1)
        known = CcrError(f"{type(error).__name__}: {error}")
    known.__traceback__ = known.__context__ = known.__cause__ = None
    return known


class _Seconds:
    """How long runs of a sweep took, by method, and so about how long those will that are left."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.known: dict[str, list[float]] = {}
        for cell in cells:
            if cell.plan is not None and cell.state == "done":
                self._add(cell, base.load(cell.plan.path))

    def learn(self, cell: Cell) -> None:
        """Takes up a run that was made."""
        if cell.made is not None and cell.state != "done":
            self._add(cell, cell.made)

    def _add(self, cell: Cell, made: base.Artifact) -> None:
        took = (made.about.get("environment") or {}).get("seconds")
        if took is not None:
            self.known.setdefault(cell.wanted.method, []).append(float(took))

    def of(self, cells: Sequence[Cell]) -> str:
        """Says how long runs will take; nothing where none is known yet."""
        every = [took for each in self.known.values() for took in each]
        if not every:
            return ""
        todo = [self.known.get(cell.wanted.method, every) for cell in cells if cell.state != "done"]
        minutes = sum(statistics.mean(each) for each in todo) / 60
        return f"; about {minutes:.0f} min left" if minutes >= 1 else "; less than a minute left"


def failure(cells: Sequence[Cell]) -> CcrError | None:
    """What is to be raised in the end: with exit code 3 where some runs are made, else with that of the first failure.

    Returns:
        Which runs are not made and why; None where all are.
    """
    failed = [cell for cell in cells if cell.error is not None]
    if not failed:
        return None
    shown = [("run", "why"), *((str(cell), cell.error.message.split("\n")[0]) for cell in failed if cell.error)]
    width = max(len(name) for name, _ in shown)
    table = "".join(f"\n  {name:{width}}  {why}" for name, why in shown)
    last = CcrError(
        f"{len(failed)} of {counted(len(cells), 'run')} of the sweep are not made:{table}",
        hint="mend the cause and give the same command again: what is made is not made twice",
    )
    first = failed[0].error
    last.exit_code = 3 if len(failed) < len(cells) or first is None else first.exit_code
    return last
