"""Stop signals that take effect only where the work can stop cleanly."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ccr_cli.console import say
from ccr_cli.errors import Terminated


@contextmanager
def stop_signals(message: str = "") -> Iterator[list[int]]:
    """Records the first SIGINT or SIGTERM in a list, and prints the message; a second one acts at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield received
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()
        if message:
            say(message, level=-1)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, record)
    try:
        yield received
    finally:
        restore()


def end_on(signal_number: int | None) -> None:
    """Raises KeyboardInterrupt or Terminated, as the signal would have; does nothing without a signal."""
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    if signal_number == signal.SIGTERM:
        raise Terminated
