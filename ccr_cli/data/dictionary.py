"""Bilingual dictionaries as pairs of words or phrases, in the formats in which free ones are published.

The content determines the format; only dictd's files are known by their names:

- CC-CEDICT (`.u8`): `TRADITIONAL SIMPLIFIED [pin1 yin1] /gloss/gloss/`.
- FreeDict, as TEI XML, or as dictd's `NAME.index` with `NAME.dict` or `NAME.dict.dz` beside it; either path will do.
- Apertium's bilingual dictionaries (`.dix`, XML).
- Two columns separated by a tab, or two words separated by a space, as in MUSE.

All may be gzipped. Remarks about a word (grammar, subject, notes) are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from ccr_cli.data.formats.base import lines, opened
from ccr_cli.errors import CcrError, UsageError

Pair = tuple[str, str]
_CEDICT = re.compile(r"(\S+) (\S+) \[.*?\]+ /(.+)/\s*")
_INDEX = re.compile(r"([^\t]*)\t([A-Za-z0-9+/]+)\t([A-Za-z0-9+/]+)")
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_REMARK = re.compile(r"\([^()]*\)|\[[^\]]*\]|<[^>]*>|\{[^}]*\}|^\s*\d+\.\s")
_NO_TRANSLATION = re.compile(r'\s*("|\w+:|[^\w\s]*see:)')
"""Lines of dictd's articles that are not translations: examples, notes, synonyms and references."""
_ARTICLE = re.compile(r"^(to|an?|the) (?=\w)")
_PARTS = re.compile(r"[;,]")


def read_dictionary(path: Path) -> list[Pair]:
    """Reads the distinct pairs of a dictionary in file order, without remarks and articles but otherwise as written.

    Raises:
        UsageError: If the file is missing, damaged, or in none of the formats; the message names a wrong line.
    """
    formats = "formats: CC-CEDICT, FreeDict, .dix, two columns"
    return read_pairs("dictionary", path, lambda file: dict.fromkeys(_cleaned(_entries(file))), "entries", formats)


def read_pairs(
    what: str, path: Path, entries: Callable[[Path], Iterable[Pair]], plural: str, formats: str
) -> list[Pair]:
    """Reads the pairs of a file; pairs with an empty side are left out.

    Args:
        what: What messages call the file.
        path: The file.
        entries: Function that yields the pairs of a file.
        plural: What messages call the pairs.
        formats: Hint for a file without pairs.

    Raises:
        UsageError: If the file is missing, damaged, in no known format, or without pairs; names a wrong line.
    """
    try:
        pairs = [pair for pair in entries(path) if all(pair)]
    except CcrError as error:
        raise UsageError(f"{what}: {error.message}", hint=error.hint) from None
    except ElementTree.ParseError as error:
        raise UsageError(f"{what}: {path}, line {error.position[0]}: {error}") from None
    if not pairs:
        raise UsageError(f"{what}: {path} has no {plural}", hint=formats)
    return pairs


def start_of(path: Path) -> bytes:
    """Returns the first bytes of a file, unpacked, without byte order mark and white space; they show its format."""
    with opened(path) as file:
        return file.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()


def files_of(path: Path) -> list[Path]:
    """Returns the files of a dictionary: the file itself, or dictd's index and articles.

    Raises:
        UsageError: If dictd's index or articles are missing.
    """
    base = re.fullmatch(r"(.+)\.(index|dict|dict\.dz)", path.name)
    if base is None:
        return [path]
    index, *articles = (path.with_name(base[1] + end) for end in (".index", ".dict", ".dict.dz"))
    data = next((file for file in articles if file.is_file()), None)
    if data is None or not index.is_file():
        raise UsageError(f"{base[1]}.index and {base[1]}.dict or .dict.dz belong together in {path.parent}")
    return [index, data]


def _entries(path: Path) -> Iterator[Pair]:
    if len(files := files_of(path)) > 1:
        return _dictd(*files)
    return _xml(path) if start_of(path).startswith(b"<") else _lines(path)


def _lines(path: Path) -> Iterator[Pair]:
    """Reads CC-CEDICT or two columns."""
    rows = ((number, line) for number, line in lines(path) if line.strip() and not line.startswith("#"))
    cedict = None
    for number, line in rows:
        match = _CEDICT.fullmatch(line)
        cedict = match is not None if cedict is None else cedict
        if cedict and match:
            for headword in dict.fromkeys(match.group(1, 2)):
                yield from ((headword, gloss) for gloss in match[3].split("/"))
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if cedict or len(columns) != 2:
            expected = "an entry of CC-CEDICT" if cedict else "a word and its translation, with a tab between"
            raise UsageError(f"{path}, line {number}: expected {expected}, not {line[:60]!r}")
        yield columns[0], columns[1]


def _xml(path: Path) -> Iterator[Pair]:
    """Reads Apertium's `.dix` or TEI, where an entry pairs each of its spellings with each translation."""
    with opened(path) as file:
        root = ""
        for event, node in ElementTree.iterparse(file, ("start", "end")):
            tag = node.tag.rpartition("}")[2]
            root = root or tag
            if root not in ("dictionary", "TEI", "TEI.2"):
                raise UsageError(f"{path} is XML with <{root}>, neither Apertium's <dictionary> nor <TEI>")
            if event == "start" or tag not in ("e", "entry"):
                continue
            if tag == "e":
                sides = [node.find("p/l"), node.find("p/r")]
                same = node.find("i")
                left, right = (_text(same if side is None else side) for side in sides)
                yield left, right
            else:
                words = [_text(spelling) for spelling in node.iterfind("{*}form//{*}orth")]
                found = [*node.iterfind(".//{*}cit[@type='trans']/{*}quote"), *node.iterfind(".//{*}tr")]
                yield from ((word, _text(other)) for word in words for other in found)
            node.clear()


def _text(node: ElementTree.Element | None) -> str:
    """Returns the text of a node, with a blank for Apertium's `<b/>`."""
    for blank in () if node is None else node.iter("b"):
        blank.text = " "
    return "" if node is None else "".join(node.itertext())


def _dictd(index: Path, data: Path) -> Iterator[Pair]:
    """Reads the articles whose offset and length the index gives in base-64 digits."""
    with opened(data) as file:
        content = file.read()
    for number, line in lines(index):
        match = _INDEX.match(line)
        if match is None:
            raise UsageError(f"{index}, line {number}: expected headword, offset and length, not {line[:60]!r}")
        if match[1].startswith(("00database", "00-database")):
            continue
        begin, length = map(_number, match.group(2, 3))
        if begin + length > len(content):
            raise UsageError(f"{index}, line {number}: beyond the end of {data.name}")
        article = content[begin : begin + length].decode("utf-8", errors="replace")
        for text in article.splitlines()[1:]:
            if not _NO_TRANSLATION.match(text):
                yield match[1], text


def _number(text: str) -> int:
    value = 0
    for digit in text:
        value = 64 * value + _DIGITS.index(digit)
    return value


def _cleaned(entries: Iterable[Pair]) -> Iterator[Pair]:
    """Removes remarks, and splits a list of translations into one entry each."""
    for headword, text in entries:
        left = _phrase(headword)
        for part in _PARTS.split(_REMARK.sub(" ", text)):
            yield left, _phrase(part)


def _phrase(text: str) -> str:
    """Removes remarks, and a leading English article or `to`, from a phrase."""
    return _ARTICLE.sub("", " ".join(_REMARK.sub(" ", text).split()))
