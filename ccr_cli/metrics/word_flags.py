"""Obvious errors in the words of a translation, in addition to the flags of `metrics.mtquality`.

Like those, these flags are for a person to look at: a flag filters nothing, and a missing flag proves nothing.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ccr_cli.metrics.mtquality import evidence, left_in
from ccr_cli.metrics.scripts import base_language

FLAGS = {
    "numbers": "a number in the source's digits is missing in the translation",
    "repeated": "words stand twice in a row, and not in the source",
    "language": "the text is in another language than the target's (with the package py3langid)",
}
"""The flags of a caption and what each one means."""
SURE = 0.9
"""Minimum probability of another language for a flag."""
LIKELY, UNLIKELY = 0.5, 0.01
"""For `in_other_language`: minimum probability of the other language, and maximum of the right language."""
SPELT_OUT = 12
"""Numbers up to this one are often written as words, which are not read."""
_LETTERS, _CHARACTERS = 5, 3
"""Minimum letters of a word (characters in unspaced scripts) to flag its repetition; shorter ones can be idiom."""
_ALIKE = ("zh yue wuu", "no nb nn da", "hr sr bs sh", "id ms", "fil tl")
"""Groups of languages that cannot be told apart in short texts."""
_DIGITS = dict(zip("〇一二三四五六七八九零两兩", (*range(10), 0, 2, 2), strict=True))
_TENS = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_DIGITAL = r"\d{1,3}(?: \d{3})+|\d+(?:[.,\u066b\u066c]\d+)*"
_CHINESE = f"[{''.join([*_DIGITS, *_TENS, *_MYRIADS])}]"
_NUMERAL = re.compile(rf"({_DIGITAL})({_CHINESE}*)|({_CHINESE}+)")
_CLAUSE = re.compile(r"(?:[\w\s]|\b['\u2019-]\b)+")
_TWICE = re.compile(rf"([\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{{{_CHARACTERS},20}})\1")
_LONGEST = 6


def numbers(source: str, target: str) -> list[str]:
    """The numbers written in digits in the source that the translation lacks.

    Digits of any script and Chinese numerals are compared; a small number that may be spelt out in words counts only
    where the translation has other numbers.

    >>> numbers("25 men", "52 hombres"), numbers("3 dogs", "tres perros"), numbers("30 dogs", "三十条狗")
    (['25'], [], [])
    """
    if not (wanted := _numbers(source, chinese=False)):
        return []
    there = _numbers(target, chinese=True)
    others = (there - wanted).keys() - {"1"}  # an article in many languages
    return [n for n in (wanted - there).elements() if others or len(n) > 2 or int(n) > SPELT_OUT]


def _numbers(text: str, *, chinese: bool) -> Counter[str]:
    """The numbers of a text without separators and leading zeros; Chinese numerals too, or only those in digits."""
    found: Counter[str] = Counter()
    for match in _NUMERAL.finditer(unicodedata.normalize("NFKC", text)):
        digits, numeral = match[1] or "", match[2] or match[3]
        plain = "".join(str(unicodedata.decimal(c)) for c in digits if c.isdecimal())
        if digits and numeral and numeral[0] in _MYRIADS | _TENS:
            value = float(re.sub(r"[,\u066c]", "", digits).replace("\u066b", "."))
            for sign in numeral:
                value *= (_TENS | _MYRIADS).get(sign, 1)
            found[str(round(value))] += 1
        elif digits:
            whole = len(plain) - 2 if re.search(r"[.,]00$", digits) else len(plain)
            found[plain[:whole].lstrip("0") or "0"] += 1
        elif chinese:
            found[str(_chinese(numeral))] += 1
    return found


def _chinese(numeral: str) -> int:
    """The value of a Chinese numeral, with units or digit by digit."""
    if not set(numeral) & {*_TENS, *_MYRIADS}:
        return int("".join(str(_DIGITS[sign]) for sign in numeral))
    total = part = digit = 0
    for sign in numeral:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        elif sign in _TENS:
            part, digit = part + (digit or 1) * _TENS[sign], 0
        else:
            total, part, digit = (total + part + digit) * _MYRIADS[sign], 0, 0
    return total + part + digit


def repeated(source: str, target: str) -> list[str]:
    """The words (characters in unspaced scripts) that a translation has twice in a row if the source repeats none.

    >>> repeated("a man", "un hombre un hombre"), repeated("a man", "nous nous"), repeated("bye bye", "adios adios")
    (['un hombre'], [], [])
    """
    return [] if _twice(source, 1) else _twice(target, _LETTERS)


def _twice(text: str, letters: int) -> list[str]:
    if match := _TWICE.search(text):
        return [match[1]]
    for clause in _CLAUSE.findall(text.lower()):
        words = clause.split()
        for length in range(1, min(_LONGEST, len(words) // 2) + 1):
            for first in range(len(words) - 2 * length + 1):
                part = words[first : first + length]
                if part == words[first + length : first + 2 * length] and (length > 1 or len(part[0]) >= letters):
                    return [" ".join(part)]
    return []


def other_language(text: str, lang: str) -> list[str]:
    """The language of a text if it is surely not `lang`, else empty, as without the package py3langid.

    Empty too if the package does not know `lang`, or if short texts do not tell it from the language found.
    """
    found, p = _language(text, lang)
    return [found] if p >= SURE else []


def in_other_language(text: str, lang: str) -> str:
    """The language of a text that should be in `lang` and almost certainly is not, else "".

    It flags none of 116,000 human captions in English, German, French and Czech, and finds 99 % of captions in another
    language, but a third or less of two-word names.
    """
    found, p = _language(text, lang)
    return found if p >= LIKELY and dict(_identifier()[0].rank(text))[base_language(lang)] < UNLIKELY else ""


def _language(text: str, lang: str) -> tuple[str, float]:
    """The most likely language and its probability; "" and 0 if it is the expected one or cannot be told."""
    (identifier, labels), own = _identifier(), base_language(lang)
    if own not in labels:
        return "", 0.0
    found, p = identifier.classify(text)
    alike = found in (own, "zxx") or any({own, found} <= set(group.split()) for group in _ALIKE)
    return ("", 0.0) if alike else (str(found), float(p))


@cache
def _identifier() -> tuple[Any, frozenset[str]]:
    """The language identifier and the languages that it knows; None and no languages without py3langid."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # an extra
    except ImportError:
        return None, frozenset()
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, frozenset(identifier.labels)


