"""What a report says of translations: nothing is compared that is not comparable, nothing hidden, text is text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import best_cells

from ccr_cli.artifacts.translation import FLAGS
from ccr_cli.report.content import ReportData, ReportTranslation
from ccr_cli.report.figures import canvas
from ccr_cli.report.figures.translation_measures import quality_measures
from ccr_cli.report.page import compose, lists
from ccr_cli.report.page.lists import WORST
from ccr_cli.report.tables import translations
from ccr_cli.report.tables.translations import TranslatedCaptions, reference_words, score_signatures, scores
from ccr_cli.report.words.numbers import MISSING

HOSTILE = '<script>alert("x")</script>\u202e'
SIGNATURE = "nrefs:1|tok:13a"


def captions(n: int = 40, **columns: Any) -> pd.DataFrame:
    """Captions without a flag, of which more comes back the later they stand."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "item_id": [f"i{i}" for i in range(n)],
            "split": "test",
            "source": [f"a dog {i}" for i in range(n)],
            "text": [f"un chien {i}" for i in range(n)],
            "back": [f"a hound {i}" for i in range(n)],
            "human": [f"le chien {i}" for i in range(n)],
            "score": np.nan,
            "length_ratio": rng.normal(1.2, 0.1, n),
            "length_z": rng.normal(0, 1, n),
            "sources": 1,
            "left_in": 0,
            "round_trip_chrf": np.linspace(10, 90, n),
            "reference_chrf": np.linspace(90, 10, n),
            "reference_set": "main",
            **dict.fromkeys(FLAGS, False),
        }
    )
    return frame.assign(**columns)


def references(
    bleu: float, kind: str = "translation", caption_set: str = "main", n: int = 40, half: float | None = 1
) -> dict[str, Any]:
    scores = {
        name: {"score": value, "interval": half and [value - half, value + half], "signature": SIGNATURE}
        for name, value in (("BLEU", bleu), ("chrF2", 2 * bleu))
    }
    about = {"kind": kind, "caption_set": caption_set, "source_set": "main", "captions": n, "references": n}
    return {**about, "each": [1, 1], "scores": scores, "note": None}


def made(
    label: str = "apertium",
    human: tuple[dict[str, Any], ...] = (),
    frame: pd.DataFrame | None = None,
    lang: str = "fr",
    texts: str = "",
) -> ReportTranslation:
    known = captions() if frame is None else frame
    told = {
        "captions": len(known),
        "failed": int(known["text"].isna().sum()),
        "flagged": int(known[list(FLAGS)].any(axis=1).sum()),
        "flags": {flag: int(known[flag].sum()) for flag in FLAGS},
        "repeated": 0,
        "length_ratio": 1.2,
        "score": None,
        "round_trip": {"chrF2": {"score": 50.0, "sentence_mean": 50.0, "signature": SIGNATURE}},
        "references": list(human),
    }
    quality: dict[str, Any] = {
        "forward": {"source_lang": "en", "lang": lang, "lengths": None, "splits": {"test": told}, "notes": []}
    }
    return ReportTranslation(label, "toy", lang, quality, lambda: known, {"test": texts} if texts else {})


def listing(captions: TranslatedCaptions) -> str:
    """The section of a page on one translation."""
    seen = compose.Overview([], translations.findings([captions.of]), {})
    page = compose.render(ReportData([], translations=[captions.of]), seen, {}, [], [captions], [])
    return page.partition('<section id="translations">')[2].partition("</section>")[0]


def flagged(flag: str, *rows: int) -> pd.DataFrame:
    frame = captions()
    frame.loc[list(rows), flag] = True
    return frame


