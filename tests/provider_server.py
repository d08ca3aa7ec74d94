"""Translation providers on this machine: each speaks its protocol as it is now, and fails when told to."""

from __future__ import annotations

import html
import json
import socket
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATHS = {
    "GOOGLE_TRANSLATE": "/m",
    "MYMEMORY": "/get",
    "BAIDU": "/api/trans/vip/translate",
    "YANDEX": "/api/{version}/tr.json/{endpoint}",
    "PAPAGO_API": "/v1/papago/n2mt",
    "QCRI": "/api/v1/{endpoint}?",
}
"""Where the package's table of addresses leads to, in tests."""
SERVICES = {
    "deepl": {"url": "/deepl-pro", "free_url": "/deepl-free"},
    "libretranslate": {"url": ""},
    "microsoft": {"url": "/microsoft"},
    "google-cloud": {"url": "/google-cloud"},
}
"""Paths of the documented services, by field of `Provider`."""
LEGACY = "Legacy authentication method is no longer supported. Please update to header-based authentication."


def translated(text: str, target: str) -> str:
    """What every provider here makes of a text."""
    return f"«{text[::-1]}» {target}"


@dataclass
class Fault:
    """What a provider does instead of answering."""

    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    how: str = ""
    """hang, reset, cut (half of the right answer and its full length), half (half of it, as if it were all), chunked
    (a chunk too few), drip (never ending), headers (dripping, then the right answer, unless whoever asked has left); by
    default the status and body."""


@dataclass
class Seen:
    """A request."""

    method: str
    url: str
    headers: dict[str, str]
    form: dict[str, Any]


@dataclass
class Providers:
    """What the providers know, and what they were asked."""

    url: str = ""
    key: str = "none"
    """What opens DeepL, LibreTranslate (where it asks for one) and the others."""
    libre_needs_key: bool = False
    answers: dict[str, str] = field(default_factory=dict)
    """What the chat model answers to a caption; without an entry it is a Spanish sentence."""
    chat: dict[str, Any] = field(default_factory=dict)
    """Fields of the chat model's choice and its message, by caption or `*`, in place of the usual ones."""
    chat_needs_key: bool = False
    seen: list[Seen] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    """By text, one after the other; that of `*` for every text, for good."""
    released: threading.Event = field(default_factory=threading.Event)
    """What hangs goes on, without an answer."""
    gather: threading.Barrier | None = None
    """Requests wait here for each other."""
    left: threading.Event = field(default_factory=threading.Event)
    """Somebody has closed the connection while headers dripped."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails(self, text: str, *faults: Fault) -> None:
        """Has the next requests for a text fail."""
        self.faults.setdefault(text, deque()).extend(faults)

    def fault(self, text: str) -> Fault | None:
        with self.lock:
            queue = self.faults.get(text)
            if queue:
                return queue.popleft()
            everything = self.faults.get("*")
            return everything[0] if everything else None

    def texts(self) -> list[str]:
        """The texts that were asked for, in order."""
        return [request.form.get("text", request.form.get("q", "")) for request in self.seen]

    def patched(self) -> dict[str, str]:
        """The package's table of addresses, leading here."""
        return {name: self.url + path for name, path in PATHS.items()}

    def services(self) -> dict[str, dict[str, Any]]:
        """The addresses of the documented services, leading here."""
        return {name: {key: self.url + path for key, path in paths.items()} for name, paths in SERVICES.items()}


Reply = tuple[int, str, str]
"""Status, type, body."""


def _json(status: int, value: Any) -> Reply:
    return status, "application/json", json.dumps(value)


def _google(providers: Providers, request: Seen) -> Reply:
    form = request.form
    page = (
        "<!DOCTYPE html><html><head><title>Google Translate</title></head><body><div class='root-container'>"
        f'<form action="/m"><input type="text" name="q" value="{html.escape(form["q"])}"></form>'
        f'<div class="result-container">{html.escape(translated(form["q"], form["tl"]))}</div>'
        '<div class="links-container"><ul><li><a href="https://www.google.com/m">Google home</a></li></ul></div>'
        "</div></body></html>"
    )
    return (200, "text/html; charset=UTF-8", page) if request.method == "GET" else (405, "text/html", "")


