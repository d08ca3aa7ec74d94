"""The parts of a translation or an extraction on a Ray cluster (`--executor ray`), each a task.

A part is one of `--shard`: what comes of it is on disk as soon as it is there, in the cache of translations or in
pieces of features, on a file system that all workers see. So a part whose worker was lost goes on elsewhere, and
whoever gave the command makes the artifact of what is on disk, as ever. No result passes through Ray, and no key: these
are in the environment of each worker.
"""

from __future__ import annotations

import io
import os
import platform
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ccr_cli
from ccr_cli import console
from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.cache_folder import cache_folder
from ccr_cli.console import progress, say, warn
from ccr_cli.errors import ArtifactError, CcrError, ResourceError, Terminated, UnavailableError, as_user_error, redact
from ccr_cli.stages.extract import stage as extract
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import Part
from ccr_cli.stages.translate import job as translate_job
from ccr_cli.stages.translate import workers
from ccr_cli.stages.translate.steps import begin

RETRIES = 5
"""How often a part is begun again whose worker was lost; what a user can mend is not tried twice."""
PARTS_A_WORKER, LEAST_PARTS = 4, 32
"""Parts are more than workers, so that those that join get some: for each one there is room for now, and at least."""
_GRACE_SECONDS = 20.0
"""How long workers that are told to stop may take to leave things in order."""
_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
"""How long the cluster may take to answer at all; Ray itself would try for minutes."""
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU"}
_GOES_ON = "see Ray's logs; the same command goes on: what succeeded is kept"

_Counts = dict[str, int]
_Work = Callable[[Inputs, Part, int], _Counts]
"""What a worker does: a part, with so many threads."""


@dataclass(frozen=True)
class Place:
    """Where a worker works."""

    workspace: Path
    data: Path
    """The data set."""
    folder: Path
    """Where the command was given: relative paths in options begin there."""
    cache: Path
    seen: tuple[Path, ...]
    """Files that a worker sees if its file system is the right one."""
    version: str


def translate_on_ray(inputs: Inputs, wanted: translate_job.TranslateOptions, parts: int | None) -> None:
    """Has a cluster translate the sentences into the cache, for whoever then makes the artifact.

    Args:
        inputs: As for `translate`.
        wanted: What is asked for.
        parts: How many parts; None: by the cluster.

    Raises:
        UnavailableError: If the engine, its model or the pair is not to be had, or Ray.
        UsageError: If the parts have no cache in which to meet.
    """
    if inputs.workspace.dry_run:
        return
    workers.require_cache([wanted])
    job = translate_job.TranslationJob(inputs, wanted)
    if job.request["engine"] == "recorded":
        say("recorded looks its answers up: there is no work to share")
        return
    if job.state() == "done":
        return
    device = choose_device(wanted.device if job.has_device else "cpu")
    # too many failures are those of all parts together; whoever makes the artifact counts them
    own = replace(wanted, engine=job.request["engine"], device=device.type, max_failed=1.0)
    groups = max(len(begin(rows["text"])) for _, rows in job.chains)
    label = f"translate {job.source.source_lang} -> {wanted.lang} on Ray"
    try:
        with _place(inputs, job.source.artifact, cache_folder()) as place:
            _share(partial(_translate, own), place, device, _divide(groups, parts), label, "captions")
    except UnavailableError as error:
        raise job.with_apertium(error) from None


def extract_on_ray(inputs: Inputs, wanted: extract.ExtractOptions, parts: int | None) -> base.Artifact | None:
    """As `extract`, but a cluster makes the pieces.

    Args:
        inputs: As for `extract`.
        wanted: What is asked for.
        parts: How many parts; None: by the cluster.

    Raises:
        UnavailableError: If Ray is not to be had.
    """

    def share(job: extract.ExtractJob) -> None:
        todo, bounds = job.pieces.todo(), job.pieces.bounds()
        device = choose_device(wanted.device)
        own = replace(wanted, device=device.type, force=False, retry_failed=False)
        divide = _divide(len(bounds), parts)

        def left(slots: int) -> list[Part]:
            owned = {part: part.take(bounds) for part in divide(slots)}
            return [part for part, theirs in owned.items() if not set(todo).isdisjoint(theirs)]

        with _place(inputs, job.data, None, job.media_of(todo)[:1]) as place:
            _share(partial(_extract, own), place, device, left, f"extract {job.name} on Ray", "items")

    return extract.extract(inputs, wanted, share)


