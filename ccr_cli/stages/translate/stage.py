"""translate: machine translation of a data set's captions into one language, and back, and of queries.

Several workers, jobs of an array (`--shard 3/64`) or processes of `torchrun`, may each translate their part of the
sentences into the cache, from which the artifact is then made.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ccr_cli import console
from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts.build import Build, Planned
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.console import counted, say, warn
from ccr_cli.errors import CcrError, ResourceError, UnavailableError, UsageError
from ccr_cli.metrics.word_flags import FLAGS, word_flags
from ccr_cli.stages.shared.failures import failure, refuse_too_many, write_failures
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import WorkPart, meeting, own_device, parse_part, rank_and_size
from ccr_cli.stages.translate import steps
from ccr_cli.stages.translate.job import JOURNAL, NO_WORK, TranslationJob, walk
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.quality import assess
from ccr_cli.stages.translate.retranslate import languages


def translate(inputs: Inputs, options: TranslateOptions, part: WorkPart | None = None) -> base.Artifact:
    """Translates the source captions of a data set into one language; a dry run counts a `part` of them.

    The count `failed` of the artifact is the number of captions without a translation.

    Raises:
        UnavailableError: If the engine, its model or the pair is unavailable.
        CcrError: If more than the fraction `max_failed` of the captions failed.
    """
    job = TranslationJob(inputs, options)
    try:
        artifact = job.build(lambda site: _write(site, job))
        if recordings := job.recordings():
            say(recordings)
        return artifact
    except UnavailableError as error:
        raise job.with_apertium(error) from None
    except Planned as planned:
        if planned.state != "done":
            try:
                planned.facts |= job.plan(part or WorkPart())
            except CcrError:
                inputs.workspace.planned.remove(planned)
                raise
        raise


def _write(site: Build, job: TranslationJob) -> dict[str, int]:
    """Translates and writes captions, failures and quality; returns the counts."""
    engines = job.engines(site.folder)
    frame = job.frame(engines, job.earlier(site.folder), site.environment)
    job.refuse_too_many(frame, engines)
    if (frame["status"] != "ok").any() and (coverage := job.coverage(engines)):
        say(coverage[0])
    del engines  # and the table of recorded translations
    if job.again:
        frame = job.again.merge(frame, job.options.lang, job.source.source_lang)
    failed = frame[frame["status"] != "ok"]
    records = [
        failure(caption, "translate", "NotTranslated", reason)
        for caption, reason in zip(failed["caption_id"], failed["status"], strict=True)
    ]
    rows = frame.assign(status=frame["status"].where(frame["status"] == "ok", "failed"))
    write_table(site.folder / "captions.parquet", rows, translation.CAPTIONS)
    write_failures(site.folder, records, retried=job.options.retry_failed)
    quality, summary = assess(frame, job.source)
    write_table(site.folder / "quality.parquet", quality, translation.QUALITY)
    for direction, usage in job.usage.items():
        summary[direction]["usage"] = usage
    forward = rows[(rows["direction"] == "forward") & (rows["status"] == "ok")]
    sources = forward["source_caption_id"].map(job.source.captions.set_index("caption_id")["text"])
    found = Counter(chain.from_iterable(word_flags(sources, forward["text"], job.options.lang)))
    site.environment["word_flags"] = {name: found[name] for name in FLAGS}
    base.write_json(site.folder / "quality.json", summary)
    shutil.rmtree(site.folder / JOURNAL, ignore_errors=True)
    counts = {str(k): int(n) for k, n in frame["direction"].value_counts(sort=False).items()}
    return {**counts, "failed": len(records)}


def jobs_of(inputs: Inputs, options: TranslateOptions) -> list[TranslateOptions]:
    """Returns the options of each translation to make: every engine, in every language given or in the list."""
    langs = options.languages() or (languages(options.only, inputs.named) if options.only else [])
    return [replace(options, lang=lang, engine=engine) for lang in langs for engine in options.engines()]


def each_job(jobs: Sequence[TranslateOptions], work: Callable[[TranslateOptions], None]) -> CcrError | None:
    """Does the work for each language and engine in turn; a failure of one does not stop the others.

    A failure (no engine for the pair, too many failed captions, a name in use) is printed at once. Wrong options and a
    full disk affect all jobs and end the work. Returns the error to raise at the end, with the exit code of the first
    failure.
    """
    first: CcrError | None = None
    failed: list[str] = []
    engines = len({options.engine for options in jobs}) > 1
    names = [f"{options.lang}{f' --engine {options.engine}' * engines}" for options in jobs]
    for name, options in zip(names, jobs, strict=True):
        try:
            work(options)
        except CcrError as error:
            if len(jobs) == 1:
                return error
            first = first or error
            hint = f"\n  try: {error.hint}" if error.hint else ""
            say(f"error: --lang {name}: {error.message}{hint}", level=-1, style="bold red")
            failed.append(name)
            if isinstance(error, UsageError | ResourceError):
                failed += names[names.index(name) + 1 :]
                break
    if first is None:
        return None
    hint = "fix the cause and give the same command again; finished translations are not made again"
    last = CcrError(f"not made: {', '.join(failed)} (for the reasons above)", hint=hint)
    last.exit_code = first.exit_code
    return last


def part_of(shard: str | None, languages: Sequence[TranslateOptions], *, noise: bool) -> WorkPart | None:
    """Reads the part that `--shard` names, such as `3/64`; `noise` is whether the command also makes a mismatch.

    Raises:
        UsageError: If there is no such part, the command asks for noise too, or the cache is switched off.
    """
    if shard is None:
        return None
    part = parse_part(shard)
    if noise:
        hint = "use --shard with --lang alone, and make the mismatch separately: ccr translate --noise R"
        raise UsageError("--shard makes no artifact, but --noise does", hint=hint)
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
    for each, rows in job.chains:
        for _, results in walk(engines, each, rows, part, {}):
            failed += [result.error for result in results.values() if result.error]
            total += len(results)
    refuse_too_many(len(failed), total, options.max_failed, "captions", failed[0] if failed else "")
    if failed:
        warn(f"{counted(len(failed), 'caption')} failed, such as: {failed[0]}; making the artifact tries them again")
    if total:
        say(f"{part}: {total} captions are translated")
    else:
        groups = max((len(steps.begin(rows["text"])) for _, rows in job.chains), default=0)
        size = f"{steps.GROUP_SENTENCES:,}"
        say(f"{part}: 0 captions, since the captions make {groups} groups of up to {size}, fewer than there are parts")
    return {"captions": total - len(failed), "failed": len(failed)}


def share(inputs: Inputs, languages: Sequence[TranslateOptions]) -> bool:
    """Translates this process's part, if `torchrun` started several.

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
        error = each_job(languages, work)
        if error is not None and len(languages) == 1:
            raise error
        wait()  # with several languages, making the artifacts reports the error
    return rank == 0


def require_cache(languages: Sequence[TranslateOptions]) -> None:
    """Raises UsageError if the cache, through which parts exchange their results, is switched off."""
    if any(options.no_cache for options in languages):
        raise UsageError("the parts of a translation meet in the cache", hint="leave out --no-cache; see --cache")
