"""Several workers for one translation: each translates its part of the sentences into the cache, where they meet.

Parts come from an array of jobs (`--shard 3/64`) or from the processes of `torchrun`. Making the artifact afterwards
takes the sentences from the cache.
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
from ccr_cli.stages.shared.sharding import WorkPart, meeting, own_device, parse_part, rank_and_size
from ccr_cli.stages.translate import steps as translate_steps
from ccr_cli.stages.translate.job import NO_WORK, TranslationJob, walk
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.stage import each_language
from ccr_cli.stages.translate.steps import begin


def part_of(shard: str | None, languages: Sequence[TranslateOptions], *, noise: bool) -> WorkPart | None:
    """Reads the part that `--shard` names, such as `3/64`; `noise` is whether the command also makes a mismatch.

    Raises:
        UsageError: If there is no such part, the command asks for noise too, or there is no cache to meet in.
    """
    if shard is None:
        return None
    part = parse_part(shard)
    if noise:
        raise UsageError(
            "--shard makes no artifact, but --noise does",
            hint="use --shard with --lang alone, and make the mismatch separately: ccr translate --noise R",
        )
    require_cache(languages)
    return part


def translate_part(inputs: Inputs, options: TranslateOptions, part: WorkPart) -> dict[str, int]:
    """Translates a part of the sentences into the cache; returns how many `captions` were translated, or `failed`.

    Raises:
        CcrError: If more than the fraction `max_failed` of the sentences failed.
    """
    job = TranslationJob(inputs, options)
    nothing = {"captions": 0, "failed": 0}
    if job.engine == "recorded":
        say(NO_WORK)
        return nothing
    if job.state() == "done":
        say(f"{job.name} exists: nothing is left to do")
        return nothing
    engines = job.engines(Path())
    failed: list[str] = []
    total = 0
    for steps, rows in job.chains:
        for _, results in walk(engines, steps, rows, part, {}):
            failed += [result.error for result in results.values() if result.error]
            total += len(results)
    refuse_too_many(len(failed), total, options.max_failed, "captions", failed[0] if failed else "")
    if failed:
        warn(f"{len(failed)} captions failed, such as: {failed[0]}; making the artifact tries them again")
    if total:
        say(f"{part}: {total} captions are translated")
    else:
        groups = max(len(begin(rows["text"])) for _, rows in job.chains)
        size = f"{translate_steps.GROUP_SENTENCES:,}"
        say(f"{part}: 0 captions, since the captions make {groups} groups of up to {size}, fewer than there are parts")
    return {"captions": total - len(failed), "failed": len(failed)}


def share(inputs: Inputs, languages: Sequence[TranslateOptions]) -> bool:
    """Translates this process's part, where `torchrun` started several.

    Returns:
        Whether this process makes the artifacts: it is the only one, or the first and all have done their part.

    Raises:
        CcrError: If more than the fraction `max_failed` of the sentences of the only language failed.
    """
    rank, ranks = rank_and_size()
    if inputs.workspace.dry_run or ranks == 1:
        return True
    require_cache(languages)
    if rank:
        console.verbosity = -1

    def work(options: TranslateOptions) -> None:
        translate_part(inputs, replace(options, device=own_device(options.device)), WorkPart(rank, ranks))

    with meeting() as wait:
        error = each_language(languages, work)
        if error is not None and len(languages) == 1:
            raise error
        wait()  # with several languages, making the artifacts reports the error
    return rank == 0


def require_cache(languages: Sequence[TranslateOptions]) -> None:
    """Requires the cache, through which parts exchange their results."""
    if any(options.no_cache for options in languages):
        raise UsageError("the parts of a translation meet in the cache", hint="leave out --no-cache; see --cache")
