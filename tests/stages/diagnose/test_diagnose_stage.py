"""Diagnosis: every pair, against the truth where it is known, with figures counted by scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from toy import Chain

from ccr_cli import registry
from ccr_cli.artifacts import base, diagnosis, noise, run
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import read_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import pairs_file as listing
from ccr_cli.metrics.detection import detection
from ccr_cli.report.tables.diagnoses import diagnoses_frame
from ccr_cli.report.words.artifact_summaries import Line, summary
from ccr_cli.stages.diagnose import verdicts as suspicion
from ccr_cli.stages.diagnose.suspects import SHOWN, terminal_columns, with_words
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")


def diagnose(chain: Chain, word: str, *options: str) -> base.Artifact:
    return toy.ok("diagnose", chain.find("run", word).path, *options, *CPU, workspace=chain.root).made


def test_every_training_triplet_has_its_opinion(chain: Chain) -> None:
    made = chain.find("diagnosis", "uml")
    pairs: Any = diagnosis.read_pairs(made)
    drawn = noise.read(chain.find("noise"))
    assert list(pairs["slot_id"]) == list(drawn["slot_id"]) and made.counts["pairs"] == len(drawn) == 48
    assert pairs["p_clean"].between(0, 1).all() and pairs["uncertainty"].between(0, 1).all()
    assert pairs["belief"].between(0, 1).all() and (pairs[["evidence_v2t", "evidence_t2v"]] > 0).all(axis=None)
    assert pairs[["sim_vs", "sim_vt", "sim_st"]].abs().max(axis=None) <= 1 + 1e-6
    assert ((pairs["p_clean"] < 0.5) == (pairs["verdict"] == "noisy")).all()
    assert made.counts["called_noisy"] == (pairs["verdict"] == "noisy").sum()


def test_truth_is_that_of_the_noise(chain: Chain) -> None:
    pairs = diagnosis.read_pairs(chain.find("diagnosis", "uml"))
    drawn = noise.read(chain.find("noise")).set_index("slot_id")
    assert ((pairs["truth"] == "noisy").to_numpy() == drawn.loc[pairs["slot_id"], "vt_wrong"].to_numpy()).all()
    clean = chain.find("diagnosis", "infonce")
    assert diagnosis.read_pairs(clean)["truth"].isna().all() and diagnosis.summary(clean)["detection"] is None


def test_texts_are_those_given_and_not_the_true_ones(chain: Chain) -> None:
    pairs = diagnosis.read_pairs(chain.find("diagnosis", "uml"))
    spanish = chain.folder / "translations" / "hand-en-es.tsv"
    table = dict(line.split("\t") for line in spanish.read_text(encoding="utf-8").splitlines()[1:])
    same = np.array([table[s] == t for s, t in zip(pairs["source_text"], pairs["translation"], strict=True)])
    assert (same == (pairs["truth"] == "clean").to_numpy()).all()


@pytest.mark.parametrize(
    "judge",
    toy.some_fast(
        sorted({*registry.names("judges")} - {"margin", "scores"}), "two-group", "triangle", "argmax", "fusion"
    ),
)
def test_detection_agrees_with_scikit_learn(judge: str, finished: Chain) -> None:
    made = diagnose(finished, "uml", "--judge", judge)
    pairs = diagnosis.read_pairs(made)
    found = diagnosis.summary(made)["detection"]
    noisy, doubt = pairs["truth"] == "noisy", -pairs["p_clean"].astype(float)
    called = pairs["verdict"] == "noisy"
    assert found["auroc"] == pytest.approx(roc_auc_score(noisy, doubt))
    assert found["average_precision"] == pytest.approx(average_precision_score(noisy, doubt))
    assert found["recall"] == pytest.approx(recall_score(noisy, called))
    if called.any():
        assert found["precision"] == pytest.approx(precision_score(noisy, called))
    assert found["false_alarms"] == pytest.approx((called & ~noisy).sum() / (~noisy).sum())
    assert (found["pairs"], found["noisy"], found["called"]) == (48, noisy.sum(), called.sum())
    assert found["f1"] == pytest.approx(f1_score(noisy, called, zero_division=0.0))
    assert diagnosis.summary(made)["calibration"]["brier"] == pytest.approx(brier_score_loss(~noisy, -doubt))
    if judge == "oracle":
        assert found["auroc"] == 1.0 and (called == noisy).all()
    if judge == "none":
        assert not called.any() and found["auroc"] == 0.5


@pytest.mark.parametrize("side", ["cross_lingual", "cross_modal", "both"])
def test_every_side(side: str, finished: Chain) -> None:
    made = diagnose(finished, "uml", "--judge", "gmm", "--judge-side", side)
    assert diagnosis.summary(made)["judge_side"] == side
    assert made.request == {"judge": "gmm", "judge_side": side}
    assert f"gmm ({side})" in toy.ok("show", made.path, workspace=finished.root).err
    triangle = diagnose(finished, "uml", "--judge", "triangle")
    assert diagnosis.summary(triangle)["judge_side"] == ""
    assert "triangle" in toy.ok("show", triangle.path, workspace=finished.root).err


def test_the_most_suspicious_come_first(chain: Chain) -> None:
    made = chain.find("diagnosis", "uml")
    pairs, worst = diagnosis.read_pairs(made), diagnosis.summary(made)["most_suspicious"]
    noisy = pairs[pairs["verdict"] == "noisy"].sort_values("p_clean", kind="stable")
    well_known, rare = noisy[noisy["support"] >= 3], noisy[noisy["support"] < 3]
    expected = [*well_known["p_clean"], *rare["p_clean"], *sorted(pairs[pairs["verdict"] == "clean"]["p_clean"])][:20]
    assert len(well_known) and [pair["p_clean"] for pair in worst] == pytest.approx(expected)
    assert diagnosis.summary(made)["called_noisy_rare"] == len(rare)


def test_the_run_s_own_evidence_is_of_the_same_pairs(chain: Chain) -> None:
    """What the run wrote after its best epoch."""
    made = chain.find("run", "uml")
    pairs = diagnosis.read_pairs(chain.find("diagnosis", "uml"))
    evidence: Any = read_table(made.file(f"evidence/epoch-{made.counts['best_epoch']:03d}.parquet"), run.EVIDENCE)
    assert list(evidence["slot_id"]) == list(pairs["slot_id"])
    for side in ("sim_vs", "sim_vt", "sim_st"):
        np.testing.assert_allclose(evidence[side], pairs[side], atol=1e-5)
    history = run.history(made).set_index("epoch")
    for epoch in history.index:
        said: Any = read_table(made.file(f"evidence/epoch-{epoch:03d}.parquet"), run.EVIDENCE)
        auroc = roc_auc_score(pairs["truth"] == "noisy", 1.0 - said["p_clean"].astype(float))
        assert history.loc[epoch, "judge.auroc"] == pytest.approx(auroc, abs=5e-3), "float32 ties what is nearly 1"
    noisy = pairs["truth"] == "noisy"
    own, found = (detection(p, noisy, 0.5) for p in (evidence["p_clean"], pairs["p_clean"]))
    assert diagnosis.summary(chain.find("diagnosis", "uml"))["judge"] == run.config(made)["options"]["judge"]
    for figure in ("auroc", "recall", "false_alarms"):
        assert own[figure] == pytest.approx(found[figure], abs=0.1), "only the shuffles differ"


@pytest.mark.parametrize("form", ["scaled", "paper"])
def test_evidence_and_belief_among_other_items(form: str, finished: Chain) -> None:
    """Counted with numpy over all candidates: fewer than 128, and none of the same given item."""
    small = ("--epochs", "2", "--set", f"evidence={form}", "--name", form, *toy.SMALL)
    drawn = finished.find("noise").path
    made = toy.ok("train", "--method", "uml", drawn, *small, workspace=finished.root).made
    pairs: Any = diagnosis.read_pairs(toy.ok("diagnose", made.path, *CPU, workspace=finished.root).made)
    visual, ids = read_visuals(finished.find("features"), sorted(set(pairs["item_id"])), frozenset())
    method, tokenizer = load_method(made, torch.device("cpu"))
    with torch.no_grad():
        t_ND = method.embed_text(tokenizer.encode(list(pairs["translation"])).select(torch.arange(len(pairs))))
        v_VD = method.embed_visual(visual)
    sim_NV = (t_ND @ v_VD.T).double().numpy()
    e_NV = np.exp(np.tanh(sim_NV) / 0.1) if form == "scaled" else np.exp(np.tanh(sim_NV / 0.1))
    item = np.array([ids.index(i) for i in pairs["item_id"]])
    own = e_NV[np.arange(len(pairs)), item]
    np.testing.assert_allclose(pairs["evidence_v2t"], own, rtol=1e-3)
    np.testing.assert_allclose(pairs["evidence_t2v"], own, rtol=1e-3)
    belief, uncertainty = [], []
    for n in range(len(pairs)):
        rivals = item != item[n]
        for rest in (np.delete(e_NV[n], item[n]), e_NV[rivals, item[n]]):
            strength = own[n] + rest.sum() + len(rest) + 1
            belief.append(own[n] / strength)
            uncertainty.append((len(rest) + 1) / strength)
    np.testing.assert_allclose(pairs["belief"], np.reshape(belief, (-1, 2)).mean(axis=1), rtol=1e-3)
    np.testing.assert_allclose(pairs["uncertainty"], np.reshape(uncertainty, (-1, 2)).mean(axis=1), rtol=1e-3)


def test_words_too_rare_to_be_known_come_behind_all_others_that_are_called() -> None:
    frame = pd.DataFrame(
        {
            "p_clean": [0.1, 0.4, 0.3, 0.9, 0.7, 0.3],
            "sim_st": [0.0, 0.0, 0.2, 0.0, 0.0, 0.1],
            "support": [0, 9, 9, 0, 9, 9],
        }
    )
    assert suspicion.places(frame).tolist() == [4, 3, 2, 6, 5, 1]


def test_one_threshold_is_stated_only_where_it_divides_all() -> None:
    known: dict[str, Any] = {"p_clean": [0.1, 0.9, 0.2, 0.8], "verdict": ["noisy", "clean"] * 2}
    apart = pd.DataFrame({**known, "sim_st": [0.1, 0.3, 0.2, 0.4]})
    assert suspicion.split_facts(apart, "two-group", "cross_lingual", None)["sim_st"] == pytest.approx(0.25)
    mixed = pd.DataFrame({**known, "sim_st": [0.1, 0.3, 0.5, 0.7]})  # of two languages, one after the other
    assert suspicion.split_facts(mixed, "two-group", "cross_lingual", None)["sim_st"] is None
    for verdict in ("noisy", "clean"):
        alone = apart.assign(verdict=verdict)
        assert suspicion.split_facts(alone, "two-group", "cross_lingual", None)["sim_st"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--judge", "nobody"), "known judges: argmax"),
        (("--judge-side", "left"), "cross_lingual, cross_modal or both"),
        (("--judge-side", "both"), "the judge triangle"),
        (("--judge", "translation", "--judge-side", "cross_modal"), "the judge translation"),
        (("--device", "abacus", "--judge", "gmm"), "--device is auto, cpu or cuda"),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, chain: Chain) -> None:
    done = chain.ccr("diagnose", chain.find("run", "uml").path, *options)
    assert (done.code, done.out) == (2, "") and message in done.err


def test_the_trajectory_is_what_the_run_wrote_epoch_by_epoch(chain: Chain) -> None:
    """Followed pair by pair, with Python alone."""
    trained = chain.find("run", "uml")
    pairs: Any = diagnosis.read_pairs(chain.find("diagnosis", "uml")).set_index("slot_id")
    said: dict[str, list[tuple[float, float]]] = {}
    for epoch in range(1, 7):
        table: Any = read_table(trained.file(f"evidence/epoch-{epoch:03d}.parquet"), run.EVIDENCE)
        for slot, p, sim in zip(table["slot_id"], table["p_clean"], table["sim_vt"], strict=True):
            said.setdefault(slot, []).append((float(p), float(sim)))
    assert set(said) == set(pairs.index)
    for slot, each in said.items():
        row, verdicts = pairs.loc[slot], ["noisy" if p < 0.5 else "clean" for p, _ in each]
        assert (row["p_first"], row["p_last"]) == (each[0][0], each[-1][0])
        assert (row["sim_first"], row["sim_last"]) == (each[0][1], each[-1][1])
        assert row["p_mean"] == pytest.approx(sum(p for p, _ in each) / 6, abs=1e-6)
        assert row["sim_mean"] == pytest.approx(sum(sim for _, sim in each) / 6, abs=1e-6)
        assert row["epochs_noisy"] == verdicts.count("noisy")
        assert row["forgotten"] == "".join(v[0] for v in verdicts).count("cn")
    assert 0 < pairs["epochs_noisy"].max() <= 6 and (pairs["epochs_noisy"] == 0).any()
    without = diagnosis.read_pairs(chain.find("diagnosis", "infonce"))
    assert without[diagnosis.TRAJECTORY].isna().all(axis=None), "judge none writes nothing"


def test_places_follow_suspicion(finished: Chain) -> None:
    pairs = diagnosis.read_pairs(diagnose(finished, "uml", "--judge", "two-group"))
    assert sorted(pairs["place"]) == list(range(1, 49))
    keys = [
        (p >= 0.5, p < 0.5 and support < diagnosis.RARE, p, sim)
        for p, support, sim in pairs.sort_values("place")[["p_clean", "support", "sim_st"]].itertuples(index=False)
    ]
    assert keys == sorted(keys)


def test_the_threshold_is_stated(finished: Chain) -> None:
    """What it says of similarities splits the pairs again; what it expects is the mean of the mixture's own word."""
    made = diagnose(finished, "uml", "--judge", "two-group", "--judge-side", "cross_lingual")
    pairs, split = diagnosis.read_pairs(made), diagnosis.summary(made)["split"]
    noisy = pairs["verdict"] == "noisy"
    assert (split["by"], split["p_clean"]) == ("mixture", 0.5) and 0 < noisy.sum() < 48
    assert ((pairs["sim_st"] < split["sim_st"]) == noisy).all()
    doubt = [1 - float(p) for p in pairs["p_clean"]]
    assert split["wrong"] == pytest.approx(sum(doubt) / 48)
    called = [d for d, n in zip(doubt, noisy, strict=True) if n]
    assert split["expected"]["precision"] == pytest.approx(sum(called) / len(called))
    assert split["expected"]["recall"] == pytest.approx(sum(called) / sum(doubt))
    votes = diagnosis.summary(diagnose(finished, "uml", "--judge", "argmax"))["split"]
    assert votes == {"by": "votes", "p_clean": 0.5}


