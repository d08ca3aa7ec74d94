"""Reading files with libraries written in C, in a process that may crash.

A malformed MATLAB, HDF5 or FAISS file can crash the process that reads it. So a helper process reads it first, with the
same code and limits on memory and time; MATLAB files, whose reader crashed in tests, are read only there, and their
arrays are handed over as `.npy`. The helper stays alive for the next file, because starting it takes a second.
"""

import atexit
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ccr_cli.errors import ArtifactError
from ccr_cli.process_memory import limit_address_space

MEMORY, EXPANSION = 6 << 30, 64
"""Memory limit of a reader: this many bytes, plus this many per byte of the file."""
SECONDS, BYTES_PER_SECOND = 60.0, 5e6
"""Time limit of a reader: this many seconds, plus the time to read the file at this speed."""

ARRAY = "$array"
"""Key of a JSON node that stands for an array."""


class UnfitError(Exception):
    """Raised by a reader that finds a file unusable; the message tells the user why."""


_lock = threading.Lock()
_reader: subprocess.Popen[str] | None = None


def try_reading(path: Path, reader: Callable[[Path], object]) -> None:
    """Calls a function of a module on a file in the helper process, again only if the file changes.

    Errors that a library reports are ignored: they recur in this process, whose reader has better messages for them.

    Raises:
        ArtifactError: If reading it crashes, hangs, takes too much memory, or a FAISS index refers to entries that it
            lacks.
    """
    if path.is_file():
        stat = path.stat()
        _try(f"{reader.__module__}:{reader.__name__}", path.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=256)
def _try(reader: str, path: Path, size: int, *state: int) -> None:
    answer = _ask(path, size, reader, path)
    if answer != "ok":
        raise ArtifactError(f"{path} is damaged: {answer}")


def read_matlab(path: Path, squeezed: bool = False) -> dict[str, Any]:
    """Reads the variables of a MATLAB file in the helper process.

    Matrices are arrays (a sparse one as a dense one), structs are dicts, cells are lists; other values are None.
    `squeezed` removes dimensions of size one.

    Raises:
        ArtifactError: If it cannot be read, or reading it crashes, hangs or takes too much memory.
    """
    with TemporaryDirectory(prefix="ccr-matlab-") as folder:
        answer = _ask(path, path.stat().st_size, "squeezed" if squeezed else "matlab", Path(folder))
        if not answer.startswith("{"):
            hint = "save it with -v7" if "7.3" in answer else None
            raise ArtifactError(f"{path} is not a readable MATLAB file: {answer}", hint=hint)
        content: dict[str, Any] = json.loads(answer, object_hook=lambda node: _array(Path(folder), node))
    return content


def _array(folder: Path, node: dict[str, Any]) -> Any:
    """Memory-maps the array that a node stands for; its file may be deleted afterwards."""
    import numpy as np

    return np.load(folder / f"{node[ARRAY]}.npy", mmap_mode="c", allow_pickle=False) if ARRAY in node else node


def _ask(path: Path, size: int, how: str, place: Path) -> str:
    """The answer of the helper process, which is started if necessary; or how the process ended."""
    global _reader
    with _lock:
        if _reader is None or _reader.poll() is not None:
            command = [sys.executable, "-m", "ccr_cli.trial"]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            env |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            quiet = subprocess.DEVNULL
            _reader = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True
            )
        assert _reader.stdin is not None and _reader.stdout is not None
        names = (os.fsencode(file).hex() for file in (path.absolute(), place))
        _reader.stdin.write(f"{MEMORY + EXPANSION * size} {how} {' '.join(names)}\n")
        _reader.stdin.flush()
        seconds = SECONDS + size / BYTES_PER_SECOND
        late = threading.Event()
        timer = threading.Timer(seconds, _end, (_reader, late))  # Windows cannot select a pipe
        timer.start()
        answer = _reader.stdout.readline().strip()
        timer.cancel()
        if not answer:
            code = -_reader.wait()
            answer = f"reading it ends with {signal.Signals(code).name if code > 0 else 'an exit'}"
        if late.is_set():
            answer = f"reading it takes more than {seconds:.0f} s"
        if late.is_set() or _reader.poll() is not None:
            _stop(_reader)
            _reader = None
        return answer


def _end(reader: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    reader.kill()


def _stop(reader: subprocess.Popen[str]) -> None:
    reader.kill()
    reader.communicate()


@atexit.register
def _stop_the_last() -> None:
    if _reader is not None:
        _stop(_reader)


def _read_matlab(path: str, squeezed: bool, folder: Path) -> str:
    """Writes the arrays of a MATLAB file into a folder, and returns as JSON where each belongs."""
    import numpy as np
    from scipy.io import loadmat

    numbers = itertools.count()

    def tree(value: Any) -> Any:
        value = value.toarray() if hasattr(value, "toarray") else value
        if names := getattr(getattr(value, "dtype", None), "names", None):
            struct = value.reshape(-1)[0] if isinstance(value, np.ndarray) and value.size == 1 else value
            return None if isinstance(struct, np.ndarray) else {name: tree(struct[name]) for name in names}
        array = np.asarray(value)
        if array.dtype == object:
            return [tree(cell) for cell in array.reshape(-1)]
        if array.dtype.kind not in "fiubcU":
            return None
        number = next(numbers)
        np.save(folder / f"{number}.npy", array, allow_pickle=False)
        return {ARRAY: number}

    content = loadmat(path, squeeze_me=squeezed)
    return json.dumps({str(name): tree(value) for name, value in content.items() if not name.startswith("__")})


def _answer() -> None:
    """Reads the files named on standard input, one per line, and answers each with one line."""
    for line in sys.stdin:
        limit, how, *names = line.split()
        path, place = (os.fsdecode(bytes.fromhex(name)) for name in names)
        limit_address_space(int(limit))
        answer = "ok"
        try:
            module, _, reader = how.partition(":")
            if reader:
                getattr(importlib.import_module(module), reader)(Path(path))
            else:
                answer = _read_matlab(path, how == "squeezed", Path(place))
        except NotImplementedError:
            answer = "it has format 7.3 (HDF5)" if not reader else "ok"
        except Exception as error:
            too_much = isinstance(error, MemoryError) or "memory" in str(error).lower()
            told = not reader or isinstance(error, UnfitError)
            answer = (
                f"reading it takes more than {int(limit) >> 30} GiB of memory"
                if too_much
                else str(error) * told or "ok"
            )
        print(" ".join(answer.split()), flush=True)


if __name__ == "__main__":
    sys.modules["ccr_cli.trial"] = sys.modules[__name__]  # readers raise the error of this copy of the module
    _answer()