def _translate(wanted: translate_job.TranslateOptions, inputs: Inputs, part: Part, threads: int) -> _Counts:
    return workers.translate_part(inputs, wanted, part)


def _extract(wanted: extract.ExtractOptions, inputs: Inputs, part: Part, threads: int) -> _Counts:
    done, failed = extract.ExtractJob(inputs, replace(wanted, workers=wanted.workers or threads)).work(part)
    return {"items": done - failed, "failed": failed}


def _divide(groups: int, parts: int | None) -> Callable[[int], list[Part]]:
    """Cuts groups of work into parts, by the number of workers that there is room for if nobody says how many."""

    def divide(slots: int) -> list[Part]:
        count = min(groups, parts or max(LEAST_PARTS, PARTS_A_WORKER * slots))
        return [Part(number, count) for number in range(count)]

    return divide


@contextmanager
def _place(inputs: Inputs, data: base.Artifact, cache: Path | None, see: Sequence[Path] = ()) -> Iterator[Place]:
    """Says where to work, with an empty file in the workspace, and one in the cache, by which workers know it."""
    root, kept = inputs.workspace.root.absolute(), (cache or cache_folder()).absolute()
    with ExitStack() as stack:
        marks = []
        for folder in (root, *([kept] if cache else [])):
            folder.mkdir(parents=True, exist_ok=True)
            marks.append(Path(stack.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=".ray-")).name))
        yield Place(root, data.path.absolute(), Path.cwd(), kept, (*marks, *see), ccr_cli.__version__)


def _share(
    work: _Work, place: Place, device: torch.device, divide: Callable[[int], list[Part]], label: str, unit: str
) -> None:
    """Has a cluster do the parts of a work, each once; what fails for a reason that a user can mend ends it.

    Raises:
        CcrError: What a worker raised, or if a part lost its worker too often.
        UnavailableError: If there is no cluster.
    """
    with _cluster() as ray:
        needs, slots = worker_needs(ray.nodes(), device)
        parts = divide(slots)
        asked = " and ".join(f"{count} {_RESOURCES[name]}" for name, count in needs.items())
        say(f"{label}: {len(parts)} parts, each with {asked}; there is room for {slots} at once")
        if not slots:
            warn(f"no node of the cluster has {asked}; waiting for one that joins")
        task = ray.remote(**needs, max_retries=RETRIES)(do_part)
        waiting = {
            task.options(name=f"ccr {part}").remote(work, place, part, needs["num_cpus"]): part for part in parts
        }
        with _signals() as come:
            try:
                _collect(ray, waiting, come, label, unit)
            except BaseException:
                for each in waiting:
                    ray.cancel(each)  # raises KeyboardInterrupt in the worker, as Ctrl-C would
                if waiting:
                    ray.wait(list(waiting), num_returns=len(waiting), timeout=_GRACE_SECONDS)
                raise


def _collect(ray: Any, waiting: dict[Any, Part], come: list[int], label: str, unit: str) -> None:
    done = failed = 0
    with progress(len(waiting), label, "parts") as advance:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=_POLL_SECONDS)
            if come:
                raise KeyboardInterrupt if come[0] == signal.SIGINT else Terminated
            for each in ready:
                found = _outcome(ray, each, waiting.pop(each))
                done, failed = done + found[unit], failed + found["failed"]
                advance(1, f"{done} {unit}")
    say(f"{label}: {done} {unit} done, {failed} failed")


