"""Curves of training while it goes on, for those who watch them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ccr_cli.errors import UnavailableError, UsageError

TRACKERS = ("tensorboard",)


class Tracker(Protocol):
    """Takes figures by name."""

    def log(self, figures: Mapping[str, Any], step: int) -> None:
        """Notes figures of a step, counted from the beginning of training; what is no number is passed over."""


class _Silent:
    def log(self, figures: Mapping[str, Any], step: int) -> None:
        return


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def log(self, figures: Mapping[str, Any], step: int) -> None:
        for name, value in _flat(figures):
            self.writer.add_scalar(name, value, step)


def refuse_unknown(report_to: str | None) -> None:
    """Looks before anything is trained.

    Raises:
        UsageError: If there is no such tracker.
        UnavailableError: If its package is not installed.
    """
    if report_to is None:
        return
    if report_to not in TRACKERS:
        raise UsageError(f"--report-to is {' or '.join(TRACKERS)}, not {report_to!r}")
    if find_spec("tensorboard") is None:
        raise UnavailableError("TensorBoard is not installed", hint="pip install 'ccr-cli[track]'")


@contextmanager
def tracker(report_to: str | None, folder: Path, done: int) -> Iterator[Tracker]:
    """Opens a tracker.

    Args:
        report_to: Its name; None: none.
        folder: Where a tracker of files writes; apart from the run, whose files are what was asked for.
        done: Steps that were done before; what an earlier attempt noted of later ones is withdrawn.
    """
    if report_to is None:
        yield _Silent()
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=done + 1) as writer:
        yield _TensorBoard(writer)


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)
