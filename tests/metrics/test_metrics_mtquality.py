"""Translation quality without a reference: chrF against a direct sacrebleu call, the rest by hand."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from ccr_cli.metrics.mtquality import expected_scripts, quality, round_trip_chrf

SOURCES = ["A dog runs in the snow.", "Two men on a bench", "red car"]
BACK = ["A dog is running in the snow.", "Two men on a bench", "green bottle"]


def test_chrf_is_sacrebleus() -> None:
    each, corpus, signature = round_trip_chrf(SOURCES, BACK)
    expected = [sacrebleu.sentence_chrf(back, [source]).score for back, source in zip(BACK, SOURCES, strict=True)]
    assert each.tolist() == pytest.approx(expected)
    assert corpus == pytest.approx(sacrebleu.corpus_chrf(BACK, [SOURCES]).score)
    assert each[1] == pytest.approx(100.0)
    assert "nc:6" in signature and "nw:0" in signature and "case:mixed" in signature


def test_chrf_by_hand() -> None:
    # "abc" for "abd". 1-grams 2/3 and 2/3, 2-grams 1/2 and 1/2, 3-grams 0/1 and 0/1; there are no
    # longer ones. Mean precision = mean recall = 7/18, so F2 = 7/18 as well.
    each, corpus, _ = round_trip_chrf(["abd"], ["abc"])
    assert each[0] == pytest.approx(100 * 7 / 18, abs=1e-6)
    assert corpus == pytest.approx(100 * 7 / 18, abs=1e-6)


def test_an_empty_round_trip_scores_zero() -> None:
    found = quality(["a dog", "a cat"], ["ein Hund", None], "de", ["a dog", None])
    assert found.chrf is not None and found.chrf.tolist() == pytest.approx([100.0, 0.0])
    assert found.summary["chrf_sentence"] == pytest.approx(50.0)


def test_shares_by_hand() -> None:
    sources = ["A dog", "a  cat", "two men", "a man", "hat", "x"]
    targets = ["a DOG", "\uff21 \uff23\uff21\uff34", "un homme", "Un homme ", "", None]  # full-width "A CAT"
    found = quality(sources, targets, "fr")
    assert found.copy.tolist() == [True, True, False, False, False, False]
    assert found.empty.tolist() == [False, False, False, False, True, True]
    assert found.repeated.tolist() == [False, False, True, True, False, False]
    assert found.wrong_script is not None and not found.wrong_script.any()
    assert found.summary["copies"] == pytest.approx(2 / 6)
    assert found.summary["empty"] == pytest.approx(2 / 6)
    assert found.summary["repeated"] == pytest.approx(2 / 6)
    assert found.length_ratio[:3].tolist() == pytest.approx([1.0, 1.0, 8 / 7])
    assert found.length_ratio[4:].tolist() == [0.0, 0.0]
    # characters after collapsing space: sources 5 5 7 5 3 1, targets 5 5 8 8 0 0
    assert found.summary["length_ratio"] == pytest.approx(26 / 26)
    assert found.summary["chrf"] is None and found.chrf is None


def test_the_same_source_twice_is_no_repeat() -> None:
    assert not quality(["a dog", "A dog"], ["ein Hund", "ein Hund"], "de").repeated.any()


def test_an_empty_source_has_no_length_ratio() -> None:
    found = quality(["", "a"], ["x", "b"], "de")
    assert math.isnan(found.length_ratio[0])
    assert not found.copy.any()


@pytest.mark.parametrize(
    ("lang", "good", "bad"),
    [
        ("zh", ["一只狗", "狗 dog", "2024", "", "🐶", "\u3007"], ["a dog", "собака", "いぬ"]),
        ("zh-Hant-TW", ["狗"], ["dog"]),
        ("ja", ["いぬ", "イヌ", "犬", "ラーメン"], ["dog", "강아지"]),
        ("ko", ["강아지"], ["犬", "dog"]),
        ("ru", ["собака"], ["sobaka"]),
        ("sr", ["пас", "pas"], ["σκύλος"]),
        ("sr-Latn", ["pas"], ["пас"]),
        ("de", ["Hund", "Straße", "Ärger"], ["собака", "狗"]),
        ("vi", ["chó đẹp ơi"], ["狗"]),
        ("ar", ["كلب"], ["dog"]),
        ("he", ["כלב"], ["dog"]),
        ("el", ["σκύλος"], ["skylos"]),
        ("th", ["สุนัข"], ["dog"]),
        ("hi", ["कुत्ता"], ["kutta"]),
        ("zho_Hans", ["狗"], ["dog"]),
    ],
)
def test_wrong_script(lang: str, good: list[str], bad: list[str]) -> None:
    found = quality(["x"] * len(good + bad), good + bad, lang)
    assert found.wrong_script is not None
    assert found.wrong_script.tolist() == [False] * len(good) + [True] * len(bad)
    assert found.summary["wrong_script"] == pytest.approx(len(bad) / len(good + bad))


def test_a_language_outside_the_table_is_not_judged() -> None:
    found = quality(["a"], ["\u13a0"], "chr")
    assert found.wrong_script is None and found.summary["wrong_script"] is None
    assert expected_scripts("chr") is None and expected_scripts("chr-Latn") is not None


def test_nothing_to_describe_and_unequal_lengths() -> None:
    empty = quality([], [], "de", [])
    assert empty.summary["sentences"] == 0
    assert [empty.summary[key] for key in ("copies", "length_ratio", "chrf", "wrong_script")] == [None] * 4
    with pytest.raises(ValueError, match="one length"):
        quality(["a"], [], "de")
    with pytest.raises(ValueError, match="one length"):
        quality(["a"], ["b"], "de", [])
    with pytest.raises(ValueError, match="at least one"):
        round_trip_chrf([], [])
