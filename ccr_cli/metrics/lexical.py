"""Lexical coverage: how well the words of a caption and of its translation account for each other.

A lexicon is learned from pairs of texts alone by IBM model 1 (Brown et al., "The Mathematics of Statistical Machine
Translation", Computational Linguistics 19, 1993): from the translations at hand, or from another engine's translations
of the same captions, a *witness* that does not share their systematic errors.

A word is covered as far as some word of the other text translates it: c = max_z sqrt(p(w | z) p(z | w)). Words differ
in how well they can be covered, so c is compared with that of the same word in the lexicon's own texts.

Shape suffixes: N texts, W words of all texts, G grid (every word of a text with every word of its translation), C cells
(different entries of the grid), V vocabulary.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ccr_cli.metrics.detection import FloatArray

Ints = npt.NDArray[np.int64]
Span = tuple[int, int]
Pair = tuple[str, str]

LEAST_COUNT = 2
"""Minimum number of texts with a word for it to be learned."""
ROUNDS = 6
"""Rounds of expectation maximisation."""
MOST_PAIRS = 100_000
"""Maximum number of pairs to learn a lexicon from; of more, evenly spaced ones are used."""
PSEUDO_COUNTS = 5
"""Pseudo-occurrences added to those of each word, covered as occurrences of any word are."""
UNMATCHED, LEAST_WEIGHT = 0.04, 1.0
"""Maximum p-value and minimum weight of a word that is reported to have no counterpart."""
_BLOCK = 20_000
"""Texts that are looked up at once."""
_UNSPACED = r"[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
"""Characters of Chinese, Japanese, Thai, Lao, Burmese and Khmer."""
_RUN = re.compile(rf"({_UNSPACED}+)|(?:(?!{_UNSPACED})[^\W_])+")
_TRIED = 10_000
"""Number of dictionary entries that are tried to find its direction."""
_NO_KEY = np.iinfo(np.int64).max
_ENDINGS = ("ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y")
_SHORTEST = 3


def words(text: str) -> list[str]:
    """Splits a text into lowercase words without common endings; unspaced scripts into characters and pairs of them.

    >>> words("Two dogs running"), words("\u4e24\u6761\u72d7")
    (['two', 'dog', 'run'], ['\u4e24', '\u6761', '\u72d7', '\u4e24\u6761', '\u6761\u72d7'])
    """
    return [word for word, _ in _placed(text)]


def _placed(text: str) -> list[tuple[str, slice]]:
    """The words of a text and their positions in it."""
    placed: list[tuple[str, slice]] = []
    for run in _RUN.finditer(text):
        first, last = run.span()
        if run.group(1):
            placed += [(text[i : i + n], slice(i, i + n)) for n in (1, 2) for i in range(first, last - n + 1)]
        else:
            placed.append((_stem(run.group().lower()), slice(first, last)))
    return placed


@lru_cache(maxsize=2**16)
def _stem(word: str) -> str:
    """Strips one common ending: run, runs, running become `run`, baby and babies `bab`."""
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= _SHORTEST), "")
    word = word.removesuffix(ending)
    return word[:-1] if len(word) > _SHORTEST and word[-1] == word[-2] else word


@dataclass(frozen=True)
class _Words:
    """The known words of texts: text n has `id_W[first_N1[n]:first_N1[n + 1]]`."""

    id_W: Ints
    first_N1: Ints

    @classmethod
    def of(cls, lists: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> "_Words":
        ids = [[vocabulary[word] for word in each if word in vocabulary] for each in lists]
        flat = np.fromiter((i for each in ids for i in each), np.int64)
        return cls(flat, np.concatenate([[0], np.cumsum([len(each) for each in ids], dtype=np.int64)]))

    def means(self, value_W: FloatArray, weight_W: FloatArray) -> FloatArray:
        """The weighted mean of each text's values (N,), 0 for a text without known words."""
        text_W = np.repeat(np.arange(len(self.first_N1) - 1), np.diff(self.first_N1))
        total_N, weight_N = (_sums(text_W, x, len(self.first_N1) - 1) for x in (value_W * weight_W, weight_W))
        return np.divide(total_N, weight_N, out=np.zeros_like(total_N), where=weight_N > 0)


def _grid(source: _Words, target: _Words) -> tuple[Ints, Ints]:
    """Pairs every word of each text with every word of its translation, by index among all words (G,), (G,)."""
    times_W = np.repeat(np.diff(target.first_N1), np.diff(source.first_N1))
    source_G = np.repeat(np.arange(len(source.id_W)), times_W)
    first_W = np.repeat(target.first_N1[:-1], np.diff(source.first_N1))
    return source_G, np.arange(len(source_G)) + np.repeat(first_W - np.cumsum(times_W) + times_W, times_W)


