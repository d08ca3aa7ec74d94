"""Failed items: each is recorded, and only too many of them stop a stage."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import FAILURES, atomic_open, parse_json, read_utf8
from ccr_cli.console import escaped
from ccr_cli.errors import ArtifactError, CcrError, redact


def failure(item: str, stage: str, error: str, message: str) -> dict[str, Any]:
    """Makes a failure record; its message is redacted."""
    return {"id": item, "stage": stage, "error": error, "message": redact(message), "attempt": 1}


def write_failures(folder: Path, records: Sequence[dict[str, Any]], *, retried: bool = False) -> None:
    """Writes `failures.jsonl`, or removes it if nothing failed.

    If the items were `retried`, the records count their attempts. If all failed again as before, the file stays as it
    was; so the artifact keeps its id, and what was made from it stays current.
    """
    path = folder / FAILURES
    if not records:
        path.unlink(missing_ok=True)
        return
    earlier = {record["id"]: record for record in read_failures(folder)} if retried else {}
    if [record | {"attempt": 1} for record in earlier.values()] == records:
        return
    attempts = {id_: record["attempt"] for id_, record in earlier.items()}
    records = [record | {"attempt": attempts.get(record["id"], 0) + 1} for record in records]
    with atomic_open(path, "w") as handle:
        handle.writelines(escaped(json.dumps(record, ensure_ascii=False)) + "\n" for record in records)


def read_failures(folder: Path) -> list[dict[str, Any]]:
    """Reads the failures recorded in a folder; ArtifactError if one has no id or number of attempts."""
    path = folder / FAILURES
    records = [parse_json(path, line) for line in read_utf8(path).splitlines()] if path.is_file() else []
    for record in records:
        if type(record) is not dict or (type(record.get("id")), type(record.get("attempt"))) != (str, int):
            raise ArtifactError(f"{path} holds {str(record)[:100]}, expected an object with id and attempt")
    return records


def refuse_too_many(failed: int, total: int, limit: float, what: str, first: str) -> None:
    """Stops a stage (CcrError) if more than a fraction of items fail: the cause is then not in the items."""
    if total and failed / total > limit:
        problem = f"{failed} of {total} {what} failed, more than --max-failed {limit:g}; the first: {first}"
        hint = "fix the cause and run the command again (successful items are kept), or raise --max-failed"
        if "NoMedia" in first:
            hint = f"import again with the names of the files: ccr data import FILE --columns media=NAME; or {hint}"
        if "NotInFile" in first or "Empty:" in first:
            hint = "complete the files and run the command again, or raise --max-failed"
        if "NotFinite" in first:
            hint = "another model: no cosine can compare such vectors"
        raise CcrError(problem, hint=hint)
