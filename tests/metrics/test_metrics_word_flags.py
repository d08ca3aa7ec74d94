"""Flags of words, by pairs that were written for them, in several scripts."""

from __future__ import annotations

import pytest

from ccr_cli.metrics import word_flags
from ccr_cli.metrics.word_flags import flagged, in_words, numbers, other_language, repeated


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("25 men", "52 hombres", ["25"]),
        ("25 men and 3 dogs", "25 hombres y 3 perros", []),
        ("3 dogs", "tres perros", []),
        ("3 dogs", "5 Hunde", ["3"]),
        ("15 girls", "viele M\u00e4dchen", ["15"]),
        ("three dogs", "3 perros", []),
        ("30 dogs", "\u4e09\u5341\u6761\u72d7", []),
        ("3 dogs", "\u4e94\u6761\u72d7", ["3"]),
        ("3 dogs", "\u4e00\u7fa4\u72d7", []),
        ("2 dogs", "\u4e24\u6761\u72d7", []),
        ("108 men", "\u4e00\u767e\u96f6\u516b\u4eba", []),
        ("25,000 people", "\u4e24\u4e07\u4e94\u5343\u4eba", []),
        ("25,000 people", "2.5\u4e07\u4eba", []),
        ("in 2016", "\u4e8c\u3007\u4e00\u516d\u5e74", []),
        ("24 dogs", "\u0662\u0664 \u0643\u0644\u0628", []),
        ("24 dogs", "\u0662\u0665 \u0643\u0644\u0628", ["24"]),
        ("24 dogs", "\u0968\u096a \u0915\u0941\u0924\u094d\u0924\u0947", []),
        ("10,000 dollars for 2.00", "10\u00a0000 dollars pour 2", []),
        ("number 007", "\u2116 007", []),
    ],
)
def test_numbers(source: str, target: str, lost: list[str]) -> None:
    assert numbers(source, target) == lost


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("a man", "un hombre un hombre", ["un hombre"]),
        ("a podium", "eine Frau steht steht hier", ["steht"]),
        ("a shirt", "der ein Hemd tr\u00e4gt, tr\u00e4gt zwei Teller", []),
        ("to us", "nous nous lavons", []),
        ("bye bye man", "adi\u00f3s adi\u00f3s hombre", []),
        ("hello hello", "hallo hallo", []),
        ("children", "anak-anak", []),
        ("a slide", "\u5c0f\u7537\u5b69\u5e7b\u706f\u7247\u5e7b\u706f\u7247", ["\u5e7b\u706f\u7247"]),
        ("slowly", "\u6162\u6162\u8d70\u4e00\u6b65\u4e00\u6b65", []),
        ("a dog", "\u043f\u0451\u0441\u0438\u043a " * 2, ["\u043f\u0451\u0441\u0438\u043a"]),
    ],
)
def test_words_twice_in_a_row(source: str, target: str, words: list[str]) -> None:
    assert repeated(source, target) == words


def test_another_language(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("py3langid")
    german = "Eine Frau steht mit einem Hund vor dem Haus."
    assert other_language(german, "es") == ["de"] and other_language(german, "de-AT") == []
    assert other_language(german, "xx") == [], "a language that the package does not know"
    assert other_language("Tren", "es") == [] and other_language("12345", "es") == []
    word_flags._identifier.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "py3langid.langid", None)
    assert other_language(german, "es") == [], "without the package nothing is flagged"
    word_flags._identifier.cache_clear()


def test_all_flags_of_a_pair_are_described_with_their_words() -> None:
    sources = ["25 sheperds in a field here", "a dog"]
    targets = ["52 sheperds en un field", "un perro"]
    assert list(map(in_words, flagged(sources, targets, "en", "es"))) == [
        "untranslated (sheperds field), numbers (25)",
        "",
    ]
