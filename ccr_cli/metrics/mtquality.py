"""Obvious errors in machine translations, caption by caption, from source and translation alone.

The flags find what no reader would take for a translation; without a flag, a translation may still be bad. They use no
human text in the target language, so they may be used in training.

Shape legend: N captions.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccr_cli.metrics.detection import BoolArray, FloatArray
from ccr_cli.metrics.scripts import expected_scripts, is_wrong_script

FLAGS: dict[str, str] = {
    "copy": "the translation is the source: the same letters and digits",
    "empty": "nothing stands there, or no letter and no digit although the source has some",
    "length": "far longer or shorter than other translations of this artifact, for the length of its source",
    "repetition": "something of three to a hundred characters stands there three times in a row, and not in the source",
    "script": "there are letters, and none is of the language's script",
    "untranslated": "words of the source are left as they were",
    "truncated": "the source ends with a full stop or the like and the translation does not, as nine in ten others do",
}
"""The flags of a caption and what each one means."""

LENGTH_Z = 3.5
"""Threshold of Iglewicz and Hoaglin (1993), for scores by the median and the median absolute deviation."""
FEW = 20
"""Minimum number of captions to tell what is usual."""
KEPT_ENDS = 0.9
"""Minimum share of translations that end as their source does for the others to be flagged."""
LEFT_IN = 2
"""Number of untranslated words that raise the flag; one is enough if source and target use different scripts."""
WORD_LETTERS = 3

_BLOCK = 8192
_END = re.compile(
    "[.!?\u3002\u061f\u06d4\u0964\u0965\u0589\u104b\u17d4][ '\"\u201d\u2019\u00bb\u203a\u300d\u300f)\\]\u3011]*$"
)
"""End of a sentence, also in Chinese and Japanese, Arabic, Urdu, Hindi, Armenian, Burmese, Khmer; quotes may close."""
_CHARACTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: each character is a word."""
# OpusFilter's RepetitionFilter (Aulamo et al. 2020) with its defaults, 3 to 100 characters three times in a row; but of
# whole words ("mano, no, no" repeats nothing).
_LETTER = rf"[^\W\d_{_CHARACTERS}]"
_LOOP = re.compile(rf"(?<!{_LETTER})(\S.{{2,99}}?)(?: *\1){{2}}(?!{_LETTER})")
_ALPHABETS = "\u0590-\u1dff\u2000-\U0010ffff"
"""All but Latin, Greek, Cyrillic and Armenian."""
WORD = re.compile(rf"[^\W\d_{_ALPHABETS}]+|[{_CHARACTERS}]|[^\W\d_\0-\u058f\u1e00-\u1fff{_CHARACTERS}]+")
"""A word: letters of one script; of scripts without spaces each character."""


@dataclass(frozen=True)
class Lengths:
    """Robust estimate of the lengths of translations, by the length model of Gale and Church (1993).

    For a source of a characters and a target of b, (b - ratio a) / sqrt(a) lies around `shift` with standard deviation
    `spread`, for any a.
    """

    ratio: float
    """Median of b / a."""
    shift: float
    spread: float
    """From the median absolute deviation."""


@dataclass(frozen=True)
class Evidence:
    """Evidence about each caption."""

    length_ratio: FloatArray
    """(N,) target characters per source character; nan where either is empty, or the translation failed"""
    length_z: FloatArray
    """(N,) how unusual that is, in standard deviations; nan where unknown"""
    sources: NDArray[np.int32]
    """(N,) how many different sources have this translation; 0 where it is empty or failed"""
    left_in: NDArray[np.int32]
    """(N,) number of source words that are unchanged in the target and not known as words of its language"""
    flags: dict[str, BoolArray | None]
    """(N,) each, by the names of `FLAGS`; None if this language, or so few captions, cannot show it"""
    lengths: Lengths | None


