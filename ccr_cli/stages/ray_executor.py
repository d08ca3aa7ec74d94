"""Translation or extraction on a Ray cluster (`--executor ray`): each part is a task.

A part is the same as with `--shard`. Its results are on disk as soon as they exist, in the cache of translations or in
pieces of features, on a file system that all workers share. So if a worker is lost, another resumes its part, and the
command itself makes the artifact from the files, as without Ray. Neither results nor API keys pass through Ray; the
keys are in the environment of each worker.
"""

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
from ccr_cli.errors import ArtifactError, CcrError, ResourceError, UnavailableError, as_user_error, redact
from ccr_cli.stages.extract import stage as extract
from ccr_cli.stages.extract.options import ExtractOptions
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.shared.stop_signals import end_on, stop_signals
from ccr_cli.stages.translate import job as translate_job
from ccr_cli.stages.translate import stage as translate
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.steps import begin

RETRIES = 5
"""How often a part is restarted after losing its worker; errors that the user can fix are not retried."""
PARTS_PER_WORKER, LEAST_PARTS = 4, 32
"""There are more parts than workers, so that workers that join later get some."""
_GRACE_SECONDS = 20.0
"""How long cancelled workers may take to stop cleanly."""
_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
"""How long the cluster may take to answer; Ray itself would try for minutes."""
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU"}
_RESUMES = "see Ray's logs; the same command resumes: finished work is kept"

_Counts = dict[str, int]
_Work = Callable[[Inputs, WorkPart, int], _Counts]
"""A worker's task: does a part with a number of threads."""


@dataclass(frozen=True)
class Place:
    """The environment that a worker needs."""

    workspace: Path
    data: Path
    """Folder of the data set."""
    folder: Path
    """Current directory of the command, the base of relative paths in options."""
    cache: Path
    visible: tuple[Path, ...]
    """Files that exist for a worker if it shares the file system."""
    version: str


def translate_on_ray(inputs: Inputs, options: TranslateOptions, parts: int | None) -> None:
    """Translates the sentences into the cache on a cluster, in `parts` parts; `translate` then makes the artifact.

    If `parts` is None, their number depends on the size of the cluster.

    Raises:
        UnavailableError: If the engine, its model, the language pair or Ray is not available.
        UsageError: If the cache, which the parts share, is switched off.
    """
    if inputs.workspace.dry_run:
        return
    translate.require_cache([options])
    job = translate_job.TranslationJob(inputs, options)
    if job.engine == "recorded":
        say("the engine recorded looks translations up: there is no work to share")
        return
    if job.state() == "done":
        return
    device = choose_device(options.device if job.has_device else "cpu")
    # max_failed applies to all parts together, when the artifact is made
    part_options = replace(options, engine=job.engine, device=device.type, max_failed=1.0)
    groups = max(len(begin(rows["text"])) for _, rows in job.chains)
    label = f"translate {job.source.source_lang} -> {options.lang} on Ray"
    try:
        with _place(inputs, job.source.artifact, cache_folder()) as place:
            _share(partial(_translate, part_options), place, device, partial(_divide, groups, parts), label, "captions")
    except UnavailableError as error:
        raise job.with_apertium(error) from None


def extract_on_ray(inputs: Inputs, options: ExtractOptions, parts: int | None) -> base.Artifact | None:
    """Extracts features like `extract`, with the pieces made on a cluster; `parts` as for `translate_on_ray`.

    Raises:
        UnavailableError: If Ray is not available.
    """

    def delegate(job: extract.ExtractJob) -> None:
        todo, bounds = job.pieces.todo(), job.pieces.bounds()
        device = choose_device(options.device)
        part_options = replace(options, device=device.type, force=False, retry_failed=False)

        def left(slots: int) -> list[WorkPart]:
            divided = _divide(len(bounds), parts, slots)
            return [part for part in divided if not set(todo).isdisjoint(part.take(bounds))]

        with _place(inputs, job.data, None, job.media_of(todo)[:1]) as place:
            _share(partial(_extract, part_options), place, device, left, f"extract {job.name} on Ray", "items")

    return extract.extract(inputs, options, delegate)


def _translate(options: TranslateOptions, inputs: Inputs, part: WorkPart, threads: int) -> _Counts:
    return translate.translate_part(inputs, options, part)


def _extract(options: ExtractOptions, inputs: Inputs, part: WorkPart, threads: int) -> _Counts:
    tried, failed = extract.ExtractJob(inputs, replace(options, workers=options.workers or threads)).work(part)
    return {"items": tried - failed, "failed": failed}


def _divide(groups: int, parts: int | None, slots: int) -> list[WorkPart]:
    """Divides groups of work into parts, by default by the number of free slots."""
    count = min(groups, parts or max(LEAST_PARTS, PARTS_PER_WORKER * slots))
    return [WorkPart(number, count) for number in range(count)]


@contextmanager
def _place(inputs: Inputs, data: base.Artifact, cache: Path | None, visible: Sequence[Path] = ()) -> Iterator[Place]:
    """Yields the workers' environment, with a marker file in the workspace (and the cache) that they must see."""
    root, cached = inputs.workspace.root.absolute(), (cache or cache_folder()).absolute()
    with ExitStack() as stack:
        marks = []
        for folder in (root, *([cached] if cache else [])):
            folder.mkdir(parents=True, exist_ok=True)
            marks.append(Path(stack.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=".ray-")).name))
        yield Place(root, data.path.absolute(), Path.cwd(), cached, (*marks, *visible), ccr_cli.__version__)


