"""serve: search over HTTP, with a page; bound to this machine unless told."""

from __future__ import annotations

import asyncio
import io
import ipaddress
import socket
import stat
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from PIL import Image
from starlette.exceptions import HTTPException as AnyHTTPException

from ccr_cli.console import warn
from ccr_cli.errors import CcrError, UsageError
from ccr_cli.report.page import search_page
from ccr_cli.report.thumbnails import small
from ccr_cli.stages.search.server_guard import LOOPBACK, Guard, Rules
from ccr_cli.stages.search.stage import Answer, Searcher

T = TypeVar("T")
MOST_TOP, MOST_LETTERS = 100, 1000
MOST_PIXELS = 32_000_000
"""Of a picture that is uploaded or shown."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Of uploads; Pillow knows many more, and each is code that reads what strangers send."""
SIDES = {False: 320, True: 1024}
"""Longest side of a picture that is shown, small and large."""
KEPT = 512
"""Pictures that are kept in memory, as they are shown."""
LEAST_TOKEN = 16
Top = Annotated[int, Query(ge=1, le=MOST_TOP)]
Words = Annotated[str, Query(max_length=MOST_LETTERS)]


@dataclass(frozen=True)
class Place:
    """Where the server listens, and how it may be called."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any that is free."""
    names: tuple[str, ...] = ()
    """Further names in the Host header."""
    token_file: Path | None = None
    most_upload: int = 10 << 20
    most_requests: int = 32

    def rules(self) -> Rules:
        """What is let in.

        Raises:
            UsageError: If others could reach the server, and no token is asked of them; or the token is none.
        """
        token = None if self.token_file is None else read_token(self.token_file)
        name = self.host.lower()
        try:
            address = ipaddress.ip_address(name)
            alone, everywhere = address.is_loopback, address.is_unspecified
        except ValueError:
            alone, everywhere = name == "localhost", False
        if not alone and token is None:
            raise UsageError(f"--host {self.host} lets others in: --token-file is needed", hint="--token-file FILE")
        own = {socket.gethostname().lower(), socket.getfqdn().lower()} if everywhere else {name}
        hosts = LOOPBACK | own | {each.lower().rstrip(".") for each in self.names}
        return Rules(frozenset(hosts), everywhere, token, self.most_upload, self.most_requests)


def read_token(path: Path) -> bytes:
    """Reads a token.

    Raises:
        UsageError: If there is none, it is short, or others can read the file.
    """
    try:
        open_to_others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{path} holds no token", hint=f"head -c 24 /dev/urandom | base64 > {path}") from None
    if open_to_others:
        raise UsageError(f"others can read {path}", hint=f"chmod 600 {path}")
    if len(text) < LEAST_TOKEN or not text.isprintable() or " " in text:
        raise UsageError(f"{path} holds no token: one line of {LEAST_TOKEN} characters or more, without spaces")
    return text.encode()