class _Side:
    """The words of one side, and how well each is covered in the lexicon's own texts."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        count = Counter(word for each in lists for word in set(each))
        self.vocabulary = {word: i for i, word in enumerate(sorted(w for w, n in count.items() if n >= LEAST_COUNT))}
        self.words = _Words.of(lists, self.vocabulary)
        self.times_V = np.bincount(self.words.id_W, minlength=len(self.vocabulary))
        self.weight_V = np.log(len(lists) / np.array([count[word] for word in self.vocabulary]))
        self._every = self._by_word = np.zeros(0)

    def refer(self, covered_W: FloatArray) -> None:
        """Stores how well the words of the lexicon's own texts are covered, as the reference for p-values."""
        self._every, self._by_word = np.sort(covered_W), np.sort(self.words.id_W + covered_W / 2)

    def p_value(self, id_W: Ints, covered_W: FloatArray) -> FloatArray:
        """P-value of each word (W,): how rarely it is covered as badly or worse in the lexicon's own texts."""
        below_W = np.searchsorted(self._by_word, id_W + covered_W / 2, "right") - np.searchsorted(self._by_word, id_W)
        any_W = np.searchsorted(self._every, covered_W, "right") / len(self._every)
        return np.asarray((below_W + PSEUDO_COUNTS * any_W + 1) / (self.times_V[id_W] + PSEUDO_COUNTS + 1))

    def means(self, words: _Words, p_W: FloatArray) -> FloatArray:
        """The mean log p-value of each text's words (N,), weighted by inverse document frequency."""
        return words.means(np.log(p_W), self.weight_V[words.id_W])


def _shares(phrase: str, vocabulary: Mapping[str, int]) -> dict[int, float]:
    """The known words of a phrase, and each one's share of its letters."""
    placed = _placed(phrase)
    letters = len(phrase) - phrase.count(" ")
    return {vocabulary[word]: (where.stop - where.start) / letters for word, where in placed if word in vocabulary}


