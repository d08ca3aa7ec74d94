"""Python code in processes that have loaded torch and the stages already: a start takes no seconds.

Each is forked from a process that a test process starts once, and has no thread, file or patch of a test.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

_CONTEXT = multiprocessing.get_context("forkserver")
_LOADED = ["ccr_cli.commands.sweep", "ccr_cli.stages.train.stage", "ccr_cli.report.words.artifact_summaries"]
_CONTEXT.set_forkserver_preload([*_LOADED, "torch._dynamo"])  # which optimizers import


def _run(code: str, arguments: Sequence[str], environment: dict[str, str], out: Connection, err: Connection) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, pipe in ((1, out), (2, err)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


class Process:
    """What tests use of a `subprocess.Popen` with text."""

    def __init__(self, code: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        pipes = [_CONTEXT.Pipe(duplex=False) for _ in range(2)]
        out, err = (writer for _, writer in pipes)
        self._process = _CONTEXT.Process(target=_run, args=(code, arguments, environment, out, err), daemon=True)
        self._process.start()
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno()), encoding="utf-8") for end, _ in pipes)
        for end in (end for pipe in pipes for end in pipe):
            end.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; negative for a signal, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Waits for its end; what it printed and said since the last look."""
        with self.stdout, self.stderr, ThreadPoolExecutor(2) as pool:
            texts = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self._process.join(timeout)
            if self.returncode is None:
                self.kill()
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            out, err = (text.result() for text in texts)
        return out, err