def test_a_share_is_the_first_by_place(finished: Chain) -> None:
    made = diagnose(finished, "uml", "--share", "0.25")
    pairs, summary = diagnosis.read_pairs(made), diagnosis.summary(made)
    assert set(pairs.loc[pairs["verdict"] == "noisy", "place"]) == set(range(1, 13))
    truth = pairs["truth"] == "noisy"
    assert summary["detection"]["precision"] == pytest.approx(truth[pairs["place"] <= 12].mean())
    assert summary["detection"]["threshold"] is None and summary["split"]["by"] == "share"
    assert summary["split"]["share"] == 0.25
    frame = diagnoses_frame([("run", summary), ("run", {**summary, "split": {"by": "mixture"}})])
    assert list(frame["judge"]) == ["triangle, first 25%", "triangle"], "two rows of one run"
    assert frame["ece"].notna().all() and frame["f1"].notna().all()
    for share in ("0", "1", "1.5"):
        done = finished.ccr("diagnose", finished.find("run", "uml").path, "--share", share, *CPU)
        assert done.code == 2 and "--share 0.05" in done.err


def test_several_runs_are_diagnosed_in_turn(chain: Chain) -> None:
    trained = [chain.find("run", word) for word in ("uml", "infonce")]
    runs = [each.path for each in trained]
    done = toy.ok("diagnose", *runs, *CPU, workspace=chain.root)
    assert [base.load(path).parent("run").id for path in done.paths[-2:]] == [each.id for each in trained]
    named = chain.ccr("diagnose", *runs, "--name", "both", *CPU)
    assert named.code == 2 and "--name both" in named.err
    plans = toy.ok("diagnose", *runs, "--share", "0.1", "--dry-run", "--json", *CPU, workspace=chain.root)
    assert plans.out.count('"to do"') == 2


