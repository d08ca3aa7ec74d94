"""Trackers: programs that show training curves as a run goes on. What they write is not part of an artifact.

trackio and wandb write on this machine, unless the user's environment variables send their logs elsewhere. After an
interruption they have the steps since the last save twice; TensorBoard's are removed first.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import sha256_text
from ccr_cli.errors import UnavailableError

Log = Callable[[dict[str, float], int], None]
"""Logs numbers by name, at a step counted from the start of training."""
Curves = Callable[[Mapping[str, Any], int], None]
"""Logs the numbers among nested figures, at a step counted as for `Log`; does nothing without a tracker."""


def _numbers(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


@contextmanager
def tracking(tracker: str | None, run: Path, request: Mapping[str, Any], done: int) -> Iterator[Curves]:
    """Opens a tracker for a run in a workspace, to continue after `done` steps.

    Raises:
        UnavailableError: If the tracker does not start, for example without an account that the environment requires.
    """
    if not tracker:
        yield lambda figures, step: None
        return
    with ExitStack() as stack:
        try:
            log = stack.enter_context(_TRACKERS[tracker](run, dict(request), done))
        except Exception as error:
            problem = f"{tracker} does not start: {type(error).__name__}: {error}"
            raise UnavailableError(problem, hint="leave --report-to out") from error
        yield lambda figures, step: log(dict(_numbers(figures)), step)


@contextmanager
def _tensorboard(run: Path, request: dict[str, Any], done: int) -> Iterator[Log]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run.parent.parent / "tensorboard" / run.name), purge_step=done + 1) as writer:

        def log(numbers: dict[str, float], step: int) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)

        yield log


@contextmanager
def _trackio(run: Path, request: dict[str, Any], done: int) -> Iterator[Log]:
    import trackio

    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    with redirect_stdout(sys.stderr):  # standard output is for paths
        opened = trackio.init(run.parent.parent.name, name=run.name, config=request, resume="allow", **quiet)
    try:
        yield lambda numbers, step: opened.log(numbers, step)
    finally:
        with redirect_stdout(sys.stderr):
            trackio.finish()  # opened.finish() would leave a second call for the process's end


@contextmanager
def _wandb(run: Path, request: dict[str, Any], done: int) -> Iterator[Log]:
    import wandb

    where = {"project": run.parent.parent.name, "name": run.name, "dir": run.parent.parent}
    mode: Any = os.environ.get("WANDB_MODE", "offline")
    same = {"id": sha256_text(str(run.absolute()))[:16], "resume": "allow"}
    settings = wandb.Settings(console="off", x_disable_stats=True)
    with wandb.init(**where, **same, config=request, mode=mode, settings=settings) as opened:
        yield lambda numbers, step: opened.log(numbers, step=step)


_TRACKERS = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}
