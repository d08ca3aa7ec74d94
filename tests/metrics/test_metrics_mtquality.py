"""Flags of machine translations: each by a caption that has it and one that just has not; lengths by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ccr_cli.artifacts import translation
from ccr_cli.metrics import mtquality
from ccr_cli.metrics.mtquality import FEW, FLAGS, LENGTH_Z, Evidence, evidence, left_in
from ccr_cli.metrics.scripts import expected_scripts, is_wrong_script

LENGTHS = range(4, 44)
USUAL_SOURCES = ["a" * n for n in LENGTHS]
USUAL_TARGETS = ["b" * (n + n % 3 - 1) for n in LENGTHS]
"""Translations as long as their sources, give or take a letter."""


def flagged(flag: str, source: str, target: str | None, langs: tuple[str, str] = ("en", "fr")) -> bool:
    """Whether a caption has a flag, among others that are as they should be and end as they should."""
    found = evidence(
        [*(f"{text}." for text in USUAL_SOURCES), source], [*(f"{t}." for t in USUAL_TARGETS), target], *langs
    )
    which = found.flags[flag]
    assert which is not None
    return bool(which[-1])


def test_the_flags_are_those_of_the_artifact() -> None:
    assert tuple(FLAGS) == translation.FLAGS == tuple(evidence(["a"], ["b"], "en", "de").flags)


@pytest.mark.parametrize(
    ("flag", "source", "bad", "good"),
    [
        ("copy", "A dog runs.", "a DOG  runs", "A dog ran."),
        ("copy", "Taxi \uff24\uff36\uff24", "taxi DVD!", "taxi DV"),
        ("empty", "A dog runs.", "", "x"),
        ("empty", "A dog runs.", " \n", "7"),
        ("empty", "A dog runs.", "...", "... a"),
        ("empty", "\U0001f436", "", "\U0001f436"),
        ("repetition", "A dog.", "le chien le chien le chien", "le chien le chien le chat"),
        ("repetition", "A dog.", "abcabcabc", "abababab"[:7]),
        ("repetition", "A dog.", "戴着一戴着一戴着一", "戴着戴着戴着"),
        ("repetition", "A dog.", "non non non", "non non"),
        ("repetition", "A hand.", "la mano, no, no, no, no", "la mano, no, no, nombre"),
        ("script", "A dog.", "собака", "собака ou chien"),
        ("untranslated", "two sheperds snarling", "deux sheperds snarling", "deux sheperds grondent"),
        ("untranslated", "a dog on ice", "un dog sur ice", "un dog sur glace"),
        ("truncated", "A dog runs.", "Un chien court", "Un chien court."),
        ("truncated", 'It says "stop!"', "Cela dit stop", "Cela dit \u00ab\u00a0stop\u00a0!\u00a0\u00bb"),
    ],
)
def test_a_flag_is_where_it_should_be_and_nowhere_else(flag: str, source: str, bad: str | None, good: str) -> None:
    assert flagged(flag, source, bad)
    assert not flagged(flag, source, good)


def test_what_has_no_letters_need_not_change() -> None:
    assert not flagged("copy", "42 %", "42 %") and flagged("copy", "42 m", "42 m")


def test_what_the_source_repeats_may_be_repeated() -> None:
    assert flagged("repetition", "a boat", "pon pon pon pon")
    assert not flagged("repetition", "tut tut tut tut", "pon pon pon pon")


def test_what_the_source_leaves_open_may_stay_open() -> None:
    assert not flagged("truncated", "A dog runs", "Un chien court")
    assert not flagged("truncated", "A dog runs.", ""), "that is empty, and nothing else"


@pytest.mark.parametrize("flag", FLAGS)
def test_what_failed_is_flagged_for_nothing(flag: str) -> None:
    assert not flagged(flag, "A dog runs.", None)


def test_ends_are_judged_only_where_translations_keep_them() -> None:
    sources = [f"{text}." for text in USUAL_SOURCES]
    ends = ["." if i % 10 else "" for i in range(len(sources))]
    kept = evidence(sources, [f"{t}{end}" for t, end in zip(USUAL_TARGETS, ends, strict=True)], "en", "th")
    assert kept.flags["truncated"] is not None and kept.flags["truncated"].sum() == ends.count("")
    ends[1] = ""
    open_ = evidence(sources, [f"{t}{end}" for t, end in zip(USUAL_TARGETS, ends, strict=True)], "en", "th")
    assert open_.flags["truncated"] is None
    few = evidence(sources[: FEW - 1], sources[: FEW - 1], "en", "fr")
    assert few.flags["truncated"] is None and few.flags["length"] is None


@pytest.mark.parametrize("langs", [("en", "zh"), ("en", "ru"), ("zh", "en")])
def test_one_word_of_another_script_is_enough(langs: tuple[str, str]) -> None:
    source, bad, good = {
        "zh": ("a bmx rider, Tom, in ny", "一个bmx车手Tom在ny", "一个车手Tom在ny"),
        "ru": ("a bmx rider, Tom, in ny", "гонщик bmx Tom в ny", "гонщик Tom в ny"),
        "en": ("一只狗在雪地", "a 狗 in snow", "a dog in snow"),
    }[langs[1]]
    assert flagged("untranslated", source, bad, langs)
    assert not flagged("untranslated", source, good, langs)


def test_a_word_that_also_stands_for_another_is_of_both_languages() -> None:
    sources, targets = ["two orange tables", "an orange ball"], ["deux tables orange", "un ballon orange"]
    assert evidence(sources, targets, "en", "fr").left_in.tolist() == [2, 1]
    more = evidence([*sources, "desks", "peach"], [*targets, "tables", "orange"], "en", "fr")
    assert more.left_in.tolist() == [0, 0, 0, 0]


def test_characters_that_two_languages_share_say_nothing() -> None:
    assert evidence(["犬"], ["犬"], "ja", "zh").flags["untranslated"] is None


def test_words_left_in_are_listed_without_names() -> None:
    sources = ["A grayhound and Tom, a grayhound on ice", "taxi", "cab"]
    assert list(left_in(sources, ["一只grayhound和Tom在ice上", "taxi", "taxi"])) == [["grayhound", "ice"], [], []]


def length_model(sources: list[str], targets: list[str]) -> Callable[[int, int], float]:
    """The length model by hand, for texts without blanks and capitals."""
    a = np.array([len(text) for text in sources], dtype=float)
    b = np.array([len(text) for text in targets], dtype=float)
    ratio = np.median(b / a)
    rest = (b - ratio * a) / np.sqrt(a)
    spread = 1.4826 * np.median(np.abs(rest - np.median(rest)))
    return lambda long, translated: ((translated - ratio * long) / np.sqrt(long) - np.median(rest)) / spread


def test_lengths_are_those_of_gale_and_church() -> None:
    z = length_model(USUAL_SOURCES, USUAL_TARGETS)
    found = evidence(USUAL_SOURCES, USUAL_TARGETS, "en", "fr")
    expected = [z(len(a), len(b)) for a, b in zip(USUAL_SOURCES, USUAL_TARGETS, strict=True)]
    assert found.length_z.tolist() == pytest.approx(expected)
    assert found.length_ratio.tolist() == pytest.approx(
        [len(b) / len(a) for a, b in zip(USUAL_SOURCES, USUAL_TARGETS, strict=True)]
    )
    assert found.flags["length"] is not None and not found.flags["length"].any()
    assert found.lengths is not None and found.lengths.ratio == pytest.approx(1.0)


@pytest.mark.parametrize("step", [1, -1])
def test_a_length_is_flagged_from_the_first_letter_that_is_too_much(step: int) -> None:
    def model(letters: int) -> tuple[float, Evidence]:
        sources, targets = [*USUAL_SOURCES, "a" * 64], [*USUAL_TARGETS, "b" * letters]
        return length_model(sources, targets)(64, letters), evidence(sources, targets, "en", "fr")

    letters = 64
    while abs(model(letters)[0]) <= LENGTH_Z:
        letters += step
    for n, expected in ((letters, True), (letters - step, False)):
        which = model(n)[1].flags["length"]
        assert which is not None and bool(which[-1]) == expected and not which[:-1].any()


def test_equal_lengths_and_empty_texts_have_no_score() -> None:
    equal = evidence(USUAL_SOURCES, USUAL_SOURCES, "en", "fr")
    assert equal.lengths is None and equal.flags["length"] is None and np.isnan(equal.length_z).all()
    found = evidence([*USUAL_SOURCES, "", "a"], [*USUAL_TARGETS, "x", None], "en", "fr")
    assert np.isnan(found.length_ratio[-2:]).all() and np.isnan(found.length_z[-2:]).all()
    assert found.flags["length"] is not None and not found.flags["length"][-2:].any()
    assert found.flags["copy"] is not None and not found.flags["copy"][-2:].any()


def test_sources_of_one_translation_are_counted() -> None:
    sources = ["two men", "a man", "A  man", "hat", "x", "y"]
    targets = ["un homme", "Un homme ", "un homme", "chapeau", "", None]
    assert evidence(sources, targets, "en", "fr").sources.tolist() == [2, 2, 2, 1, 0, 0]


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
def test_scripts(lang: str, good: list[str], bad: list[str]) -> None:
    scripts = expected_scripts(lang)
    assert scripts is not None
    assert [is_wrong_script(text, scripts) for text in good + bad] == [False] * len(good) + [True] * len(bad)


def test_a_language_outside_the_table_is_not_judged() -> None:
    assert evidence(["a"], ["\u13a0"], "en", "chr").flags["script"] is None
    assert expected_scripts("chr") is None and expected_scripts("chr-Latn") is not None


def test_nothing_to_describe_and_unequal_lengths() -> None:
    found = evidence([], [], "en", "de")
    assert len(found.left_in) == 0 and all(which is None or len(which) == 0 for which in found.flags.values())
    with pytest.raises(ValueError):
        evidence(["a"], [], "en", "de")


def test_captions_are_described_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [f"a dog no. {n % 7} runs." for n in range(50)]
    targets = [None if n == 9 else "" if n == 8 else f"un chien {n % 5} court{'.' * (n != 20)}" for n in range(50)]
    whole = evidence(sources, targets, "en", "fr")
    monkeypatch.setattr(mtquality, "_BLOCK", 7)
    blocks = evidence(sources, targets, "en", "fr")
    cut = whole.flags["truncated"]
    assert str(blocks) == str(whole) and cut is not None and cut.nonzero()[0].tolist() == [20]
    pairs = {(source, target) for source, target in zip(sources, targets, strict=True) if target}
    assert blocks.sources.tolist() == [sum(other == target for _, other in pairs) for target in targets]
