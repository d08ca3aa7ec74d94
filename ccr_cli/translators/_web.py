"""Requests on behalf of the package deep-translator, and what is said of those that fail.

The package calls `requests.get` and `requests.post` with neither timeout nor session; it sends keys and texts in
URLs, which DeepL takes no longer; its exceptions hold keys, texts and whole tables; and an answer that says "too
many requests, come back in a minute" becomes one that says nothing. (`socket.setdefaulttimeout` does not reach
requests, which asks for no timeout explicitly.) So its modules get a stand-in for `requests`, which does for the
thread that asks what is missing, and raises a Failure of our own words for every answer that is none.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookiejar import DefaultCookiePolicy
from types import ModuleType
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import requests
import requests.adapters
import urllib3

from ccr_cli.errors import redact
from ccr_cli.translators._requests import Failure

_CONNECT_SECONDS = 5.0
_LARGEST = 4 * 1024 * 1024
_PIECE = 64 * 1024
_FINAL = {401, 402, 403, 404, 405, 410, 451, 456}
"""The key, the quota or the address is wrong; 456 is DeepL's for a quota that is used up."""
_REFUSED = {400, 413, 414, 422, 431}
_OF_ALL = re.compile(r"(?i)\bapi.?key\b|\bnot supported\b")
"""LibreTranslate says with 400, as if it were the text's fault, that it wants a key or does not know the language."""
_BUSY = {429, 503, 529}
_WORDS = ("message", "error", "error_msg", "errorMessage", "responseDetails")
_Headers = requests.structures.CaseInsensitiveDict[str]
_Whole = tuple[int, _Headers, bytes]
"""Status, headers and body of an answer."""
_RESULT = re.compile(r'class="(?:t0|result-container)"')


