"""A hub of one model on this machine: as much of the hub's protocol as finding and downloading a model takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

CONVERTER = "SFconvertbot"
TITLE = "Adding `safetensors` variant of this model"


def commit(revision: str) -> str:
    """The commit that a revision leads to."""
    return hashlib.sha1(revision.encode()).hexdigest()


@dataclass
class Hub:
    """What lies on the hub, and what it was asked."""

    name: str
    """Of the model: owner/name."""
    url: str = ""
    revisions: dict[str, Path] = field(default_factory=dict)
    """A folder each."""
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Method and path of every request."""

    def pull(self, num: int, folder: Path, author: str = CONVERTER, title: str = TITLE, status: str = "open") -> None:
        """Opens a pull request."""
        self.revisions[f"refs/pr/{num}"] = folder
        self.pulls.append(
            {
                "num": num,
                "title": title,
                "author": {"name": author},
                "status": status,
                "isPullRequest": True,
                "createdAt": "2023-03-01T12:00:00.000Z",
                "repo": {"name": self.name, "type": "model"},
            }
        )

    def answer(self, path: str) -> tuple[dict[str, str], bytes] | None:
        """Headers and body for a path; None where nothing is there. What is asked for beyond the path is ignored."""
        folders = {key: folder for name, folder in self.revisions.items() for key in (name, commit(name))}
        kind, _, rest = path.removeprefix("/api/models").removeprefix(f"/{self.name}/").partition("/")
        if kind == "discussions":
            return _json({"count": len(self.pulls), "start": 0, "discussions": self.pulls})
        if kind == "revision" and rest in folders:
            names = [{"rfilename": file.name} for file in folders[rest].iterdir()]
            return _json({"id": self.name, "sha": commit(rest), "siblings": names})
        if kind == "tree" and rest in folders:
            files = [{"type": "file", "path": f.name, "size": f.stat().st_size} for f in folders[rest].iterdir()]
            return _json([{**file, "oid": commit(str(file["path"]))} for file in files])
        revision, _, name = rest.rpartition("/")
        if kind == "resolve" and revision in folders and (folders[revision] / name).is_file():
            content = (folders[revision] / name).read_bytes()
            return {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": revision}, content
        return None


def _json(value: Any) -> tuple[dict[str, str], bytes]:
    return {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextmanager
def serve(name: str) -> Iterator[Hub]:
    """Runs a hub with a model of that name, empty at first."""
    hub = Hub(name)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            headers, body = hub.answer(path) or ({"X-Error-Code": "RevisionNotFound"}, b"")
            self.send_response(404 if "X-Error-Code" in headers else 200)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
