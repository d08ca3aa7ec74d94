"""Records of captions, and the reading of text and JSON that all caption readers share.

A reader is a function `(path, **options) -> Iterator[Record]` with the decorator `caption_format`. An option annotated
as a `Path` names another file of the collection. `--set help` shows the lines of a docstring's `Options:`.

Text is UTF-8, with or without a byte order mark, plain or gzipped (the first bytes decide). Only a line feed ends a
line. Nothing is unpickled. An error in a file is an `ArtifactError` that names the file and the place.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import reprlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import refuse_special
from ccr_cli.errors import ArtifactError

LONGEST_LINE = 2**26
"""Longest line in bytes; a longer one means that a file is not text, or a gzip bomb."""
LARGEST_JSON = 2**29
"""Largest unpacked JSON file in bytes; the largest one of the collections is a third of that."""
SMALL_TEXT, MOST_UNPACKED = 2**24, 50
"""A gzip file may unpack to `SMALL_TEXT` bytes, or `MOST_UNPACKED` times its size; captions unpack to some 5 times."""
LONGEST_KEY = 60
"""Longest JSON key in messages, in characters."""
MOST_ROWS = 5
"""Most rows of a file that a message lists."""
KINDS = ("image", "video")
"""Kinds of items."""
_VIDEO = "mp4|avi|mkv|mov|webm|mpe?g|m4v|ogv|flv|wmv|3gp"
_VIDEO_ENDING = re.compile(rf"\.({_VIDEO})$", re.IGNORECASE)
_ENDING = re.compile(rf"\.(jpe?g|png|gif|bmp|webp|tiff?|{_VIDEO})$", re.IGNORECASE)
"""Endings of media files that an id may have or lack; Pillow and FFmpeg decide what can be decoded."""
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PICKLES = (".pkl", ".pickle", ".pck", ".p")


@dataclass(frozen=True, slots=True)
class Record:
    """One caption of a file."""

    item: str
    """The item's id, as written."""
    text: str
    """The text as written, without the line end, neither normalised nor stripped; may be empty."""
    where: str
    """Place for messages: `train.de.gz, line 3`; `dataset_coco.json, images[3].sentences[0]`."""
    lang: str = ""
    """Language; this and all following fields are empty or None if the format does not have them."""
    k: int | None = None
    """Number among the captions of the item."""
    split: str = ""
    """Split as the file names it: train, restval, val, test."""
    media: str = ""
    """Path of the item's image or video."""
    caption_id: str = ""
    """Official id of the caption."""
    caption_set: str = ""
    label: int | None = None
    """Category of the item."""
    kind: str = ""
    """One of `KINDS`."""
    group: str = ""
    """The video or image that the item was cut from, as `SPACE:ID`."""
    translations: tuple[tuple[str, str], ...] = ()
    """Language and text of each machine translation of the caption."""


Reader = Callable[..., Iterator[Record]]
FORMATS: dict[str, Reader] = {}


def caption_format(reader: Reader) -> Reader:
    """Registers a reader by the name of its function: `captions_csv` reads the format `captions-csv`."""
    FORMATS[reader.__name__.replace("_", "-")] = reader
    return reader