def evidence(sources: Sequence[str], targets: Sequence[str | None], source_lang: str, target_lang: str) -> Evidence:
    """Describes translations (N,) without a reference; a failed one (None) has no evidence and is not flagged.

    Texts are compared after NFKC, case folding and collapsing white space. Languages are BCP 47 tags.
    """
    scripts, target_scripts = expected_scripts(source_lang), expected_scripts(target_lang)
    blocks = [slice(first, first + _BLOCK) for first in range(0, max(len(sources), 1), _BLOCK)]
    parts = [_marks(sources[block], targets[block], target_scripts) for block in blocks]
    mark = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ratio, z, lengths = _lengths(mark["source_length"], mark["target_length"], mark["empty"])
    left = np.fromiter((len(words) for words in left_in(sources, targets)), dtype=np.int32)
    apart = scripts is not None and target_scripts is not None and not scripts & target_scripts
    characters = bool(scripts and target_scripts and "CJK" in scripts & target_scripts)  # words of both languages
    flags: dict[str, BoolArray | None] = {
        "copy": mark["copy"],
        "empty": mark["empty"] & _flag(target is not None for target in targets),
        "length": None if lengths is None else np.abs(np.nan_to_num(z)) > LENGTH_Z,
        "repetition": mark["repetition"],
        "script": None if target_scripts is None else mark["script"],
        "untranslated": None if characters else left >= (1 if apart else LEFT_IN),
        "truncated": _truncated(mark["source_ends"], mark["target_ends"], mark["empty"]),
    }
    source_N, target_N = (pd.factorize(np.array(list(map(_plain, each)), object))[0] for each in (sources, targets))
    target_P = np.unique(target_N * len(source_N) + source_N) // max(len(source_N), 1)  # of each its different sources
    sources_N = np.where(mark["target_length"] > 0, np.bincount(target_P, minlength=1)[target_N], 0).astype(np.int32)
    return Evidence(ratio, z, sources_N, left, flags, lengths)


def _marks(
    sources: Sequence[str], targets: Sequence[str | None], target_scripts: frozenset[str] | None
) -> dict[str, NDArray[Any]]:
    """What each caption (N,) shows by itself; called in blocks, since millions of plain texts would fill memory."""
    plain = [(_plain(source), _plain(target)) for source, target in zip(sources, targets, strict=True)]
    kernels = [("".join(filter(str.isalnum, a)), "".join(filter(str.isalnum, b))) for a, b in plain]
    return {
        "source_length": np.array([len(a) for a, _ in plain], dtype=np.float64),
        "target_length": np.array([len(b) for _, b in plain], dtype=np.float64),
        "copy": _flag(a == b and any(map(str.isalpha, a)) for a, b in kernels),
        "empty": _flag(not b or (bool(a) and not c) for (a, c), (_, b) in zip(kernels, plain, strict=True)),
        "repetition": _flag(bool(_LOOP.search(b)) and not _LOOP.search(a) for a, b in plain),
        "script": _flag(target_scripts is not None and is_wrong_script(b, target_scripts) for _, b in plain),
        "source_ends": _flag(bool(_END.search(a)) for a, _ in plain),
        "target_ends": _flag(bool(_END.search(b)) for _, b in plain),
    }


def _lengths(a: FloatArray, b: FloatArray, empty: BoolArray) -> tuple[FloatArray, FloatArray, Lengths | None]:
    there = (a > 0) & ~empty
    ratio, z = np.full((2, len(a)), np.nan)
    ratio[there] = b[there] / a[there]
    if there.sum() < FEW:
        return ratio, z, None
    usual = float(np.median(ratio[there]))
    rest = (b[there] - usual * a[there]) / np.sqrt(a[there])
    shift = float(np.median(rest))
    spread = 1.4826 * float(np.median(np.abs(rest - shift)))  # that of a normal distribution
    if not spread:
        return ratio, z, None
    z[there] = (rest - shift) / spread
    return ratio, z, Lengths(usual, shift, spread)


def left_in(sources: Sequence[str], targets: Sequence[str | None]) -> Iterator[list[str]]:
    """The words of each source that are unchanged in its target, in order, each once.

    Names and short words are left out, and so are words that the engine also writes where the source lacks them.

    >>> list(left_in(["Two sheperds in Spain", "Two men sit"], ["Dos sheperds en Spain", "Dos hombres sit"]))
    [['sheperds'], ['sit']]
    """

    def words() -> Iterator[tuple[list[str], set[str]]]:  # made twice: those of millions of captions would fill memory
        for source, target in zip(sources, targets, strict=True):
            yield WORD.findall(_fold(source)), {word.lower() for word in WORD.findall(_fold(target))}

    known: set[str] = set()
    for source, target in words():
        known |= target.difference(word.lower() for word in source)
    for source, target in words():
        yield [w for w in dict.fromkeys(source) if w in target and w not in known and _counts(w)]


def _counts(word: str) -> bool:
    """Whether a word is neither short nor a name; those can be the same in any language."""
    return word == word.lower() and (len(word) >= WORD_LETTERS or bool(re.fullmatch(f"[{_CHARACTERS}]", word)))


def _truncated(source_ends: BoolArray, kept: BoolArray, empty: BoolArray) -> BoolArray | None:
    ended = source_ends & ~empty
    if ended.sum() < FEW or kept[ended].mean() < KEPT_ENDS:
        return None
    return ended & ~kept


def _flag(values: Iterable[bool]) -> BoolArray:
    return np.fromiter(values, dtype=np.bool_)


def _plain(text: str | None) -> str:
    return _fold(text).casefold()


def _fold(text: str | None) -> str:
    return " ".join(unicodedata.normalize("NFKC", text or "").split())
