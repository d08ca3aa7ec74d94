"""serve: search over HTTP, with a web page; reachable from this machine only unless `--host` says otherwise."""

import asyncio
import io
import ipaddress
import os
import socket
import stat
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock, Thread
from typing import Annotated, Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from PIL import Image
from starlette.exceptions import HTTPException as AnyHTTPException

import ccr_cli
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.report.page.rendering import served
from ccr_cli.report.thumbnails import small
from ccr_cli.stages.search.options import ListenOptions, ServerOptions
from ccr_cli.stages.search.server_guard import LOOPBACK, AccessRules, Guard
from ccr_cli.stages.search.server_metrics import CONTENT_TYPE, Metrics
from ccr_cli.stages.search.stage import Answer, Searcher

MOST_TOP, MOST_LETTERS, EXAMPLES = 100, 1000, 6
MOST_PIXELS = 32_000_000
"""Most pixels of a picture that is uploaded or shown; the limit in bytes is `ServerOptions.max_upload`."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Formats of uploads; Pillow has many more, and each is code that reads data from strangers."""
SIDES = {False: 320, True: 1024}
"""Longest side of a shown picture, small and large, in pixels."""
KEPT = 512
"""Shown pictures that are kept in memory."""
LEAST_TOKEN = 16
SETTLE = 1.0
"""Seconds between checks of a workspace that `--reload` watches."""
Top = Annotated[int, Query(ge=1, le=MOST_TOP)]
Words = Annotated[str, Query(max_length=MOST_LETTERS)]


def access_rules(options: ListenOptions, most_bytes: int) -> AccessRules:
    """Returns the access rules; raises UsageError if other machines could reach the server without a token."""
    token = None if options.token_file is None else read_token(options.token_file)
    name = options.host.lower()
    try:
        address = ipaddress.ip_address(name)
        loopback, everywhere = address.is_loopback, address.is_unspecified
    except ValueError:
        loopback, everywhere = name == "localhost", False
    if not loopback and token is None:
        problem = f"--host {options.host} admits other machines and needs --token-file"
        raise UsageError(problem, hint="--token-file FILE")
    own = {socket.gethostname().lower(), socket.getfqdn().lower()} if everywhere else {name}
    hosts = LOOPBACK | own | {alias.lower().rstrip(".") for alias in options.allow_host}
    return AccessRules(frozenset(hosts), everywhere, token, most_bytes, options.max_requests)


def read_token(path: Path) -> bytes:
    """Reads a token; raises UsageError if there is none, it is too short, or other users can read the file."""
    try:
        open_to_others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"there is no token in {path}", hint=f"head -c 24 /dev/urandom | base64 > {path}") from None
    if open_to_others:
        raise UsageError(f"other users can read {path}", hint=f"chmod 600 {path}")
    if len(text) < LEAST_TOKEN or not text.isprintable() or " " in text:
        raise UsageError(f"{path} holds no valid token: one line of at least {LEAST_TOKEN} characters, without spaces")
    return text.encode()