def word_flags(sources: Iterable[str], targets: Iterable[str], lang: str) -> Iterator[dict[str, list[str]]]:
    """The words for which each translation is flagged, by flag; flags without any are left out."""
    for pair in zip(sources, targets, strict=True):
        found = numbers(*pair), repeated(*pair), other_language(pair[1], lang)
        yield {name: words for name, words in zip(FLAGS, found, strict=True) if words}


def flagged(sources: Sequence[str], targets: Sequence[str], source_lang: str, lang: str) -> list[dict[str, list[str]]]:
    """All flags of each translation (N) with their words, including those of `metrics.mtquality`."""
    plain, found = evidence(sources, targets, source_lang, lang).flags, []
    each = zip(left_in(sources, targets), word_flags(sources, targets, lang), strict=True)
    for row, (left, words) in enumerate(each):
        flags: dict[str, list[str]] = {name: [] for name, of in plain.items() if of is not None and of[row]}
        for name in [name for name in ("untranslated", "copy") if name in flags][:1]:
            flags[name] = left
        found.append(flags | words)
    return found


def in_words(flags: Mapping[str, Sequence[str]]) -> str:
    """The flags of a translation as a text: `numbers (25), length`."""
    return ", ".join(f"{name} ({' '.join(words)})" if words else name for name, words in flags.items())
