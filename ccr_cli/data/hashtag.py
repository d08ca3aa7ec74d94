"""Captions in lines of `ITEM#TAG#NUMBER TEXT`, as NRCCR and Flickr8k-CN keep them (`*.caption.txt`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccr_cli.errors import ArtifactError

_LINE = re.compile(r"(\S+?)#([^#\s]*)#(\d+)(?:[ \t](.*))?")
_SUFFIX = re.compile(r"\.(?:jpe?g|png|mp4|avi|webm)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Line:
    """One caption."""

    item: str
    """As it is written, or without the ending of a media file where `stem` is asked for."""
    tag: str
    """Language or origin, such as enc, zh or enc2zh."""
    k: int
    text: str

    @property
    def stem(self) -> str:
        """The item without the ending of a media file."""
        return _SUFFIX.sub("", self.item)


def read_hashtag(path: Path) -> Iterator[Line]:
    """Reads captions; empty lines are passed over.

    Raises:
        ArtifactError: If a line is none, or the file is not UTF-8.
    """
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
            found = _LINE.fullmatch(line.rstrip("\r"))
            if found:
                yield Line(found[1], found[2], int(found[3]), (found[4] or "").strip())
            elif line.strip():
                raise ArtifactError(f"{path}, line {number}: expected ITEM#TAG#NUMBER TEXT, found {line[:60]!r}")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path} is not UTF-8: {error}") from None
