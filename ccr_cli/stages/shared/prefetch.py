"""Reading ahead in threads: results come in order, and only a limited number of them wait at a time.

Threads, not processes: FFmpeg and Pillow decode and resize without the interpreter's lock, and nothing has to be copied
between processes (docs/decisions.md). Each thread computes on one processor.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Generic, TypeVar

import torch

PATIENCE = 5.0
"""Seconds that threads get to finish once results are no longer read."""
MOST_WORKERS = 16
M = TypeVar("M")
T = TypeVar("T")


def decoding_threads(device: torch.device) -> int:
    """Returns how many threads should decode: half of the processors, at least two, if the encoder needs them too."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return min(MOST_WORKERS, processors if device.type == "cuda" else max(2, processors // 2))


@dataclass(frozen=True)
class End(Generic[T]):
    """The end of a task: what its generator returned or raised."""

    result: T | None = None
    error: Exception | None = None


class _StoppedError(Exception):
    """Results are no longer read."""


class Prefetch(Generic[M, T]):
    """Runs generators in threads and yields their parts, task by task in the order of the tasks.

    At most `most` parts wait at a time, and at most as many tasks are in progress. The first task always has room for
    one part, so the work never stalls.
    """

    def __init__(self, tasks: Sequence[M], run: Callable[[M], Iterator[T]], *, workers: int, most: int) -> None:
        self._tasks, self._run, self._most = tasks, run, most
        self._changed = Condition()
        self._parts: dict[int, deque[T | End[object]]] = {}
        self._begun = self._first = self._waiting = 0
        self._stopped = False
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]

    def __iter__(self) -> Iterator[tuple[int, T | End[object]]]:
        """Yields a task's number with each of its parts, and with its `End`."""
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
            for thread in self._threads:  # one that hangs in a broken file ends with the process
                thread.join(max(0.0, end - time.monotonic()))
            torch.set_num_threads(torch.get_num_threads())  # the workers' setting is the default of new threads

    def _take(self, number: int) -> list[T | End[object]]:
        """The waiting parts of a task, at least one; empty if there is no such task."""
        with self._changed:
            self._first = number
            self._changed.notify_all()
            while not (parts := self._parts.get(number)):
                if number == len(self._tasks):
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
        torch.set_num_threads(1)  # for this thread; else each would start one per processor
        with suppress(_StoppedError):
            while (number := self._begin()) < len(self._tasks):
                end: End[object]
                try:
                    end = End(result=self._all_of(number, self._run(self._tasks[number])))
                except _StoppedError:
                    raise
                except Exception as error:
                    end = End(error=error)
                self._put(number, end)

    def _begin(self) -> int:
        """The number of the next task to begin, which may not exist."""
        with self._changed:
            while self._begun - self._first >= self._most and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise _StoppedError
            self._parts[self._begun] = deque()
            self._begun += 1
            return self._begun - 1

    def _all_of(self, number: int, parts: Iterator[T]) -> object:
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
