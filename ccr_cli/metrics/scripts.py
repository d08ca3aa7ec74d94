"""Writing systems: which scripts a language is written in, and which script a letter is of."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Scripts as the first word of Unicode character names.
_LATIN = frozenset({"LATIN"})
_CYRILLIC = frozenset({"CYRILLIC"})
_ARABIC = frozenset({"ARABIC"})
_DEVANAGARI = frozenset({"DEVANAGARI"})
_HAN = frozenset({"CJK", "IDEOGRAPHIC"})
_KANA = frozenset({"HIRAGANA", "KATAKANA"})
_HANGUL = frozenset({"HANGUL"})

_LATIN_LANGUAGES = (
    "af az bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu id ig is it jv la lb lt "
    "lv mg mi ms mt nb nl nn no oc pl pt ro rw sk sl sm sn so sq st su sv sw tl tn tr uz vi xh yo zu"
)
_SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_LATIN_LANGUAGES.split(), _LATIN),
    **dict.fromkeys(["be", "bg", "kk", "ky", "mk", "mn", "ru", "tg", "uk"], _CYRILLIC),
    **dict.fromkeys(["ar", "arz", "ckb", "fa", "ps", "sd", "ug", "ur"], _ARABIC),
    **dict.fromkeys(["hi", "mr", "ne", "sa"], _DEVANAGARI),
    "sr": _CYRILLIC | _LATIN,
    "zh": _HAN,
    "yue": _HAN,
    "ja": _HAN | _KANA,
    "ko": _HANGUL,
    "el": frozenset({"GREEK"}),
    "he": frozenset({"HEBREW"}),
    "yi": frozenset({"HEBREW"}),
    "hy": frozenset({"ARMENIAN"}),
    "ka": frozenset({"GEORGIAN"}),
    "am": frozenset({"ETHIOPIC"}),
    "th": frozenset({"THAI"}),
    "lo": frozenset({"LAO"}),
    "km": frozenset({"KHMER"}),
    "my": frozenset({"MYANMAR"}),
    "bn": frozenset({"BENGALI"}),
    "as": frozenset({"BENGALI"}),
    "gu": frozenset({"GUJARATI"}),
    "pa": frozenset({"GURMUKHI"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "kn": frozenset({"KANNADA"}),
    "ml": frozenset({"MALAYALAM"}),
    "or": frozenset({"ORIYA"}),
    "si": frozenset({"SINHALA"}),
}
# A script subtag in the language tag (sr-Latn, zh-Hant) decides before the table.
_SUBTAGS: dict[str, frozenset[str]] = {
    "latn": _LATIN,
    "cyrl": _CYRILLIC,
    "arab": _ARABIC,
    "deva": _DEVANAGARI,
    "hans": _HAN,
    "hant": _HAN,
    "hani": _HAN,
    "jpan": _HAN | _KANA,
    "kore": _HANGUL | _HAN,
    "hang": _HANGUL,
}


def expected_scripts(lang: str) -> frozenset[str] | None:
    """The scripts of a language, as first words of Unicode names; None if it is not known here.

    >>> sorted(expected_scripts("ja")), expected_scripts("zh-Hant") == expected_scripts("zh")
    (['CJK', 'HIRAGANA', 'IDEOGRAPHIC', 'KATAKANA'], True)
    """
    subtags = lang.lower().replace("_", "-").split("-")
    for subtag in subtags[1:]:
        if subtag in _SUBTAGS:
            return _SUBTAGS[subtag]
    return _SCRIPTS.get(subtags[0])


WITHOUT_SPACES = frozenset({"zh", "yue", "ja", "th", "lo", "km", "my"})


def has_spaces(lang: str) -> bool:
    """Whether a language puts spaces between its words.

    >>> has_spaces("de"), has_spaces("zh-Hant")
    (True, False)
    """
    return lang.lower().replace("_", "-").partition("-")[0] not in WITHOUT_SPACES


def is_wrong_script(text: str, scripts: frozenset[str]) -> bool:
    """True if a text has letters, but none of these scripts; numbers and emoji alone are not wrong."""
    letters = [character for character in text if character.isalpha()]
    return bool(letters) and not any(_script(character) in scripts for character in letters)


@lru_cache(maxsize=65536)
def _script(character: str) -> str:
    return re.split("[ -]", unicodedata.name(character, ""), maxsplit=1)[0]
