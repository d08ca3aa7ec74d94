"""What is plainly wrong in the words of a translation, besides the flags of `metrics.mtquality`.

Like these they are for a person to look at: a flag filters nothing, and no flag means nothing.
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
"""What a caption may be flagged for."""
SURE = 0.9
"""Probability of another language that is flagged."""
LIKELY, UNLIKELY = 0.5, 0.01
"""For `in_other_language`: least probability of the other language, and largest one of the right language."""
SPELT_OUT = 12
"""Numbers up to this one are often written as words, which are not read."""
_LETTERS, _CHARACTERS = 5, 3
"""Least letters of a word, and characters in scripts without spaces, whose repetition is no way of speaking."""
_ALIKE = ("zh yue wuu", "no nb nn da", "hr sr bs sh", "id ms", "fil tl")
"""Languages that short texts do not tell apart."""
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
    """The numbers in digits of the source that the translation lacks.

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
    """The words, or characters in scripts without spaces, that a translation has twice in a row and the source not.

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
    """The language of a text, if it is surely another one; empty without the package py3langid.

    Left out are languages that the package does not know, and neighbours that short texts do not tell apart.
    """
    found, p = _language(text, lang)
    return [found] if p >= SURE else []


def in_other_language(text: str, lang: str) -> str:
    """The language of a text that was meant to be in `lang` and is hardly so, else "".

    Of 116,000 human captions in English, German, French and Czech it calls none wrong, and it finds 99 % of those of
    another language; of names of two words it finds a third or less.
    """
    found, p = _language(text, lang)
    return found if p >= LIKELY and dict(_identifier()[0].rank(text))[base_language(lang)] < UNLIKELY else ""


def _language(text: str, lang: str) -> tuple[str, float]:
    """The most likely language and its probability; "" and 0 if it is the one expected, or none can be told."""
    (identifier, labels), own = _identifier(), base_language(lang)
    if own not in labels:
        return "", 0.0
    found, p = identifier.classify(text)
    alike = found in (own, "zxx") or any({own, found} <= set(group.split()) for group in _ALIKE)
    return ("", 0.0) if alike else (str(found), float(p))


@cache
def _identifier() -> tuple[Any, frozenset[str]]:
    """What tells languages, and those that it knows: none without the package py3langid."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # an extra
    except ImportError:
        return None, frozenset()
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, frozenset(identifier.labels)


def word_flags(sources: Iterable[str], targets: Iterable[str], lang: str) -> Iterator[dict[str, list[str]]]:
    """The words for which each translation is flagged, by the names of `FLAGS`, where there are any."""
    for pair in zip(sources, targets, strict=True):
        found = numbers(*pair), repeated(*pair), other_language(pair[1], lang)
        yield {name: words for name, words in zip(FLAGS, found, strict=True) if words}


def flagged(sources: Sequence[str], targets: Sequence[str], source_lang: str, lang: str) -> list[dict[str, list[str]]]:
    """All flags of each translation (N), those of `metrics.mtquality` too, with their words."""
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
