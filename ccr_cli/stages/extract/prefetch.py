"""Reading in threads, ahead of whoever encodes: in order, and never more than fits.

Threads, not processes: FFmpeg and Pillow decode and resize without holding the interpreter's lock, and nothing has to
be copied from one process to another (docs/decisions.md). Each of them computes on one processor.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Generic, TypeVar

import torch

PATIENCE = 5.0
"""Seconds that threads get to finish what they are at when nobody takes any more."""
M = TypeVar("M")
T = TypeVar("T")


@dataclass(frozen=True)
class End(Generic[T]):
    """No more parts of a task; what its generator returned, or raised."""

    result: T | None = None
    error: Exception | None = None


class _StoppedError(Exception):
    """Nobody takes any more."""


class Ahead(Generic[M, T]):
    """Runs generators in threads and gives what they yield, task by task in the order of the tasks.

    No more than `most` parts wait at a time: a thread whose task is not the first to be taken from waits until there is
    room; that of the first task has room for one part always, so that the work never stands still.

    Args:
        tasks: What to run; each is asked for when it is begun.
        run: Makes the generator of a task.
        workers: Threads.
        most: Parts that may wait, and tasks that may be begun.
    """

    def __init__(self, tasks: Iterable[M], run: Callable[[M], Iterator[T]], *, workers: int, most: int) -> None:
        self._tasks, self._run, self._most = iter(tasks), run, most
        self._changed = Condition()
        self._parts: dict[int, deque[T | End[object]]] = {}
        self._begun = self._first = self._waiting = 0
        self._stopped = self._exhausted = False
        self._error: Exception | None = None
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]

    def __iter__(self) -> Iterator[tuple[int, T | End[object]]]:
        """Yields the number of a task and a part of it, and at last its `End`."""
        for thread in self._threads:
            thread.start()
        try:
            number = 0
            while taken := self._take(number):
                for part in taken:
                    yield number, part
                number += isinstance(taken[-1], End)
        finally:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            end = time.monotonic() + PATIENCE
            for thread in self._threads:  # one that hangs in a file that gives nothing ends with the process
                thread.join(max(0.0, end - time.monotonic()))
            torch.set_num_threads(torch.get_num_threads())  # the workers' setting is the default of new threads

    def _take(self, number: int) -> list[T | End[object]]:
        """All that waits of a task, at least one part; nothing where there is no such task."""
        with self._changed:
            self._first = number
            self._changed.notify_all()
            while not (parts := self._parts.get(number)):
                if self._exhausted and number >= self._begun:
                    if self._error is not None:
                        raise self._error
                    return []
                self._changed.wait()
            taken = list(parts)
            parts.clear()
            self._waiting -= len(taken)
            if isinstance(taken[-1], End):
                del self._parts[number]
            self._changed.notify_all()
            return taken

    def _work(self) -> None:
        torch.set_num_threads(1)  # of this thread; else each would start as many as there are processors
        while (begun := self._begin()) is not None:
            number, task = begun
            end: End[object]
            try:
                end = End(result=self._all_of(number, task))
            except _StoppedError:
                return
            except Exception as error:
                end = End(error=error)
            try:
                self._put(number, end)
            except _StoppedError:
                return

    def _begin(self) -> tuple[int, M] | None:
        with self._changed:
            while self._begun - self._first >= self._most and not self._stopped:
                self._changed.wait()
            if self._stopped or self._exhausted:
                return None
            try:
                task = next(self._tasks)
            except Exception as error:
                self._exhausted = True
                self._error = None if isinstance(error, StopIteration) else error
                self._changed.notify_all()
                return None
            self._begun += 1
            self._parts[self._begun - 1] = deque()
            return self._begun - 1, task

    def _all_of(self, number: int, task: M) -> object:
        parts = self._run(task)
        while True:
            try:
                part = next(parts)
            except StopIteration as stop:
                return stop.value
            self._put(number, part)

    def _put(self, number: int, part: T | End[object]) -> None:
        with self._changed:
            parts = self._parts[number]
            while not self._stopped and self._waiting >= self._most and (parts or number != self._first):
                self._changed.wait()
            if self._stopped:
                raise _StoppedError
            parts.append(part)
            self._waiting += 1
            if number == self._first:
                self._changed.notify_all()
