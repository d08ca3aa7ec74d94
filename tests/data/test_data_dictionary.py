"""Bilingual dictionaries: the entries of every format, and files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.errors import UsageError

DIX = """<?xml version="1.0"?><dictionary><sdefs><sdef n="n"/></sdefs><section id="main">
<e r="LR"><p><l>sea<b/>urchin<s n="n"/></l><r>erizo<g><b/>de<b/>mar</g><s n="n"/></r></p></e>
<e><i>radio<s n="n"/></i></e><e><re>[0-9]+</re></e></section></dictionary>"""
TEI = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><text><body><entry><form><orth>dog</orth><orth>hound</orth></form>
<sense><cit type="trans"><quote>perro</quote><quote>can</quote></cit><cit type="example"><quote>no</quote></cit></sense>
</entry></body></text></TEI>"""
CEDICT = (
    "# CC-CEDICT\n狗 狗 [gou3] /dog/CL:隻|只[zhi1]/\n跑 跑 [[pao3]] /to run (quickly); to race/\n貓 猫 [mao1] /cat/\n"
)
ARTICLES = {
    "dog": "dog /dɒg/ <n>\n1. perro <masc>, can\n2. [zool.] cánido\n",
    "run": 'run\ncorrer\n      "I run" - corro\n  Synonyms: {race}\n Note: verb\n\n see: {race}\n',
}
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def dictd(folder: Path, packed: bool) -> Path:
    """Articles and their index, as dictd has them."""
    content, rows = b"00-database-info\nnothing\n", [("00databaseinfo", 0, 24)]
    for word, article in ARTICLES.items():
        rows.append((word, len(content), len(article.encode())))
        content += article.encode()
    coded = ["\t".join([word, *(DIGITS[n // 64] + DIGITS[n % 64] for n in (at, size))]) for word, at, size in rows]
    (folder / "eng-spa.index").write_text("\n".join(coded) + "\n")
    path = folder / ("eng-spa.dict.dz" if packed else "eng-spa.dict")
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("dog\tperro\nto run\tcorrer\n", [("dog", "perro"), ("run", "correr")]),
        ("dog perro\n\ndog can\n", [("dog", "perro"), ("dog", "can")]),
        (DIX, [("sea urchin", "erizo de mar"), ("radio", "radio")]),
        (TEI, [(word, one) for word in ("dog", "hound") for one in ("perro", "can")]),
        (CEDICT, [("狗", "dog"), ("狗", "CL:隻|只"), ("跑", "run"), ("跑", "race"), ("貓", "cat"), ("猫", "cat")]),
    ],
)
def test_the_content_tells_the_format(text: str, pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text(text, encoding="utf-8-sig" if text[0] != "<" else "utf-8")
    assert read_dictionary(path) == pairs
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_dictionary(path) == pairs


@pytest.mark.parametrize("packed", [False, True])
def test_dictd_is_an_index_and_articles(packed: bool, tmp_path: Path) -> None:
    path = dictd(tmp_path, packed)
    pairs = [("dog", "perro"), ("dog", "can"), ("dog", "cánido"), ("run", "correr")]
    assert read_dictionary(path) == pairs == read_dictionary(tmp_path / "eng-spa.index")
    (tmp_path / "eng-spa.index").write_text("dog\tEA\tEA\n")
    with pytest.raises(UsageError, match="line 1"):
        read_dictionary(path)
    (tmp_path / "eng-spa.index").unlink()
    with pytest.raises(UsageError, match="eng-spa"):
        read_dictionary(path)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"dog perro\na b c\n", "line 2"),
        (CEDICT.encode() + b"dog perro\n", "line 5"),
        (b"dog\tperro\ncaf\xe9\tx\n", "line 2"),
        (DIX.replace("</e>", "", 1).encode(), "line 3"),
        (b"<html></html>", "html"),
        (b"", "no entries"),
        (b"\x1f\x8b\x08\x00cut", "words"),
    ],
)
def test_what_is_no_dictionary_is_refused(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=place) as error:
        read_dictionary(path)
    assert str(path) in error.value.message and error.value.exit_code == 2