def _share(
    work: _Work, place: Place, device: torch.device, divide: Callable[[int], list[WorkPart]], label: str, unit: str
) -> None:
    """Runs the parts on a cluster; an error that the user can fix ends them all.

    Raises:
        CcrError: A worker's error, or if a part lost its worker too often.
        UnavailableError: If there is no cluster.
    """
    with _cluster() as ray:
        needs, slots = worker_needs(ray.nodes(), device)
        parts = divide(slots)
        need = " and ".join(f"{count} {_RESOURCES[name]}" for name, count in needs.items())
        say(f"{label}: {len(parts)} parts, each with {need}; there is room for {slots} at once")
        if not slots:
            warn(f"no node of the cluster has {need}; waiting for one that joins")
        task = ray.remote(**needs, max_retries=RETRIES)(do_part)
        waiting = {
            task.options(name=f"ccr {part}").remote(work, place, part, needs["num_cpus"]): part for part in parts
        }
        with stop_signals() as received:  # their exceptions must not surface inside Ray
            try:
                _collect(ray, waiting, received, label, unit)
            except BaseException:
                for reference in waiting:
                    ray.cancel(reference)  # raises KeyboardInterrupt in the worker, as Ctrl-C would
                if waiting:
                    ray.wait(list(waiting), num_returns=len(waiting), timeout=_GRACE_SECONDS)
                raise


def _collect(ray: Any, waiting: dict[Any, WorkPart], received: list[int], label: str, unit: str) -> None:
    done = failed = 0
    with progress(len(waiting), label, "parts") as advance:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=_POLL_SECONDS)
            end_on(next(iter(received), None))
            for reference in ready:
                counts = _outcome(ray, reference, waiting.pop(reference))
                done, failed = done + counts[unit], failed + counts["failed"]
                advance(1, f"{done} {unit}")
    say(f"{label}: {done} {unit} done, {failed} failed")


def _outcome(ray: Any, reference: Any, part: WorkPart) -> _Counts:
    """The counts of a finished part; raises its error."""
    try:
        result: _Counts | CcrError = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RaySystemError):  # the task could not be unpickled
            reason = redact(str(error).strip().splitlines()[-1])
            hint = f"install ccr {ccr_cli.__version__} on all nodes, in Ray's environment"
            raise UnavailableError(f"a worker cannot load ccr: {reason}", hint=hint) from None
        raise
    except ray.exceptions.RayError as error:  # a lost node, a dead process, or one that Ray ended for its use of memory
        reason = next(iter(redact(str(error)).splitlines()), type(error).__name__)
        kind = ResourceError if isinstance(error, ray.exceptions.OutOfMemoryError) else CcrError
        raise kind(f"{part} lost its worker {RETRIES + 1} times: {reason}", hint=_RESUMES) from None
    if isinstance(result, CcrError):
        raise result
    return result


def do_part(work: _Work, place: Place, part: WorkPart, threads: int) -> _Counts | CcrError:
    """Does a part in a worker; returns its counts, or an error that the user can fix and Ray must not retry."""
    console.verbosity = -1
    here = platform.node()
    if place.version != ccr_cli.__version__:
        message = f"the worker on {here} has ccr {ccr_cli.__version__}, and this is ccr {place.version}"
        return UnavailableError(message, hint="install the same version on all nodes")
    for path in place.visible:
        if not path.exists():
            message = f"the worker on {here} does not share {path.parent} with this machine"
            return ArtifactError(message, hint="use a file system that all nodes share, at the same path")
    with suppress(OSError):  # only needed for relative paths in options
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
    """Returns the resources that a worker needs, and for how many workers there is room now.

    On GPUs, a worker needs one GPU and its share of the node's processors. Otherwise it needs as many processors as
    `OMP_NUM_THREADS` sets for this command, or one if unset; their number affects the last bits of the results.
    """
    available = [node["Resources"] for node in nodes if node["Alive"]]
    if device.type == "cuda":
        shares = [int(node.get("CPU", 0) // node["GPU"]) for node in available if node.get("GPU", 0) >= 1]
        needs = {"num_cpus": max(1, min(shares, default=1)), "num_gpus": 1}
    else:
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        needs = {"num_cpus": max(1, int(threads)) if threads.isdecimal() else 1}
    slots = [min(int(node.get(_RESOURCES[key], 0) // count) for key, count in needs.items()) for node in available]
    return needs, sum(slots)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Connects to the cluster of `RAY_ADDRESS` or of this machine, or starts one here that ends with the work."""
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = "pip install 'ccr-cli[ray]'"
        raise UnavailableError(f"--executor ray needs the package {error.name}", hint=hint) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # for a cluster that is started here
    address = os.environ.get("RAY_ADDRESS", "")
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        if match := re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", address):
            socket.create_connection((match[1].strip("[]"), int(match[2])), _CONNECT_SECONDS).close()
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises anything: RuntimeError, ValueError, ConnectionError, after minutes
        reason = next(iter(redact(str(error)).splitlines()), type(error).__name__)
        where = f"at RAY_ADDRESS={address}" if address else "here"
        hint = "RAY_ADDRESS names a running cluster; unset it to start Ray on this machine"
        raise UnavailableError(redact(f"there is no Ray cluster {where}: {reason}"), hint=hint) from None
    finally:
        signal.signal(signal.SIGTERM, terminate)  # Ray sets its own
    with redirect_stdout(_RayMessages()):
        try:
            yield ray
        finally:
            ray.shutdown()


class _RayMessages(io.TextIOBase):
    """Sends what Ray prints about lost workers and nodes to standard error, in two sentences."""

    def write(self, text: str) -> int:
        """Takes one message; its first line has the point."""
        line = re.sub(r"\x1b\[[0-9;]*m", "", text).strip().split("\n", 1)[0]
        if line:
            say(". ".join(line.replace("(raylet)", "Ray:", 1).split(". ")[:2]))
        return len(text)