class Service:
    """A searcher for concurrent requests: one search at a time, since each uses all of torch's processors.

    Texts that arrive during a search wait, and are answered together by the next one.
    """

    def __init__(self, searcher: Searcher) -> None:
        self.metrics = Metrics()
        self._search_pool, self._media_pool = ThreadPoolExecutor(1), ThreadPoolExecutor(2)
        self._waiting: dict[int, list[tuple[str, Future[dict[str, Any]]]]] = {}
        self._lock = Lock()
        self.use(searcher)

    def use(self, searcher: Searcher) -> None:
        """Switches to another searcher; a search that has begun finishes with the earlier one."""
        try:
            pictures = searcher.encoder.stills
            if not pictures:
                warn("search with pictures is off: the run's encoder reads video clips")
        except CcrError as error:
            warn(f"search with pictures is off: {error.message}")
            pictures = False
        reduced = lru_cache(KEPT)(lambda path, side: small(path, side, MOST_PIXELS) if os.path.isfile(path) else None)
        examples = searcher.examples(EXAMPLES)
        self.searcher, self._examples, self.pictures, self._small = searcher, examples, pictures, reduced

    async def prometheus(self) -> Response:
        """The metrics."""
        searcher, index = self.searcher, self.searcher.index
        about = {"version": ccr_cli.__version__, "run": searcher.trained.name, "data": searcher.data.name}
        about |= {"split": str(searcher.options.split), "index": index.name if index else ""}
        return Response(self.metrics.text(len(searcher.ids), about), media_type=CONTENT_TYPE)

    async def about(self) -> dict[str, Any]:
        """Facts for the page: the data, the run, what is searched."""
        searcher, options = self.searcher, self.searcher.options
        facts: dict[str, Any] = {
            "data": searcher.data.name,
            "run": searcher.trained.name,
            "split": options.split,
            "find": options.find,
        }
        facts |= {"entries": len(searcher.ids), "languages": list(searcher.langs), "pictures": self.pictures}
        return {**facts, "examples": self._examples}

    async def text(self, q: Words, lang: str | None = None, top: Top = 10) -> dict[str, Any]:
        """Searches with words."""
        if not q.strip():
            raise HTTPException(400, "the query is empty")
        if lang is not None and lang not in self.searcher.langs:
            raise HTTPException(400, f"languages: {', '.join(self.searcher.langs)}")
        options = self.searcher.options
        if options.find == "captions" and lang not in (None, options.lang):
            found = options.lang or "all languages"
            raise HTTPException(400, f"captions in {found} are searched: ccr serve --find captions --lang {lang}")

        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            self._waiting.setdefault(top, []).append((q, answer))
        self._search_pool.submit(self._answer_waiting)
        return await asyncio.wrap_future(answer)

    def _answer_waiting(self) -> None:
        """Answers all waiting texts that want the same number of results as the first one."""
        with self._lock:
            top = next(iter(self._waiting), 0)
            waiting = self._waiting.pop(top, [])
        waiting = [(q, answer) for q, answer in waiting if answer.set_running_or_notify_cancel()]
        if waiting:
            self.metrics.batches.add(len(waiting))
        for (q, answer), outcome in zip(waiting, self._outcomes([q for q, _ in waiting], top), strict=True):
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result({"query": q, **outcome})

    def _outcomes(self, texts: list[str], top: int) -> list[dict[str, Any] | Exception]:
        searcher = self.searcher
        try:
            return [_facts(searcher, answer) for answer in searcher.texts(texts, top)]
        except ArtifactError as error:  # the run has vectors of other texts only
            if len(texts) > 1:
                return [outcome for text in texts for outcome in self._outcomes([text], top)]
            return [HTTPException(422, error.message)]
        except Exception as error:
            return [error] * len(texts)

    async def picture(self, body: bytes, top: int) -> dict[str, Any]:
        """Searches with a picture."""
        if not self.pictures:
            raise HTTPException(501, "this run does not support search with pictures")

        def search() -> dict[str, Any]:
            searcher = self.searcher
            features = searcher.encoder.image(open_picture(body))
            return _facts(searcher, searcher.picture(features, "", top))

        return await asyncio.wrap_future(self._search_pool.submit(search))

    async def media(self, item: str, large: bool = False) -> Response:
        """A reduced copy of an item's picture; never the file itself."""
        path = self.searcher.image(item)
        work = path and self._media_pool.submit(self._small, path, SIDES[large])
        copy = await asyncio.wrap_future(work) if work else None
        if copy is None:
            raise HTTPException(404, "there is no such picture")
        kind, data = copy
        return Response(data, media_type=f"image/{kind}", headers={"cache-control": "private, max-age=600"})


def _facts(searcher: Searcher, answer: Answer) -> dict[str, Any]:
    hits = [
        {
            "place": hit.place,
            "item": hit.item_id,
            "similarity": round(hit.similarity, 6),
            "probability": None if hit.probability is None else round(hit.probability, 6),
            "caption": hit.caption,
            "lang": hit.lang or searcher.data.source_lang,
            "picture": f"/media?item={quote(hit.item_id, safe='')}"
            if hit.image and os.path.isfile(hit.image)
            else None,
        }
        for hit in answer.hits
    ]
    uncertainty = None if answer.uncertainty is None else round(answer.uncertainty, 6)
    return {"uncertainty": uncertainty, "known": answer.known, "hits": hits}