def _deepl(providers: Providers, request: Seen) -> Reply:
    if request.method != "POST" or "?" in request.url or "auth_key" in request.form:
        return _json(403, {"message": LEGACY})
    if request.headers.get("authorization") != f"DeepL-Auth-Key {providers.key}":
        return _json(403, {"message": "Forbidden"})
    if request.url.startswith("/deepl-free/") != providers.key.endswith(":fx"):
        return _json(403, {"message": "Wrong endpoint. Use https://api-free.deepl.com"})
    text = translated(request.form["text"], request.form["target_lang"])
    return _json(200, {"translations": [{"detected_source_language": "EN", "text": text}]})


def _libre(providers: Providers, request: Seen) -> Reply:
    if request.method != "POST":
        return _json(405, {"error": "Method Not Allowed"})
    key = request.form.get("api_key")
    if key and key != providers.key:
        return _json(403, {"error": "Invalid API key"})
    if not key and providers.libre_needs_key:
        return _json(400, {"error": "Visit https://portal.libretranslate.com to get an API key"})
    if request.form["target"] not in ("en", "es", "zh", "nl"):
        return _json(400, {"error": f"{request.form['target']} is not supported"})
    return _json(200, {"translatedText": translated(request.form["q"], request.form["target"])})


def _microsoft_languages(providers: Providers, request: Seen) -> Reply:
    languages = {"en": "English", "es": "Spanish", "zh-Hans": "Chinese Simplified"}
    return _json(200, {"translation": {code: {"name": name} for code, name in languages.items()}})


def _microsoft(providers: Providers, request: Seen) -> Reply:
    if request.headers.get("ocp-apim-subscription-key") != providers.key:
        return _json(401, {"error": {"code": 401000, "message": "The request is not authorized"}})
    target = request.form["to"]
    return _json(200, [{"translations": [{"text": translated(request.form["text"], target), "to": target}]}])


def _google_cloud(providers: Providers, request: Seen) -> Reply:
    if request.headers.get("x-goog-api-key") != providers.key:
        return _json(400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}})
    text = translated(request.form["q"], request.form["target"])
    return _json(200, {"data": {"translations": [{"translatedText": text}]}})


def _mymemory(providers: Providers, request: Seen) -> Reply:
    text = translated(request.form["q"], request.form["langpair"].split("|")[1])
    return _json(200, {"responseData": {"translatedText": text, "match": 0.9}, "responseStatus": 200, "matches": []})


def _baidu(providers: Providers, request: Seen) -> Reply:
    text = translated(request.form["q"], request.form["to"])
    return _json(200, {"from": "en", "to": request.form["to"], "trans_result": [{"src": "", "dst": text}]})


def _yandex(providers: Providers, request: Seen) -> Reply:
    if request.form["key"] != providers.key:
        return _json(403, {"code": 401, "message": "API key is invalid"})
    text = translated(request.form["text"], request.form["lang"].split("-", 1)[1])
    return _json(200, {"code": 200, "lang": request.form["lang"], "text": [text]})


def _papago(providers: Providers, request: Seen) -> Reply:
    if request.headers.get("x-naver-client-secret") != providers.key:
        return _json(401, {"errorMessage": "Not Exist Client ID", "errorCode": "024"})
    text = translated(request.form["text"], request.form["target"])
    return _json(200, {"message": {"result": {"translatedText": text}}})


def _qcri(providers: Providers, request: Seen) -> Reply:
    text = translated(request.form["text"], request.form["langpair"].split("-", 1)[1])
    return _json(200, {"success": True, "translatedText": text} if request.form["domain"] == "general" else {})


def _caption(content: str) -> str:
    """The caption in a prompt, or the JSON of a batch."""
    return content.split("\n\n")[1]


def spanish(text: str) -> str:
    """What the chat model makes of a caption that it has no answer for."""
    return f"Un perro grande corre por la playa con {zlib.crc32(text.encode())} personas"