def _outcome(ray: Any, each: Any, part: Part) -> _Counts:
    try:
        found: _Counts | CcrError = ray.get(each)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RaySystemError):  # what it was given could not be unpacked
            why = redact(str(error).strip().splitlines()[-1])
            hint = f"install ccr {ccr_cli.__version__} on all nodes, in Ray's environment"
            raise UnavailableError(f"a worker cannot load ccr: {why}", hint=hint) from None
        raise
    except ray.exceptions.RayError as error:  # a lost node, a dead process, one that Ray's own guard of memory ended
        why = next(iter(redact(str(error)).splitlines()), type(error).__name__)
        kind = ResourceError if isinstance(error, ray.exceptions.OutOfMemoryError) else CcrError
        raise kind(f"{part} lost its worker {RETRIES + 1} times: {why}", hint=_GOES_ON) from None
    if isinstance(found, CcrError):
        raise found
    return found


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Notes Ctrl-C and SIGTERM, for what they raise may not come out of Ray's own code; the second acts as ever."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    come: list[int] = []

    def note(number: int, frame: object) -> None:
        come.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for each in before:
        signal.signal(each, note)
    try:
        yield come
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def do_part(work: _Work, place: Place, part: Part, threads: int) -> _Counts | CcrError:
    """Does a part, in a worker: what it comes to, or the error that a user can mend, which is not to be tried again."""
    console.verbosity = -1
    here = platform.node()
    if place.version != ccr_cli.__version__:
        message = f"the worker on {here} has ccr {ccr_cli.__version__}, and this is ccr {place.version}"
        return UnavailableError(message, hint="install the same version on all nodes")
    for path in place.seen:
        if not path.exists():
            message = f"the worker on {here} does not see {path.parent} as it is here"
            return ArtifactError(message, hint="a file system that all nodes of the cluster share, at the same path")
    with suppress(OSError):  # where the command was given need not be there, unless an option leads into it
        os.chdir(place.folder)
    os.environ["CCR_CACHE"] = str(place.cache)
    torch.set_num_threads(threads)
    try:
        return work(Inputs.from_paths(Workspace(place.workspace), [str(place.data)]), part, threads)
    except CcrError as error:
        return error
    except (OSError, MemoryError, RuntimeError) as error:
        known = as_user_error(error)
        if known is None:
            raise
        return known


def worker_needs(nodes: Sequence[dict[str, Any]], device: torch.device) -> tuple[dict[str, int], int]:
    """What a worker needs, and for how many there is room now.

    On a GPU that is one, with its share of its node's processors; else as many processors as this command would compute
    with by `OMP_NUM_THREADS`, which decides the last bits, and one if it does not say.
    """
    have = [node["Resources"] for node in nodes if node["Alive"]]
    if device.type == "cuda":
        shares = [int(each.get("CPU", 0) // each["GPU"]) for each in have if each.get("GPU", 0) >= 1]
        needs = {"num_cpus": max(1, min(shares, default=1)), "num_gpus": 1}
    else:
        asked = os.environ.get("OMP_NUM_THREADS", "1")
        needs = {"num_cpus": max(1, int(asked)) if asked.isdecimal() else 1}
    return needs, sum(min(int(each.get(_RESOURCES[key], 0) // count) for key, count in needs.items()) for each in have)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Joins the cluster of `RAY_ADDRESS` or of this machine, or starts one here that ends with the work."""
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = "pip install 'ccr-cli[ray]'"
        raise UnavailableError(
            f"--executor ray needs a package that is not installed: {error.name}", hint=hint
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray that is started here tells nobody
    address = os.environ.get("RAY_ADDRESS", "")
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        if found := re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", address):
            socket.create_connection((found[1].strip("[]"), int(found[2])), _CONNECT_SECONDS).close()
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises anything: RuntimeError, ValueError, ConnectionError, after minutes
        why = next(iter(redact(str(error)).splitlines()), type(error).__name__)
        where = f"at RAY_ADDRESS={address}" if address else "here"
        hint = "RAY_ADDRESS names a running cluster; unset it to start Ray on this machine"
        raise UnavailableError(redact(f"there is no Ray cluster {where}: {why}"), hint=hint) from None
    finally:
        signal.signal(signal.SIGTERM, terminate)  # Ray sets its own
    with redirect_stdout(_Told()):
        try:
            yield ray
        finally:
            ray.shutdown()


class _Told(io.TextIOBase):
    """What Ray prints, of workers and nodes that it lost, is said, in two sentences: standard output is for data."""

    def write(self, text: str) -> int:
        """Takes what is printed at once; its first line says what happened."""
        line = re.sub(r"\x1b\[[0-9;]*m", "", text).strip().split("\n", 1)[0]
        if line:
            say(". ".join(line.replace("(raylet)", "Ray:", 1).split(". ")[:2]))
        return len(text)
