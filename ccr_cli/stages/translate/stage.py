"""translate: machine translation of a data set's captions into one language, and back, and of queries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts.build import Build, Planned
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.console import say
from ccr_cli.errors import CcrError, UnavailableError
from ccr_cli.stages.shared.failures import failure, read_failures, write_failures
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.translate.engine_choice import training_data, usual_engine, usual_request
from ccr_cli.stages.translate.job import JOURNAL, Job, Wanted
from ccr_cli.stages.translate.quality import assess

__all__ = ["Wanted", "training_data", "translate", "usual_engine", "usual_request"]


def translate(inputs: Inputs, wanted: Wanted) -> base.Artifact:
    """Translates the source captions of a data set.

    Args:
        inputs: Must lead to one data set with training captions.
        wanted: What is asked for.

    Returns:
        The translation artifact; its count `failed` says how many captions have none.

    Raises:
        UnavailableError: If the engine, its model or the pair is not to be had.
        CcrError: If more than `max_failed` of the captions failed.
    """
    job = Job(inputs, wanted)
    try:
        artifact = job.build(lambda site: _write(site, job))
        if whose := job.recordings():
            say(whose)
        return artifact
    except UnavailableError as error:
        raise job.alternative(error) from None
    except Planned as planned:
        if planned.state != "done":
            try:
                planned.facts |= job.prospect()
            except CcrError:
                inputs.workspace.planned.remove(planned)
                raise
        raise


def _write(site: Build, job: Job) -> dict[str, int]:
    """Translates, and writes the captions with the evidence on their quality; returns the counts."""
    engines = job.engines(site.folder)
    frame = job.frame(engines, job.earlier(site.folder), site.environment)
    job.refuse_too_many(frame, engines)
    if (frame["status"] != "ok").any() and (answered := job.coverage(engines)):
        say(str(answered))
    return _write_files(site.folder, job.whole(frame), job)


def _write_files(folder: Path, frame: pd.DataFrame, job: Job) -> dict[str, int]:
    failed = frame[frame["status"] != "ok"]
    attempts = {r["id"]: r["attempt"] for r in read_failures(folder)} if job.wanted.retry_failed else {}
    records = [
        failure(caption, "translate", "NotTranslated", why.removeprefix("failed: "), attempts.get(caption, 0) + 1)
        for caption, why in zip(failed["caption_id"], failed["status"], strict=True)
    ]
    write_table(
        folder / "captions.parquet",
        frame.assign(status=frame["status"].where(frame["status"] == "ok", "failed")),
        translation.CAPTIONS,
    )
    write_failures(folder, records)
    evident, summed = assess(frame, job.source)
    write_table(folder / "quality.parquet", evident, translation.QUALITY)
    base.write_json(folder / "quality.json", summed)
    counts = {str(k): int(n) for k, n in frame["direction"].value_counts(sort=False).items()}
    shutil.rmtree(folder / JOURNAL, ignore_errors=True)
    return {**counts, "failed": len(records)}