def test_the_way_back_stands_beside_the_translation_that_was_given(chain: Chain) -> None:
    pairs = diagnosis.read_pairs(chain.find("diagnosis", "uml"))
    table = (chain.folder / "translations" / "hand-es-en.tsv").read_text(encoding="utf-8")
    back = dict(line.split("\t") for line in table.splitlines()[1:])
    assert [back[text] for text in pairs["translation"]] == list(pairs["back"])
    drawn = noise.read(chain.find("noise")).set_index("slot_id")
    assert list(drawn.loc[pairs["slot_id"], "given_source_id"]) == list(pairs["source_caption_id"])
    assert set(pairs["lang"]) == {"es"}


def test_the_worst_are_printed_with_picture_and_texts(chain: Chain) -> None:
    made, trained = chain.find("diagnosis", "uml"), chain.find("run", "uml").path
    pairs = diagnosis.read_pairs(made).sort_values("place").head(7)
    done = toy.ok("diagnose", trained, "--worst", "7", *CPU, workspace=chain.root)
    header, *lines = [line.split("\t") for line in done.out.splitlines()]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    for name in ("slot_id", "source_text", "translation", "back", "verdict"):
        assert [row[name] for row in rows] == list(pairs[name])
    assert [row["place"] for row in rows] == [str(n) for n in range(1, 8)]
    assert [row["rare"] == "yes" for row in rows] == list(pairs["support"] < diagnosis.RARE)
    assert all(Path(row["image"]).name == f"{item}.png" for row, item in zip(rows, pairs["item_id"], strict=True))
    assert all(Path(row["image"]).is_file() for row in rows)
    shown = terminal_columns([{name: row[name] for name in SHOWN} | {"back": None} for row in rows])
    assert {"slot_id", "image", "back"} & {*shown} == set() and {"source_text", "translation"} < {*shown}
    told = json.loads(toy.ok("diagnose", trained, "--worst", "7", "--json", *CPU, workspace=chain.root).out)
    assert told["diagnosis"] == str(made.path) and [row["slot_id"] for row in told["worst"]] == list(pairs["slot_id"])


