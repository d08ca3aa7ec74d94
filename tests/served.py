"""`ccr serve` or `ccr review` as a process of its own, asked over loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import toy


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A server that is up; `with` stops it."""

    def __init__(self, workspace: Path, *arguments: str | Path, name: str = "serve") -> None:
        words = [name, *map(str, arguments), "--port", "0", *(["--device", "cpu"] if name == "serve" else [])]
        command = [sys.executable, "-m", "ccr_cli", *words]
        self.process = subprocess.Popen(
            command, env=toy.environment(workspace), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.communicate()
        self.port = urlsplit(self.address).port

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)

    def stop(self, how: signal.Signals) -> tuple[int, str]:
        """Stops it; its exit code and what it said."""
        self.process.send_signal(how)
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said

    def ask(
        self,
        target: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        method: str = "GET",
        body: bytes | Iterable[bytes] | None = None,
    ) -> Reply:
        """Asks exactly what is said: the target is sent as it stands, and so is a Host header."""
        given = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        names = {name.lower() for name, _ in given}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, target, skip_host="host" in names, skip_accept_encoding=True)
            for name, value in given:
                connection.putheader(name, value)
            if isinstance(body, bytes) and "content-length" not in names:
                connection.putheader("Content-Length", str(len(body)))
            chunked = body is not None and not isinstance(body, bytes)
            if chunked:
                connection.putheader("Transfer-Encoding", "chunked")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before all was sent
                connection.endheaders(body, encode_chunked=chunked)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()