def test_only_scores_against_the_same_references_compete() -> None:
    table = scores(
        [
            made("a", (references(20),)),
            made("b", (references(25),)),
            made("c", (references(30, "caption"),)),
            made("d", (references(31, caption_set="other"),)),
            made("e", (references(32, n=39),)),
            made("f", (references(33),), lang="de"),
        ]
    )
    assert table is not None
    best = {str(table.rows[r].cells[1].value) for r, _ in best_cells(table)}
    assert best == {"b"} and len({row.block for row in table.rows}) == 5
    assert table.notes[-2:] == [f"BLEU {SIGNATURE}", f"chrF2 {SIGNATURE}"], "each signature once"
    printed = {table.printed(r, 1): (table.printed(r, 0), table.printed(r, 3)) for r in range(len(table.rows))}
    assert printed["c"] == ("toy test, fr: 1 human caption of the same item, set main", "30.0 ± 1.0")
    assert printed["d"] == ("toy test, fr: 1 human translation per caption, set other for main", "31.0 ± 1.0")
    assert scores([made()]) is None


def test_what_cannot_be_told_apart_is_not_ranked() -> None:
    def said(*rivals: ReportTranslation) -> tuple[str, list[str], set[tuple[int, str]]]:
        found, table = translations.findings(rivals), scores(rivals)
        assert table is not None
        bold = {(r, table.columns[c].key) for r, c in best_cells(table)}
        return " ".join(found.more), [tile.what for tile in found.tiles][1:], bold

    apart = said(made("a", (references(20),)), made("b", (references(22.1),)))
    assert apart[0].startswith("Closest to the human references in BLEU: b 22.1 ± 1.0, then a 20.0 ± 1.0 (")
    assert apart[1:] == (["BLEU of b"], {(1, "BLEU"), (1, "chrF2")})
    level = said(made("a", (references(20),)), made("b", (references(21.5),)))
    assert level[0].startswith(
        "In BLEU, b 21.5 ± 1.0 cannot be distinguished from a 20.0 ± 1.0: their intervals overlap ("
    )
    assert level[1:] == ([], {(1, "chrF2")}), "which is twice BLEU here"
    several = said(*(made(str(i), (references(20 - i / 10),)) for i in range(6)))
    assert "from 1 19.9 ± 1.0, 2 19.8 ± 1.0, 3 19.7 ± 1.0 and 2 more: the" in several[0] and not several[2]
    third = said(made("a", (references(20),)), made("b", (references(30),)), made("c", (references(20.5),)))
    assert "b 30.0 ± 1.0, the others 20.5 ± 1.0 or less (" in third[0], "of the others nothing is ranked"
    lone = said(made("a", (references(20, half=None),)), made("b", (references(90, half=None),)))
    assert "b 90.0 cannot be distinguished from a 20.0:" in lone[0] and not lone[2], "one sentence has no interval"


def test_the_same_texts_are_one_row_and_count_once() -> None:
    frame = flagged("copy", 0, 1)
    several = [made(name, (references(bleu),), frame, texts=same) for name, bleu, same in SAME]
    seen = compose.overview(ReportData([], translations=several))
    assert seen.findings.headline.startswith("Of 80 captions of 3 translations, 4 (5.0%) are flagged")
    assert seen.findings.more[0] == "toy, fr: a and c have the same texts in test and count once."
    assert seen.findings.more[1].startswith("Closest to the human references in BLEU: b 30.0 ± 1.0, then a 20.0 ± 1.0")
    for name in ("translations", "translation-scores"):
        rows = seen.tables[name].rows
        assert len(rows) == 2 and any("a and c (the same texts)" in str(cell.value) for cell in rows[0].cells)
    loaded = translations.load(several)
    assert [each.of.label for each in loaded] == ["a", "b"]
    page = compose.render(ReportData([], translations=several), seen, {}, [], loaded, [])
    assert "Figures and lists show 2 of the 3 translations; translations with the same texts appear once." in page


SAME = (("a", 20, "x"), ("b", 30, "y"), ("c", 20, "x"))


def test_few_sentences_stand_above_the_tables() -> None:
    many = [
        made(name, tuple(references(bleu, caption_set=str(n), n=n) for n in range(30, 40)), texts=same)
        for name, bleu, same in SAME
    ]
    more = translations.findings(many).more
    assert len(more) == 3 and "set 39 for main" in more[1] and "set 38 for main" in more[2], (
        "those of the most captions"
    )


