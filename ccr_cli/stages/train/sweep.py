"""A sweep: a grid of runs, planned before any is trained and then trained one after the other."""

import itertools
import math
import statistics
import time
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import Planned, in_work
from ccr_cli.console import counted, say
from ccr_cli.errors import (
    CcrError,
    LockedError,
    ResourceError,
    Terminated,
    UsageError,
    as_user_error,
    did_you_mean,
    no_share,
)
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import flag, typed
from ccr_cli.stages.shared.sharding import rank_and_size
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources, with_noise
from ccr_cli.stages.train.stage import train

FLAGS = {option.name: flag(option) for option in fields(TrainingOptions) if option.metadata.get("sweep")}
"""Options of `ccr train` that a sweep can vary, with their flags; options of the method can vary too."""
_FIELDS = {flag.lstrip("-").replace("-", "_"): name for name, flag in FLAGS.items()}
POLL_SECONDS = 2.0
"""Seconds between checks whether another process has finished a run."""


@dataclass(eq=False)
class SweepCell:
    """One run of a sweep."""

    values: Mapping[str, str]
    """The value of each swept key, as given."""
    options: TrainingOptions
    plan: Planned | None = None
    """The run's plan, once known."""
    parents: list[base.Artifact] = field(default_factory=list)
    """The artifacts that the run was trained on."""
    run: base.Artifact | None = None
    error: CcrError | None = None
    """Why there is no run."""
    seconds: float | None = None
    """How long training took, if known."""

    @property
    def state(self) -> str:
        """State before the sweep: `done`, `unfinished` or `to do`; `refused` where the run is impossible."""
        return "refused" if self.plan is None else self.plan.state

    def timed(self, run: base.Artifact) -> None:
        """Records how long the finished run took."""
        self.seconds = run.environment.get("seconds")

    def arguments(self) -> list[str]:
        """The options with which `ccr train` trains this run alone."""
        words = []
        for key, text in self.values.items():
            if key not in FLAGS:
                words += ["--set", f"{key}={text}"]
            elif getattr(self.options, key) is not None:
                words += [FLAGS[key], text]
        return words

    def __str__(self) -> str:
        return " ".join(f"{_dashed(key)}={text}" for key, text in self.values.items())


def _dashed(key: str) -> str:
    """A key as typed on the command line: `noise-seed` of a flag, but `text_encoder` of `--set`."""
    return FLAGS[key].lstrip("-") if key in FLAGS else key


