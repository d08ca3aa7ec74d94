"""Lines of `ITEM#TAG#K TEXT` (NRCCR, Flickr8k-CN) or `ITEM#K TEXT` (COCO-CN)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, lines
from ccr_cli.errors import ArtifactError

_LINE = re.compile(r"([^\s#]\S*?)(?:#([^#\s]*))?#([0-9]{1,9})(?:[ \t](.*))?")


def read(path: Path, *, tag: str | None = None) -> Iterator[Record]:
    """Reads captions; empty lines are skipped.

    Args:
        path: The file.
        tag: Language or origin that every line must have, such as enc, zh or enc2zh; any by default.

    Raises:
        ArtifactError: If a line has another form or tag, or the file is not readable.
    """
    for number, line in lines(path):
        match = _LINE.fullmatch(line)
        if not match:
            if not line.strip():
                continue
            raise ArtifactError(
                f"{path}, line {number}: expected ITEM#TAG#K TEXT or ITEM#K TEXT, K a whole number of at most nine "
                f"digits; found {line[:60]!r}"
            )
        if tag is not None and (match[2] or "") != tag:
            raise ArtifactError(
                f"{path}, line {number}: the tag is {match[2] or ''!r}, expected {tag!r}",
                hint="this may be the file of another language",
            )
        yield Record(match[1], match[4] or "", f"{path.name}, line {number}", k=int(match[3]))