class ColumnError(ArtifactError):
    """A value that does not fit its column, one of `COLUMNS`."""

    def __init__(self, column: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.column = column


class NotUtf8(ArtifactError):
    """A text file that is not UTF-8."""

    def __init__(self, where: str, byte: int) -> None:
        super().__init__(f"{where}: not UTF-8 at byte {byte}", "convert it: iconv -f ENCODING -t UTF-8 FILE")


def listed(places: Sequence[str]) -> str:
    """Formats places of one file (the `where` of records) as `products.csv, line 3, line 8 and 2 more`."""
    file = places[0].partition(", ")[0]
    some = ", ".join(place.removeprefix(f"{file}, ") for place in places[:MOST_ROWS])
    more = f" and {len(places) - MOST_ROWS:,} more" if len(places) > MOST_ROWS else ""
    return f"{file}, {some}{more}"


def stem(item: str) -> str:
    """Returns an id without the ending of a media file."""
    return _ENDING.sub("", item)


def is_media(name: str) -> bool:
    """Whether the ending of a name is that of a picture or a video."""
    return _ENDING.search(name) is not None


def is_video(name: str) -> bool:
    """Whether the ending of a medium's name is that of a video."""
    return _VIDEO_ENDING.search(name) is not None


def kind_of(kind: str, where: str) -> str:
    """Returns the kind of an item, which may be empty; ColumnError if it is unknown."""
    if kind and kind not in KINDS:
        raise ColumnError("kind", f"{where}: kind is {' or '.join(KINDS)}, not {kind[:40]!r}")
    return kind


class _Unpacked(io.RawIOBase):
    """The unpacked content of a gzip file; ArtifactError once it is too large for a text."""

    def __init__(self, plain: gzip.GzipFile, path: Path) -> None:
        self._plain, self._path = plain, path
        self._left = self._most = max(SMALL_TEXT, MOST_UNPACKED * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._plain.readinto(buffer)
        self._left -= count
        if self._left < 0:
            problem = f"{self._path} unpacks to more than {self._most >> 20} MiB, which is too much for its size"
            raise ArtifactError(problem, hint="if that is right, unpack it")
        return count


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """Opens a plain or gzipped file; refuses pickles and zip archives."""
    try:
        with refuse_special(path).open("rb") as file:
            start = file.peek(4)[:4]
            if _PICKLE.match(start) or path.suffix.lower() in _PICKLES:
                problem = f"{path} is a pickle, which ccr never loads because loading it can run any program"
                form = "JSON lines, one object per item, and read them with the format jsonl"
                raise ArtifactError(problem, hint=f"if you trust it, convert its content to {form}")
            if start == b"PK\x03\x04":
                raise ArtifactError(f"{path} is a zip archive, expected a file from it", hint="unpack it")
            if start[:2] != b"\x1f\x8b":
                yield file
                return
            with gzip.open(file) as plain:
                yield io.BufferedReader(_Unpacked(plain, path))
    except FileNotFoundError:
        raise ArtifactError(f"there is no {path}") from None
    except IsADirectoryError:
        raise ArtifactError(f"{path} is a folder, expected a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{path} is cut off or damaged: {error}", hint="fetch it again") from None


def lines(path: Path, encoding: str = "utf-8", *, nul: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yields number (from 1) and text of each line; U+2028, \x85 or a lone \r ends none. NUL is kept or refused."""
    with opened(path) as file:
        if codecs.lookup(encoding).name == "utf-16":
            file, encoding = _from_utf16(file, path), "utf-8"
        for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            where = f"{path}, line {number}"
            if len(raw) == LONGEST_LINE:
                raise ArtifactError(f"{where} is longer than {LONGEST_LINE >> 20} MiB; this is not a file of captions")
            try:
                line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).decode(encoding)
            except UnicodeDecodeError as error:
                raise NotUtf8(where, error.start + 1) from None
            if "\0" in line and not nul:
                problem = f"{where} holds a NUL byte, so it is not text"
                raise ArtifactError(problem, hint="if it is an archive, unpack it")
            yield number, line.removesuffix("\n").removesuffix("\r")


def _from_utf16(file: io.BufferedIOBase, path: Path) -> io.BufferedIOBase:
    """Returns the content of a UTF-16 file of at most `LARGEST_JSON` bytes as UTF-8."""
    hint = "save it as UTF-8"
    try:
        return io.BytesIO(_whole(file, path, hint).decode("utf-16").encode())
    except UnicodeError as error:
        raise ArtifactError(f"{path} is not UTF-16: {error}", hint) from None


def _whole(file: io.BufferedIOBase, path: Path, hint: str) -> bytes:
    """Reads at most `LARGEST_JSON` bytes to the end of a file; ArtifactError if it has more."""
    raw = file.read(LARGEST_JSON + 1)
    if len(raw) > LARGEST_JSON:
        problem = f"{path} is larger than {LARGEST_JSON / 2**20:g} MiB, unpacked; this is not a file of captions"
        raise ArtifactError(problem, hint)
    return raw


@dataclass(frozen=True, slots=True)
class Json:
    """A value of a JSON file with its place, so that errors name file and path."""

    value: Any
    file: Path
    at: str = ""
    """The line in a file of JSON lines, such as `line 3`."""
    place: str = ""

    @property
    def where(self) -> str:
        """Name of the file and place, for a record."""
        return ", ".join(filter(None, (self.file.name, self.at, self.place)))

    def wrong(self, what: str) -> ArtifactError:
        """Returns an error about this value."""
        return ArtifactError(f"{', '.join(filter(None, (str(self.file), self.at, self.place)))}: {what[:300]}")

    def _typed(self, kind: type, name: str) -> Any:
        """Returns the value if it has exactly this type (True and False are not numbers); else ArtifactError."""
        if type(self.value) is kind:
            return self.value
        found = "null" if self.value is None else f"{type(self.value).__name__} {reprlib.repr(self.value)}"
        raise self.wrong(f"expected {name}, found {found}")

    def get(self, key: str) -> Json | None:
        """Returns the value of a key of an object; None if it is missing or null."""
        value = self._typed(dict, "an object").get(key)
        return None if value is None else self._below(key, value)

    def __getitem__(self, key: str) -> Json:
        """Returns the value of a key of an object; ArtifactError if it is missing or null."""
        found = self.get(key)
        if found is None:
            keys = ", ".join(map(reprlib.repr, list(self.value)[:8])) or "no key"
            raise self.wrong(f"there is no value of {key!r} (it has {keys})")
        return found

    def each(self) -> Iterator[Json]:
        """Yields the values of a list."""
        for number, value in enumerate(self._typed(list, "a list")):
            yield Json(value, self.file, self.at, f"{self.place}[{number}]")

    def entries(self) -> Iterator[tuple[str, Json]]:
        """Yields the keys and values of an object."""
        for key, value in self._typed(dict, "an object").items():
            yield key, self._below(key, value)

    def text(self) -> str:
        """Returns the value as a text, which may be empty."""
        text: str = self._typed(str, "a text")
        if "\0" in text or _SURROGATE.search(text):
            raise self.wrong(f"{text[:40]!r} holds half of a character or a NUL")
        return text

    def text_of(self, key: str) -> str:
        """Returns the text of a key; empty if it is missing or null."""
        found = self.get(key)
        return found.text() if found else ""

    def name(self) -> str:
        """Returns the value as an id: a text, or the digits of a whole number."""
        if type(self.value) is int:
            return str(self.value)
        if not self.text().strip():
            raise self.wrong("an empty id")
        return self.text()

    def number(self) -> int:
        """Returns the value as a whole number of at most nine digits."""
        expected = "a whole number of at most nine digits"
        number: int = self._typed(int, expected)
        if not 0 <= number < 10**9:
            raise self.wrong(f"expected {expected}, found int {number}")
        return number

    def _below(self, key: str, value: Any) -> Json:
        if key.isidentifier() and len(key) <= LONGEST_KEY:
            return Json(value, self.file, self.at, f"{self.place}.{key}" if self.place else key)
        return Json(value, self.file, self.at, f"{self.place}[{key[:LONGEST_KEY]!r}]")


def parse(text: str, file: Path, at: str = "") -> Json:
    """Parses JSON; a repeated key in an object is an error, because one of its values would be lost."""
    try:
        return Json(json.loads(text, object_pairs_hook=_unique), file, at)
    except (ValueError, RecursionError) as error:
        problem = f"{file}{at and ', '}{at} is not valid JSON: {error}"
        raise ArtifactError(problem, hint="it may be incomplete; download it again") from None


def read_json(path: Path) -> Json:
    """Reads a whole JSON file of at most `LARGEST_JSON` bytes."""
    with opened(path) as file:
        raw = _whole(file, path, "JSON lines, one object per item, may have any size: the format jsonl")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        raise NotUtf8(f"{path}, line {number}", error.start - raw.rfind(b"\n", 0, error.start)) from None
    del raw
    return parse(text, path)


def once(names: set[str], at: Json | None) -> str:
    """Returns the id at a place, which may occur only once in a file and is added to `names`; empty without a place."""
    if at is None:
        return ""
    name = at.name()
    if name in names:
        raise at.wrong(f"{name!r} occurs twice")
    names.add(name)
    return name


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:LONGEST_KEY]!r} occurs twice in one object")
    return made
