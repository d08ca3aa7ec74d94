"""ASGI middleware of the search server: admits requests, limits them, and adds security headers to responses.

A page of another site, open in the same browser, can reach a server on this machine. It is kept out by the Host header
(a foreign name that resolves to this machine is not accepted), by Sec-Fetch-Site and Origin if the browser sends them,
and by never sending CORS headers. Other machines need the token.
"""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccr_cli.console import say
from ccr_cli.stages.search.options import ListenOptions, ServerOptions

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = {"/", "/health"}
"""Paths that need no token: they reveal nothing about the data."""
BODY_SECONDS = 30.0
"""Time for a request's body to arrive."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response that does not set them itself."""


@dataclass(frozen=True)
class AccessRules:
    """Which requests are admitted."""

    hosts: frozenset[str] = LOOPBACK
    """Accepted names in the Host header."""
    addresses: bool = False
    """Whether any IP address is accepted too, because the server listens on all of them."""
    token: bytes | None = None
    """The token that `Authorization: Bearer` must carry."""
    most_bytes: int = ServerOptions.max_upload << 20
    """Maximum bytes of a request's body, and so of an upload."""
    most_requests: int = ListenOptions.max_requests
    """Most requests at once."""


class Guard:
    """Passes requests on to the application, or refuses them with a JSON error."""

    def __init__(
        self, app: ASGIApp, rules: AccessRules, seen: Callable[[str, str, int, float], None] | None = None
    ) -> None:
        """`seen` gets method, path, status and seconds of each answered request."""
        self._app, self._rules, self._active, self._seen = app, rules, 0, seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            return
        start, status = time.monotonic(), 0

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if status >= 400:
                    headers["connection"] = "close"  # the body may still be arriving
            await send(message)

        try:
            await self._admit(scope, receive, respond)
        finally:  # the application raises an internal error again after its answer
            spent = time.monotonic() - start
            if self._seen and status:
                self._seen(scope["method"], scope["path"], status, spent)
            say(f"{scope['method']} {scope['path'][:100]} {status} {1000 * spent:.0f} ms", level=1)

    async def _admit(self, scope: Scope, receive: Receive, respond: Send) -> None:
        """Passes a request on, or answers why it is refused."""
        refusal = self._refusal(scope)
        if refusal is None and self._active >= self._rules.most_requests:
            refusal = 503, "too many requests at once; try again"
        if refusal is not None:
            code, reason = refusal
            more = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(code)
            await JSONResponse({"error": reason}, code, more)(scope, receive, respond)
            return
        self._active += 1
        try:
            await self._app(scope, self._limited(receive), respond)
        finally:
            self._active -= 1

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns the status and reason for refusing a request; None if it is admitted."""
        rules, headers, path = self._rules, Headers(scope=scope), scope["path"]
        hosts, length = headers.getlist("host"), headers.get("content-length", "")
        if len(hosts) != 1:
            return 400, "a request must name exactly one host"
        if not self._accepts(hosts[0]):
            return 421, "this server does not answer to this host name; --allow-host NAME allows one"
        foreign = path != "/" and {"cross-site", "same-site"} & set(headers.getlist("sec-fetch-site"))
        if foreign or any(o.partition("://")[2].lower() != hosts[0].lower() for o in headers.getlist("origin")):
            return 403, "requests from other sites are refused"
        if rules.token is not None and path not in OPEN:
            values = [value.encode("latin-1", "replace") for value in headers.getlist("authorization")]
            if len(values) != 1 or not hmac.compare_digest(values[0], b"Bearer " + rules.token):
                return 401, "this server requires a token: Authorization: Bearer TOKEN"
        if length.isdecimal() and int(length) > rules.most_bytes:
            return 413, f"the body has more than {rules.most_bytes} bytes"
        return None

    def _accepts(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in self._rules.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._rules.addresses

    def _limited(self, receive: Receive) -> Receive:
        """Stops a body that is too long, whatever its header says, or too slow."""
        total, end = 0, time.monotonic() + BODY_SECONDS
        complete = False

        async def limited() -> Message:
            nonlocal total, complete
            if complete:
                return await receive()  # waits until the client disconnects
            try:
                message = await asyncio.wait_for(receive(), max(0.001, end - time.monotonic()))
            except TimeoutError:
                raise HTTPException(408, "the body did not arrive in time") from None
            total += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if total > self._rules.most_bytes:
                raise HTTPException(413, f"the body has more than {self._rules.most_bytes} bytes")
            return message

        return limited