def _chat(providers: Providers, request: Seen) -> Reply:
    if providers.chat_needs_key and request.headers.get("authorization") != f"Bearer {providers.key}":
        words = f"Incorrect API key provided: {request.headers.get('authorization')}"
        return _json(401, {"error": {"message": words, "type": "invalid_request_error", "code": "invalid_api_key"}})
    if request.form["model"] not in ("tiny", "big/model:7b"):
        return _json(404, {"error": {"message": f"model '{request.form['model']}' not found", "type": "api_error"}})
    text = request.form["text"]
    content = providers.answers.get(text)
    if content is None and text.startswith("{"):
        captions = json.loads(text)
        content = json.dumps({number: providers.answers.get(c, spanish(c)) for number, c in captions.items()})
    content = spanish(text) if content is None else content
    changed = providers.chat.get(text, providers.chat.get("*", {}))
    message = {"role": "assistant", "content": content, **changed.get("message", {})}
    choice = {"index": 0, "finish_reason": changed.get("finish_reason", "stop"), "message": message}
    usage = {"prompt_tokens": len(text) + 100, "completion_tokens": len(content)}
    usage["total_tokens"] = sum(usage.values())
    facts = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request.form["model"]}
    return _json(200, {**facts, "choices": [choice], "usage": changed.get("usage", usage)})


def _models(providers: Providers, request: Seen) -> Reply:
    models = [{"id": name, "object": "model", "owned_by": "me"} for name in ("tiny", "big/model:7b")]
    return _json(200, {"object": "list", "data": models})


_ROUTES: dict[str, Callable[[Providers, Seen], Reply]] = {
    "/m": _google,
    "/deepl-free/v2/translate": _deepl,
    "/deepl-pro/v2/translate": _deepl,
    "/translate": _libre,
    "/microsoft/languages": _microsoft_languages,
    "/microsoft/translate": _microsoft,
    "/google-cloud/language/translate/v2": _google_cloud,
    "/get": _mymemory,
    "/api/trans/vip/translate": _baidu,
    "/api/v1.5/tr.json/translate": _yandex,
    "/v1/papago/n2mt": _papago,
    "/api/v1/translate": _qcri,
    "/v1/chat/completions": _chat,
    "/v1/models": _models,
}


@contextmanager
def serve(key: str = "none") -> Iterator[Providers]:
    """Runs the providers."""
    providers = Providers(key=key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            fields = json.loads(body) if "json" in headers.get("content-type", "") else None
            query = parse_qs(f"{parts.query}&{'' if fields else body}")
            form: dict[str, Any] = {name: values[0] for name, values in query.items()}
            form |= (fields[0] if isinstance(fields, list) else fields) or {}
            if "messages" in form:
                form["text"] = _caption(form["messages"][-1]["content"])
            request = Seen(self.command, self.path, headers, form)
            with providers.lock:
                providers.seen.append(request)
            fault = providers.fault(form.get("text", form.get("q", "")))
            if providers.gather is not None and fault is None:
                providers.gather.wait(30)
            route = _ROUTES.get(parts.path)
            status, kind, text = route(providers, request) if route else (404, "text/html", "")
            if fault is None:
                self.answer(status, {"Content-Type": kind}, text.encode())
            else:
                self.fail(fault, kind, text.encode())

        do_POST = do_GET

        def answer(self, status: int, headers: dict[str, str], body: bytes, length: int | None = None) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def fail(self, fault: Fault, kind: str, right: bytes) -> None:
            half = right[: int(len(right) * 0.75)]
            self.close_connection = fault.how in ("hang", "reset", "cut", "chunked", "drip")
            if fault.how == "hang":
                providers.released.wait(60)
            elif fault.how == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            elif fault.how == "cut":
                self.answer(200, {"Content-Type": kind}, half, len(right))
            elif fault.how == "headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                try:
                    for _ in range(500):
                        providers.released.wait(0.02)
                        self.wfile.write(b"x")
                except OSError:
                    providers.left.set()
                    raise
                self.wfile.write(b"\r\nContent-Type: %b\r\n" % kind.encode())
                self.wfile.write(b"Content-Length: %d\r\n\r\n%b" % (len(right), right))
            elif fault.how == "half":
                self.answer(200, {"Content-Type": kind}, _within(right))
            elif fault.how in ("chunked", "drip"):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(half), half))
                while fault.how == "drip" and not providers.released.wait(0.02):
                    self.wfile.write(b"1\r\n \r\n")
            else:
                self.answer(fault.status, {"Content-Type": kind, **fault.headers}, fault.body.encode())

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever asked may have left."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    providers.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield providers
    finally:
        providers.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _within(right: bytes) -> bytes:
    """The beginning of an answer up to the middle of the translation."""
    return right[: (right.rindex("«".encode()) if "«".encode() in right else right.rindex(b"\\u00ab")) + 9]