def test_the_sheet_shows_the_worst_and_runs_nothing(finished: Chain, tmp_path: Path) -> None:
    trained, sheet = finished.find("run", "uml").path, tmp_path / "worst.html"
    done = toy.ok("diagnose", trained, "--sheet", sheet, "--worst", "5", *CPU, workspace=finished.root)
    page, pairs = sheet.read_text(encoding="utf-8"), diagnosis.read_pairs(finished.find("diagnosis", "uml"))
    assert f"the sheet: {sheet}" in done.err.replace("\n", "")
    assert page.count('src="data:image/png') == 5 and "default-src 'none'" in page and "<script" not in page
    for place, (_, pair) in enumerate(pairs.sort_values("place").head(5).iterrows(), 1):
        assert pair["translation"] in page and pair["back"] in page
        assert f"{place} · <code>{pair['slot_id']}</code>" in page
    assert "<th>source (en)</th>" in page and 'class="boundary"' not in page
    toy.ok("diagnose", trained, "--sheet", sheet, "--worst", "5", "--share", "0.07", *CPU, workspace=finished.root)
    above, _, below = sheet.read_text(encoding="utf-8").partition('class="boundary"')
    assert (above.count('tag noisy">noisy'), below.count('tag clean">clean')) == (3, 2), "0.07 of 48 pairs"
    refused = finished.ccr("diagnose", trained, "--sheet", tmp_path / "worst.pdf", *CPU)
    assert refused.code == 2 and "the sheet is an .html file" in refused.err


