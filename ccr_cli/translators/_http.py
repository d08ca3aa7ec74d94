"""The HTTP client of all engines on the network: time limits, pace, retries, a circuit breaker and safe messages.

A request ends within its timeout, whatever the server does. Redirects are not followed, so that texts and keys reach
only the configured server; no cookie and no password of ~/.netrc is sent. Every failure becomes a `Failure`, whose
message holds no key, no text of another request and no URL query.
"""

import email.utils
import http.client
import itertools
import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from queue import Empty, SimpleQueue
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

import requests
import requests.adapters
import urllib3

from ccr_cli import hub
from ccr_cli.errors import UnavailableError, redact

_CONNECT_SECONDS = 5.0
_LONGEST_BACKOFF = 60.0
_LARGEST_REPLY = 4 * 1024 * 1024
_FATAL = {401, 402, 403, 404, 405, 410, 451, 456}
"""Status codes for a wrong key or address, or for a used-up quota (456 is DeepL's)."""
_REJECTED = {400, 413, 414, 422, 431}
_FATAL_WORDS = re.compile(r"(?i)\bapi.?key\b|\bnot supported\b")
"""Some servers answer a wrong key or an unknown language with 400, which otherwise means a bad text."""
_BUSY = {429, 503, 529}
_MESSAGE_KEYS = ("message", "error", "error_msg", "errorMessage", "responseDetails", "detail")
_RESUME = "the same command continues where it stopped"
T = TypeVar("T")
R = TypeVar("R")


class Failure(Exception):
    """A failed request; its message contains no key and is safe to show.

    `kind` is `temporary` (worth another attempt), `busy` (the same, after a pause of all threads), `unreachable` (no
    connection), `rejected` (this text fails, others may work), `unsent` (the same, and nothing was sent) or `fatal`
    (every further request would fail).
    """

    in_a_row = 0
    """Number of consecutive failed requests up to this one."""

    def __init__(
        self,
        message: str,
        kind: Literal["temporary", "busy", "unreachable", "rejected", "unsent", "fatal"] = "temporary",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        """Seconds that the server asks to wait before the next request; None if it does not say."""


@dataclass(frozen=True)
class Limits:
    """Options of a network engine: request rate, timeout and retries.

    The engine's `identity` records their defaults, so changing a default changes the ids of translations.
    """

    workers: int = 4
    """Number of requests in flight."""

    rate: float = 5.0
    """Largest number of requests per second."""

    timeout: float = 30.0
    """Timeout of a request in seconds."""

    retries: int = 5
    """Number of further attempts per caption."""

    backoff: float = 0.5
    """Seconds before the second attempt; doubled for each further one, minus a random part of up to half."""

    max_wait: float = 300.0
    """Longest wait in seconds that the provider may ask for; a longer one ends the command."""

    breaker: int = 30
    """Number of consecutive failed requests that ends the command; captions that the provider rejects do not count."""

    def __post_init__(self) -> None:
        if min(self.workers, self.breaker) < 1 or self.retries < 0:
            raise ValueError("workers and breaker must be at least 1, retries at least 0")
        if min(self.rate, self.timeout) <= 0 or min(self.backoff, self.max_wait) < 0:
            raise ValueError("rate and timeout must be greater than 0, backoff and max_wait at least 0")
        if self.breaker <= self.retries:
            raise ValueError("breaker must be greater than retries, else one bad caption ends the command")


def check_address(url: str, example: str, variables: str) -> None:
    """Raises ValueError unless a URL is a plain server address; keys belong in the environment (`variables`)."""
    if any(mark in url for mark in "@?#"):
        raise ValueError(f"url has no user, password or query: keys come from the environment ({variables})")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"url must be the address of a server, such as {example}")


def environment_key(variable: str) -> str:
    """Reads a key from the environment, "" if it is not set; UnavailableError if it has characters that no key has."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UnavailableError(f"{variable} holds characters that no key has", f"export {variable}=...")
    return key


def outage(last: "Failure", server: str, translated: int, limits: "Limits", url: str, remedy: str) -> UnavailableError:
    """Builds the error for when `Client.map` gives up: what happened, what is kept, and what to type.

    `url` is the address of a user's own server, "" for a service; `remedy` is the hint if the server refuses requests.
    """
    kept = f"{translated} translated captions are kept" if translated else "nothing is translated yet"
    if last.kind == "unreachable" and last.in_a_row == 1:
        question = f"is the server running at {url}?" if url else "is there a network?"
        return UnavailableError(f"{server} cannot be reached: {last}; {kept}", hint=f"{question} {_RESUME}")
    if last.kind == "fatal":
        return UnavailableError(f"{server} refuses requests: {last}; {kept}", hint=f"{remedy}; {_RESUME}")
    if (wait := last.retry_after or 0.0) > limits.max_wait:
        hint = f"wait that long, then {_RESUME}; with --set max_wait=SECONDS ccr waits itself"
        return UnavailableError(f"{server} asks to wait {wait:.0f} s ({last}); {kept}", hint=hint)
    message = f"{server} failed {last.in_a_row} times in a row, the last time: {last}; {kept}"
    return UnavailableError(message, hint=f"wait a while, then {_RESUME}; --set rate=1 sends fewer requests")


def masker(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Returns a function that makes text safe to show: no keys, no URL queries, single spaces, limited length."""
    forms = {
        form: f"[{variable}]"
        for variable, secret in secrets.items()
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    }

    def mask(text: str) -> str:
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, forms[form])
        return redact(" ".join(text.split()))[:200]

    return mask


def seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Reads a `Retry-After` header: seconds or a date; None where it is neither."""
    text = (retry_after or "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (OverflowError, ValueError):
        return None
    return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())


def backoff(attempt: int, first: float, chance: float) -> float:
    """Seconds before the next attempt: doubled each time up to a minute, minus a random part of up to half."""
    return min(_LONGEST_BACKOFF, first * 2.0 ** min(attempt - 1, 32)) * (1.0 - chance / 2.0)


class _Adapter(requests.adapters.HTTPAdapter):
    """Keeps track of its connections, so that they can be shut down while a thread waits for a reply."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[Any] = []

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        if isinstance(connection_type := pool.ConnectionCls, type):  # a new pool

            def connect(**arguments: Any) -> Any:
                self._connections.append(connection_type(**arguments))
                return self._connections[-1]

            pool.ConnectionCls = connect
        return pool

    def break_off(self) -> None:
        """Shuts down all connections, which also ends a thread that waits for a reply."""
        for connection in self._connections:
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


class Connection:
    """Sends the requests of one thread, each within `timeout` seconds; `mask` makes the server's words safe to show."""

    def __init__(self, timeout: float, mask: Callable[[str], str]) -> None:
        self._timeout, self._mask = timeout, mask
        self._open()

    def _open(self) -> None:
        """Starts a session that sends no cookie and no password of ~/.netrc; its connections can be shut down."""
        self._session, self._adapter = requests.Session(), _Adapter()
        self._session.mount("http://", self._adapter)
        self._session.mount("https://", self._adapter)
        self._session.auth = lambda request: request  # without it a password of ~/.netrc would be sent
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def send(self, method: str, url: str, **request: Any) -> requests.Response:
        """Sends a request, with `params`, `data`, `json` and `headers` as for `requests`, and reads the whole reply.

        Raises:
            Failure: If there is no reply, or it is empty, too large or reports no success.
        """
        try:  # the timeouts of requests cover neither the look-up of the host nor headers that trickle in
            reply = hub.in_time(partial(self._fetch, self._session, method, url, request), self._timeout)
        except TimeoutError:
            self._adapter.break_off()
            self._open()  # the thread keeps the old session until it ends
            reply = Failure(f"no reply within {self._timeout:g} s")
        if isinstance(reply, Failure):  # raised here, so that its context does not name URLs
            raise reply
        status, text = reply.status_code, reply.text
        if 200 <= status < 300:
            if not text.strip():
                raise Failure("the reply is empty")
            return reply
        words = self._mask(_error_message(text))
        message = f"HTTP {status}" + (f": {words}" if words else "")
        if 300 <= status < 400:
            host = self._mask(urlsplit(reply.headers.get("Location", "")).netloc)
            raise Failure(f"{message}, a redirect to {host or 'another address'}", "fatal")
        if status in _FATAL or (status == 400 and _FATAL_WORDS.search(words)):
            raise Failure(message, "fatal")
        if status in _REJECTED:
            raise Failure(message, "rejected")
        wait = seconds_of(reply.headers.get("Retry-After"), datetime.now(UTC))
        raise Failure(message, "busy" if status in _BUSY else "temporary", wait)

    def _fetch(
        self, session: requests.Session, method: str, url: str, request: dict[str, Any]
    ) -> requests.Response | Failure:
        """Returns the whole reply, or a Failure worded by the type of error: messages of requests may hold the URL."""
        timeouts = (min(_CONNECT_SECONDS, self._timeout), self._timeout)
        try:
            with session.request(
                method, url, **request, timeout=timeouts, allow_redirects=False, stream=True
            ) as response:
                body = b""
                for block in response.iter_content(65536):
                    body += block
                    if len(body) > _LARGEST_REPLY:
                        return Failure("the reply is too large")
        except requests.exceptions.InvalidURL:
            return Failure("not a valid address", "fatal")
        except requests.exceptions.SSLError:
            return Failure("the connection is not secure (TLS)", "unreachable")
        except (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            name, cause = type(error).__name__, error.args[0] if error.args else None
            if isinstance(error, requests.ConnectTimeout | requests.exceptions.ProxyError):
                return Failure(f"no connection ({name})", "unreachable")
            if isinstance(error, requests.ConnectionError) and isinstance(cause, urllib3.exceptions.MaxRetryError):
                return Failure(f"no connection ({type(cause.reason).__name__})", "unreachable")
            if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
                return Failure(f"no reply within {self._timeout:g} s")
            return Failure(f"the connection broke off ({name})")
        response._content = body
        if "charset" not in response.headers.get("Content-Type", "").lower():
            response.encoding = "utf-8"
        return response


def _error_message(text: str) -> str:
    """The message in a JSON body that reports an error."""
    try:
        value = json.loads(text)
    except (RecursionError, ValueError):
        return ""
    while isinstance(value, dict):
        value = next((value[key] for key in _MESSAGE_KEYS if value.get(key)), "")
    return value if isinstance(value, str) else ""


class Client:
    """Sends many texts to one server from several threads, within `limits`; the pace is kept from call to call."""

    def __init__(
        self, limits: Limits, mask: Callable[[str], str] = str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.mask = limits, mask
        self._clock, self._next, self.lock = clock, clock(), threading.Lock()
        self.answered = False
        """Whether the server has ever replied."""

    def connect(self) -> Connection:
        """Opens a connection for one thread, to be closed by it."""
        return Connection(self.limits.timeout, self.mask)

    def take(self) -> float:
        """Takes the next turn and returns 0, or the seconds until it; turns are evenly spaced, `rate` a second."""
        with self.lock:
            now = self._clock()
            if now < self._next:
                return self._next - now
            self._next = now + 1.0 / self.limits.rate
            return 0.0

    def pause(self, seconds: float) -> None:
        """Gives no turn for at least this many seconds from now."""
        with self.lock:
            self._next = max(self._next, self._clock() + seconds)

    def map(
        self,
        texts: Iterable[tuple[int, T]],
        ask: Callable[[Connection, T], R],
        outage: Callable[[Failure], Exception] = lambda last: last,
    ) -> Iterator[tuple[int, R | Failure]]:
        """Yields the position and the result or failure of each text (or batch) as `ask` returns or raises it.

        Raises:
            Exception: If sending is given up, after all results that still arrive: `outage` of the failure that ended
                it. It is raised here, so that its context does not name URLs.
        """
        run = _Run(self, ask)
        for text in texts:
            run.todo.put(text)
        running = min(self.limits.workers, run.todo.qsize())
        for _ in range(running):  # daemons: a caller that leaves early need not wait
            threading.Thread(target=run.work, daemon=True).start()
        try:
            while running:
                result = run.results.get()
                if result is None:
                    running -= 1
                else:
                    yield result
        finally:
            run.stop.set()
        if run.end is not None:
            raise outage(run.end) if isinstance(run.end, Failure) else run.end


@dataclass
class _Run(Generic[T, R]):
    """What the threads of one call of `Client.map` share."""

    client: Client
    ask: Callable[[Connection, T], R]
    todo: SimpleQueue[tuple[int, T]] = field(default_factory=SimpleQueue)
    results: SimpleQueue[tuple[int, R | Failure] | None] = field(default_factory=SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)
    in_a_row: int = 0
    """Consecutive failed requests."""
    end: Exception | None = None

    def work(self) -> None:
        """Processes texts in a thread of its own until none is left or the run ends."""
        try:
            with closing(self.client.connect()) as connection:
                while not self.stop.is_set() and not self.todo.empty():
                    with suppress(Empty):
                        position, text = self.todo.get_nowait()
                        result = self._attempts(connection, text)
                        if result is not None:
                            self.results.put((position, result))
        except Exception as error:  # a bug: raised in the caller's thread
            self._give_up(error)
        finally:
            self.results.put(None)

    def _attempts(self, connection: Connection, text: T) -> R | Failure | None:
        """The result of a text, or the failure of its last attempt; None if the run ends first."""
        limits = self.client.limits
        for attempt in itertools.count(1):
            while (wait := self.client.take()) > 0 and not self.stop.wait(wait):
                pass
            if self.stop.is_set():
                break
            try:
                result = self.ask(connection, text)
                self.client.answered, self.in_a_row = True, 0
                return result
            except Failure as failure:
                if self._ends_with(failure):
                    break
                delay = failure.retry_after
                if delay is None:
                    delay = backoff(attempt, limits.backoff, random.random())
                if failure.kind == "busy":
                    self.client.pause(delay)
                if failure.kind in ("rejected", "unsent") or attempt > limits.retries:
                    return failure
                if failure.kind != "busy" and self.stop.wait(delay):
                    break
        return None

    def _ends_with(self, failure: Failure) -> bool:
        """Counts a failure, and ends the run if it is one too many; rejected or unsent texts do not count."""
        client, kind = self.client, failure.kind
        if kind in ("rejected", "unsent"):
            client.answered |= kind == "rejected"
            return False
        with client.lock:
            self.in_a_row += 1
            failure.in_a_row = self.in_a_row
            hopeless = (
                kind == "fatal"
                or (kind == "unreachable" and not client.answered)
                or (failure.retry_after or 0.0) > client.limits.max_wait
                or self.in_a_row >= client.limits.breaker
            )
            client.answered |= kind != "unreachable"
        if hopeless:
            self._give_up(failure)
        return hopeless

    def _give_up(self, end: Exception) -> None:
        with self.client.lock:
            self.end = self.end or end
        self.stop.set()