class Lexicon:
    """A lexicon of both directions, learned from texts (N > 0) and their translations (N).

    Given the entries of a dictionary, in either direction, the lexicon is that dictionary, and the texts show how well
    its entries usually cover a word. Two words score the product of their shares of the two sides of an entry.
    """

    def __init__(self, source: Sequence[str], target: Sequence[str], entries: Sequence[Pair] = ()) -> None:
        step = max(1, -(-len(source) // MOST_PAIRS))
        self._source, self._target = (_Side([words(text) for text in texts[::step]]) for texts in (source, target))
        source_G, target_G = _grid(self._source.words, self._target.words)
        key_G = self._keys(self._source.words, self._target.words, source_G, target_G)
        if entries:
            turned = [(right, left) for left, right in entries]
            fits = [len(self._cells(some[:: max(1, len(some) // _TRIED)])) for some in (entries, turned)]
            cells = sorted(self._cells(entries if fits[0] >= fits[1] else turned).items())
            self._key_C, self._score_C = (
                np.array([k for k, _ in cells], dtype=np.int64),
                np.array([x for _, x in cells]),
            )
        else:
            self._key_C, cell_G = np.unique(key_G, return_inverse=True)
            source_C, target_C = np.divmod(self._key_C, max(1, len(self._target.vocabulary)))
            forward_C = _model_1(cell_G, target_G, self._target.words.id_W, source_C)
            backward_C = _model_1(cell_G, source_G, self._source.words.id_W, target_C)
            self._score_C = np.sqrt(forward_C * backward_C)
        self._key_C, self._score_C = np.append(self._key_C, _NO_KEY), np.append(self._score_C, 0.0)
        score_G = self._scores(key_G)
        for side, at_G in ((self._source, source_G), (self._target, target_G)):
            side.refer(_greatest(score_G, at_G, len(side.words.id_W)))

    @property
    def empty(self) -> bool:
        """Whether the lexicon has no pair of words that occur in the texts."""
        return len(self._key_C) == 1

    def known(self, source: Sequence[str], target: Sequence[str]) -> tuple[float, float]:
        """The shares of the words of texts, and of their translations, that the lexicon knows."""
        sides = ((self._source, source), (self._target, target))
        found = [[word in side.vocabulary for text in texts for word in words(text)] for side, texts in sides]
        return sum(found[0]) / max(1, len(found[0])), sum(found[1]) / max(1, len(found[1]))

    def scores(self, source: Sequence[str], target: Sequence[str]) -> FloatArray:
        """Scores pairs of text and translation (N,); 0 is best.

        The score is the mean log p-value of the words, weighted by their inverse document frequency, summed over source
        caption and translation.
        """
        parts = []
        for first in range(0, len(source), _BLOCK):
            blocks = ([words(text) for text in texts[first : first + _BLOCK]] for texts in (source, target))
            parts.append(sum(side.means(known, p_W) for side, known, p_W in self._p_values(*blocks)))
        return np.concatenate(parts)

    def unmatched(self, source: str, target: str, witness: "Lexicon | None" = None) -> tuple[list[Span], list[Span]]:
        """Finds the spans (start, end) that have no counterpart, in a text and in its translation.

        Unknown words are not reported, nor words that are more frequent than the text's known words on average, which
        leaves out function words. Where words overlap, all must lack a counterpart. With a second lexicon, `witness`,
        the geometric mean of both p-values counts, or the only known one.
        """
        placed = (_placed(source), _placed(target))
        found: list[list[Span]] = []
        lists = [[[word for word, _ in each]] for each in placed]
        readings = [lexicon._p_values(*lists) for lexicon in (self, witness) if lexicon is not None]
        for number, (text, each) in enumerate(zip((source, target), placed, strict=True)):
            values = np.full((2, len(readings), len(each)), np.nan)  # log p-value and weight, by lexicon and word
            for at, sides in enumerate(readings):
                side, known, p_W = sides[number]
                there = [word in side.vocabulary for word, _ in each]
                values[:, at, there] = np.log(p_W), side.weight_V[known.id_W]
            alone, matched = np.zeros(len(text), dtype=bool), np.zeros(len(text), dtype=bool)
            if not np.isfinite(values).any():
                found.append([])
                continue
            least = max(LEAST_WEIGHT, float(np.nanmean(values[1])) - 1e-9)
            for (_, where), log_p, weight in zip(each, *np.moveaxis(values, 1, 2), strict=True):
                if np.isfinite(log_p).any():
                    lacks = np.nanmean(log_p) <= np.log(UNMATCHED) and np.nanmean(weight) >= least
                    (alone if lacks else matched)[where] = True
            edges = np.flatnonzero(np.diff(np.concatenate([[False], alone & ~matched, [False]])))
            found.append([(int(a), int(b)) for a, b in edges.reshape(-1, 2)])
        return found[0], found[1]

    def _p_values(
        self, source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]
    ) -> list[tuple[_Side, _Words, FloatArray]]:
        """For each side, the known words in lists of words (N), and the p-value of each (W,)."""
        some = _Words.of(source, self._source.vocabulary)
        others = _Words.of(target, self._target.vocabulary)
        source_G, target_G = _grid(some, others)
        key_G = self._keys(some, others, source_G, target_G)
        score_G = self._scores(key_G)
        sides = (self._source, some, source_G), (self._target, others, target_G)
        return [
            (side, known, side.p_value(known.id_W, _greatest(score_G, at, len(known.id_W))))
            for side, known, at in sides
        ]

    def _scores(self, key_G: Ints) -> FloatArray:
        at_G = np.searchsorted(self._key_C, key_G)
        return np.where(self._key_C[at_G] == key_G, self._score_C[at_G], 0.0)

    def _cells(self, entries: Iterable[Pair]) -> dict[int, float]:
        """The scores of the cells of dictionary entries with the source language on the left."""
        cells: dict[int, float] = {}
        for left, right in entries:
            if source := _shares(left, self._source.vocabulary):
                target = _shares(right, self._target.vocabulary)
                for one, share in source.items():
                    for other, of_other in target.items():
                        key = one * len(self._target.vocabulary) + other
                        cells[key] = max(cells.get(key, 0.0), share * of_other)
        return cells

    def _keys(self, source: _Words, target: _Words, source_G: Ints, target_G: Ints) -> Ints:
        return source.id_W[source_G] * len(self._target.vocabulary) + target.id_W[target_G]


def _greatest(score_G: FloatArray, at_G: Ints, number: int) -> FloatArray:
    """The greatest score of each word (W,), 0 for a word without a counterpart."""
    best_W = np.zeros(number)
    np.maximum.at(best_W, at_G, score_G)
    return best_W


def _model_1(cell_G: Ints, at_G: Ints, id_W: Ints, given_C: Ints) -> FloatArray:
    """Model 1 by expectation maximisation: the probability (C,) of a cell's word, given its counterpart `given_C`.

    `at_G` is the word (of `id_W`) that is generated; a word without a counterpart is generated by the empty one.
    """
    p_C, empty_V = np.ones(given_C.shape), np.ones(id_W.max(initial=-1) + 1)
    for _ in range(ROUNDS):
        p_G = p_C[cell_G]
        total_W = _sums(at_G, p_G, len(id_W)) + empty_V[id_W]
        count_C = _sums(cell_G, p_G / total_W[at_G], len(p_C))
        p_C = count_C / _sums(given_C, count_C, given_C.max(initial=-1) + 1)[given_C]
        empty_V = _sums(id_W, empty_V[id_W] / total_W, len(empty_V))
        empty_V /= empty_V.sum()
    return p_C


def _sums(at: Ints, values: FloatArray, number: int) -> FloatArray:
    """The sum of the values at each place; floating-point even if there are none."""
    return np.bincount(at, values, number).astype(np.float64, copy=False)