@pytest.mark.parametrize(
    ("facts", "by", "warned"),
    [
        ({"share_noisy": 0.4}, "mixture", True),
        ({"share_noisy": 0.3}, "mixture", False),
        ({"share_noisy": 0.4, "noise": 0.4}, "mixture", False),
        ({"share_noisy": 0.4}, "share", False),
    ],
)
def test_a_diagnosis_that_doubts_too_much_warns(
    facts: dict[str, float], by: str, warned: bool, chain: Chain, tmp_path: Path
) -> None:
    told = diagnosis.summary(chain.find("diagnosis", "infonce"))
    told |= facts | {"split": told["split"] | {"by": by}}

    def write(site: Build) -> dict[str, int]:
        base.write_json(site.folder / "summary.json", told)
        return {}

    made = build_artifact(Workspace(tmp_path), "diagnosis", "d", {}, [], write=write)
    warnings = [line.text for line in summary(made) if isinstance(line, Line) and line.warning]
    assert len(warnings) == warned and all("40%" in text for text in warnings)


def test_the_export_has_every_pair(chain: Chain, tmp_path: Path) -> None:
    trained, made = chain.find("run", "uml").path, chain.find("diagnosis", "uml")
    pairs = diagnosis.read_pairs(made).sort_values("place")
    for name in ("pairs.parquet", "pairs.csv"):
        done = toy.ok("diagnose", trained, "--export", tmp_path / name, *CPU, workspace=chain.root)
        assert done.paths[-1] == made.path
        translated = chain.find("translation")
        assert f"ccr translate translations/toy/{translated.name} --only {tmp_path / name}" in done.err
        found = listing.read(tmp_path / name).frame
        for column in ("slot_id", "source_caption_id", "verdict", "translation"):
            assert list(found[column]) == list(pairs[column])
        np.testing.assert_array_equal(found["p_clean"].astype(np.float32), pairs["p_clean"])
    several = chain.ccr("diagnose", trained, chain.find("run", "infonce").path, "--export", tmp_path / "x.csv", *CPU)
    assert several.code == 2 and "not 2" in several.err
    other = chain.ccr("diagnose", trained, "--export", tmp_path / "x.tsv", *CPU)
    assert other.code == 2 and "'x.tsv'" in other.err and ".parquet" in other.err