def masker(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Returns what makes a text fit to be shown: keys masked, URL queries dropped, white space single, cut.

    Args:
        secrets: Keys by the name of their variable.
    """
    forms = {
        form: f"[{name}]"
        for name, secret in secrets.items()
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    }

    def mask(text: str) -> str:
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, forms[form])
        return redact(" ".join(text.split()))[:200]

    return mask


def seconds_of(retry_after: str | None, now: datetime) -> float | None:
    """Reads a `Retry-After` header: seconds, or a date; None where it is neither."""
    text = (retry_after or "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return float(text)
    try:
        then = email.utils.parsedate_to_datetime(text)
    except (OverflowError, ValueError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (then - now).total_seconds())


@dataclass(frozen=True)
class Answer:
    """As much of a `requests.Response` as the package reads."""

    status_code: int
    text: str

    def json(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.text)

    def close(self) -> None:
        """Nothing is open any more."""


class _Adapter(requests.adapters.HTTPAdapter):
    """Knows its connections, so that they can be broken off while an answer is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[Any] = []

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        if isinstance(made := pool.ConnectionCls, type):  # a pool that is new

            def kept(**given: Any) -> Any:
                self._connections.append(made(**given))
                return self._connections[-1]

            pool.ConnectionCls = kept
        return pool

    def break_off(self) -> None:
        """Ends all connections under the hands of whoever reads from them."""
        for connection in self._connections:
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


class Client:
    """What one thread sends requests with.

    Args:
        timeout: Seconds that a request may take, from looking its host up to the end of the answer.
        mask: Makes words of the provider fit to be shown.
    """

    def __init__(self, timeout: float, mask: Callable[[str], str]) -> None:
        self._timeout, self._mask = timeout, mask
        self._open()

    def _open(self) -> None:
        self._session, self._adapter = requests.Session(), _Adapter()
        self._session.mount("http://", self._adapter)
        self._session.mount("https://", self._adapter)
        self._session.auth = lambda request: request  # else a password of ~/.netrc would be sent along
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def send(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request and reads the whole answer.

        Raises:
            Failure: If there is none, or it is not a success.
        """
        params, headers = dict(params or {}), dict(headers or {})
        if "auth_key" in params:  # DeepL: since 2026 the key in a header only, the text in a body only
            headers["Authorization"] = f"DeepL-Auth-Key {params.pop('auth_key')}"
            method = "POST"
        if method == "POST" and json is None:  # out of the URL, which proxies and servers log
            params, data = {}, {**params, **(data or {})}
        question: dict[str, Any] = {"params": params, "data": data, "json": json, "headers": headers}
        failure = None
        try:
            status, answered, body = self._in_time(method, url, {**question, "proxies": dict(proxies or {})})
        except (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            failure = self._transport(error)
        if failure is not None:  # raised here, it does not carry the other one, which names URLs
            raise failure
        return self._judged(status, answered, body)

    def _in_time(self, method: str, url: str, question: Mapping[str, Any]) -> _Whole:
        """Asks in a thread of its own: no timeout of requests bounds looking a host up, or headers that drip in."""
        whole: Future[_Whole] = Future()

        def ask(session: requests.Session) -> None:
            try:
                whole.set_result(self._whole(session, method, url, question))
            except Exception as error:  # for the thread that waits to tell apart
                whole.set_exception(error)

        threading.Thread(target=ask, args=(self._session,), daemon=True).start()
        try:
            return whole.result(self._timeout)
        except TimeoutError:
            if not whole.done():  # the thread is left alone with what it has
                self._adapter.break_off()
                self._open()
            raise

    def _whole(self, session: requests.Session, method: str, url: str, question: Mapping[str, Any]) -> _Whole:
        end = time.monotonic() + self._timeout
        with session.request(
            method,
            url,
            **question,
            timeout=(min(_CONNECT_SECONDS, self._timeout), self._timeout),
            allow_redirects=False,  # texts go where they were sent, and so do keys
            stream=True,
        ) as response:
            body = b""
            while piece := response.raw.read1(_PIECE, decode_content=True):
                body += piece
                if len(body) > _LARGEST:
                    raise Failure("the answer is too large for a translation")
                if time.monotonic() > end:  # nobody waits any more
                    raise TimeoutError
            return response.status_code, response.headers, body

    def _transport(self, error: Exception) -> Failure:
        """What to say of an exception of requests or urllib3: by its type, never in its own words."""
        if isinstance(error, requests.exceptions.InvalidURL):
            return Failure("that is no address", "final")
        wrapped = error.args[0] if error.args else None
        if isinstance(error, requests.exceptions.SSLError):
            return Failure("the connection is not safe (TLS)", "unreachable")
        if isinstance(error, requests.ConnectTimeout | requests.exceptions.ProxyError):
            return Failure(f"no connection ({type(error).__name__})", "unreachable")
        if isinstance(error, requests.ConnectionError) and isinstance(wrapped, urllib3.exceptions.MaxRetryError):
            return Failure(f"no connection ({type(wrapped.reason).__name__})", "unreachable")
        if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
            return Failure(f"no answer within {self._timeout:g} s")
        return Failure(f"the connection broke off ({type(error).__name__})")

    def _judged(self, status: int, headers: _Headers, body: bytes) -> Answer:
        """The answer, where it is one."""
        text = _decoded(headers, body)
        if 200 <= status < 300:
            if not text.strip():
                raise Failure("the answer is empty")
            found = _RESULT.search(text)
            if found and "</div>" not in text[found.start() :]:
                raise Failure("the answer breaks off")  # else half a translation would pass for a whole one
            return Answer(status, text)
        words = self._mask(_words(text))
        message = f"HTTP {status}" + (f": {words}" if words else "")
        if 300 <= status < 400:
            where = self._mask(urlsplit(headers.get("Location", "")).netloc)
            raise Failure(f"{message}, sent on to {where or 'another address'}", "final")
        if status in _FINAL or (status == 400 and _OF_ALL.search(words)):
            raise Failure(message, "final")
        if status in _REFUSED:
            raise Failure(message, "refused")
        wait = seconds_of(headers.get("Retry-After"), datetime.now(UTC))
        raise Failure(message, "busy" if status in _BUSY else "passing", wait)


def _decoded(headers: _Headers, body: bytes) -> str:
    """In the encoding that the header names, else UTF-8, which all providers speak."""
    named = requests.utils.get_encoding_from_headers(headers)
    stated = "charset" in headers.get("Content-Type", "").lower()
    try:
        return body.decode(named if named and stated else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _words(text: str) -> str:
    """What a provider says of an error, where it says it in JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    while isinstance(found, dict):
        found = next((found[key] for key in _WORDS if found.get(key)), "")
    return found if isinstance(found, str) else ""


class _StandIn(threading.local):
    """Stands for `requests` in the package's modules: the client of the thread that asks, else requests itself."""

    client: Client | None = None
    exceptions = requests.exceptions

    def get(self, url: str, **options: Any) -> Any:
        return self.client.send("GET", url, **options) if self.client else requests.get(url, **options)

    def post(self, url: str, **options: Any) -> Any:
        return self.client.send("POST", url, **options) if self.client else requests.post(url, **options)


_STAND_IN = _StandIn()


@contextmanager
def asking_with(client: Client, module: ModuleType) -> Iterator[None]:
    """Has a module of the package ask with our client in this thread; the client is closed afterwards."""
    module.requests = _STAND_IN  # type: ignore[attr-defined]
    _STAND_IN.client = client
    try:
        yield
    finally:
        _STAND_IN.client = None
        client.close()
