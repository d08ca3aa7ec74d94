"""Comparison and recovery against hand-computed cases and enumeration written here."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import variant_labels

from ccr_cli.report.tables import comparable, diagnoses, retrieval
from ccr_cli.report.tables.differences import recovery
from ccr_cli.report.words.findings import findings
from ccr_cli.report.words.numbers import MINUS

KEYS = "data:d@1|split:test|lang:{lang}|caption_set:c|q:9|gallery:9|dir:t2v+v2t|protocol:full|pos:any|ties:{ties}|"
REST = "sim:cosine|fusion:none|mt:m|noise:{noise}|unc:{unc}|select:mt|leak:none|ccr:0.1.0"


def result(label: str, noise: float, seed: int, total: float, **other: Any) -> tuple[str, dict[str, Any]]:
    kind = other.pop("kind", "caption-translation")
    drawn = other.pop("noise_seed", seed)
    mismatch = f"{kind}-{noise:g}-seed{drawn}" if noise else "none"
    run = f"{label}-{noise:g}-{seed}-{kind}" + (f"-{drawn}" if drawn != seed else "")
    fields = {"lang": "es", "ties": "mid", "unc": "none", "noise": mismatch} | other
    figures = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "MedR": 4.0, "MeanR": 5.0, "mAP": 6.0, "MRR": 7.0, "queries": 29}
    entry = {
        "run": run,
        "data": "d",
        "split": "test",
        "lang": fields["lang"],
        "caption_set": "c",
        "role": "target",
        "fusion": "none",
        "method": label.split(" ")[0],
        "label": label,
        "noise": noise,
        "seed": seed,
        "zero_shot": False,
        "signature": (KEYS + REST).format(**fields),
        "t2v": figures,
        "v2t": figures,
        "SumR": total,
        "SumR_interval": [total - 1, total + 1],
        "calibration": None,
    }
    return run, entry


GAINS = {0: (100.0, 120.0, 130.0), 1: (90.0, 115.0, 118.0), 2: (95.0, 100.0, 125.0)}


def three_seeds() -> list[tuple[str, dict[str, Any]]]:
    out = []
    for seed, (plain, mine, best) in GAINS.items():
        out += [result("infonce", 0.4, seed, plain), result("uml", 0.4, seed, mine)]
        out.append(result("infonce (oracle)", 0.4, seed, best))
        out += [result("infonce", 0.0, seed, 150.0 + seed), result("uml", 0.0, seed, 149.0 + seed)]
    return out


def test_mean_sd_and_n_are_over_seeds() -> None:
    table = comparable.aggregate(comparable.results_frame(three_seeds()), ["label", "noise"], ["SumR"])["SumR"]
    line = table.loc[("uml", 0.4)]
    values = np.array([120.0, 115.0, 100.0])
    assert line["mean"] == pytest.approx(values.mean())
    assert line["sd"] == pytest.approx(np.sqrt(((values - values.mean()) ** 2).sum() / 2))
    assert line["n"] == 3
    assert [label for label, _ in table.index] == ["infonce"] * 2 + ["uml"] * 2 + ["infonce (oracle)"]


def test_one_seed_has_no_standard_deviation() -> None:
    view = comparable.views(comparable.results_frame([result("uml", 0.0, 0, 10.0)]))[0]
    assert retrieval.by_noise(view).printed(0, 1) == "10.0"
    assert "±" not in str([retrieval.retrieval(view).printed(0, c) for c in range(4)])


def test_recovery_is_the_ratio_of_means_with_an_enumerated_bootstrap() -> None:
    frame = comparable.results_frame(three_seeds())
    win = recovery(frame, "uml", 0.4)
    assert win is not None
    gain = np.array([20.0, 25.0, 5.0])
    gap = np.array([30.0, 28.0, 30.0])
    assert win.value == pytest.approx(gain.mean() / gap.mean())
    ratios = [gain[list(d)].mean() / gap[list(d)].mean() for d in itertools.product(range(3), repeat=3)]
    assert (win.low, win.high) == pytest.approx(tuple(np.percentile(ratios, [2.5, 97.5])))
    assert win.seeds == 3
    assert win.difference == pytest.approx(gain.mean())
    assert win.difference_sd == pytest.approx(gain.std(ddof=1))


def test_recovery_without_noise_is_only_a_difference() -> None:
    win = recovery(comparable.results_frame(three_seeds()), "uml", 0.0)
    assert win is not None and win.value is None and win.low is None
    assert win.difference == pytest.approx(-1.0)


def test_recovery_pairs_only_seeds_that_all_three_have() -> None:
    rows = [r for r in three_seeds() if r[0] != "infonce (oracle)-0.4-1-caption-translation"]
    win = recovery(comparable.results_frame(rows), "uml", 0.4)
    assert win is not None and (win.value_seeds, win.seeds) == (2, 3)
    assert win.value == pytest.approx((20 + 5) / (30 + 30))
    assert win.difference == pytest.approx((20 + 25 + 5) / 3), "the difference needs no oracle"
    table = retrieval.recoveries(comparable.views(comparable.results_frame(rows))[0])
    assert table is not None
    assert table.printed(0, 3) == "0.42 (0.19 to 0.65, n = 2)"
    assert table.printed(0, 4) == "3" and "nearly their whole range" in " ".join(table.notes)
    said = findings(comparable.views(comparable.results_frame(rows))[0], diagnoses.diagnoses_frame([]))
    assert any("n = 2" in s for s in said.more) and "16.7" in said.headline


def test_recovery_is_undefined_where_the_oracle_gains_nothing() -> None:
    rows = [
        result(m, 0.4, s, v) for m, v in (("infonce", 9.0), ("uml", 8.0), ("infonce (oracle)", 9.0)) for s in (0, 1)
    ]
    win = recovery(comparable.results_frame(rows), "uml", 0.4)
    assert win is not None and win.value is None and win.difference == -1.0
    assert recovery(comparable.results_frame(rows[2:4]), "uml", 0.4) is None


def test_results_of_other_signatures_never_share_a_table() -> None:
    rows = [result("uml", 0.4, 0, 10.0), result("infonce", 0.4, 0, 9.0, ties="optimistic", unc="top128")]
    found = comparable.views(comparable.results_frame(rows))
    assert [len(v.frame) for v in found] == [1, 1]
    assert {v.title for v in found} == {
        f"d test, queries in es ({ties})" for ties in ("ties count half", "ties favour the right one")
    }


def test_titles_say_in_words_what_differs() -> None:
    keys = [("c", "9", "full", "any"), ("c+d", "20", "full", "any"), ("c", "9", "labelled", "label")]
    rows = []
    for captions, count, protocol, right in keys:
        run, told = result(f"m{captions}{protocol}", 0.4, 0, 10.0)
        signed = told["signature"].replace("caption_set:c|q:9", f"caption_set:{captions}|q:{count}")
        signed = signed.replace("protocol:full|pos:any", f"protocol:{protocol}|pos:{right}")
        rows.append((run, told | {"signature": signed, "caption_set": captions}))
    titles = {view.title for view in comparable.views(comparable.results_frame(rows))}
    assert titles == {
        "d test, queries in es (captions: c; right answers by item)",
        "d test, queries in es (captions: c and d; right answers by item)",
        "d test, queries in es (captions: c; right answers by category)",
    }, "how many queries there are, and which count, follows from these"
    (run, told), other = result("uml", 0.4, 0, 10.0), result("trine", 0.4, 0, 10.0)
    fewer = told | {"signature": told["signature"].replace("|q:9|", "|q:8|")}
    titles = {view.title for view in comparable.views(comparable.results_frame([(run, fewer), other]))}
    assert titles == {"d test, queries in es (8 queries)", "d test, queries in es (9 queries)"}


def test_the_uncertainty_candidates_and_the_noise_seed_do_not_divide() -> None:
    rows = [result("uml", 0.4, 0, 10.0, unc="top128"), result("infonce", 0.4, 1, 9.0), result("infonce", 0.0, 0, 9.0)]
    assert len(comparable.views(comparable.results_frame(rows))) == 1


def test_kinds_of_noise_have_a_view_each_and_share_the_clean_results() -> None:
    rows = [result("uml", 0.4, 0, 10.0), result("uml", 0.4, 0, 8.0, kind="caption-pair"), result("uml", 0.0, 0, 12.0)]
    found = comparable.views(comparable.results_frame(rows))
    assert [v.noise_kind for v in found] == ["caption-translation", "caption-pair"]
    assert [sorted(v.frame["SumR"]) for v in found] == [[10.0, 12.0], [8.0, 12.0]]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("near-translation", "switched translations"),
        ("words-translation", "partly wrong translations"),
        ("instance-translation", "mismatched pairs"),
        ("mixed-any", "mismatched pairs"),
        ("rotate.67914b-translation", "mismatched pairs"),
    ],
)
def test_the_headline_names_what_noise_makes_of_a_pair(kind: str, words: str) -> None:
    (view,) = comparable.views(comparable.results_frame([result("uml", 0.4, 0, 10.0, kind=kind)]))
    assert f"40% {words}, uml" in findings(view, pd.DataFrame()).headline


def test_the_same_result_twice_counts_once() -> None:
    assert len(comparable.results_frame([result("uml", 0.4, 0, 10.0)] * 2)) == 1


def test_an_unreadable_signature_still_compares_by_what_is_known() -> None:
    run, entry = result("uml", 0.4, 0, 10.0)
    facts = {run: comparable.RunFacts(run, "uml", noise_kind="image-pair")}
    frame = comparable.results_frame([(run, {**entry, "signature": "", "SumR_interval": None, "v2t": None})], facts)
    assert frame["noise_kind"].tolist() == ["image-pair"] and np.isnan(frame["v2t.R@1"].iloc[0])
    assert len(comparable.views(frame)) == 1


def test_runs_of_one_label_with_other_options_are_told_apart() -> None:
    def config(beta: float, lr: float = 0.1) -> dict[str, Any]:
        return {"data": "d", "lang": "es", "preset": None, "options": {"beta": beta, "lr": lr}}

    runs = {"a": ("uml", config(0.3)), "b": ("uml", config(0.5)), "c": ("basic", config(0.3, 0.2))}
    assert variant_labels(runs) == {"a": "uml [beta=0.3]", "b": "uml [beta=0.5]", "c": "basic [beta=0.3]"}
    assert variant_labels({"a": runs["a"], "d": runs["a"]}) == {"a": "uml", "d": "uml"}
    usual = {run: {"beta": 0.3, "lr": 0.1} for run in runs}
    assert variant_labels(runs, usual) == {"a": "uml", "b": "uml [beta=0.5]", "c": "basic"}


def test_a_run_chosen_by_human_queries_is_marked_alone_too() -> None:
    def config(select: str, beta: float = 0.3) -> dict[str, Any]:
        return {"data": "d", "lang": "es", "select": select, "options": {"beta": beta}}

    assert variant_labels({"a": ("uml", config("human"))}) == {"a": "uml [select=human]"}
    runs = {"a": ("uml", config("human")), "b": ("uml", config("mt")), "c": ("uml", config("human", 0.5))}
    assert variant_labels(runs, {key: {"beta": 0.3} for key in runs}) == {
        "a": "uml [select=human]",
        "b": "uml",
        "c": "uml [beta=0.5, select=human]",
    }


@pytest.mark.parametrize(
    ("told", "label"),
    [("select:human", "uml [select=human]"), ("select:mt", "uml"), ("select:human|mt:none", "uml")],
)
def test_a_result_of_a_run_that_is_gone_is_marked_by_its_signature(told: str, label: str) -> None:
    run, entry = result("uml", 0.0, 0, 10.0)
    select, _, none = told.partition("|")
    entry["signature"] = entry["signature"].replace("select:mt", select)
    if none:
        entry["signature"] = entry["signature"].replace("mt:m|", f"{none}|")
    frame = comparable.results_frame([(run, entry)])
    assert frame["label"].tolist() == [label]
    known = comparable.results_frame([(run, entry)], {run: comparable.RunFacts(run, "mine")})
    assert known["label"].tolist() == ["mine"]


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ("full", ""),
        ("labelled-without-3,8", ""),
        ("zero-shot", ""),
        ("zero-shot-labelled", ""),
        ("coco-1k-5fold", ", protocol coco-1k-5fold"),
        ("zero-shot-coco-5k", ", protocol coco-5k"),
    ],
)
def test_a_title_names_the_protocol_of_a_manifest(protocol: str, told: str) -> None:
    run, entry = result("uml", 0.0, 0, 10.0)
    entry["signature"] = entry["signature"].replace("protocol:full", f"protocol:{protocol}")
    (view,) = comparable.views(comparable.results_frame([(run, entry)]))
    assert view.title == f"d test, queries in es{told}"


def test_precision_tells_runs_apart_and_old_runs_are_float32() -> None:
    old: dict[str, Any] = {"data": "d", "lang": "es", "options": {}}
    runs = {
        "a": ("uml", old),
        "b": ("uml", {**old, "dtype": "float32"}),
        "c": ("uml", {**old, "dtype": "bfloat16"}),
    }
    assert variant_labels(runs) == {"a": "uml", "b": "uml", "c": "uml [dtype=bfloat16]"}
    assert set(variant_labels({k: runs[k] for k in "ab"}).values()) == {"uml"}


def test_methods_are_paired_over_the_same_mismatch() -> None:
    rows = [result("uml", 0.4, 0, 50.0), result("uml", 0.4, 0, 90.0, noise_seed=1)]
    rows += [result("infonce", 0.4, 0, 40.0, noise_seed=1), result("infonce", 0.4, 1, 10.0)]
    frame = comparable.results_frame(rows)
    assert sorted(zip(frame["seed"], frame["noise_seed"], strict=True)) == [(0, 0), (0, 1), (0, 1), (1, 1)]
    win = recovery(frame, "uml", 0.4)
    assert win is not None and (win.difference, win.seeds) == (50.0, 1)
    assert recovery(comparable.results_frame([rows[0], rows[2]]), "uml", 0.4) is None


def test_runs_of_one_training_seed_are_not_called_seeds() -> None:
    rows = [result("uml", 0.4, 0, 50.0), result("uml", 0.4, 0, 54.0, noise_seed=1)]
    view = comparable.views(comparable.results_frame(rows))[0]
    assert "(2 runs of 1 training seed)" in findings(view, diagnoses.diagnoses_frame([])).headline
    assert [retrieval.by_noise(view).printed(0, c) for c in (1, 2)] == ["52.0 ± 2.8", "2"]


def test_a_repeated_run_is_named_and_counts_once() -> None:
    rows = [result("uml", 0.4, 0, 50.0), result("uml", 0.4, 1, 60.0), result("uml", 0.4, 0, 54.0)]
    rows[2] = ("again", {**rows[2][1], "run": "again"})
    frame = comparable.results_frame(rows)
    assert comparable.repeated(frame) == [["again", "uml-0.4-0-caption-translation"]]
    assert comparable.repeated(frame.iloc[:2]) == []
    line = comparable.aggregate(frame, ["label", "noise"], ["SumR"])["SumR"].loc[("uml", 0.4)]
    assert (line["mean"], line["n"]) == (56.0, 2) and line["sd"] == pytest.approx(8 / np.sqrt(2))


def variants(*infonce: str) -> pd.DataFrame:
    rows = [result(label, 0.4, 0, 40.0 + 10 * place) for place, label in enumerate(infonce)]
    return comparable.results_frame([*rows, result("uml", 0.4, 0, 45.0), result("infonce (oracle)", 0.4, 0, 60.0)])


def test_the_default_variant_is_the_baseline() -> None:
    frame = variants("infonce", "infonce [lr=1]")
    win = recovery(frame, "uml", 0.4)
    assert win is not None and (win.against, win.difference, win.value) == ("infonce", 5.0, 0.25)
    view = comparable.views(frame)[0]
    found = findings(view, diagnoses.diagnoses_frame([]))
    assert found.method == "uml", "infonce with another option is no noise-robust method, however good"
    table = retrieval.recoveries(view)
    assert table is not None and [row.cells[0].value for row in table.rows] == ["uml"]
    matched = pd.concat([frame, comparable.results_frame([result("uml [lr=1]", 0.4, 0, 52.0)])], ignore_index=True)
    win = recovery(matched, "uml [lr=1]", 0.4)
    assert win is not None and (win.against, win.difference) == ("infonce [lr=1]", 2.0)


def test_several_variants_and_no_default_are_no_baseline() -> None:
    frame = variants("infonce [lr=1]", "infonce [lr=2]")
    assert recovery(frame, "uml", 0.4) is None
    found = findings(comparable.views(frame)[0], diagnoses.diagnoses_frame([]))
    assert found.method == "uml" and "above" not in found.headline
    assert any("no single baseline: infonce [lr=1] and infonce [lr=2]" in s for s in found.more)
    only = recovery(variants("infonce [lr=2]"), "uml", 0.4)
    assert only is not None and only.against == "infonce [lr=2]"


def test_infonce_with_another_loss_term_is_never_the_baseline() -> None:
    more = "infonce (cross_lingual_weight=0.5)"
    frame = variants(more)
    assert recovery(frame, "uml", 0.4) is None
    assert findings(comparable.views(frame)[0], diagnoses.diagnoses_frame([])).method == "uml"
    win = recovery(variants("infonce", more), more, 0.4)
    assert win is not None and (win.against, win.difference) == ("infonce", 10.0)


def test_oracles_never_compete_whatever_their_preset() -> None:
    oracles = (
        "infonce (oracle)",
        "uml (paper, oracle)",
        "uml (oracle) [beta=1]",
        "uml (oracle) x3",
        "uml + uml (oracle)",
    )
    assert all(map(comparable.is_oracle, oracles))
    assert not any(map(comparable.is_oracle, ("uml", "uml (paper) x3", "infonce [judge_side=oracle]")))
    rows = [result("uml (paper, oracle)", 0.4, 0, 90.0), result("uml", 0.4, 0, 50.0), result("infonce", 0.4, 0, 40.0)]
    view = comparable.views(comparable.results_frame(rows))[0]
    assert findings(view, diagnoses.diagnoses_frame([])).method == "uml"
    assert [row.ceiling for row in retrieval.by_noise(view).rows] == [False, False, True]


def test_titles_say_what_a_run_was_trained_for() -> None:
    rows = [result("uml", 0.0, 0, 10.0), result("uml", 0.0, 1, 9.0)]
    facts = {run: comparable.RunFacts(run, "uml", lang=lang) for (run, _), lang in zip(rows, ("es", "fr"), strict=True)}
    titles = {view.title for view in comparable.views(comparable.results_frame(rows, facts))}
    assert titles == {"d test, queries in es (trained for es)", "d test, queries in es (trained for fr)"}


def test_findings_speak_of_the_headline_noise_and_do_not_flatter() -> None:
    view = comparable.views(comparable.results_frame(three_seeds()))[0]
    found = findings(view, diagnoses.diagnoses_frame([]))
    assert found.method == "uml" and found.noise == 0.4
    assert "SumR 111.7 ± 10.4 (3 seeds), 16.7 ± 10.4 above infonce" in found.headline
    assert any("57%" in s for s in found.more)
    assert "Without noise it is 1.0 ± 0.0 below infonce." in found.more
    level = [result("infonce", 0.4, s, v) for s, v in ((0, 10.0), (1, 20.0))]
    level += [result("uml", 0.4, s, v) for s, v in ((0, 12.0), (1, 19.0))]
    said = findings(comparable.views(comparable.results_frame(level))[0], diagnoses.diagnoses_frame([])).headline
    assert "level with infonce (+0.5 ± 2.1)" in said


@pytest.mark.parametrize(("best", "share", "beyond"), [(132.0, "50%", False), (112.0, "133%", True)])
def test_more_than_the_gap_to_the_oracle_is_explained(best: float, share: str, beyond: bool) -> None:
    rows = [result("infonce", 0.4, 0, 100.0), result("uml", 0.4, 0, 116.0), result("infonce (oracle)", 0.4, 0, best)]
    found = findings(comparable.views(comparable.results_frame(rows))[0], diagnoses.diagnoses_frame([]))
    (sentence,) = [each for each in found.more if share in each]
    assert found.tiles[2].value == share
    assert ("100%" in sentence) == ("100%" in found.tiles[2].detail) == beyond


def test_findings_report_the_judge() -> None:
    rows = three_seeds()
    summary = {"run": "r", "label": "uml", "noise": 0.4, "seed": 0, "lang": "es", "judge": "two-group"}
    summary |= {"judge_side": "cross_lingual", "pairs": 10, "share_noisy": 0.41, "uncertainty": {}}
    found = {"recall": 0.934, "false_alarms": 0.021, "precision": 0.9, "f1": 0.917, "auroc": 0.981}
    summary |= {"detection": {**found, "average_precision": 0.97}, "calibration": {"ece": 0.03}}
    frame = diagnoses.diagnoses_frame([("uml-0.4-0-caption-translation", summary)] * 2)
    assert len(frame) == 1
    said = " ".join(findings(comparable.views(comparable.results_frame(rows))[0], frame).more)
    assert (
        "It finds 93% of the mismatched training pairs with 2.1% false alarms (AUROC 0.981, judge two-group)." in said
    )
    table = diagnoses.detection(frame)
    shown = ["40%", "uml", "two-group", "1", "93.4", "2.1", "90.0", "91.7", "0.981", "0.970", "0.030", "41.0"]
    assert [table.printed(0, c) for c in range(12)] == shown
    without = diagnoses.diagnoses_frame([("r", {**summary, "detection": None, "calibration": None, "noise": 0.0})])
    table = diagnoses.detection(without)
    assert [column.key for column in table.columns] == ["noise", "method", "judge", "n", "called_noisy"]
    assert [table.printed(0, c) for c in range(5)] == ["0%", "uml", "two-group", "1", "41.0"]


def test_tables_say_what_was_won_back() -> None:
    view = comparable.views(comparable.results_frame(three_seeds()))[0]
    table = retrieval.recoveries(view)
    assert table is not None
    assert [c.key for c in table.columns] == ["method", "gain_noise_0", "gain_noise_0.4", "recovery_noise_0.4", "seeds"]
    assert [table.printed(0, c) for c in (0, 1, 2)] == ["uml", f"{MINUS}1.0 ± 0.0", "+16.7 ± 10.4"]
    alone = comparable.views(comparable.results_frame([result("uml", 0.4, 0, 1.0)]))[0]
    assert retrieval.recoveries(alone) is None


def test_results_by_category_are_compared_by_map() -> None:
    rows = []
    for label, total, ap in (("infonce", 300.0, 20.0), ("fume", 200.0, 60.0), ("infonce (oracle)", 310.0, 70.0)):
        run, entry = result(label, 0.4, 0, total)
        entry["signature"] = entry["signature"].replace("protocol:full|pos:any", "protocol:labelled|pos:label")
        entry |= {"t2v": {**entry["t2v"], "mAP": ap + 5}, "v2t": {**entry["v2t"], "mAP": ap - 5}}
        entry["mAP_interval"] = [ap - 1, ap + 1]
        rows.append((run, entry))
    (view,) = comparable.views(comparable.results_frame(rows))
    assert (view.figure, view.named, view.scale) == ("mAP", "mAP@all", "of 100")
    assert view.frame[["mAP", "low", "high"]].to_numpy().tolist() == [[20, 19, 21], [60, 59, 61], [70, 69, 71]]
    found = findings(view, pd.DataFrame())
    said = "At 40% switched translations, fume reaches mAP@all 60.0 (one seed), 40.0 above infonce"
    assert found.headline.startswith(said) and "recovers 80%" in found.more[0]
    assert [tile.value for tile in found.tiles] == ["60.0", "+40.0", "80%"]
    won = retrieval.recoveries(view)
    assert won is not None and [won.printed(0, c) for c in (0, 1, 2)] == ["fume", "+40.0", "0.80"]
    assert retrieval.by_noise(view).name == "map" and retrieval.by_noise(view).printed(0, 1) == "20.0"
    assert [column.title for column in retrieval.retrieval(view).columns][3] == "mAP@all"
    other = comparable.views(comparable.results_frame([result("fume", 0.4, 0, 99.0)]))[0]
    assert other.figure == "SumR" and "reaches SumR 99.0" in findings(other, pd.DataFrame()).headline


def test_the_main_view_is_the_target_language_on_its_own_test_split() -> None:
    other = result("uml", 0.0, 0, 99.0, lang="en")
    other[1]["role"] = "source"
    frame = pd.concat([comparable.results_frame([other] * 1), comparable.results_frame([result("uml", 0.0, 0, 1.0)])])
    assert [v.lang for v in comparable.views(frame.reset_index(drop=True))] == ["es", "en"]
