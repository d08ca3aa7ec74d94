"""Commands in forked processes, which a test may kill, or whose disk, descriptors or memory it may limit.

Run as a program, this is the process that is forked: it has loaded what commands load, so that a kill meets work and
not Python's start. `Server` talks to it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import toy

STAGES: dict[str, tuple[str, ...]] = {
    "import": ("data", "import", "FOLDER", "--name", "mine"),
    "translate": ("translate", "toy", "--lang", "es", "--back", "--with-queries", "--name", "mine"),
    "noise": ("translate", "toy", "--lang", "es", "--back", "--with-queries", "--noise", "0.2"),
    "extract": ("extract", "toy", *toy.ENCODER, "--name", "mine"),
    "train": ("train", "--method", "infonce", "--epochs", "8", *toy.SMALL, "--name", "mine"),
    "evaluate": ("evaluate", "toy-es-infonce", "--device", "cpu", "--split", "val", "--name", "mine"),
    "diagnose": ("diagnose", "toy-es-infonce", "--judge", "gmm", "--device", "cpu", "--name", "mine"),
    "report": ("report", "--name", "mine"),
    "index": ("index", "toy-es-infonce", "--split", "all", "--name", "mine"),
    "export": ("export", "toy-es-infonce", "--name", "mine"),
    "search": ("search", "rojo", "toy-es-infonce", "--device", "cpu"),
}
"""A command of every stage, in the workspace of `chain`; FOLDER is that of the toy data set."""
LEASE = 0.5
"""Seconds after which a lock is silent."""
MARK = b"Traceback (most recent call last)"


class Running:
    """A command that has been started; `output` is the file of both of its streams."""

    def __init__(self, server: Server, pid: int, output: Path) -> None:
        self._server, self.pid, self.output = server, pid, output

    def kill(self) -> int:
        """Kills it, unless it has ended; the exit code."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """The exit code; negative for a signal."""
        return int(self._server.receive()["code"])

    @property
    def text(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace")


class Server:
    """Starts one command at a time."""

    def __init__(self, place: Path, workspace: Path, **environment: str) -> None:
        self._place = place
        env = {
            **toy.environment(workspace, **environment),
            "CCR_CACHE": str(place / "cache"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.receive() == {"ready": True}

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next answer of the process."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 300)
        assert ready, "a command hangs"
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(self, words: Sequence[str | Path], workspace: Path, **limits: Any) -> Running:
        """Starts a command.

        `limits` are `descriptors`, `memory` (bytes of address space) and `fault`: an error number, the place of the
        call that it meets, the kind of call ("write", "read") and the folder of the files.
        """
        output = self._place / "output.txt"
        argv = [*map(str, words), "--workspace", str(workspace)]
        self.send({"argv": argv, "output": str(output), **limits})
        return Running(self, int(self.receive()["pid"]), output)

    def run(self, words: Sequence[str | Path], workspace: Path, **limits: Any) -> tuple[int, str]:
        """Runs a command to its end; the exit code, and what it printed."""
        running = self.start(words, workspace, **limits)
        return running.wait(), running.text

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def _child(request: dict[str, Any]) -> int:
    """Runs a command in this new process."""
    from ccr_cli.cli import main

    handle = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "descriptors" in request:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["descriptors"], request["descriptors"]))
    if "memory" in request:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    if "fault" in request:
        number, at, reading, folder = request["fault"]
        ctypes.CDLL(None).fault_arm(number, at, reading, os.fsencode(folder))
    sys.argv = ["ccr", *request["argv"]]
    try:
        main()
    except SystemExit as done:
        return int(done.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _serve() -> None:
    import torch

    import ccr_cli.commands
    from ccr_cli.artifacts import build

    torch.set_num_threads(1)
    build.LEASE_SECONDS = LEASE
    for path in sorted(Path(ccr_cli.commands.__file__).parent.glob("*.py")):
        __import__(f"ccr_cli.commands.{path.stem}")
    for name in ("train", "evaluate", "diagnose", "report", "search", "export", "extract", "translate", "data"):
        __import__(f"ccr_cli.stages.{name}.stage")
    print(json.dumps({"ready": True}), flush=True)
    requests = os.fdopen(os.dup(0), "rb", 0)
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _child(json.loads(line))
                sys.stdout.flush(), sys.stderr.flush()
            finally:
                os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)
        print(json.dumps({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}), flush=True)


if __name__ == "__main__":
    _serve()
