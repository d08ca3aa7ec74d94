"""Parallel text: its formats, and files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ccr_cli.data.parallel_text import read_parallel
from ccr_cli.errors import UsageError

PAIRS = [("Two dogs run.", "Dos perros corren."), ("A cat", "Un gato")]
TMX = """<?xml version="1.0"?><tmx version="1.4"><header/><body>
<tu><prop type="x">1</prop><tuv xml:lang="en"><seg>Two <bpt i="1">dogs</bpt>
 run.</seg></tuv><tuv xml:lang="es"><seg>Dos perros corren.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>A cat</seg></tuv><tuv xml:lang="es"><seg>Un gato</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>A fish</seg></tuv><tuv xml:lang="es"><seg/></tuv></tu></body></tmx>"""


@pytest.mark.parametrize(
    "text",
    [
        "Two dogs run.\tDos perros corren.\r\nA fish\t\nA cat\tUn gato\n",
        "1276\tTwo dogs run.\t2481\tDos perros corren.\n77\tA cat\t78\tUn gato\n",
        "1.25\tTwo dogs run.\tDos perros corren.\tCC-BY\n0.9\tA cat\tUn gato\tCC-BY\n",
        TMX,
    ],
)
def test_formats(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    for content in (text.encode(), b"\xef\xbb\xbf" + text.encode(), gzip.compress(text.encode())):
        path.write_bytes(content)
        assert read_parallel(path) == PAIRS


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"a dog\tun perro\na cat\n", "line 2"),
        (b"caf\xe9\tx\n", "line 1"),
        (TMX.replace("</tu>", "", 1).encode(), "line 5"),
        (TMX.replace("<tuv", "<tuv><seg>x</seg></tuv><tuv", 1).encode(), "3 <tuv>"),
        (b"a dog\t\n", "no pairs"),
        (b"", "no pairs"),
        (b"\x1f\x8b\x08\x00cut", "damaged"),
    ],
)
def test_what_is_no_parallel_text_is_refused(content: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=place) as error:
        read_parallel(path)
    assert str(path) in error.value.message and error.value.exit_code == 2
