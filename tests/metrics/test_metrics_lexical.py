"""Lexical coverage, against IBM model 1 and the scores by hand in loops."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from ccr_cli.metrics.lexical import Lexicon, words

SOURCE = ["two dogs run", "a dog", "a red house", "two red balls", "the dog runs", "a ball", "red red"]
TARGET = ["dos perros corren", "un perro", "una casa roja", "dos pelotas rojas", "el perro corre", "una pelota", ""]


def by_hand(source: list[str], target: list[str], pairs: list[tuple[str, str]]) -> list[float]:
    """The score of each pair under a lexicon of source and target."""
    sides = [[words(text) for text in texts] for texts in (source, target)]
    counts = [Counter(word for text in side for word in set(text)) for side in sides]
    kept = [[[w for w in text if count[w] > 1] for text in side] for side, count in zip(sides, counts, strict=True)]

    def model_1(given: list[list[str]], made: list[list[str]]) -> dict[tuple[str, str], float]:
        p: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
        for _ in range(6):
            count: dict[tuple[str, str], float] = defaultdict(float)
            total: dict[str, float] = defaultdict(float)
            for one, other in zip(given, made, strict=True):
                for word in other:
                    all_of = p["", word] + sum(p[w, word] for w in one)
                    for w in ["", *one]:
                        count[w, word] += p[w, word] / all_of
                        total[w] += p[w, word] / all_of
            p = defaultdict(float, {pair: value / total[pair[0]] for pair, value in count.items()})
        return p

    forward, backward = model_1(kept[0], kept[1]), model_1(kept[1], kept[0])

    def covered(one: list[str], other: list[str], swapped: bool) -> list[tuple[str, float]]:
        def c(a: str, b: str) -> float:
            w, z = (b, a) if swapped else (a, b)
            return math.sqrt(forward[w, z] * backward[z, w])

        return [(a, max((c(a, b) for b in other), default=0.0)) for a in one]

    score = [0.0] * len(pairs)
    for side in (0, 1):
        texts = zip(kept[side], kept[1 - side], strict=True)
        seen = [each for one, other in texts for each in covered(one, other, side == 1)]
        for number, pair in enumerate(pairs):
            one, other = ([w for w in words(pair[s]) if counts[s][w] > 1] for s in (side, 1 - side))
            total = weights = 0.0
            for word, c in covered(one, other, side == 1):
                same = [x for w, x in seen if w == word]
                share = sum(x <= c + 1e-12 for _, x in seen) / len(seen)
                p = (sum(x <= c + 1e-12 for x in same) + 5 * share + 1) / (len(same) + 6)
                weight = math.log(len(source) / counts[side][word])
                total, weights = total + weight * math.log(p), weights + weight
            score[number] += total / weights if weights else 0.0
    return score


def test_scores_are_those_by_hand() -> None:
    pairs = [*zip(SOURCE, TARGET, strict=True), ("a dog", "una pelota"), ("zebra", "perro"), ("", "")]
    got = Lexicon(SOURCE, TARGET).scores([one for one, _ in pairs], [other for _, other in pairs])
    assert got == pytest.approx(by_hand(SOURCE, TARGET, pairs), rel=1e-9)
    assert got[7] < got[1] <= 0 == got[-1]


def test_words_have_stems_and_scripts_without_spaces_pairs() -> None:
    assert words("Two dogs\u2019 running 3rd_time!") == ["two", "dog", "run", "3rd", "tim"]
    assert words("DVD\u4e24\u6761\u72d7") == ["dvd", "\u4e24", "\u6761", "\u72d7", "\u4e24\u6761", "\u6761\u72d7"]


def test_of_many_texts_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon(SOURCE, TARGET)
    whole = lexicon.scores(SOURCE, TARGET)
    monkeypatch.setattr("ccr_cli.metrics.lexical._BLOCK", 2)
    assert np.array_equal(lexicon.scores(SOURCE, TARGET), whole)


@pytest.mark.parametrize("texts", [["one"], ["", ""], ["a b", "c d"]])
def test_texts_without_known_words_score_0(texts: list[str]) -> None:
    assert (Lexicon(texts, texts).scores(texts, texts) == 0).all()


def test_what_has_no_counterpart_is_placed() -> None:
    rng = np.random.default_rng(0)
    english = ["dog", "cat", "ball", "house", "tree", "car", "boat"]
    spanish = ["perro", "gato", "bola", "casa", "\u6811\u6728", "coche", "barco"]
    draws = [rng.choice(len(english), 2, replace=False) for _ in range(400)]
    source, target = ([f"The {side[a]}, the {side[b]}s" for a, b in draws] for side in (english, spanish))
    lexicon = Lexicon(source, target)
    ours, theirs = "The DOG, the cats", "the perro, the \u6811\u6728"
    here, there = lexicon.unmatched(ours, theirs)
    assert ([ours[a:b] for a, b in here], [theirs[a:b] for a, b in there]) == (["cats"], ["\u6811\u6728"])
    assert lexicon.unmatched(source[0], target[0]) == ([], []) == lexicon.unmatched("zebra", "")


@pytest.mark.parametrize("turned", [False, True])
def test_a_dictionary_scores_words_by_their_shares_of_an_entry(turned: bool) -> None:
    entries = [("red ball", "pelota roja"), ("ball", "pelota"), ("to dog", "perro"), ("a zebra", "cebra")]
    lexicon = Lexicon(SOURCE, TARGET, [(b, a) for a, b in entries] if turned else entries)
    assert not lexicon.empty and Lexicon(SOURCE, TARGET, [("zebra", "cebra")]).empty
    score = {("bal", "pelota"): 1.0, ("bal", "roja"): 4 / 7 * 4 / 10, ("red", "pelota"): 3 / 7 * 6 / 10}
    score |= {("red", "roja"): 3 / 7 * 4 / 10, ("dog", "perro"): 3 / 5}  # stems; letters of a word, of its side
    expected = [0.0] * len(SOURCE)
    sides = [[words(text) for text in texts] for texts in (SOURCE, TARGET)]
    counts = [Counter(word for text in side for word in set(text)) for side in sides]
    for side in (0, 1):
        kept = [[[w for w in text if counts[s][w] > 1] for text in sides[s]] for s in (side, 1 - side)]
        covered = [
            [(a, max((score.get((b, a) if side else (a, b), 0.0) for b in other), default=0.0)) for a in one]
            for one, other in zip(*kept, strict=True)
        ]
        seen = [each for text in covered for each in text]
        for number, text in enumerate(covered):
            total = weights = 0.0
            for word, c in text:
                same = [x for w, x in seen if w == word]
                share = sum(x <= c + 1e-12 for _, x in seen) / len(seen)
                weight = math.log(len(SOURCE) / counts[side][word])
                p = (sum(x <= c + 1e-12 for x in same) + 5 * share + 1) / (len(same) + 6)
                total, weights = total + weight * math.log(p), weights + weight
            expected[number] += total / weights if weights else 0.0
    assert lexicon.scores(SOURCE, TARGET) == pytest.approx(expected, rel=1e-9)
