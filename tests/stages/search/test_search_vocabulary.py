"""Which words a run was trained on: read no further than the answer needs."""

from __future__ import annotations

from collections.abc import Iterator

from ccr_cli.data.tokens import NgramTokenizer
from ccr_cli.stages.search import vocabulary
from ccr_cli.stages.search.vocabulary import Vocabulary


def test_a_word_is_known_by_itself_or_by_half_of_its_parts() -> None:
    known = Vocabulary(NgramTokenizer(), ["Los GATOS corren", "fuzzy, crazy", "一只狗 😀"])
    for text in ("gatos", "gatitos gatos", "xyzzy gato", "狗", "猫狗", "😀", "Crazy!"):
        assert known.knows(text), text
    for text in ("xyzzy", "qwrtzx", "猫", "🎉", "!!!", ""):  # of the parts of xyzzy two in six: zzy and zy>
        assert not known.knows(text), text


def test_no_more_is_read_than_is_needed() -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for number in range(3 * vocabulary._CHUNK):
            read += 1
            yield "perro" if number < vocabulary._CHUNK else f"palabra{number}"

    known = Vocabulary(NgramTokenizer(), texts())
    assert read == 0
    assert known.knows("perro") and read == vocabulary._CHUNK
    assert not known.knows("xyzzy") and read == 3 * vocabulary._CHUNK
    assert known.knows("perro") and not known.knows("qwrtzx")
