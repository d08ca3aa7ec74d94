"""The server of `ccr review`: the page, the pair to judge, and verdicts on it."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from ccr_cli.console import warn
from ccr_cli.data.review_file import ChangedError
from ccr_cli.report.page.rendering import served
from ccr_cli.report.thumbnails import small
from ccr_cli.stages.review.stage import Review
from ccr_cli.stages.search.options import ListenOptions
from ccr_cli.stages.search.server import MOST_PIXELS, access_rules, add_page, listen
from ccr_cli.stages.search.server_guard import AccessRules, Guard

MOST_BYTES, MOST_LETTERS = 64 << 10, 2000
"""Maximum bytes of a request's body, and characters of a correction."""
SIDE, KEPT = 800, 128
"""Longest side of a shown picture in pixels, and how many are kept in memory."""


class _Judgement(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pair: StrictInt
    verdict: Literal["clean", "noisy", "not judged"]
    correction: str = Field("", max_length=MOST_LETTERS)


def application(review: Review, rules: AccessRules) -> Guard:
    """The ASGI application. Verdicts are written one after the other, on the server's only thread for requests."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_page(app, *served("review_page", "Review", "search_page.css", "review_page.css"))
    pool, reduced = ThreadPoolExecutor(2), lru_cache(KEPT)(lambda path: small(path, SIDE, MOST_PIXELS))

    def written(change: Callable[[], int | None]) -> dict[str, Any]:
        try:
            return review.state(change())
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        except ChangedError as error:
            raise HTTPException(409, f"{error}; this verdict is not saved: start ccr review again") from None
        except OSError as error:
            warn(f"{review.log.path}: {error.strerror or error}")
            raise HTTPException(507, f"this verdict is not saved: {error.strerror or error}") from None

    @app.get("/state")
    async def state() -> dict[str, Any]:
        return review.state()

    @app.post("/verdict")
    async def verdict(request: Request) -> dict[str, Any]:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "the body must be JSON with content-type application/json")
        try:
            judgement = _Judgement.model_validate_json(await request.body())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise HTTPException(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")) from None
        if judgement.pair not in review.pairs:
            raise HTTPException(404, f"there is no pair {judgement.pair}")
        return written(lambda: review.judge(judgement.pair, judgement.verdict, judgement.correction))

    @app.post("/undo")
    async def undo() -> dict[str, Any]:
        return written(review.undo)

    @app.get("/media")
    async def media(pair: int) -> Response:
        path = review.pairs.get(pair, {}).get("image")
        copy = await asyncio.wrap_future(pool.submit(reduced, path)) if path else None
        if copy is None:
            raise HTTPException(404, "there is no such picture")
        return Response(copy[1], media_type=f"image/{copy[0]}", headers={"cache-control": "private, max-age=600"})

    return Guard(app, rules)


def serve(review: Review, options: ListenOptions, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves a review until it is stopped; other arguments as for `listen`."""
    listen(application(review, access_rules(options, MOST_BYTES)), options, listening, ready)
