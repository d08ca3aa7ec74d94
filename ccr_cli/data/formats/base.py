"""What a reader of captions gives, and how all of them read text and JSON.

A reader is a module with `read(path, **options) -> Iterator[Record]`. An option that is annotated as a `Path` names
another file of the collection. Text is UTF-8, with or without a byte order mark, plain or gzipped (which of the two is
seen from its first bytes); a line ends at a line feed and nowhere else. Nothing is unpickled.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ccr_cli.errors import ArtifactError

LONGEST_LINE = 2**26
"""Bytes of a line beyond which a file is none of text, or a gzip of nothing that fills the memory."""
_ENDING = re.compile(r"\.(jpe?g|png|gif|bmp|webp|tiff?|mp4|avi|mkv|mov|webm|mpe?g|flv|wmv|3gp)$", re.IGNORECASE)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PICKLES = (".pkl", ".pickle", ".pck", ".p")


@dataclass(frozen=True, slots=True)
class Record:
    """One caption as a file has it."""

    item: str
    """As it is written."""
    text: str
    """As it is written, without the line end: neither normalised nor stripped, and it may be empty."""
    where: str
    """For messages: `train.de.gz, line 3`; `dataset_coco.json, images[3].sentences[0]`."""
    lang: str = ""
    """Where the format says."""
    k: int | None = None
    """Its number among the captions of the item, where the format says."""
    split: str = ""
    """As the file names it: train, restval, val, test."""
    media: str = ""
    """Where the item's picture or video lies, where the format says."""
    caption_id: str = ""
    """Official id of the caption, where there is one."""
    caption_set: str = ""
    """Where the format says."""
    label: int | None = None
    """Category of the item, where the format says."""


class NotUtf8(ArtifactError):
    """A text file of another encoding."""


def stem(item: str) -> str:
    """An id without the ending of a media file."""
    return _ENDING.sub("", item)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a file, through gzip where it is gzipped.

    Raises:
        ArtifactError: If it is not there, is a pickle, or the gzip is damaged, which shows while it is read.
    """
    try:
        with path.open("rb") as file:
            start = file.peek(2)[:2]
            if _PICKLE.fullmatch(start) or path.suffix.lower() in _PICKLES:
                raise ArtifactError(
                    f"{path} is a pickle; these are never loaded, as loading them can run any program",
                    hint="where you trust it, write what it holds as JSON lines, one object an item, "
                    "and read them with the format jsonl",
                )
            if start != b"\x1f\x8b":
                yield file
                return
            with gzip.open(file) as plain:
                yield plain
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    except IsADirectoryError:
        raise ArtifactError(f"{path} is a folder, and a file is expected") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{path} is cut off or damaged: {error}", hint="fetch it again") from None


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Reads a text file line by line; U+2028, \x85 and a lone \r end none, and a missing last line feed is fine.

    Yields:
        Number (from 1) and text of each line, without its line end.

    Raises:
        ArtifactError: With file and line, if it is not readable as text.
    """
    with opened(path) as file:
        for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            where = f"{path}, line {number}"
            if len(raw) == LONGEST_LINE:
                raise ArtifactError(f"{where} is longer than {LONGEST_LINE >> 20} MiB; this is no file of captions")
            try:
                line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).decode(encoding)
            except UnicodeDecodeError as error:
                raise NotUtf8(
                    f"{where}: not UTF-8 at byte {error.start + 1}", hint="convert it: iconv -f ENCODING -t UTF-8 FILE"
                ) from None
            if "\0" in line:
                raise ArtifactError(f"{where} holds a NUL byte; this is no text in UTF-8")
            yield number, line.removesuffix("\n").removesuffix("\r")


def read_json(path: Path) -> Any:
    """Reads a file of JSON as a whole.

    Raises:
        ArtifactError: If it is none; with the line where it ends to be.
    """
    with opened(path) as file:
        raw = file.read()
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        at = error.start - raw.rfind(b"\n", 0, error.start)
        raise NotUtf8(
            f"{path}, line {number}: not UTF-8 at byte {at}", hint="convert it: iconv -f ENCODING -t UTF-8 FILE"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid JSON: {error}", hint="is it complete? Fetch it again") from None
