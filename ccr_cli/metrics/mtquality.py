"""What can be said about machine translations without a reference: round trip, length, copies, script.

None of these says that a translation is good. They find what is plainly wrong, and they are the filter that a
user would try first.

Shape legend: N sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

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


@dataclass(frozen=True)
class Quality:
    """Figures of one set of translations, and what they are made of, sentence by sentence."""

    summary: dict[str, float | int | str | None]
    """Shares in 0..1 of all sentences; None where nothing can be said"""
    chrf: FloatArray | None
    """(N,) chrF2 of the round trip against the source, 0..100; None without round trips"""
    length_ratio: FloatArray
    """(N,) characters of the target / of the source; nan if the source is empty"""
    copy: BoolArray
    """(N,) the target is the source itself"""
    empty: BoolArray
    """(N,) nothing came back"""
    repeated: BoolArray
    """(N,) a different source has the same target"""
    wrong_script: BoolArray | None
    """(N,) the target has letters, none of the language's script; None for languages not in the table"""


def quality(
    sources: Sequence[str],
    targets: Sequence[str | None],
    target_lang: str,
    round_trips: Sequence[str | None] | None = None,
) -> Quality:
    """Describe translations without a reference.

    Texts are compared after NFKC, case folding and collapsing white space.

    Args:
        sources: (N,) what was translated.
        targets: (N,) its translations; None where the engine gave none (counts as empty).
        target_lang: BCP 47 tag.
        round_trips: (N,) translations of the targets back into the source's language.

    Returns:
        Summary keys: `sentences`, `length_ratio` (all characters of the targets by all of the sources),
        `copies`, `empty`, `repeated`, `wrong_script`, `chrf` (corpus chrF2 of the round trip),
        `chrf_sentence` (mean over sentences), `chrf_signature` (sacrebleu's).

    Raises:
        ValueError: If the lengths differ.
    """
    if len(targets) != len(sources) or (round_trips is not None and len(round_trips) != len(sources)):
        raise ValueError("sources, targets and round trips must be of one length")
    source_texts = [_plain(text) for text in sources]
    target_texts = [_plain(text) for text in targets]
    source_length = np.array([len(text) for text in source_texts], dtype=np.float64)
    target_length = np.array([len(text) for text in target_texts], dtype=np.float64)
    ratio = np.full(len(sources), np.nan)
    np.divide(target_length, source_length, out=ratio, where=source_length > 0)

    empty = target_length == 0
    pairs = list(zip(source_texts, target_texts, strict=True))
    copy = np.array([bool(target) and source == target for source, target in pairs], dtype=bool)
    sources_of: dict[str, set[str]] = {}
    for source, target in pairs:
        sources_of.setdefault(target, set()).add(source)
    repeated = np.array([bool(target) and len(sources_of[target]) > 1 for target in target_texts], dtype=bool)
    scripts = expected_scripts(target_lang)
    wrong = None
    if scripts is not None:
        wrong = np.array([_is_wrong_script(text, scripts) for text in target_texts], dtype=bool)

    summary: dict[str, float | int | str | None] = {
        "sentences": len(sources),
        "length_ratio": float(target_length.sum() / source_length.sum()) if source_length.sum() else None,
        "copies": _share(copy),
        "empty": _share(empty),
        "repeated": _share(repeated),
        "wrong_script": None if wrong is None else _share(wrong),
        "chrf": None,
        "chrf_sentence": None,
        "chrf_signature": None,
    }
    chrf = None
    if round_trips is not None and len(sources):
        back = [text or "" for text in round_trips]
        chrf, summary["chrf"], summary["chrf_signature"] = round_trip_chrf(sources, back)
        summary["chrf_sentence"] = float(chrf.mean())
    return Quality(summary, chrf, ratio, copy, empty, repeated, wrong)


def round_trip_chrf(sources: Sequence[str], round_trips: Sequence[str]) -> tuple[FloatArray, float, str]:
    """ChrF2 of round trips with the source as reference, by sentence and over the corpus.

    Popovic 2015: character 1- to 6-grams, beta 2, as sacrebleu's defaults. Case counts, white space does not.

    Returns:
        (N,) sentence chrF2 and the corpus chrF2, both 0..100, and sacrebleu's signature.

    Raises:
        ValueError: If there is no sentence, or the lengths differ.
    """
    from sacrebleu.metrics.chrf import CHRF

    if not sources or len(sources) != len(round_trips):
        raise ValueError("chrF needs at least one sentence, and as many round trips as sources")
    metric = CHRF()
    each = [metric.sentence_score(back, [source]).score for back, source in zip(round_trips, sources, strict=True)]
    corpus = metric.corpus_score(list(round_trips), [list(sources)])
    return np.array(each, dtype=np.float64), float(corpus.score), str(metric.get_signature())


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


def _is_wrong_script(text: str, scripts: frozenset[str]) -> bool:
    """True if a text has letters, but none of these scripts. Numbers and emoji alone are not wrong."""
    letters = [character for character in text if character.isalpha()]
    return bool(letters) and not any(_script(character) in scripts for character in letters)


@lru_cache(maxsize=65536)
def _script(character: str) -> str:
    return re.split("[ -]", unicodedata.name(character, ""), maxsplit=1)[0]


def _plain(text: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())


def _share(flags: BoolArray) -> float | None:
    return float(flags.mean()) if len(flags) else None
