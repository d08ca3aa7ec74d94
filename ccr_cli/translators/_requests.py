"""Asking a provider for many texts at once: threads, pace, retries, and when to give up.

Nothing here knows what a request looks like; `_web.py` does.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal

Ask = Callable[[str], str]
"""Translates one text; raises Failure."""

_LONGEST_BACKOFF = 60.0


class Failure(Exception):
    """Why a request brought no translation, in words that may be shown: free of keys and of texts of others.

    Args:
        message: A few words.
        kind: `passing`: worth another try. `busy`: likewise, but all shall wait. `unreachable`: no connection.
            `refused`: this text fails, others may not. `unsent`: likewise, and nobody was asked. `final`: there is
            no use in going on.
        retry_after: Seconds after which the provider wants to be asked again.
    """

    def __init__(
        self,
        message: str,
        kind: Literal["passing", "busy", "unreachable", "refused", "unsent", "final"] = "passing",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class GaveUp(Exception):
    """The provider is not asked any more.

    Args:
        last: The failure that decided it.
        in_a_row: How many requests had failed one after the other.
    """

    def __init__(self, last: Failure, in_a_row: int) -> None:
        super().__init__(str(last))
        self.last = last
        self.in_a_row = in_a_row


@dataclass(frozen=True)
class Patience:
    """How fast and how patiently a provider is asked."""

    workers: int
    """Requests under way at once."""
    rate: float
    """Requests a second, at most."""
    retries: int
    """Further tries of a text."""
    backoff: float
    """Seconds before the second try; doubled before each further one."""
    max_wait: float
    """Longest wait in seconds that the provider may ask for."""
    breaker: int
    """Failed requests in a row after which the provider is given up; refused texts are none."""


class TokenBucket:
    """Lets `rate` requests through a second; it holds one token, so that they are spread and not bunched.

    Args:
        rate: Tokens a second.
        clock: Seconds, never going back.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / rate
        self._clock = clock
        self._next = clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Takes the token and returns 0; or, where there is none, returns after how many seconds to ask again."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                return self._next - now
            self._next = now + self._interval
            return 0.0

    def pause(self, seconds: float) -> None:
        """Gives no token for that long."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


def backoff(attempt: int, first: float, chance: float) -> float:
    """Seconds to wait before the next try: doubled each time, up to a minute, less a random part of up to half.

    Args:
        attempt: How many tries there were, from 1.
        first: Seconds after the first of them.
        chance: Of [0, 1).
    """
    return min(_LONGEST_BACKOFF, first * 2.0 ** min(attempt - 1, 32)) * (1.0 - chance / 2.0)


class Crowd:
    """Several threads that ask one provider.

    The pace is kept from call to call, and so is whether the provider has ever answered.

    Args:
        patience: How fast and how patiently.
        connect: Makes what one thread asks with; entered and left in that thread.
    """

    def __init__(self, patience: Patience, connect: Callable[[], AbstractContextManager[Ask]]) -> None:
        self.patience = patience
        self.connect = connect
        self.bucket = TokenBucket(patience.rate)
        self.answered = False

    def ask(self, texts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str | Failure]]:
        """Yields (position, translation or failure) as results come.

        Raises:
            GaveUp: After everything that still came was yielded.
        """
        return _Call(self, texts).results()


class _Call:
    """One call: its texts, its threads, and the failures in a row."""

    def __init__(self, crowd: Crowd, texts: Iterable[tuple[int, str]]) -> None:
        self._crowd, self._patience = crowd, crowd.patience
        self._todo: SimpleQueue[tuple[int, str]] = SimpleQueue()
        for text in texts:
            self._todo.put(text)
        self._results: SimpleQueue[tuple[int, str | Failure] | None] = SimpleQueue()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._end: Exception | None = None

    def results(self) -> Iterator[tuple[int, str | Failure]]:
        """Starts the threads and yields what they bring. They are daemons: whoever leaves need not wait for them."""
        threads = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(self._patience.workers, self._todo.qsize()))
        ]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                result = self._results.get()
                if result is None:
                    running -= 1
                else:
                    yield result
        finally:
            self._stop.set()
        if self._end is not None:
            raise self._end

    def _work(self) -> None:
        try:
            with self._crowd.connect() as ask:
                while not self._stop.is_set():
                    try:
                        position, text = self._todo.get_nowait()
                    except Empty:
                        break
                    result = self._translate(ask, text)
                    if result is not None:
                        self._results.put((position, result))
        except Exception as error:  # a defect of ours: it is raised where it is seen
            self._give_up(error)
        finally:
            self._results.put(None)

    def _translate(self, ask: Ask, text: str) -> str | Failure | None:
        """What becomes of a text; None where the call ends before that is known."""
        attempt = 0
        while True:
            while (wait := self._crowd.bucket.take()) > 0:
                if self._stop.wait(wait):
                    return None
            if self._stop.is_set():
                return None
            attempt += 1
            try:
                found = ask(text)
            except Failure as error:
                failure = error
            else:
                self._worked()
                return found
            if self._hopeless(failure):
                return None
            asked = failure.retry_after
            delay = backoff(attempt, self._patience.backoff, random.random()) if asked is None else asked
            if failure.kind == "busy":
                self._crowd.bucket.pause(delay)
            if failure.kind in ("refused", "unsent") or attempt > self._patience.retries:
                return failure
            if failure.kind != "busy" and self._stop.wait(delay):
                return None

    def _worked(self) -> None:
        with self._lock:
            self._crowd.answered = True
            self._in_a_row = 0

    def _hopeless(self, failure: Failure) -> bool:
        """Counts a failure, and gives up where it is one too many; what lies with the text alone does not count."""
        if failure.kind == "unsent":
            return False
        if failure.kind == "refused":
            self._crowd.answered = True
            return False
        with self._lock:
            self._in_a_row += 1
            hopeless = (
                failure.kind == "final"
                or (failure.kind == "unreachable" and not self._crowd.answered)
                or (failure.retry_after or 0.0) > self._patience.max_wait
                or self._in_a_row >= self._patience.breaker
            )
            if failure.kind != "unreachable":
                self._crowd.answered = True
            end = GaveUp(failure, self._in_a_row)
        if hopeless:
            self._give_up(end)
        return hopeless

    def _give_up(self, end: Exception) -> None:
        with self._lock:
            self._end = self._end or end
        self._stop.set()
