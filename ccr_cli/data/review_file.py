"""The log of `ccr review`: a file of pairs (`data.pairs_file`) to which each verdict adds a row at once.

A row is one line, written in one call and then forced to the disk. Nothing is changed later: taking a verdict back adds
a row too. One process at a time writes, and a row that a power failure cut off is removed when the next one starts.
"""

import codecs
import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import pandas as pd

from ccr_cli.artifacts.base import refuse_special
from ccr_cli.console import say
from ccr_cli.data.pairs_file import REVIEW, Key, comparable, safe_cell, torn_row, unquoted
from ccr_cli.errors import LockedError, UsageError

_PAIR = ("slot_id", "source_caption_id", "item_id", "split", "lang", "alternative", "source_text", "translation")
_FIELDS = ("slot_id", "lang", "alternative", "source_text", "translation")
"""Columns that identify a pair to a reviewer; a pair whose texts have changed is another one."""


class ChangedError(OSError):
    """Another program has changed or replaced the file."""


@dataclass(frozen=True)
class Verdict:
    """A row of the log, as far as the review needs it."""

    pair: Key
    reviewer: str
    verdict: str
    correction: str = ""


@dataclass
class ReviewFile:
    """An open log; `opened` makes one."""

    path: Path
    columns: Sequence[str]
    """The columns of the file that describe a pair."""
    verdicts: list[Verdict]
    """All rows, with those of other diagnoses."""
    _handle: int
    _size: int

    def key(self, pair: Mapping[Any, Any]) -> Key:
        """Identifies a row of a diagnosis."""
        return tuple(_text(name, str(pair[name])) for name in _FIELDS if name in self.columns)

    def add(self, pair: Mapping[Any, Any], reviewer: str, verdict: str, correction: str = "") -> None:
        """Writes a verdict; when it returns, the row is on the disk.

        Raises:
            ChangedError: If another program has changed or replaced the file.
            OSError: If it cannot be written; the file is then as before.
        """
        known = {name: _text(name, str(pair[name])) for name in self.columns}
        known |= dict(correction=correction, place=str(pair["place"]), verdict=verdict, reviewer=reviewer)
        self._append([*known.values(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")])
        self.verdicts.append(Verdict(self.key(pair), reviewer, verdict, correction))

    def _append(self, cells: Sequence[str]) -> None:
        row = _row(cells)
        now = self.path.stat()
        if not os.path.samestat(now, os.fstat(self._handle)) or now.st_size != self._size:
            raise ChangedError(f"{self.path.name} was changed by another program")
        try:
            if os.write(self._handle, row) < len(row):
                raise OSError("the disk is full")
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        self._size += len(row)


def columns_of(pairs: pd.DataFrame) -> list[str]:
    """The columns of a log about these pairs."""
    return [name for name in _PAIR if name in pairs]


@contextmanager
def opened(path: Path, columns: Sequence[str]) -> Iterator[ReviewFile]:
    """Opens a log to add verdicts, and makes it if it does not exist.

    Raises:
        LockedError: If another process has it open.
        UsageError: If it is not such a log, does not end in .csv, or its folder is missing.
    """
    if path.suffix.lower() != ".csv":
        raise UsageError(f"{path.name!r} does not end in .csv", hint="--to reviews.csv")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    refuse_special(path)
    lock = filelock.FileLock(path.with_name(f"{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LockedError(f"another ccr review has {path} open", hint="stop it, or --to ANOTHER.csv") from None
    try:
        header = [*columns, "correction", "place", "verdict", *REVIEW]
        first = codecs.BOM_UTF8 + _row(header)
        content = path.read_bytes() if path.exists() else b""
        begun = not first.startswith(content)
        verdicts = list(_verdicts(path, content, header)) if begun else []
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            if torn := torn_row(content):
                say(f"{path}: the last row is incomplete and is removed: {torn.decode(errors='replace')!r}")
            size = len(content) - len(torn) if begun else 0
            os.ftruncate(handle, size)
            end = b"" if content.endswith(b"\n") or torn else b"\n" if content.endswith(b"\r") else b"\r\n"
            size += os.write(handle, end if begun else first)
            yield ReviewFile(path, columns, verdicts, handle, size)
        finally:
            os.close(handle)
    finally:
        lock.release()


def _text(column: str, text: str) -> str:
    """Returns a cell's text on one line; ids are left as they are."""
    return text if column.endswith("_id") else comparable(text)


def _row(cells: Sequence[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(map(safe_cell, cells))
    return out.getvalue().encode()


def _verdicts(path: Path, content: bytes, header: Sequence[str]) -> Iterator[Verdict]:
    """Reads the rows of a log; UsageError if it is another file, or was saved by another program."""
    try:
        text = content.removesuffix(torn_row(content)).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    if rows[:1] != [header] or any(len(row) != len(header) for row in rows):
        problem = f"{path} is no file of ccr review about this diagnosis, or was saved by another program"
        raise UsageError(problem, hint="--to ANOTHER.csv")
    for row in rows[1:]:
        cells = {name: _text(name, unquoted(text)) for name, text in zip(header, row, strict=True)}
        pair = tuple(cells[name] for name in _FIELDS if name in cells)
        yield Verdict(pair, cells["reviewer"], cells["verdict"], cells["correction"])