def open_picture(body: bytes) -> Image.Image:
    """Opens an uploaded picture; raises HTTPException if it cannot be read, or has too many pixels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(body), formats=FORMATS)
        if image.width * image.height <= MOST_PIXELS:
            image.load()
            return image
    except Image.DecompressionBombError:
        pass
    except Exception:  # a decoder may raise anything on hostile data
        raise HTTPException(400, f"cannot read this picture; supported formats: {', '.join(FORMATS)}") from None
    raise HTTPException(413, f"the picture has more than {MOST_PIXELS} pixels")


def application(service: Service, rules: AccessRules) -> Guard:
    """The ASGI application: page, search, media."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.get("/about")(service.about)
    app.get("/search")(service.text)
    app.get("/media")(service.media)
    app.get("/metrics")(service.prometheus)
    add_page(app, *served("search_page", "Search", "search_page.css"))

    @app.post("/search")
    async def by_picture(request: Request, top: Top = 10) -> dict[str, Any]:
        if not request.headers.get("content-type", "").lower().startswith("image/"):
            raise HTTPException(415, "the body must be a picture with content-type image/...")
        return await service.picture(await request.body(), top)

    return Guard(app, rules, service.metrics.request)


def add_page(app: FastAPI, text: str, policy: str) -> None:
    """Adds a page with its content security policy, and `/health`.

    Every error becomes an object `{"error": ...}`, without details of this machine.
    """
    page = HTMLResponse(text, headers={"content-security-policy": policy})

    @app.get("/")
    async def index() -> Response:
        return page

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.exception_handler(AnyHTTPException)
    async def http_error(request: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid_parameter(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 400)

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "internal server error"}, 500)


def watch(service: Service, root: Path, reopen: Callable[[], Searcher]) -> None:
    """Reopens the searcher when artifacts of a workspace change, and serves it if it differs; runs forever.

    If it cannot be opened, the earlier one stays. It is reopened only once `SETTLE` seconds pass without a change.
    """

    def state() -> list[tuple[Path, int, int]]:
        found = []
        for path in (*root.glob("*/*/artifact.json"), *root.glob("*/*/*/artifact.json")):
            with suppress(OSError):
                found.append((path, path.stat().st_mtime_ns, path.stat().st_ino))
        return sorted(found)

    last = state()
    loaded = [each for each in last if each[1] <= service.searcher.opened_ns]  # opening takes a while
    while True:
        time.sleep(SETTLE)
        last, before = state(), last
        if last == loaded or last != before:
            continue
        loaded = last
        try:
            searcher = reopen()
            if searcher.identity == service.searcher.identity:
                continue
            service.use(searcher)
        except Exception as error:  # whatever is wrong with it, the earlier one serves
            service.metrics.reloads["failed"] += 1
            reason = error.message if isinstance(error, CcrError) else f"{type(error).__name__}: {error}"
            warn(f"the workspace changed and cannot be served; what was loaded before still is: {reason}")
        else:
            service.metrics.reloads["loaded"] += 1
            say(f"loaded {searcher.trained.name}" + (f" with {searcher.index.name}" if searcher.index else ""))


def serve(
    searcher: Searcher,
    options: ServerOptions,
    ready: Callable[[str], None],
    reopen: Callable[[], Searcher] | None,
) -> None:
    """Serves search (`bind`, `listen`); with `reopen`, loads changes in the workspace while it runs (`watch`)."""
    rules, service = access_rules(options, options.max_upload << 20), Service(searcher)
    if reopen:
        Thread(target=watch, args=(service, searcher.root, reopen), daemon=True).start()
    listen(application(service, rules), options, bind(options), ready)


def bind(options: ListenOptions) -> socket.socket:
    """Takes the port; UsageError if it cannot be taken."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listening = socket.create_server((options.host, options.port), family=family)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else the end of each response waits 40 ms
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while ")[0]  # Python repeats the address
        problem = f"cannot listen on {options.host}, port {options.port}: {reason}"
        raise UsageError(problem, hint="choose another --port, or 0 for any free one") from None
    return listening


def listen(app: Guard, options: ListenOptions, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves until it is stopped; calls `ready` with the address."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=8 * options.max_requests,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=16 << 10,
    )
    name = f"[{options.host}]" if ":" in options.host else options.host
    ready(f"http://{name}:{listening.getsockname()[1]}/")
    uvicorn.Server(config).run(sockets=[listening])
