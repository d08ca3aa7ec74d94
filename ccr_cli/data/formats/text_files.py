"""Text files with a caption or an id per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ccr_cli.artifacts.arrays import mapped
from ccr_cli.data.formats.base import NotUtf8, Record, caption_format, lines, read_json
from ccr_cli.errors import ArtifactError

_LINE = re.compile(r"([^\s#]\S*?)(?:#([^#\s]*))?#([0-9]{1,9})(?:[ \t](.*))?")


@caption_format
def hashtag(path: Path, *, tag: str | None = None) -> Iterator[Record]:
    """Reads lines of `ITEM#TAG#K TEXT` (NRCCR, Flickr8k-CN) or `ITEM#K TEXT` (COCO-CN); empty lines are skipped.

    Options:
        tag: Language or origin that every line must have, such as enc, zh or enc2zh; any by default.
    """
    for number, line in lines(path):
        match = _LINE.fullmatch(line)
        if not match:
            if not line.strip():
                continue
            form = "ITEM#TAG#K TEXT or ITEM#K TEXT, K a whole number of at most nine digits"
            raise ArtifactError(f"{path}, line {number}: expected {form}; found {line[:60]!r}")
        if tag is not None and (match[2] or "") != tag:
            problem = f"{path}, line {number}: the tag is {match[2] or ''!r}, expected {tag!r}"
            raise ArtifactError(problem, hint="this may be the file of another language")
        yield Record(match[1], match[4] or "", f"{path.name}, line {number}", k=int(match[3]))


@caption_format
def parallel(path: Path, *, ids: Path) -> Iterator[Record]:
    """Reads sentences, one per line (Multi30K, XTD10); an empty line is an empty caption.

    Options:
        ids: The list of ids; sentence i belongs to id i.
    """
    names = read_ids(ids)
    number = 0
    for number, text in lines(path):
        if number <= len(names):
            yield Record(names[number - 1], text, f"{path.name}, line {number}")
    if number != len(names):
        hint = "sentence i belongs to id i; one of the files may be cut off, or belong to another split"
        raise ArtifactError(f"{path} has {number} lines, and {ids} has {len(names)} ids", hint=hint)


def read_ids(path: Path, *, latin1: bool = False) -> list[str]:
    """Reads a list of ids in order; repeated ids are kept.

    Args:
        path: The list: `.npy` or `.json` by the ending, otherwise text. A single line is split at white space.
        latin1: Read text that is not UTF-8 as Latin-1, in which older collections write the ids of features.
    """
    ending = path.name.lower().removesuffix(".gz")
    if ending.endswith(".npy"):
        return _array(path)
    if ending.endswith(".json"):
        ids = [(entry.place, entry.name()) for entry in read_json(path).each()]
    else:
        try:
            ids = [(f"line {number}", line) for number, line in lines(path)]
        except NotUtf8:
            if not latin1:
                raise
            ids = [(f"line {number}", line) for number, line in lines(path, "latin-1")]
        if len(ids) == 1:
            ids = [("line 1", word) for word in ids[0][1].split()]
    for place, name in ids:
        if not name.strip():
            raise ArtifactError(f"{path}, {place}: there is no id")
        if "\t" in name.strip():
            raise ArtifactError(f"{path}, {place}: a tab, so this is not a list of ids: {name[:60]!r}")
    if not ids:
        raise ArtifactError(f"{path} holds no id")
    return [name.strip() for _, name in ids]


def _array(path: Path) -> list[str]:
    values = mapped(path)
    if values.dtype.kind not in "US" or values.ndim != 1 or not len(values):
        problem = f"{path} holds {values.dtype} of shape {values.shape}; expected a one-dimensional array of texts"
        raise ArtifactError(problem)
    try:
        ids = [text.decode() if isinstance(text, bytes) else str(text) for text in values.tolist()]
        "".join(ids).encode()
    except UnicodeError as error:
        raise ArtifactError(f"{path} holds texts that are not UTF-8: {error}") from None
    if not all(ids):
        raise ArtifactError(f"{path}: there is no id at place {ids.index('')}, counted from 0")
    return ids
