"""DiDeMo's JSON: the descriptions of each video, joined into one caption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, once, read_json


def read(path: Path) -> Iterator[Record]:
    """Reads one caption per video: its descriptions in the order of the file, joined by spaces.

    Args:
        path: The file: rows of `annotation_id`, `video`, `description`.

    Raises:
        ArtifactError: If the file has another layout, or an annotation occurs twice.
    """
    annotations: set[str] = set()
    texts: dict[str, list[str]] = {}
    where: dict[str, str] = {}
    for row in read_json(path).each():
        number = row.get("annotation_id")
        if number:
            once(annotations, number.name(), number)
        item = row["video"].name()
        texts.setdefault(item, []).append(row["description"].text().strip())
        where.setdefault(item, row.where)
    for item, parts in texts.items():
        yield Record(item, " ".join(parts), where[item], k=0, media=item)
