"""translate: machine translation of a data set's captions into one language, and back, and of queries."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts.build import Build, Planned
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.console import say
from ccr_cli.errors import CcrError, ResourceError, UnavailableError, UsageError
from ccr_cli.stages.shared.failures import failure, read_failures, write_failures
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.translate.job import JOURNAL, TranslationJob
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.quality import assess


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
    frame = job.whole(frame)
    failed = frame[frame["status"] != "ok"]
    attempts = {r["id"]: r["attempt"] for r in read_failures(site.folder)} if job.options.retry_failed else {}
    records = [
        failure(caption, "translate", "NotTranslated", reason, attempts.get(caption, 0) + 1)
        for caption, reason in zip(failed["caption_id"], failed["status"], strict=True)
    ]
    rows = frame.assign(status=frame["status"].where(frame["status"] == "ok", "failed"))
    write_table(site.folder / "captions.parquet", rows, translation.CAPTIONS)
    write_failures(site.folder, records)
    quality, summary = assess(frame, job.source)
    write_table(site.folder / "quality.parquet", quality, translation.QUALITY)
    base.write_json(site.folder / "quality.json", summary)
    shutil.rmtree(site.folder / JOURNAL, ignore_errors=True)
    counts = {str(k): int(n) for k, n in frame["direction"].value_counts(sort=False).items()}
    return {**counts, "failed": len(records)}


def each_language(languages: Sequence[TranslateOptions], work: Callable[[TranslateOptions], None]) -> CcrError | None:
    """Does the work for one language after the other; a failure of one does not stop the others.

    The failure is printed at once: no engine for the pair, too many failed captions, a name in use. Wrong options and
    a full disk concern all languages and end the work. Returns the error to raise at the end, with the exit code of the
    first failure.
    """
    first: CcrError | None = None
    failed: list[str] = []
    for number, options in enumerate(languages):
        try:
            work(options)
        except CcrError as error:
            if len(languages) == 1:
                return error
            first = first or error
            hint = f"\n  try: {error.hint}" if error.hint else ""
            say(f"error: --lang {options.lang}: {error.message}{hint}", level=-1, style="bold red")
            failed.append(options.lang)
            if isinstance(error, UsageError | ResourceError):
                failed += [other.lang for other in languages[number + 1 :]]
                break
    if first is None:
        return None
    last = CcrError(
        f"not made: {', '.join(failed)} (for the reasons above)",
        hint="mend the cause and give the same command again; finished translations are not made again",
    )
    last.exit_code = first.exit_code
    return last
