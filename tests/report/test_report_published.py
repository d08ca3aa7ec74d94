"""Results beside published figures: what fits what, what is said to differ, and that nobody's figures are mixed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fakes import best_cells

from ccr_cli.artifacts.signature import KEYS, Signature
from ccr_cli.data import published
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.published import QUOTED, YOURS, cited, differences, match
from ccr_cli.report.tables.published import compare as beside
from ccr_cli.report.tables.table import Table, to_csv, to_latex, to_markdown, to_rich

KNOWN = published.read()
AS_UML: dict[str, Any] = {
    "lang": "de",
    "caption_set": "task2",
    "q": "5000",
    "gallery": "1000",
    "fusion": "0.8raw",
    "mt": "deep-translator:google:en-de",
}
"""What a signature says of an evaluation like those of UML on Multi30K."""
LIKE_UML = "clip-vit-base-patch32 + google-bert/bert-base-multilingual-cased"
FIGURES = {"R@1": 10.0, "R@5": 20.0, "R@10": 30.0, "MedR": 4.0, "MeanR": 5.0, "mAP": 15.0, "MRR": 16.0, "queries": 9}


def result(data: str, /, label: str = "uml", seed: int = 0, total: float = 120.0, **signed: str) -> Any:
    noise = float(signed.get("noise", "none").split("-")[2]) if signed.get("noise", "none") != "none" else 0.0
    fields = dict.fromkeys(KEYS, "x")
    fields |= {"data": f"{data}@0a1b2c3d", "split": "test", "lang": "de", "q": "12", "gallery": "12", "pos": "any"}
    fields |= {"protocol": "full", "fusion": "none", "mt": "apertium:en-de", "noise": "none", "caption_set": "human"}
    fields |= signed
    entry = {
        "run": f"{data}-{label}-{seed}-{sorted(signed.items())}",
        "data": data,
        "split": fields["split"],
        "lang": fields["lang"],
        "label": label,
        "method": label,
        "noise": noise,
        "seed": seed,
        "zero_shot": fields["protocol"].startswith("zero-shot"),
        "signature": str(Signature(**fields)),
        "t2v": FIGURES,
        "v2t": FIGURES,
        "SumR": total,
    }
    return entry["run"], entry


def frame(*results: Any, encoder: str = "efficientnet-lite0 + ngram") -> pd.DataFrame:
    facts = {run: comparable.RunFacts(run, entry["label"], encoder=encoder) for run, entry in results}
    return comparable.results_frame(results, facts)


def tables(*results: Any, **names: str) -> dict[str, Table]:
    return beside(frame(*results), KNOWN, {data: {"name": name} for data, name in names.items()})


def cells(table: Table, source: str | None = None) -> list[dict[str, Any]]:
    """The rows of a table by the keys of its columns; those of one source only."""
    keys = [column.key for column in table.columns]
    rows = [{key: cell.value for key, cell in zip(keys, row.cells, strict=True)} for row in table.rows]
    return [row for row in rows if source is None or row["source"] == source]


@pytest.mark.parametrize(
    ("data", "lang", "name"),
    [
        ("multi30k", "de", "published-multi30k-de"),
        ("Multi30K-task2", "cs", "published-multi30k-cs"),
        ("flickr30k.karpathy", "en", "published-flickr30k-en"),
        ("coco", "en", "published-ms-coco-en"),
        ("mscoco-2014", "en", "published-ms-coco-en"),
        ("multi-mscoco", "ja", "published-multi-mscoco-ja"),
        ("msrvtt-cn", "zh", "published-msr-vtt-cn-zh"),
        ("vatex-halves-seed0", "zh", "published-vatex-zh"),
        ("multi-mscoco-zh", "zh", "published-multi-mscoco-zh"),
        ("wikipedia-svcl", "de", ""),
        ("multi30k-test2017-coco", "de", ""),
        ("multi30k", "es", ""),
        ("coco-cn", "en", ""),
        ("flickr30k-cn", "en", ""),
        ("noto-emoji", "de", ""),
    ],
)
def test_a_data_set_is_known_by_its_name_and_language(data: str, lang: str, name: str) -> None:
    made = tables(result(data, lang=lang))
    assert list(made) == ([name, "published-differences"] if name else ["published"])


def test_the_name_in_the_manifest_counts_where_the_artifact_has_another() -> None:
    assert list(tables(result("mine"))) == ["published"]
    assert "published-multi30k-de" in tables(result("mine"), mine="multi30k")


def test_published_figures_stand_as_they_are_printed_and_say_where() -> None:
    table = tables(result("multi30k"))["published-multi30k-de"]
    (uml,) = [row for row in cells(table, "UML, Table 1") if row["method"] == "UML"]
    assert (uml["sumr"], uml["n"], uml["encoders"]) == (505.6, None, "CLIP ViT-B/32 + mBERT (170M)")
    assert {row["source"] for row in cells(table)} == {YOURS, "UML, Table 1", "UML, Table 4", "NRCCR, Table 3"}
    assert [row.quoted for row in table.rows] == [row["source"] != YOURS for row in cells(table)]
    own = KNOWN.figures
    own = own[(own["data"] == "multi30k") & (own["language"] == "de") & (own["metric"] == "SumR")]
    wanted = own[~own["note"].str.startswith("untrained") & (own["paper"] + own["table"] != "uml3")]["value"]
    assert sorted(row["sumr"] for row in cells(table) if row["source"] != YOURS and row["sumr"]) == sorted(wanted)


def test_nothing_published_is_averaged_ranked_or_bold() -> None:
    table = tables(result("multi30k", seed=0, total=100.0), result("multi30k", seed=1, total=104.0))[
        "published-multi30k-de"
    ]
    (mine,) = cells(table, YOURS)
    assert (mine["sumr"], mine["n"]) == (102.0, 2)
    best = best_cells(Table(table.name, table.title, [_ranked(c) for c in table.columns], table.rows, table.notes))
    assert all(not table.rows[r].quoted for r, _ in best), "even if the figures were ranked"
    assert best_cells(table) == set()
    for text in (to_markdown(table), to_latex(table)):
        assert "**5" not in text and "textbf" not in text
    assert "_505.6_" in to_markdown(table) and r"\textit{505.6}" in to_latex(table)
    assert "bold green" not in str([column._cells for column in to_rich(table).columns])
    assert QUOTED in table.notes


def _ranked(column: Any) -> Any:
    return type(column)(**{**vars(column), "better": None if column.text else "high"})


def test_of_two_with_equal_figures_only_yours_can_be_the_best() -> None:
    from ccr_cli.report.tables.table import Cell, Column, Row

    rows = [Row([Cell(value)], quoted=quoted) for value, quoted in ((1.0, False), (2.0, False), (3.0, True))]
    assert best_cells(Table("t", "", [Column("r", "r", "high")], rows)) == {(1, 0)}


def test_only_ratios_of_noise_that_both_have_stand_side_by_side() -> None:
    noisy: dict[str, Any] = {"noise": "caption-pair-0.4-seed0", "lang": "en"}
    made = tables(
        result("flickr30k", lang="en"), result("flickr30k", **noisy), result("multi30k", noise="a-b-0.4-seed0")
    )
    table = made["published-flickr30k-en"]
    assert {row["noise"] for row in cells(table)} == {0.0, 0.4}
    assert {row["source"] for row in cells(table) if row["noise"] == 0.4} == {
        YOURS,
        "DisNCL, Table I",
        "DisNCL, Table II",
    }
    assert {row["noise"] for row in cells(table) if row["source"].startswith("DisNCL")} == {0.4}
    assert "published-multi30k-de" not in made
    assert "No published figures for multi30k, queries in de, at 40% noise." in made["published-differences"].notes


def test_zero_shot_stands_beside_zero_shot_and_never_beside_untrained_models() -> None:
    made = tables(result("multi30k", protocol="zero-shot"), result("multi30k"))
    assert set(made) == {"published-multi30k-de", "published-multi30k-de-zero-shot", "published-differences"}
    there = {row["method"] for row in cells(made["published-multi30k-de-zero-shot"], "UML, Table 3")}
    assert there == {"NRCCR", "DCOT", "CL2CM", "UML"}
    assert not cells(made["published-multi30k-de"], "UML, Table 3")
    coco = tables(result("coco", lang="en", protocol="coco-5k"))["published-ms-coco-en-coco-5k"]
    assert {row["method"] for row in cells(coco, "DisNCL, Table IV")} == {"CLIP", "SGRAF", "DECL", "SREM", "Ours"}


@pytest.mark.parametrize(
    ("protocol", "data", "theirs", "told"),
    [
        ("zero-shot-from:multi-mscoco-zh@0a1b2c3d", "multi30k", ("uml", "3"), None),
        ("zero-shot-from:mine@0a1b2c3d", "multi30k", ("uml", "3"), None),
        ("zero-shot-from:flickr8k-cn@0a1b2c3d", "multi30k", ("uml", "3"), ("flickr8k-cn", "multi-mscoco")),
        (
            "zero-shot-from:multi-mscoco@0a1b2c3d-partial",
            "multi30k",
            ("uml", "3"),
            ("multi-mscoco (partial)", "multi-mscoco"),
        ),
        ("zero-shot", "multi30k", ("uml", "3"), ("not known", "multi-mscoco")),
        ("full-from:multi30k-task2@0a1b2c3d", "multi30k", ("uml", "1"), ("multi30k-task2", "itself")),
        ("full", "multi30k", ("uml", "1"), None),
    ],
)
def test_what_was_trained_on_is_compared(
    protocol: str, data: str, theirs: tuple[str, str], told: tuple[str, str] | None
) -> None:
    found = match(frame(result(data, protocol=protocol)), KNOWN, {"mine": {"name": "multi-mscoco"}})[0][0]
    differing = {each.what: (each.ours, each.theirs) for each in differences(found)[theirs]}
    assert differing.get("training data") == told


@pytest.mark.parametrize("own", [True, False])
def test_a_split_that_is_not_the_papers_is_told(own: bool) -> None:
    mine = result("vatex-halves-seed0", lang="zh", gallery="1500", q="15000", protocol="vatex-halves-seed0")
    (found,), _ = match(frame(mine), KNOWN, {"vatex-halves-seed0": {"own_split": own}})
    for told in differences(found).values():
        assert [each.what for each in told].count("split") == own


def test_a_partial_data_set_is_told() -> None:
    found = match(frame(result("multi30k", **AS_UML, data="multi30k@0a1b2c3d-partial"), encoder=LIKE_UML), KNOWN, {})
    ((difference,),) = [differences(one)["uml", "4"] for one in found[0]]
    assert (difference.what, difference.ours, difference.theirs) == ("data", "multi30k (partial)", "complete")


def test_a_named_protocol_takes_only_its_own_and_a_plain_one_says_what_differs() -> None:
    named = tables(result("coco", lang="en", protocol="coco-1k-5fold"))["published-ms-coco-en-coco-1k-5fold"]
    assert {row["source"] for row in cells(named)} == {YOURS, "TCL, Table I"}
    plain = tables(result("coco", lang="en"))
    assert "TCL, Table II" in {row["source"] for row in cells(plain["published-ms-coco-en"])}
    told = {row["published"] for row in cells(plain["published-differences"]) if row["what"] == "protocol"}
    assert told == {"coco-5k", "coco-1k-5fold"}


@pytest.mark.parametrize(
    ("gallery", "q", "told"),
    [
        ("5x1000", "25000", {}),
        ("5x998-1000", "24975", {"items searched": "998 to 1,000"}),
        ("5000", "25000", {"items searched": "5,000"}),
        ("5x1000", "5000", {"captions": "1 an item (human)"}),
    ],
)
def test_folds_are_searched_one_by_one(gallery: str, q: str, told: dict[str, str]) -> None:
    mine = result("coco", lang="en", protocol="coco-1k-5fold", gallery=gallery, q=q)
    found = match(frame(mine), KNOWN, {})[0][0]
    differing = {each.what: each.ours for each in differences(found)["tcl", "I"]}
    assert {what: differing[what] for what in ("items searched", "captions") if what in differing} == told


def test_a_protocol_in_zero_shot_stands_beside_zero_shot() -> None:
    made = tables(result("multi30k", protocol="zero-shot-multi30k-task1"))
    assert "published-multi30k-de-zero-shot" in made


@pytest.mark.parametrize("own", ["coco-cn-1k", "coco-cn-1k-human"])
def test_a_protocol_may_name_more_than_the_published_one(own: str) -> None:
    table = tables(result("multi-mscoco-zh", lang="zh", protocol=own))["published-multi-mscoco-zh-coco-cn-1k"]
    assert {row["source"] for row in cells(table)} == {YOURS, "UML, Table 1", "UML, Table 4"}


def test_the_task_may_be_in_the_name_of_the_data_set() -> None:
    signed = AS_UML | {"lang": "fr", "caption_set": "task1", "q": "1000"}
    for data, told in (("multi30k-task2", []), ("multi30k", ["captions"])):
        found = match(frame(result(data, **signed), encoder=LIKE_UML), KNOWN, {})[0][0]
        assert [each.what for each in differences(found)["uml", "4"]] == told


def test_categories_stand_beside_categories() -> None:
    signed: dict[str, Any] = {"lang": "und", "protocol": "labelled", "pos": "label"}
    table = tables(result("wiki", **signed))["published-wikipedia-und-labelled"]
    (mine,) = cells(table, YOURS)
    assert (mine["map"], mine["t2v_map"]) == (15.0, 15.0)
    assert {row["map"] for row in cells(table) if row["method"] == "FUME"} == {53.0}
    assert "FUME_u=0.5" not in {row["method"] for row in cells(table)}
    assert list(tables(result("wiki", **{**signed, "protocol": "full"}))) == ["published"]
    assert list(tables(result("wiki", **{**signed, "protocol": "labelled-without-3"}))) == ["published"]


def test_only_test_items_count() -> None:
    made = tables(result("multi30k", split="val-report"))
    assert made["published"].notes == ["There are no results on test items."]


def test_an_evaluation_like_the_papers_differs_in_nothing_known() -> None:
    found, lonely = match(frame(result("multi30k", **AS_UML), encoder=LIKE_UML), KNOWN, {})
    told = differences(found[0])
    assert told["uml", "4"] == [] and lonely == []
    assert [each.what for each in told["uml", "1"]] == ["encoders"], "other backbones stand in the same table"
    assert [each.what for each in told["nrccr", "3"]] == ["encoders", "captions"]


@pytest.mark.parametrize(
    ("other", "what", "ours", "theirs"),
    [
        ({"caption_set": "task1", "q": "1000"}, "captions", "1 an item (task1)", "5 an item (task 2)"),
        ({"mt": "recorded:apertium"}, "translation", "recorded:apertium", "Google Translate"),
        ({"mt": "none"}, "translation", "none, only English", "Google Translate"),
        ({"fusion": "none"}, "score fusion", "none", "0.8, with the query in English"),
        ({"gallery": "1014", "q": "5070"}, "items searched", "1,014", "1,000"),
    ],
)
def test_each_thing_that_differs_is_told(other: dict[str, Any], what: str, ours: str, theirs: str) -> None:
    ((told),) = match(frame(result("multi30k", **{**AS_UML, **other}), encoder=LIKE_UML), KNOWN, {})[0]
    (difference,) = differences(told)["uml", "4"]
    assert (difference.what, difference.ours, difference.theirs) == (what, ours, theirs)


@pytest.mark.parametrize(
    ("kind", "table", "theirs"),
    [
        ("caption-pair", "I", "all captions of an item switched together"),
        ("caption-pair", "II", None),
        ("image-pair", "I", None),
        ("caption-translation", "II", "single captions switched"),
    ],
)
def test_the_kind_of_noise_is_compared(kind: str, table: str, theirs: str | None) -> None:
    found = match(frame(result("flickr30k", lang="en", noise=f"{kind}-0.4-seed0")), KNOWN, {})[0][0]
    told = [each.theirs for each in differences(found)["disncl", table] if each.what == "kind of noise"]
    assert told == ([] if theirs is None else [theirs])


@pytest.mark.parametrize(
    ("encoder", "told"),
    [
        ("clip-vit-base-patch32 + xlm-roberta-base", True),
        ("clip + /models/bert-base-multilingual-cased", False),
        ("efficientnet-lite0 + ngram", True),
        ("", True),
    ],
)
def test_encoders_are_compared_by_their_family(encoder: str, told: bool) -> None:
    found = match(frame(result("multi30k", **AS_UML), encoder=encoder), KNOWN, {})[0][0]
    assert ("encoders" in [each.what for each in differences(found)["uml", "4"]]) == told


def test_what_differs_stands_with_every_row_and_once_in_print() -> None:
    made = tables(result("multi30k"), result("multi30k", lang="fr"))
    rows = [row for row in made["published-multi30k-de"].rows if row.cells[2].value == "UML, Table 1"]
    assert rows[0].cells[-1].shown == "encoders, captions, translation, score fusion, items searched"
    assert rows[1].cells[-1].shown == "as above" and rows[1].cells[-1].value == rows[0].cells[-1].shown
    assert "as above" not in to_csv(made["published-multi30k-de"])
    told = cells(made["published-differences"])
    (translation,) = [row for row in told if row["what"] == "translation"]
    assert translation["of"] == "multi30k de and fr"
    assert translation["in"] == "UML, Table 1; UML, Table 4; NRCCR, Table 3"
    assert len({tuple(row.values()) for row in told}) == len(told)


def test_settings_of_yours_are_told_apart_and_not_averaged() -> None:
    made = tables(result("multi30k", total=100.0), result("multi30k", total=110.0, fusion="0.8raw"))
    mine = cells(made["published-multi30k-de"], YOURS)
    assert {row["method"]: row["sumr"] for row in mine} == {
        "uml, not fused": 100.0,
        "uml, fused, 0.8 of the query": 110.0,
    }


def test_a_misprint_is_named_where_it_stands() -> None:
    made = tables(result("flickr30k", lang="en", noise="image-pair-0.2-seed0"))["published-flickr30k-en"]
    rows = {(row["source"], row["method"]): str(row["differs"]) for row in cells(made)}
    assert rows["DisNCL, Table I", "DisNCL"].endswith("prints 508.1; its parts add up to 506.1")
    assert rows["DisNCL, Table II", "SCAN"].endswith("the same figures are in Table I, flickr30k, 0.2, SCAN")
    assert "printed" not in rows["DisNCL, Table I", "NCR"]


def test_where_nothing_fits_it_is_said_with_what_there_is() -> None:
    made = tables(result("noto-emoji", lang="es"), result("noto-emoji", lang="en"))
    table = made["published"]
    assert table.notes == [f"No published figures for noto-emoji, queries in {lang}." for lang in ("en", "es")]
    assert table.title.startswith("No published figures for")
    rows = {row["data"]: row for row in cells(table)}
    assert set(rows) == set(KNOWN.figures["data"])
    assert rows["multi30k"]["queries"] == "de, fr, cs" and rows["multi30k"]["protocol"] == "full, zero-shot"
    assert rows["flickr30k"]["noise"] == "0%, 20%, 40%, 60%"
    assert rows["vatex"]["source"] == "UML, Table 2; NRCCR, Table 1; NRCCR, Table 4"


def test_papers_are_cited_if_they_are_quoted() -> None:
    lines = cited(tables(result("multi30k")).values(), KNOWN)
    assert [line.partition(":")[0] for line in lines] == ["UML", "NRCCR"]
    assert lines[0].endswith("doi 10.1007/s11432-024-4696-2")


def test_results_with_signatures_of_another_version_are_passed_over() -> None:
    run, entry = result("multi30k")
    assert list(tables((run, {**entry, "signature": "data:multi30k|split:test"}))) == ["published"]


def test_what_is_published_by_another_protocol_alone_is_said() -> None:
    by_category = result("wikipedia", lang="und", protocol="labelled", pos="label")
    by_item = result("wikipedia", "infonce", lang="und")
    found, lonely = match(frame(by_category, by_item), KNOWN, {})
    assert [one.title for one in found] == ["wikipedia, queries in und, protocol labelled"]
    assert lonely == ["wikipedia, queries in und, protocol full"]
    assert match(frame(by_item), KNOWN, {}) == ([], ["wikipedia, queries in und"])
