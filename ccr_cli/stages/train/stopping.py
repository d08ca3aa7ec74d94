"""SIGINT and SIGTERM while work is in hand: it is saved first, and a second signal stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ccr_cli.console import say
from ccr_cli.errors import Terminated

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a signal has come."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.asked: int | None = None


def heed(number: int | None) -> None:
    """Ends the process as the signal would have, if one has come.

    Args:
        number: What `Stop.asked` was when the work that is saved by now was done: it may have changed since.

    Raises:
        KeyboardInterrupt: On SIGINT.
        Terminated: On SIGTERM.
    """
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGTERM:
        raise Terminated


@contextmanager
def stoppable(what: str, aloud: bool = True) -> Iterator[Stop]:
    """Holds the first signal back until the work asks for it; the second acts as signals did before.

    Args:
        what: What is done first, for the message, e.g. `after this step`.
        aloud: Whether to say so.

    Yields:
        What the work asks, whenever it could stop.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield stop
        return
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        stop.asked = number
        _back(before)
        if aloud:
            say(f"stopping {what}; the same signal again stops at once", level=-1)

    for each in _SIGNALS:
        before[each] = signal.signal(each, note)
    try:
        yield stop
    finally:
        _back(before)


def _back(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
