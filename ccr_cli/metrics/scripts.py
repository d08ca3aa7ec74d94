"""Writing systems: which scripts a language is written in, and which script a letter belongs to."""

import re
import unicodedata
from functools import lru_cache

_LANGUAGES = {
    "LATIN": "af az bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu id ig is it jv la lb lt "
    "lv mg mi ms mt nb nl nn no oc pl pt ro rw sk sl sm sn so sq sr st su sv sw tl tn tr uz vi xh yo zu",
    "CYRILLIC": "be bg kk ky mk mn ru sr tg uk",
    "ARABIC": "ar arz ckb fa ps sd ug ur",
    "DEVANAGARI": "hi mr ne sa",
    "BENGALI": "as bn",
    "HEBREW": "he yi",
    "CJK": "ja yue zh",
    "IDEOGRAPHIC": "ja yue zh",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    **dict(HANGUL="ko", GREEK="el", ARMENIAN="hy", GEORGIAN="ka", ETHIOPIC="am", THAI="th", LAO="lo", KHMER="km"),
    **dict(MYANMAR="my", GUJARATI="gu", GURMUKHI="pa", TAMIL="ta", TELUGU="te", KANNADA="kn", MALAYALAM="ml"),
    **dict(ORIYA="or", SINHALA="si"),
}
"""Languages of each script, which is the first word of the Unicode names of its characters."""
_SCRIPTS = {
    lang: frozenset(script for script, langs in _LANGUAGES.items() if lang in langs.split())
    for lang in " ".join(_LANGUAGES.values()).split()
}
_LIKE = dict(latn="en", cyrl="ru", arab="ar", deva="hi", hans="zh", hant="zh", hani="zh", jpan="ja", hang="ko")
_SUBTAGS = {subtag: _SCRIPTS[lang] for subtag, lang in _LIKE.items()} | {"kore": _SCRIPTS["ko"] | _SCRIPTS["zh"]}
"""A script subtag in the language tag (sr-Latn, zh-Hant) takes precedence over the table."""


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


def base_language(lang: str) -> str:
    """The language of a code, without script and region.

    >>> base_language("zh-Hant"), base_language("pt_BR")
    ('zh', 'pt')
    """
    return lang.lower().replace("_", "-").partition("-")[0]


def has_spaces(lang: str) -> bool:
    """Whether a language puts spaces between its words.

    >>> has_spaces("de"), has_spaces("zh-Hant")
    (True, False)
    """
    return base_language(lang) not in WITHOUT_SPACES


def is_wrong_script(text: str, scripts: frozenset[str]) -> bool:
    """True if a text has letters, but none of these scripts; numbers and emoji alone are not wrong."""
    letters = [character for character in text if character.isalpha()]
    return bool(letters) and not any(_script(character) in scripts for character in letters)


@lru_cache(maxsize=65536)
def _script(character: str) -> str:
    return re.split("[ -]", unicodedata.name(character, ""), maxsplit=1)[0]
