"""Many workers for one translation: each takes its part of the sentences into the cache, in which they meet.

Parts are of a schedule's array (`--shard 3/64`), or of the processes that `torchrun` started. What they find is merged
by translating as ever: whatever is in the cache need not be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ccr_cli import console
from ccr_cli.console import say, warn
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import Part, meeting, own_device, parse_part, rank_and_size
from ccr_cli.stages.translate import steps as translate_steps
from ccr_cli.stages.translate.job import NO_WORK, Job, Wanted, walk
from ccr_cli.stages.translate.languages import in_turn
from ccr_cli.stages.translate.steps import begin


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
    part = parse_part(shard)
    if noise:
        raise UsageError(
            "--shard makes no artifact, and --noise asks for one",
            hint="give --lang alone with --shard, and draw the mismatch in a call of its own: ccr translate --noise R",
        )
    require_cache(wanted)
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
    if total:
        say(f"{part}: {total} captions are translated")
    else:
        groups = max(len(begin(rows["text"])) for _, rows in job.chains)
        size = f"{translate_steps.GROUP_SENTENCES:,}"
        say(f"{part}: 0 captions: parts are groups of {size} captions, and there {_are(groups)}; more parts are idle")
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
    rank, ranks = rank_and_size()
    if inputs.workspace.dry_run or ranks == 1:
        return True
    require_cache(wanted)
    if rank:
        console.verbosity = -1

    def work(each: Wanted) -> None:
        translate_part(inputs, replace(each, device=own_device(each.device)), Part(rank, ranks))

    with meeting() as wait:
        error = in_turn(wanted, work)
        if error is not None and len(wanted) == 1:
            raise error
        wait()  # of several languages, whoever makes the artifacts says what is not to be had
    return rank == 0


def require_cache(wanted: Sequence[Wanted]) -> None:
    """Parts need a place where what comes of them meets.

    Raises:
        UsageError: If there is no cache.
    """
    if not all(each.cache for each in wanted):
        raise UsageError("the parts of a translation meet in the cache", hint="leave out --no-cache; see --cache")


def _are(groups: int) -> str:
    return "is 1" if groups == 1 else f"are {groups}"
