"""Turn the short name and the keywords of an emoji into captions.

Every item has its short name as caption 0. Its keywords, which people chose so that others find the picture,
make one more caption, or two where there are many. A keyword caption is left out where it would say nothing
new (every keyword a word of the short name), too little (a single keyword: "building" finds half a city) or
the same as a caption of another item.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: From this many keywords on there are two captions, one of every other keyword each.
TWO_LISTS_FROM = 8
SHORT_NAME, KEYWORDS = "short-name", "keywords"
_SPACES = re.compile(r"\s+")
_WORD = re.compile(r"\w+")


class Annotation(NamedTuple):
    """What CLDR says of one emoji in one language."""

    name: str
    keywords: Sequence[str]


def clean(text: str) -> str:
    """Normalise to NFC and every run of white space, no-break spaces included, to one space."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def separator(lang: str) -> str:
    """Return what stands between two keywords of a list in this language."""
    return "\N{IDEOGRAPHIC COMMA}" if lang in {"zh", "ja"} else ", "


def useful_keywords(name: str, keywords: Sequence[str]) -> list[str]:
    """Return the keywords in CLDR's order without the name, repetitions and bare symbols.

    Args:
        name: The short name, cleaned.
        keywords: As CLDR lists them.

    Returns:
        At least two keywords, of which at least one is no word of the name; else nothing.
    """
    kept = {clean(word).casefold(): clean(word) for word in reversed(keywords) if _WORD.search(word)}
    kept.pop(name.casefold(), None)
    words = list(reversed(kept.values()))
    in_name = set(_WORD.findall(name.casefold()))
    says_more = any(not set(_WORD.findall(word.casefold())) <= in_name for word in words)
    return words if len(words) > 1 and says_more else []


def keyword_captions(name: str, keywords: Sequence[str], lang: str) -> list[str]:
    """Return no, one or two keyword captions."""
    words = useful_keywords(name, keywords)
    if not words:
        return []
    lists = [words[0::2], words[1::2]] if len(words) >= TWO_LISTS_FROM else [words]
    return [separator(lang).join(words) for words in lists]


def captions_of(annotations: Mapping[str, Annotation], lang: str) -> dict[str, list[tuple[str, str]]]:
    """Return the captions of all items in one language as (text, caption set), the short name first.

    Args:
        annotations: By item.
        lang: BCP 47.
    """
    names = {item: clean(annotation.name) for item, annotation in annotations.items()}
    lists = {item: keyword_captions(names[item], annotation.keywords, lang) for item, annotation in annotations.items()}
    seen = Counter(text.casefold() for texts in lists.values() for text in texts)
    seen.update(name.casefold() for name in names.values())
    return {
        item: [
            (names[item], SHORT_NAME),
            *((text, KEYWORDS) for text in lists[item] if seen[text.casefold()] == 1),
        ]
        for item in annotations
    }
