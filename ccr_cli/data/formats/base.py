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
import reprlib
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ccr_cli.errors import ArtifactError

LONGEST_LINE = 2**26
"""Bytes of a line beyond which a file is none of text, or a gzip of nothing that fills the memory."""
LARGEST_JSON = 2**29
"""Bytes of a JSON file, unpacked, beyond which it is not read: the largest of the collections has a third of them."""
LONGEST_KEY = 60
"""Characters of a JSON key in messages."""
KINDS = ("image", "video")
"""What an item may be."""
_VIDEO = "mp4|avi|mkv|mov|webm|mpe?g|m4v|ogv|flv|wmv|3gp"
_VIDEO_ENDING = re.compile(rf"\.({_VIDEO})$", re.IGNORECASE)
_ENDING = re.compile(rf"\.(jpe?g|png|gif|bmp|webp|tiff?|{_VIDEO})$", re.IGNORECASE)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_SURROGATE = re.compile("[\ud800-\udfff]")
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
    kind: str = ""
    """One of `KINDS`, where the format says."""
    group: str = ""
    """What the item was cut from, as `SPACE:ID`, where the format says."""


class NotUtf8(ArtifactError):
    """A text file of another encoding."""


def stem(item: str) -> str:
    """An id without the ending of a media file."""
    return _ENDING.sub("", item)


def is_video(name: str) -> bool:
    """Whether a medium is a video by the ending of its name."""
    return _VIDEO_ENDING.search(name) is not None


def kind_of(said: str, where: str) -> str:
    """The kind that a file says an item is of, or nothing.

    Raises:
        ArtifactError: If it is none.
    """
    if said and said not in KINDS:
        raise ArtifactError(f"{where}: kind is {' or '.join(KINDS)}, not {said[:40]!r}")
    return said


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a file, through gzip where it is gzipped.

    Raises:
        ArtifactError: If it is not there, is a pickle, or the gzip is damaged, which shows while it is read.
    """
    try:
        with path.open("rb") as file:
            start = file.peek(4)[:4]
            if _PICKLE.match(start) or path.suffix.lower() in _PICKLES:
                raise ArtifactError(
                    f"{path} is a pickle; these are never loaded, as loading them can run any program",
                    hint="where you trust it, write what it holds as JSON lines, one object an item, "
                    "and read them with the format jsonl",
                )
            if start == b"PK\x03\x04":
                raise ArtifactError(f"{path} is a zip archive, and a file out of it is expected", hint="unpack it")
            if start[:2] != b"\x1f\x8b":
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
                raise _not_utf8(where, error.start + 1) from None
            if "\0" in line:
                raise ArtifactError(
                    f"{where} holds a NUL byte; this is no text in UTF-8", hint="is it an archive? Unpack it"
                )
            yield number, line.removesuffix("\n").removesuffix("\r")


@dataclass(frozen=True, slots=True)
class Json:
    """A value of a JSON file with its place, so that what does not fit is said with file and path."""

    value: Any
    file: Path
    at: str = ""
    """Where it was read: `line 3` of a file of JSON lines."""
    place: str = ""

    @property
    def where(self) -> str:
        """For a record: name of the file, and place."""
        return ", ".join(filter(None, (self.file.name, self.at, self.place)))

    def wrong(self, what: str) -> ArtifactError:
        """The error that says what is wrong here."""
        return ArtifactError(f"{', '.join(filter(None, (str(self.file), self.at, self.place)))}: {what[:300]}")

    def unlike(self, wanted: str) -> ArtifactError:
        """The error that says what is expected here and what is found."""
        found = "null" if self.value is None else f"{type(self.value).__name__} {reprlib.repr(self.value)}"
        return self.wrong(f"expected {wanted}, found {found}")

    def get(self, key: str) -> Json | None:
        """The value of a key of an object, None where it is missing or null."""
        if not isinstance(self.value, dict):
            raise self.unlike("an object")
        value = self.value.get(key)
        return None if value is None else Json(value, self.file, self.at, self._below(key))

    def __getitem__(self, key: str) -> Json:
        found = self.get(key)
        if found is None:
            raise self.wrong(
                f"there is no {key!r} (it has {', '.join(map(reprlib.repr, list(self.value)[:8])) or 'no key'})"
            )
        return found

    def each(self) -> Iterator[Json]:
        """The values of a list."""
        if not isinstance(self.value, list):
            raise self.unlike("a list")
        for number, value in enumerate(self.value):
            yield Json(value, self.file, self.at, f"{self.place}[{number}]")

    def entries(self) -> Iterator[tuple[str, Json]]:
        """The keys and values of an object."""
        if not isinstance(self.value, dict):
            raise self.unlike("an object")
        for key, value in self.value.items():
            yield key, Json(value, self.file, self.at, self._below(key))

    def text(self) -> str:
        """The value as a text, which may be empty."""
        if not isinstance(self.value, str):
            raise self.unlike("a text")
        if "\0" in self.value or _SURROGATE.search(self.value):
            raise self.wrong(f"{self.value[:40]!r} holds half of a character, or a NUL")
        return self.value

    def name(self) -> str:
        """The value as an id: a text, or a whole number, which is taken as its digits."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return str(self.value)
        if not self.text().strip():
            raise self.wrong("an empty id")
        return self.text()

    def number(self) -> int:
        """The value as a whole number of at most nine digits."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not 0 <= self.value < 10**9:
            raise self.unlike("a whole number of at most nine digits")
        return self.value

    def _below(self, key: str) -> str:
        if key.isidentifier() and len(key) <= LONGEST_KEY:
            return f"{self.place}.{key}" if self.place else key
        return f"{self.place}[{key[:LONGEST_KEY]!r}]"


def parse(text: str, file: Path, at: str = "") -> Json:
    """Reads JSON; a key that an object has twice is an error, since one of its values would be lost.

    Raises:
        ArtifactError: If it is none.
    """
    try:
        return Json(json.loads(text, object_pairs_hook=_unique), file, at)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{file}{at and ', '}{at} is not valid JSON: {error}", hint="is it complete? Fetch it again"
        ) from None


def read_json(path: Path) -> Json:
    """Reads a file of JSON as a whole.

    Raises:
        ArtifactError: If it is none, with the line where it ends to be, or if it is larger than any of captions is.
    """
    with opened(path) as file:
        raw = file.read(LARGEST_JSON + 1)
    if len(raw) > LARGEST_JSON:
        raise ArtifactError(
            f"{path} is larger than {LARGEST_JSON / 2**20:g} MiB, unpacked; this is no file of captions",
            hint="a file of JSON lines, an object an item, may be of any size: the format jsonl",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise _not_utf8(f"{path}, line {number}", error.start - raw.rfind(b"\n", 0, error.start)) from None
    del raw
    return parse(text, path)


def once(seen: set[str], name: str, at: Json) -> str:
    """Notes a name that occurs once in a file.

    Raises:
        ArtifactError: If it was there before.
    """
    if name in seen:
        raise at.wrong(f"{name!r} was there before")
    seen.add(name)
    return name


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:LONGEST_KEY]!r} is twice in one object")
    return made


def _not_utf8(where: str, byte: int) -> NotUtf8:
    return NotUtf8(f"{where}: not UTF-8 at byte {byte}", hint="convert it: iconv -f ENCODING -t UTF-8 FILE")