def test_signatures_are_a_line_a_metric() -> None:
    def human(each: list[int] | None, signature: str) -> dict[str, Any]:
        known = {} if each is None else {"each": each}
        return {**known, "scores": {"BLEU": {"signature": signature}, "chrF2": {"signature": "nrefs:1|nc:6"}}}

    one, most, other = "nrefs:1|tok:13a|v:2", "nrefs:var|tok:13a|v:2", "nrefs:5|tok:zh|v:2"
    humans = [human([1, 1], one), human([1, 4], most), human([2, 5], most), human([5, 5], other), human([1, 1], one)]
    assert score_signatures(humans) == [
        "BLEU nrefs:1|tok:13a|v:2; also nrefs:var (var: 1 to 5 references); also nrefs:5|tok:zh",
        "chrF2 nrefs:1|nc:6",
    ]
    assert score_signatures([human(None, most)])[0].endswith("(var: the number of references varies)")
    assert reference_words({**references(1, "caption"), "each": [1, 5]}) == "1 to 5 human captions of the same item"


@pytest.mark.parametrize(("kind", "there"), [("caption", True), ("translation", False)])
def test_what_captions_of_the_item_are_is_said_where_there_are_any(kind: str, there: bool) -> None:
    table = scores([made("a", (references(20, kind),))])
    assert table is not None
    assert ("written without seeing" in " ".join(table.notes)) is there


def test_failed_captions_are_counted_apart() -> None:
    frame = flagged("copy", 0, 1)
    frame.loc[10:29, "text"] = None
    frame.loc[10:29, ["round_trip_chrf", "reference_chrf"]] = 0.0
    of = made("a", (references(20),), frame)
    found = translations.findings([of])
    expected = "Of 40 captions translated into fr by a, 20 failed; of the other 20, 2 (10.0%) are flagged, "
    assert found.headline == f"{expected}most often as copy (2)."
    assert [(tile.value, tile.what) for tile in found.tiles][:2] == [
        ("20", "captions failed"),
        ("10.0%", "of captions flagged"),
    ]
    table, scored = translations.flags([of]), scores([of])
    assert table is not None and scored is not None
    assert [cell.value for cell in table.rows[0].cells[2:]] == [40, 20, 0.1, 2, 50.0]
    assert "A failed caption counts as an empty translation." in scored.notes
    (loaded,) = translations.load([of])
    assert len(loaded.frame) == 20 and len(loaded.failed) == 20
    listed = listing(loaded)
    assert "20 captions failed</b>" in listed and "and 16 more." in listed
    nothing = made("a", frame=captions(text=None))
    assert translations.findings([nothing]).tiles[1].value == MISSING
    assert "40 captions failed" in listing(*translations.load([nothing]))
    assert translations.failures([made(), nothing]) == ["Translation failed for 40 of 80 captions."]
    assert translations.failures([made()]) == []


def test_flags_that_no_caption_has_are_named_and_have_no_column() -> None:
    table = translations.flags([made("a", frame=flagged("length", 1, 2)), made("b", frame=flagged("script", 3))])
    assert table is not None
    assert [column.key for column in table.columns][4:] == ["length", "script", "round_trip"]
    assert [[cell.value for cell in row.cells[2:]] for row in table.rows] == [
        [40, 0.05, 2, 0, 50.0],
        [40, 0.025, 0, 1, 50.0],
    ]
    assert "No caption is flagged for copy, empty, repetition, untranslated, truncated." in table.notes


@pytest.mark.parametrize(
    ("frame", "kind", "words", "first"),
    [
        (captions(), "translation", "round trip", "i0"),
        (captions(round_trip_chrf=np.nan, score=-np.arange(40.0)), "translation", "engine score", "i39"),
        (captions(round_trip_chrf=np.nan), "translation", "least like their human translation", "i39"),
        (captions(round_trip_chrf=np.nan, length_z=[0.0] * 7 + [-9.0] + [2.0] * 32), "caption", "unusual length", "i7"),
        (flagged("empty", 0), "translation", "round trip", "i1"),
    ],
)
def test_the_worst_captions_are_listed_first(frame: pd.DataFrame, kind: str, words: str, first: str) -> None:
    loaded = TranslatedCaptions(made("a", (references(20, kind),), frame), frame)
    found = lists.worst(loaded)
    assert found is not None
    why, rows = found
    assert words in why and len(rows) == WORST and rows["item_id"].iloc[0] == first


