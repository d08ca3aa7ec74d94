"""What stands before the server's application: who may ask, how much at once, and what every answer carries.

A page of another site, open in the same browser, can reach what listens on this machine. It is kept out by the Host
header (a name that was made to point here is not one of ours), by Sec-Fetch-Site and Origin where the browser sends
them, and by never answering with CORS headers. Who is not on this machine needs the token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccr_cli.console import say

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = {"/", "/health"}
"""Answered without a token: neither says anything about the data."""
BODY_SECONDS = 30.0
"""For a request's body to come."""
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


@dataclass(frozen=True)
class Rules:
    """What is let in."""

    hosts: frozenset[str] = LOOPBACK
    """Names by which the server may be called."""
    addresses: bool = False
    """Whether any IP address may stand in their place: of a server that listens on all of them."""
    token: bytes | None = None
    """What `Authorization: Bearer` must bring."""
    most_bytes: int = 10 << 20
    """Of a request's body."""
    most_requests: int = 32
    """At once."""


class Guard:
    """Lets requests through to the application, or answers them itself, in JSON."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules, self._under_way = app, rules, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return
        start, status = time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in HEADERS.items() if name not in present]
                more += [] if b"cache-control" in present else [(b"cache-control", b"no-store")]
                more += [(b"connection", b"close")] if status >= 400 else []  # a body may still be under way
                message["headers"] = [*message["headers"], *more]
            await send(message)

        refused = self._refused(scope)
        if refused is None and self._under_way >= self._rules.most_requests:
            refused = 503, "too many requests at once; try again"
        if refused is not None:
            await _refuse(answer, *refused)
        else:
            self._under_way += 1
            try:
                await self._app(scope, self._limited(receive), answer)
            finally:
                self._under_way -= 1
        spent = (time.monotonic() - start) * 1000
        say(f"{scope['method']} {scope['path'][:100]} {status} {spent:.0f} ms", level=1)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason where a request is not let in."""
        rules, headers = self._rules, _headers(scope)
        hosts = headers.get("host", [])
        if len(hosts) != 1:
            return 400, "a request names one host"
        if not self._ours(hosts[0]):
            return 421, "this server is not called so; --allow-host NAME allows a name"
        sites = set(headers.get("sec-fetch-site", []))
        if sites & {"cross-site", "same-site"} and scope["path"] != "/":
            return 403, "other sites may not ask"
        if any(origin.partition("://")[2].lower() != hosts[0].lower() for origin in headers.get("origin", [])):
            return 403, "other sites may not ask"
        if rules.token is not None and scope["path"] not in OPEN and not self._knows(headers.get("authorization", [])):
            return 401, "a token is needed: Authorization: Bearer TOKEN"
        if any(int(length) > rules.most_bytes for length in headers.get("content-length", []) if length.isdecimal()):
            return 413, f"at most {rules.most_bytes} bytes"
        return None

    def _ours(self, host: str) -> bool:
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

    def _knows(self, given: Iterable[str]) -> bool:
        assert self._rules.token is not None
        values = [value.encode("latin-1", "replace") for value in given]
        return len(values) == 1 and hmac.compare_digest(values[0], b"Bearer " + self._rules.token)

    def _limited(self, receive: Receive) -> Receive:
        """Stops a body that is too long, whatever its header said, or too slow."""
        total, end = 0, time.monotonic() + BODY_SECONDS
        whole = False

        async def limited() -> Message:
            nonlocal total, whole
            if whole:
                return await receive()  # the client has gone, some time
            try:
                message = await asyncio.wait_for(receive(), max(0.001, end - time.monotonic()))
            except TimeoutError:
                raise HTTPException(408, "the body did not come") from None
            total += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if total > self._rules.most_bytes:
                raise HTTPException(413, f"at most {self._rules.most_bytes} bytes")
            return message

        return limited


def _headers(scope: Scope) -> dict[str, list[str]]:
    """Every header by its name in lower case."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _refuse(send: Send, status: int, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    headers += [(b"retry-after", b"1")] if status == 503 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
