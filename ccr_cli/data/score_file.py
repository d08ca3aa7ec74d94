"""Scores of translations that other software computed, higher is better: one per caption.

CSV or TSV with a header, Parquet, or JSON lines, with the column `score`, and `slot_id`, `source_caption_id` or
`caption_id` (the id of the source caption), and optionally `lang`; or bare numbers, one per line, in the order of the
source captions.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.parquet import parquet_batches
from ccr_cli.data.formats.base import lines, parse
from ccr_cli.data.formats.captions_csv import table_rows
from ccr_cli.data.formats.layout import guessed_delimiter
from ccr_cli.errors import CcrError, UsageError

IDS = ("slot_id", "source_caption_id", "caption_id")


def read_scores(path: Path, ids: Sequence[str], lang: str) -> list[float]:
    """Reads the score of each source caption of a language, NaN without one.

    Raises:
        UsageError: If the file is missing or damaged, lacks a column, has a score that is not a number, scores a
            caption twice or none of these, or has bare numbers but not one per caption.
    """
    found: dict[str, float] = {}
    bare: list[float] = []
    for where, row in _rows(path):
        name = next((row[column] for column in IDS if column in row), None)
        try:
            score = float(row["score"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise UsageError(f"{path}, {where}: no number in the column score", hint=_HINT) from None
        if name is None:
            bare.append(score)
        elif row.get("lang") in (None, "", lang):
            if str(name) in found:
                raise UsageError(f"{path}, {where}: a second score of {name!r}")
            found[str(name)] = score
    if bare:
        if len(bare) != len(ids):
            raise UsageError(
                f"{path} has {len(bare)} scores without ids, and {len(ids)} captions are judged", hint=_HINT
            )
        return bare
    if not found.keys() & set(ids):
        raise UsageError(f"{path} has no score of the captions that are judged", hint=_HINT)
    return [found.get(name, math.nan) for name in ids]


_HINT = f"columns: {', '.join(IDS[:-1])} or {IDS[-1]}; score; lang if there are several"


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place of each row and its values by column."""
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            rows = (row for batch in parquet_batches(path) for row in batch.to_pylist())
            for number, values in enumerate(rows, 1):
                yield f"row {number}", values
        elif kind in (".jsonl", ".ndjson"):
            for number, line in lines(path):
                if line.strip():
                    values = parse(line, path, f"line {number}").value
                    yield f"line {number}", values if isinstance(values, dict) else {"score": values}
        else:
            _, first = next(lines(path), (1, ""))
            if _is_number(first):
                for number, line in lines(path):
                    yield f"line {number}", {"score": line}
                return
            table = table_rows(path, guessed_delimiter(path, {}).get("delimiter", ""))
            _, header = next(table, (1, []))
            names = [name.strip().lower() for name in header]
            for number, cells in table:
                yield f"line {number}", dict(zip(names, cells, strict=False))
    except (CcrError, OSError, ValueError) as error:
        problem = error.message if isinstance(error, CcrError) else f"{path} cannot be read: {error}"
        raise UsageError(f"scores: {problem}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