def test_an_exported_workbook_shows_its_sentences(chain: Chain, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "pairs.xlsx"
    toy.ok("diagnose", chain.find("run", "uml").path, "--export", path, *CPU, workspace=chain.root)
    sheet = openpyxl.load_workbook(path).active
    column = {cell.value: cell.column_letter for cell in sheet[1]}
    width = {name: sheet.column_dimensions[letter].width for name, letter in column.items()}
    sentences = {"source_text", "translation", "correction"}
    assert {width[name] for name in sentences} == {max(width.values())} and width["place"] < 15
    wrapped = {name for name, letter in column.items() if sheet[f"{letter}2"].alignment.wrap_text}
    assert wrapped == sentences and sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    assert len(listing.read(path).frame) == sheet.max_row - 1


def test_words_without_a_counterpart_are_named_in_the_texts(tmp_path: Path) -> None:
    """Every language has its own lexicon; of all pairs the first by place are looked at."""
    nouns = [("dog", "perro", "chien"), ("cat", "gato", "chat"), ("ball", "bola", "balle"), ("car", "coche", "auto")]
    nouns += [("boat", "barco", "bateau"), ("tree", "roble", "arbre"), ("house", "casa", "maison")]
    rows = [
        (f"{a[0]} {b[0]}", f"{a[lang]} {b[lang]}", ("", "es", "fr")[lang])
        for lang in (1, 2)
        for a in nouns
        for b in nouns
    ]
    rows *= 8
    rows += [("dog cat", "perro barco", "es"), ("dog cat", "chien bateau", "fr")]
    pairs = pd.DataFrame(rows, columns=["source_text", "translation", "lang"])
    pairs = pairs.assign(place=range(len(pairs), 0, -1), source_caption_id="", back=None)
    found = with_words(pairs, "en", 3)
    assert list(found["place"]) == [3, 2, 1]
    assert list(found["unmatched_source"][1:]) == ["cat", "cat"]
    assert list(found["unmatched_translation"]) == ["", "barco", "bateau"]
    assert list(found["spans_translation"]) == [[], [(6, 11)], [(6, 12)]]
    assert len(with_words(pairs, "en")) == len(pairs)


def test_words_left_untranslated_are_named_in_the_texts() -> None:
    rows = [
        ("a white dog", "白色的狗"),
        ("a black cat", "黑色的猫"),
        ("a white cat", "白色的猫"),
        ("a black dog", "黑色的狗"),
    ] * 8
    pairs = pd.DataFrame([("a white sleve", "白色sleve"), *rows], columns=["source_text", "translation"])
    pairs = pairs.assign(lang="zh", place=range(1, len(pairs) + 1), source_caption_id="", back=None)
    first = with_words(pairs, "en", 1).iloc[0]
    assert first["flags"] == "untranslated (sleve)" and first["spans_translation"] == [(2, 7)]
    assert first["spans_source"] == [(8, 13)] and first["unmatched_translation"] == "sleve"
