"""A grid of runs: which they are, and what is known of each before any is made."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import Planned
from ccr_cli.errors import CcrError, UsageError, no_share
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import typed
from ccr_cli.stages.shared.sharding import rank_and_size
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.stage import Wanted, make, mismatched

FLAGS = (
    "noise",
    "seed",
    "method",
    "lang",
    "langs",
    "preset",
    "noise_style",
    "noise_target",
    "noise_seed",
    "select_on",
    "dtype",
)
"""Fields of `Wanted` that can be swept, beside the options of the method."""
_SHARES = ("noise",)


@dataclass(eq=False)
class Cell:
    """One run of a sweep."""

    values: Mapping[str, str]
    """Its value of each key, as given."""
    wanted: Wanted
    plan: Planned | None = None
    """What it is, once that is known."""
    read: list[base.Artifact] = field(default_factory=list)
    """What it was made from."""
    made: base.Artifact | None = None
    error: CcrError | None = None
    """Why it is not made."""

    @property
    def state(self) -> str:
        """`done`, `unfinished` or `to do`, as it was before the sweep; `refused` where it can not be made."""
        return "refused" if self.plan is None else self.plan.state

    def arguments(self) -> list[str]:
        """The options that ask `ccr train` for it."""
        words = []
        for key, text in self.values.items():
            if key not in FLAGS:
                words += ["--set", f"{key}={text}"]
            elif getattr(self.wanted, key) is not None:
                words += [flag(key), text]
        return words

    def __str__(self) -> str:
        return " ".join(f"{_shown(key)}={text}" for key, text in self.values.items())


def flag(key: str) -> str:
    """The option of the command line of a field: `--noise-seed`."""
    return f"--{_shown(key)}"


def _shown(key: str) -> str:
    return key.replace("_", "-") if key in FLAGS else key


def read_axes(texts: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Reads `KEY=VALUE,VALUE,...`, one for each key.

    Args:
        texts: As they were given.
        given: Options that have one value already, by key, and how they were given.

    Returns:
        The values of each key.

    Raises:
        UsageError: If one is not of that form, or a key or a value is given twice.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        key, values = name.strip().replace("-", "_"), [value.strip() for value in rest.split(",")]
        if not key or not all(values):
            hint = "--sweep noise=0,0.4 --sweep seed=0,1,2"
            raise UsageError(f"--sweep {text}: expected KEY=VALUE,VALUE,... and no empty value", hint=hint)
        also = "another --sweep" if key in axes else (given or {}).get(key)
        if also:
            raise UsageError(
                f"--sweep {text} and {also} are two answers to one question", hint=f"give {_shown(key)} once"
            )
        twice = [value for i, value in enumerate(values) if value in values[:i]]
        if twice:
            raise UsageError(f"--sweep {text}: {twice[0]} is there twice", hint="give each value once")
        axes[key] = values
    return axes


def grid(wanted: Wanted, axes: Mapping[str, Sequence[str]]) -> list[Cell]:
    """The runs of a sweep: the product of the values, the last key varying fastest.

    Args:
        wanted: What all have in common.
        axes: The values of each key: a name of `FLAGS`, or an option of the method.

    Raises:
        UsageError: If a key is unknown, or a value is not of its type.
    """
    if rank_and_size()[1] > 1:
        raise UsageError(
            "a sweep does not run under torchrun",
            hint="start the same sweep several times, one process a GPU, or give each process a part: --shard 1/4",
        )
    if wanted.name is not None:
        raise UsageError(f"--name {wanted.name} names one run, and a sweep makes several", hint="leave --name out")
    methods = axes.get("method") or [wanted.method]
    configs = [registry.load("methods", method).Config for method in methods]
    options = {each.name for config in configs for each in fields(config)}
    for key in axes:
        if key not in FLAGS and key not in options:
            known = f"{', '.join(map(_shown, FLAGS))}; options of {', '.join(methods)}: {', '.join(sorted(options))}"
            raise UsageError(f"--sweep has no key {key!r}", hint=f"keys: {known}")
    return [
        Cell(values, _varied(wanted, values))
        for chosen in itertools.product(*axes.values())
        for values in [dict(zip(axes, chosen, strict=True))]
    ]


def _varied(wanted: Wanted, values: Mapping[str, str]) -> Wanted:
    hints = typing.get_type_hints(Wanted)
    changed: dict[str, Any] = {}
    for key in (key for key in values if key in FLAGS):
        try:
            changed[key] = typed(values[key], hints[key])
            if key in _SHARES and changed[key] is not None and not 0 <= changed[key] <= 1:
                raise no_share(f"--sweep {_shown(key)}=", changed[key])
            if isinstance(changed[key], int | float) and not 0 <= changed[key] < math.inf:
                raise ValueError("expected a number from 0")
        except ValueError as error:
            raise UsageError(f"--sweep {_shown(key)}={values[key]}: {error}") from None
    options = {key: text for key, text in values.items() if key not in FLAGS}
    return replace(wanted, **changed, options={**wanted.options, **options})


def plan(inputs: Inputs, cells: Sequence[Cell]) -> list[Planned]:
    """Finds out what each run is called and how far it is, or why it cannot be made; nothing is written.

    A combination that cannot be is noted, and does not stop the others. What no run with some value can be made of is
    a mistake, and refused.

    Args:
        inputs: Where to look.
        cells: The whole grid.

    Returns:
        The plans of all that would be built, noise before the runs.

    Raises:
        CcrError: If all runs with some value fail, as the first of them does.
        UsageError: If two would be one run.
    """
    rehearsal = inputs.workspace.rehearsal()
    drawn: dict[tuple[Any, ...], base.Artifact | None] = {}

    def once(aside: Inputs, sources: Sources, wanted: Wanted) -> Sources:
        """A mismatch that is not there yet is drawn only to know it, so one draw must do for all runs with it."""
        mismatch = (wanted.noise, wanted.noise_style, wanted.noise_target, wanted.noise_seed, wanted.seed)
        key = (sources.data.id, not sources.translated, *mismatch)
        if key not in drawn:
            drawn[key] = mismatched(aside, sources, wanted).noise
        return replace(sources, noise=drawn[key])

    for cell in cells:
        try:
            make(replace(inputs, workspace=rehearsal, read=[]), cell.wanted, once)
        except Planned as planned:
            planned.facts["sweep"] = dict(cell.values)
            cell.plan = planned
        except CcrError as error:
            cell.error = error
    _refuse_useless(cells)
    _refuse_same(cells)
    return rehearsal.planned


def _refuse_useless(cells: Sequence[Cell]) -> None:
    for key, value in dict.fromkeys(pair for cell in cells for pair in cell.values.items()):
        errors = [cell.error for cell in cells if cell.values[key] == value]
        if all(errors) and errors[0]:
            raise errors[0]


def _refuse_same(cells: Sequence[Cell]) -> None:
    first: dict[str, Cell] = {}
    for cell in cells:
        if cell.plan is None:
            continue
        other = first.setdefault(str(cell.plan.path), cell)
        if other is not cell:
            raise UsageError(
                f"{other} and {cell} would be one run, {cell.plan.path.name}",
                hint="leave one of the two out, by making a part of the grid in a call of its own",
            )