def test_lists_show_what_is_known_and_nothing_is_markup() -> None:
    frame = flagged("untranslated", 5)
    frame.loc[5, "text"] = HOSTILE
    frame.loc[0, "back"] = HOSTILE
    frame["human"] = None
    listed = listing(TranslatedCaptions(made(HOSTILE, frame=frame), frame))
    assert "<script" not in listed and "&lt;script&gt;" in listed and "\u202e" not in listed
    assert listed.count('<span class="tag noisy">untranslated</span>') == 2, "among the worst, and among the flagged"
    assert "back-translation</th>" in listed and "human" not in listed.partition("<tbody>")[0]
    assert "1 flagged captions, some of each kind" in listed and "picture" not in listed


def test_words_left_as_they_were_are_counted() -> None:
    frame = captions(source="a grayhound runs", text="un grayhound court")
    frame.loc[3, ["source", "text"]] = ["a poodle runs", "un poodle court"]
    listed = listing(TranslatedCaptions(made(frame=frame), frame))
    assert '<bdi dir="auto">grayhound</bdi> 39; once: <bdi dir="auto">poodle</bdi>.' in listed


@pytest.mark.slow
def test_distributions_have_a_column_for_what_is_known() -> None:
    first, second = captions(), captions(round_trip_chrf=np.nan, length_z=[4.0] + [0.1] * 38 + [np.nan])
    bytes_ = []
    for _ in range(2):
        with canvas.drawing():
            loaded = [TranslatedCaptions(made("a"), first), TranslatedCaptions(made("b"), second)]
            figure = quality_measures(loaded).figure
            assert figure is not None
            bytes_.append(canvas.to_svg(figure))
    assert bytes_[0] == bytes_[1]
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == [
        "length, z",
        "round trip, chrF2",
        "human references, chrF2",
    ]
    assert len(figure.axes) == 6, "no engine gave a score"
    assert "unknown" in [text.get_text() for text in figure.axes[4].texts]
    marks = [line for line in figure.axes[3].lines if line.get_marker() == "|"]
    assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[4.0]]
    bare = captions(length_z=np.nan, round_trip_chrf=np.nan, reference_chrf=np.nan)
    with canvas.drawing():
        assert quality_measures([TranslatedCaptions(made(frame=bare), bare)]).figure is None


def test_translations_alone_make_a_page() -> None:
    several = [made("a", (references(20),)), made("b", (references(25),), flagged("copy", 0, 1))]
    seen = compose.overview(ReportData([], translations=several))
    assert seen.findings.headline == "Of 80 captions of 2 translations, 2 (2.5%) are flagged, most often as copy (2)."
    assert "Closest to the human references in BLEU: b 25.0 ± 1.0, then a 20.0 ± 1.0" in seen.findings.more[0]
    assert list(seen.tables) == ["translations", "translation-scores"]
    text = compose.render(ReportData([], translations=several), seen, {}, [], [], [])
    assert "<h1>toy in fr</h1>" in text and 'id="translations"' in text and 'id="result"' not in text
    clean = compose.overview(ReportData([], translations=[made("a")])).findings
    assert clean.headline == "Of 40 captions translated into fr by a, 0 (0.0%) are flagged."


def test_more_than_can_be_shown_are_said_to_be_there() -> None:
    many = [made(str(i)) for i in range(translations.SHOWN + 1)]
    seen = compose.overview(ReportData([], translations=many))
    loaded = translations.load(many)
    page = compose.render(ReportData([], translations=many), seen, {}, [], loaded, [])
    assert len(loaded) == 8 and len(seen.tables["translations"].rows) == 9
    assert "Figures and lists show 8 of the 9 translations." in page
