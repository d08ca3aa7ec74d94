"""Sentences, one per line, with a separate list of ids (Multi30K, XTD10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ccr_cli.data.formats.base import Record, lines
from ccr_cli.data.formats.id_list import read_ids
from ccr_cli.errors import ArtifactError


def read(path: Path, *, ids: Path) -> Iterator[Record]:
    """Reads captions.

    Args:
        path: The sentences. An empty line is an empty caption.
        ids: The list of ids; sentence i belongs to id i.

    Raises:
        ArtifactError: If the numbers of sentences and ids differ, or a file is not readable.
    """
    names = read_ids(ids)
    number = 0
    for number, text in lines(path):
        if number <= len(names):
            yield Record(names[number - 1], text, f"{path.name}, line {number}")
    if number != len(names):
        raise ArtifactError(
            f"{path} has {number} lines, and {ids} has {len(names)} ids",
            hint="sentence i belongs to id i; one of the files may be cut off, or belong to another split",
        )
