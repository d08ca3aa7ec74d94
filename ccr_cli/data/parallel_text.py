"""Parallel text: sentences and their translations by people, as pairs in the order of the file.

- TMX with two languages (OPUS).
- Tab-separated columns. The first two that are not numbers are used: Tatoeba's pairs have ids, others end in notes.

Both may be gzipped. A sentence without a translation is left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from ccr_cli.data.dictionary import Pair, read_pairs, start_of
from ccr_cli.data.formats.base import lines, opened
from ccr_cli.errors import UsageError

_NUMBER = re.compile(r"[\d.]*")


def read_parallel(path: Path) -> list[Pair]:
    """Reads pairs of sentences; the two languages are in the order of the file.

    Raises:
        UsageError: If the file is missing, damaged, or in neither format; the message names a wrong line.
    """
    return read_pairs("parallel text", path, _entries, "pairs of sentences", "formats: two columns (TSV), TMX")


def _entries(path: Path) -> Iterator[Pair]:
    return _tmx(path) if start_of(path).startswith(b"<?xml") else _columns(path)


def _columns(path: Path) -> Iterator[Pair]:
    for number, line in lines(path):
        columns = [column.strip() for column in line.split("\t")]
        texts = [column for column in columns if not _NUMBER.fullmatch(column)]
        if len(columns) < 2:
            problem = f"{path}, line {number}: expected a sentence and its translation, with a tab between"
            raise UsageError(f"{problem}, not {line[:60]!r}", hint="two files become one by: paste A B > FILE")
        if len(texts) > 1:
            yield texts[0], texts[1]


def _tmx(path: Path) -> Iterator[Pair]:
    with opened(path) as file:
        for _, node in ElementTree.iterparse(file):
            if node.tag == "tu":
                texts = [" ".join("".join(each.itertext()).split()) for each in node.iterfind("tuv/seg")]
                if len(texts) != 2:
                    raise UsageError(f"{path} has a <tu> with {len(texts)} <tuv>, expected the two languages")
                yield texts[0], texts[1]
                node.clear()
