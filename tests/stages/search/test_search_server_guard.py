"""What stands before the server, asked without one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from ccr_cli.stages.search.server_guard import LOOPBACK, AccessRules, Guard

Headers = list[tuple[str, str]]
LOCAL: Headers = [("host", "localhost:8000")]
TOKEN: Headers = [("authorization", "Bearer a-token-of-some-length")]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


def asked(
    rules: AccessRules, headers: Headers, path: str = "/search", parts: tuple[bytes, ...] = (b"",)
) -> tuple[int, Any]:
    """Status and body of an answer."""
    sent: list[Message] = []
    left = list(parts)

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers]
    asyncio.run(
        Guard(application, rules)({"type": "http", "method": "POST", "path": path, "headers": raw}, receive, send)
    )
    assert (b"x-content-type-options", b"nosniff") in sent[0]["headers"]
    assert not [name for name, _ in sent[0]["headers"] if name.startswith(b"access-control")]
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:1", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("localhost.", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("user@evil.example", 421),
        ("127.0.0.2", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_only_names_that_are_ours(host: str, status: int) -> None:
    assert asked(AccessRules(), [("host", host)])[0] == status


def test_any_address_where_all_are_listened_on() -> None:
    rules = AccessRules(LOOPBACK | {"search.example"}, addresses=True)
    for host, status in (("192.0.2.1:80", 200), ("[2001:db8::1]", 200), ("search.example", 200), ("evil.example", 421)):
        assert asked(rules, [("host", host)])[0] == status


def test_one_host() -> None:
    assert asked(AccessRules(), [])[0] == 400
    assert asked(AccessRules(), [*LOCAL, ("host", "evil.example")])[0] == 400


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ([("sec-fetch-site", "cross-site")], 403),
        ([("sec-fetch-site", "same-site")], 403),
        ([("sec-fetch-site", "same-origin")], 200),
        ([("sec-fetch-site", "none")], 200),
        ([("origin", "http://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("origin", "http://[")], 403),
        ([("origin", "")], 403),
        ([("origin", "localhost:8000")], 403),
        ([("origin", "http://localhost:8001")], 403),
        ([("origin", "http://localhost:8000")], 200),
    ],
)
def test_other_sites(more: Headers, status: int) -> None:
    assert asked(AccessRules(), [*LOCAL, *more])[0] == status


def test_a_token() -> None:
    rules = AccessRules(token=b"a-token-of-some-length")
    assert asked(rules, [*LOCAL, *TOKEN])[0] == 200
    assert asked(rules, LOCAL, "/")[0] == asked(rules, LOCAL, "/health")[0] == 200
    wrong: list[Headers] = [[], [("authorization", "Bearer b")], [("authorization", "Bearer é")], [*TOKEN, *TOKEN]]
    for given in wrong:
        assert asked(rules, [*LOCAL, *given])[0] == 401


def test_a_body_is_counted_as_it_comes() -> None:
    rules = AccessRules(most_bytes=10)
    assert asked(rules, LOCAL, parts=(b"12345", b"67890")) == (200, 10)
    assert asked(rules, [*LOCAL, ("content-length", "11")])[0] == 413
    with pytest.raises(HTTPException) as refusal:
        asked(rules, [*LOCAL, ("content-length", "5")], parts=(b"12345", b"678901"))
    assert refusal.value.status_code == 413


def test_so_many_at_once() -> None:
    async def many() -> list[int]:
        free = asyncio.Event()
        statuses: list[int] = []

        async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
            await free.wait()
            await application(scope, receive, send)

        guard = Guard(waiting, AccessRules(most_requests=2))

        async def one() -> None:
            async def receive() -> Message:
                return {"type": "http.request", "body": b""}

            async def send(message: Message) -> None:
                statuses.append(message.get("status", 0))

            await guard(
                {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}, receive, send
            )

        first = [asyncio.create_task(one()) for _ in range(3)]
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*first)
        await one()
        return [status for status in statuses if status]

    assert sorted(asyncio.run(many())) == [200, 200, 200, 503]