class Service:
    """A searcher for many who ask: one query at a time, since each uses all processors that torch may have."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._model, self._shown = ThreadPoolExecutor(1), ThreadPoolExecutor(2)
        self._small = lru_cache(KEPT)(self._thumbnail)
        try:
            self.pictures = searcher.encoder.stills
            if not self.pictures:
                warn("there is no search with pictures: the run's encoder takes clips of videos")
        except CcrError as error:
            warn(f"there is no search with pictures: {error.message}")
            self.pictures = False

    def about(self) -> dict[str, Any]:
        """What is searched."""
        searcher = self._searcher
        return {
            "data": searcher.data.name,
            "run": searcher.trained.name,
            "split": searcher.wanted.split or "all",
            "find": searcher.wanted.find,
            "entries": len(searcher.ids),
            "languages": list(searcher.langs),
            "pictures": self.pictures,
        }

    async def text(self, query: str, top: int, lang: str | None) -> dict[str, Any]:
        """Searches with words."""
        if not query.strip():
            raise HTTPException(400, "a query needs some text")
        if lang is not None and lang not in self._searcher.langs:
            raise HTTPException(400, f"languages: {', '.join(self._searcher.langs)}")
        return await _run(self._model, lambda: self._facts(next(self._searcher.texts([query], top))))

    async def picture(self, body: bytes, top: int) -> dict[str, Any]:
        """Searches with a picture."""
        if not self.pictures:
            raise HTTPException(501, "this run cannot be searched with pictures")

        def work() -> dict[str, Any]:
            features = self._searcher.encoder.image(opened(body))
            return self._facts(self._searcher.picture(features, "", top))

        return await _run(self._model, work)

    async def media(self, item: str, large: bool) -> tuple[str, bytes]:
        """The kind and the bytes of an item's picture, made small; never the file itself."""
        path = self._searcher.image(item)
        found = None if path is None else await _run(self._shown, lambda: self._small(path, SIDES[large]))
        if found is None:
            raise HTTPException(404, "there is no picture")
        return found

    @staticmethod
    def _thumbnail(path: Path, side: int) -> tuple[str, bytes] | None:
        return small(path, side, MOST_PIXELS) if path.is_file() else None

    def _facts(self, answer: Answer) -> dict[str, Any]:
        hits = [
            {
                "place": hit.place,
                "item": hit.item_id,
                "similarity": round(hit.similarity, 6),
                "caption": hit.caption,
                "lang": hit.lang or self._searcher.data.source_lang,
                "picture": f"/media?item={quote(hit.item_id, safe='')}" if hit.image and hit.image.is_file() else None,
            }
            for hit in answer.hits
        ]
        unsure = None if answer.uncertainty is None else round(answer.uncertainty, 6)
        return {"uncertainty": unsure, "known": answer.known, "hits": hits}


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def opened(body: bytes) -> Image.Image:
    """Opens a picture that was sent.

    Raises:
        HTTPException: If it is none, or unpacks to too many pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(body), formats=FORMATS)
        if image.width * image.height <= MOST_PIXELS:
            image.load()
            return image
    except Image.DecompressionBombError:
        pass
    except Exception:  # a decoder raises anything on what strangers send
        raise HTTPException(400, f"no picture that can be read ({', '.join(FORMATS)})") from None
    raise HTTPException(413, f"at most {MOST_PIXELS} pixels")


def application(service: Service, rules: Rules) -> Guard:
    """The server's application: page, search, media."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    page = HTMLResponse(search_page.page(), headers={"content-security-policy": search_page.POLICY})

    @app.get("/")
    async def index() -> Response:
        return page

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/about")
    async def about() -> dict[str, Any]:
        return service.about()

    @app.get("/search")
    async def by_words(q: Words, lang: str | None = None, top: Top = 10) -> dict[str, Any]:
        return {"query": q, **await service.text(q, top, lang)}

    @app.post("/search")
    async def by_picture(request: Request, top: Top = 10) -> dict[str, Any]:
        if not request.headers.get("content-type", "").startswith("image/"):
            raise HTTPException(415, "the body is a picture, its content-type image/...")
        return await service.picture(await request.body(), top)

    @app.get("/media")
    async def media(item: str, large: bool = False) -> Response:
        kind, data = await service.media(item, large)
        return Response(data, media_type=f"image/{kind}", headers={"cache-control": "private, max-age=600"})

    @app.exception_handler(AnyHTTPException)
    async def refused(request: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 400)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "the server failed"}, 500)

    return Guard(app, rules)


def serve(searcher: Searcher, place: Place, ready: Callable[[str], None]) -> None:
    """Serves until it is stopped.

    Args:
        searcher: What is searched.
        place: Where.
        ready: Called with the address once it answers.

    Raises:
        UsageError: If it may not, or cannot, listen there.
    """
    rules = place.rules()
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        listening = socket.create_server((place.host, place.port), family=family)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits 40 ms for its end
    except OSError as error:
        raise UsageError(
            f"cannot listen on {place.host}, port {place.port}: {error.strerror}", hint="another --port, or 0 for any"
        ) from None
    config = uvicorn.Config(
        application(Service(searcher), rules),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=8 * place.most_requests,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=16 << 10,
    )
    name = f"[{place.host}]" if ":" in place.host else place.host
    ready(f"http://{name}:{listening.getsockname()[1]}/")
    uvicorn.Server(config).run(sockets=[listening])
