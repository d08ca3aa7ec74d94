"""Many workers for one translation: each takes its part of the sentences into the cache, in which they meet.

Parts are of a schedule's array (`--shard 3/64`), or of the processes that `torchrun` started. What they find is merged
by translating as ever: whatever is in the cache need not be done again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from ccr_cli import console
from ccr_cli.console import say, warn
from ccr_cli.errors import CcrError, UsageError
from ccr_cli.stages import translate_steps
from ccr_cli.stages.failures import refuse_too_many
from ccr_cli.stages.select import Inputs
from ccr_cli.stages.translate_job import NO_WORK, Job, Wanted, walk
from ccr_cli.stages.translate_languages import in_turn
from ccr_cli.stages.translate_steps import Part, begin

_PATIENCE = timedelta(days=30)
"""How long a process waits for the slowest; one that dies is noticed by `torchrun` at once."""


def part_of(shard: str | None, wanted: Sequence[Wanted], *, noise: bool) -> Part | None:
    """Reads which part a worker is to take.

    Args:
        shard: Which one, such as `3/64`; None where there are none.
        wanted: What is asked for.
        noise: Whether a synthetic mismatch is asked for too.

    Raises:
        UsageError: If there is no such part, it cannot do what is asked for, or the parts have no cache to meet in.
    """
    if shard is None:
        return None
    if _rank_and_size()[1] > 1:
        raise UsageError("torchrun shares the work among its processes by itself", hint="leave --shard out")
    part = _parse(shard)
    if noise:
        raise UsageError(
            "--shard makes no artifact, and --noise asks for one",
            hint="give --lang alone with --shard, and draw the mismatch in a call of its own: ccr translate --noise R",
        )
    _require_cache(wanted)
    return part


def translate_part(inputs: Inputs, wanted: Wanted, part: Part) -> dict[str, int]:
    """Translates a part of the sentences into the cache.

    Returns:
        How many were translated, `captions`, and how many of these `failed`.

    Raises:
        CcrError: If more than `max_failed` of the sentences failed.
    """
    job = Job(inputs, wanted)
    nothing = {"captions": 0, "failed": 0}
    if job.request["engine"] == "recorded":
        say(NO_WORK)
        return nothing
    if job.state() == "done":
        say(f"{job.name} is made: nothing is left to do")
        return nothing
    engines = job.engines(Path())
    failed: list[str] = []
    total = 0
    for steps, rows in job.chains:
        for _, results in walk(engines, steps, rows, part, {}):
            failed += [result.error for result in results.values() if result.error]
            total += len(results)
    refuse_too_many(len(failed), total, wanted.max_failed, "captions", failed[0] if failed else "")
    if failed:
        warn(f"{len(failed)} captions failed, such as: {failed[0]}; whoever makes the artifact tries them again")
    which = f"part {part.number + 1} of {part.of}"
    if total:
        say(f"{which}: {total} captions are translated")
    else:
        groups = max(len(begin(rows["text"])) for _, rows in job.chains)
        size = f"{translate_steps.GROUP_SENTENCES:,}"
        say(f"{which}: 0 captions: parts are groups of {size} captions, and there {_are(groups)}; more parts are idle")
    return {"captions": total - len(failed), "failed": len(failed)}


def share(inputs: Inputs, wanted: Sequence[Wanted]) -> bool:
    """Does this process's part, where `torchrun` started several.

    Args:
        inputs: As for `translate`.
        wanted: What is asked for.

    Returns:
        Whether this process is the one to make artifacts: the only one, or the first after all have done their part.

    Raises:
        UsageError: If the parts have no cache in which to meet.
        CcrError: If more than `max_failed` of the sentences of the only language failed.
    """
    rank, ranks = _rank_and_size()
    if inputs.workspace.dry_run or ranks == 1:
        return True
    _require_cache(wanted)
    if rank:
        console.verbosity = -1

    def work(each: Wanted) -> None:
        translate_part(inputs, replace(each, device=_own_device(each.device)), Part(rank, ranks))

    with _meeting() as wait:
        error = in_turn(wanted, work)
        if error is not None and len(wanted) == 1:
            raise error
        wait()  # of several languages, whoever makes the artifacts says what is not to be had
    return rank == 0


def _require_cache(wanted: Sequence[Wanted]) -> None:
    if not all(each.cache for each in wanted):
        raise UsageError("the parts of a translation meet in the cache", hint="leave out --no-cache; see --cache")


def _are(groups: int) -> str:
    return "is 1" if groups == 1 else f"are {groups}"


def _parse(shard: str) -> Part:
    """`3/64` is the third of 64."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(
            f"--shard {shard}: there is no such part", hint="--shard 1/4 is the first of four, 4/4 the last"
        )
    return Part(int(found[1]) - 1, int(found[2]))


def _rank_and_size() -> tuple[int, int]:
    """This process's number and how many there are, as `torchrun` says in the environment; (0, 1) without it."""
    found = {name: os.environ.get(name, usual) for name, usual in (("RANK", "0"), ("WORLD_SIZE", "1"))}
    rank, size = (int(value) if value.isdecimal() else -1 for value in found.values())
    if not 0 <= rank < size:
        raise UsageError(f"the environment says {found}: there is no such rank", hint="unset RANK WORLD_SIZE")
    return rank, size


def _own_device(device: str) -> str:
    """The GPU of this process, where `torchrun` started several on a machine."""
    import torch

    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


@contextmanager
def _meeting() -> Iterator[Callable[[], None]]:
    """Joins the processes that `torchrun` started; yields what returns when all of them have called it."""
    from torch import distributed

    try:
        distributed.init_process_group("gloo", timeout=_PATIENCE)
    except ValueError as error:  # RANK without MASTER_ADDR, or the like
        hint = "unset RANK WORLD_SIZE, or start it with torchrun"
        raise UsageError(f"the environment is not torchrun's: {error}", hint=hint) from None
    try:
        yield lambda: _wait(distributed.barrier)
    finally:
        distributed.destroy_process_group()


def _wait(barrier: Callable[[], object]) -> None:
    try:
        barrier()
    except RuntimeError:  # gloo's, of a connection that is closed
        message = "another process of torchrun ended before its part was done; why, it says itself"
        raise CcrError(message, hint="the same command goes on: what succeeded is kept") from None
