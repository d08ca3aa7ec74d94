"""A hub of one model or data set on this machine: what finding, downloading and uploading take of its protocol."""

from __future__ import annotations

import base64
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

import huggingface_hub.constants
import pytest
from huggingface_hub import RepoCard

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
    token: str = ""
    """The token that may write; nobody may without one."""
    place: Path = Path()
    """The folder that uploads to `main` fill, once the repository is created."""
    created: dict[str, Any] = field(default_factory=dict)
    """What created the repository."""

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
        for prefix in ("/api", "/models", "/datasets", f"/{self.name}/"):
            path = path.removeprefix(prefix)
        kind, _, rest = path.partition("/")
        if kind == "discussions":
            return _json({"count": len(self.pulls), "start": 0, "discussions": self.pulls})
        if kind == "revision" and rest in folders:
            names = [{"rfilename": name} for name in _names(folders[rest])]
            return _json({"id": self.name, "sha": commit(rest), "siblings": names})
        if kind == "tree" and rest in folders:
            sizes = {name: (folders[rest] / name).stat().st_size for name in _names(folders[rest])}
            files = [{"type": "file", "path": name, "size": size} for name, size in sizes.items()]
            return _json([{**file, "oid": commit(str(file["path"]))} for file in files])
        revision = next((revision for revision in folders if rest.startswith(f"{revision}/")), "")
        file = folders[revision] / rest.removeprefix(f"{revision}/") if revision else Path()
        if kind == "resolve" and file.is_file():
            content = file.read_bytes()
            return {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": revision}, content
        return None

    def take(self, path: str, token: str, body: bytes) -> tuple[dict[str, str], bytes] | None:
        """Answers what is posted: the creation of the repository, the check of its card, a commit of whole files."""
        if path == "/api/validate-yaml":
            RepoCard(json.loads(body)["content"], ignore_metadata_errors=False)
            return _json({"errors": [], "warnings": []})
        if not self.token or token != f"Bearer {self.token}":
            return None
        if path == "/api/repos/create":
            self.created = json.loads(body)
            return _json({"url": f"{self.url}/{self.name}"})
        if path.endswith(f"/{self.name}/preupload/main") and self.created:
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return _json({"files": [{"path": file["path"], **modes} for file in json.loads(body)["files"]]})
        if path.endswith(f"/{self.name}/commit/main") and self.created:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    file = self.place / line["value"]["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(base64.b64decode(line["value"]["content"]))
            self.revisions["main"] = self.place
            return _json(
                {"success": True, "commitOid": commit("main"), "commitUrl": f"{self.url}/{self.name}/commit/1"}
            )
        return None


def _names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


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
            posted = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = hub.answer(path)
            if self.command == "POST":
                reply = hub.take(path, self.headers.get("Authorization", ""), posted)
            headers, body = reply or ({"X-Error-Code": "RevisionNotFound"}, b"")
            self.send_response(404 if "X-Error-Code" in headers else 200)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
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


def point_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT does to a process that starts."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