def read_axes(texts: Sequence[str], fixed: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Reads the values of each key from `KEY=VALUE,VALUE,...`.

    Raises:
        UsageError: If a text has another form, a key or a value appears twice, or a key is among `fixed`: options with
            one value for all runs, with their flags.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        key, values = name.strip().replace("-", "_"), [value.strip() for value in rest.split(",")]
        key = _FIELDS.get(key, key)
        if not key or not all(values):
            hint = "--sweep noise=0,0.4 --sweep seed=0,1,2"
            raise UsageError(f"--sweep {text}: expected KEY=VALUE,VALUE,... and no empty value", hint=hint)
        also = "another --sweep" if key in axes else (fixed or {}).get(key)
        if also:
            raise UsageError(f"--sweep {text} and {also} set the same option", hint=f"set {_dashed(key)} once")
        twice = [value for i, value in enumerate(values) if value in values[:i]]
        if twice:
            raise UsageError(f"--sweep {text}: the value {twice[0]} appears twice", hint="give each value once")
        axes[key] = values
    return axes


def grid(options: TrainingOptions, axes: Mapping[str, Sequence[str]]) -> list[SweepCell]:
    """The runs of a sweep: the product of the values of all keys, the last key varying fastest.

    Raises:
        UsageError: If a key is neither in `FLAGS` nor an option of the method, or a value or option is not allowed.
    """
    if rank_and_size()[1] > 1:
        raise UsageError(
            "a sweep does not run under torchrun",
            hint="start the same sweep several times, one process a GPU, or give each process a part: --shard 1/4",
        )
    if options.name is not None:
        raise UsageError(f"--name {options.name} names one run, and a sweep makes several", hint="leave --name out")
    methods = axes.get("method") or [options.method]
    configs = [registry.load("methods", method).Config for method in methods]
    keys = {option.name for config in configs for option in fields(config)}
    for key in axes:
        if key not in FLAGS and key not in keys:
            known = f"{', '.join(map(_dashed, FLAGS))}; options of {', '.join(methods)}: {', '.join(sorted(keys))}"
            meant = did_you_mean(key, [*map(_dashed, FLAGS), *keys])
            raise UsageError(f"--sweep has no key {key!r}", hint=f"{meant}keys: {known}")
    products = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [SweepCell(values, _varied(options, values)) for values in products]


def _varied(options: TrainingOptions, values: Mapping[str, str]) -> TrainingOptions:
    hints = typing.get_type_hints(TrainingOptions)
    changed: dict[str, Any] = {}
    for key in (key for key in values if key in FLAGS):
        try:
            changed[key] = typed(values[key], hints[key])
            if key == "noise" and changed[key] is not None and not 0 <= changed[key] <= 1:
                raise no_share("--sweep noise=", changed[key])
            if isinstance(changed[key], int | float) and not 0 <= changed[key] < math.inf:
                raise ValueError("expected a number from 0")
        except ValueError as error:
            hint = "commas between values: --sweep noise=0,0.4 --sweep seed=0,1,2"
            raise UsageError(f"--sweep {_dashed(key)}={values[key]}: {error}", hint) from None
    settings = {key: text for key, text in values.items() if key not in FLAGS}
    varied = replace(options, **changed, settings={**options.settings, **settings})
    varied.check()
    return varied


def plan(inputs: Inputs, cells: Sequence[SweepCell]) -> list[Planned]:
    """Plans each run of a sweep, or records why it is impossible; writes nothing.

    An impossible combination does not stop the others; a value with which no run at all is possible is an error.
    Returns the plans of all artifacts to build, noise before runs.

    Raises:
        CcrError: If all runs with some value fail: the error of the first of them.
        UsageError: If two cells are the same run.
    """
    rehearsal = inputs.workspace.rehearsal()
    drawn: dict[tuple[Any, ...], base.Artifact | None] = {}

    def once(aside: Inputs, sources: Sources, options: TrainingOptions) -> Sources:
        """Plans the drawing of a missing mismatch once for all runs that share it."""
        mismatch = (options.noise, options.noise_style, options.noise_target, options.noise_seed, options.seed)
        key = (sources.data.id, not sources.translated, *mismatch)
        if key not in drawn:
            drawn[key] = with_noise(aside, sources, options).noise
        return replace(sources, noise=drawn[key])

    for cell in cells:
        try:
            train(replace(inputs, workspace=rehearsal, read=[]), cell.options, once)
        except Planned as planned:
            planned.facts["sweep"] = dict(cell.values)
            cell.plan = planned
        except CcrError as error:
            cell.error = error
    for key, value in dict.fromkeys(pair for cell in cells for pair in cell.values.items()):
        errors = [cell.error for cell in cells if cell.values[key] == value]
        if all(errors) and errors[0]:
            raise errors[0]
    first: dict[str, SweepCell] = {}
    for cell in cells:
        if cell.plan and (other := first.setdefault(str(cell.plan.path), cell)) is not cell:
            raise UsageError(
                f"{other} and {cell} would be one run, {cell.plan.path.name}",
                hint="leave one out: train a part of the grid with a separate command",
            )
    return rehearsal.planned


def train_cells(
    inputs: Inputs, cells: Sequence[SweepCell], work: Callable[[Inputs, SweepCell], base.Artifact]
) -> Iterator[SweepCell]:
    """Trains the runs of a planned grid, one after the other.

    An error stops one run, not the others: it is reported and recorded. A run that another process is training is
    skipped; once the others are done, this waits for it, or resumes it if that process has stopped. `work` trains one
    run; each cell is yielded as soon as its run is trained.

    Raises:
        OSError: If the disk is full, which affects all runs.
    """
    queue, waiting = [cell for cell in cells if cell.error is None], False
    for cell in queue:
        if cell.plan and cell.state == "done":
            cell.timed(base.load(cell.plan.path))
    try:
        while queue:
            later: list[SweepCell] = []
            for position, cell in enumerate(queue):
                assert cell.plan is not None
                if waiting and in_work(cell.plan.path):
                    later.append(cell)
                    continue
                if cell.state != "done":
                    left = _time_left(cells, [*queue[position:], *later])
                    say(f"[{cells.index(cell) + 1}/{len(cells)}] {cell}{left}", style="bold")
                cell_inputs = replace(inputs, read=[])
                try:
                    cell.run = work(cell_inputs, cell)
                except LockedError as error:
                    say(f"  {error.message}")
                    cell.options = replace(cell.options, force=False)  # the process that has it rebuilds it
                    later.append(cell)
                    continue
                except Exception as error:  # one failed run does not stop the others
                    cell.error = _recorded(error)
                    hint = f"\n  try: {cell.error.hint}" if cell.error.hint else ""
                    say(f"error: {cell}: {cell.error.message}{hint}", level=-1, style="bold red")
                    continue
                cell.parents = cell_inputs.read
                if cell.state != "done":
                    cell.timed(cell.run)
                yield cell
            if later and not waiting:
                say(f"waiting for {counted(len(later), 'run')} that other processes are training")
            elif len(later) == len(queue):
                time.sleep(POLL_SECONDS)
            queue, waiting = later, True
    except (KeyboardInterrupt, Terminated):
        trained = sum(cell.run is not None for cell in cells)
        say(f"{trained} of {counted(len(cells), 'run')} of the sweep are trained", level=-1)
        raise


def _recorded(error: Exception) -> CcrError:
    """The error to record, without its traceback, whose frames keep the model in memory.

    Raises:
        OSError: If it affects all runs: the disk is full, or standard output is closed.
    """
    known = error if isinstance(error, CcrError) else as_user_error(error)
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and isinstance(known, ResourceError)):
        raise error
    known = known or registry.own_failure(error)
    if known is None:
        say("".join(traceback.format_exception(error)), level=-1)
        known = CcrError(f"{type(error).__name__}: {error}")
    known.__traceback__ = known.__context__ = known.__cause__ = None
    return known


def _time_left(cells: Sequence[SweepCell], todo: Sequence[SweepCell]) -> str:
    """The estimated time left, in words, from finished runs (of the same method, if any); empty before one finishes."""
    finished = [cell for cell in cells if cell.seconds is not None]
    if not finished:
        return ""
    minutes = 0.0
    for cell in todo:
        if cell.state != "done":
            same = [other for other in finished if other.options.method == cell.options.method]
            minutes += statistics.mean(float(other.seconds or 0) for other in same or finished) / 60
    return f"; about {minutes:.0f} min left" if minutes >= 1 else "; less than a minute left"


def failure(cells: Sequence[SweepCell]) -> CcrError | None:
    """The error that ends a sweep and lists the missing runs; None if all are trained.

    Its exit code is 3 if some runs are trained, else that of the first failure.
    """
    failed = [(cell, cell.error) for cell in cells if cell.error is not None]
    if not failed:
        return None
    rows = [("run", "why"), *((str(cell), error.message.split("\n")[0]) for cell, error in failed)]
    width = max(len(name) for name, _ in rows)
    table = "".join(f"\n  {name:{width}}  {why}" for name, why in rows)
    summary = CcrError(
        f"{len(failed)} of {counted(len(cells), 'run')} of the sweep are not trained:{table}",
        hint="fix the cause and repeat the command: finished runs are kept",
    )
    summary.exit_code = 3 if len(failed) < len(cells) else failed[0][1].exit_code
    return summary
