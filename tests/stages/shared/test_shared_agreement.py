"""The judge that reads texts alone: round trips, a second engine, and nothing to compare with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, noise, run, translation
from ccr_cli.judges.base import FloatArray, load_judge
from ccr_cli.judges.two_group import clean_probability
from ccr_cli.stages.shared.judging import TripletReadings
from ccr_cli.stages.shared.triplets import Triplets, training_triplets

TRAIN = ("train", "--method", "infonce", "--set", "judge=translation", "--epochs", "2", "--noise", "0.4", *toy.SMALL)


def triplets(chain: Chain, translated: base.Artifact, second: base.Artifact | None = None) -> Triplets:
    return training_triplets(
        dataset.read(chain.find("dataset")),
        {"es": {"": translation.read(translated)}},
        noise.read(chain.find("noise")),
        chain.find("features"),
        frozenset(),
        None if second is None else translation.read(second),
    )


def agreement(found: Triplets) -> tuple[FloatArray, FloatArray]:
    return TripletReadings(found, 0, None, 0, lambda sim_BB: sim_BB).agreement()


def drawn(workspace: Chain) -> Chain:
    toy.ok(*TRAIN, workspace=workspace.root)
    return workspace


def test_round_trips_of_the_given_translation_meet_the_given_source(workspace: Chain) -> None:
    found = triplets(drawn(workspace), workspace.find("translation"))
    assert found.back is not None and found.wrong is not None
    score_N, null_M = agreement(found)
    wrong_N = found.wrong["vt_wrong"].to_numpy(bool)
    assert wrong_N.any() and (score_N[~wrong_N] == 100).all() and (score_N[wrong_N] < 100).all()
    same_N = np.array([b == s for b, s in zip(found.back, found.source, strict=True)])
    assert (same_N == ~wrong_N).all()
    items = found.item_N.numpy()[np.random.default_rng(0).permutation(len(found))]
    assert (items == np.roll(items, 1)).any(), "two captions of one item are beside each other"
    assert len(null_M) == (items != np.roll(items, 1)).sum() and null_M.mean() < score_N.mean()
    p_N = clean_probability(score_N, null_M)
    assert p_N[~wrong_N].min() > p_N[wrong_N].max()


def test_what_the_judge_says_weights_the_pairs_from_the_first_epoch(workspace: Chain) -> None:
    made = toy.ok(*TRAIN, "--set", "warmup_epochs=9", "--name", "judged", workspace=workspace.root).made
    history = run.history(made)
    assert (history["judge.auroc"] == 1.0).all()
    trusting = toy.ok(*TRAIN, "--set", "judge=none", "--name", "trusting", workspace=workspace.root).made
    first = [run.history(each).iloc[0]["loss.infonce_vt"] for each in (made, trusting)]
    assert first[0] != first[1]
    said = [pd.read_parquet(made.path / "evidence" / f"epoch-{e:03d}.parquet")["p_clean"] for e in (1, 2)]
    assert said[0].equals(said[1]), "what is logged is what weights the pairs, and it never changes"


@pytest.mark.slow
def test_a_second_engine_serves_where_there_is_no_way_back(workspace: Chain) -> None:
    one = toy.ok("translate", "--lang", "es", "--name", "one", workspace=workspace.root).made
    two = toy.ok("translate", "--lang", "es", "--with-queries", "--name", "two", workspace=workspace.root).made
    given = ("--translation-mix", "first", "--name", "two-engines", str(one.path), str(two.path))
    made = toy.ok(*TRAIN, *given, workspace=workspace.root).made
    assert not {"translation_mix", "alternatives"} & made.request.keys(), "as before there was a choice"
    assert [p.path for p in made.parents if p.kind == "translation"] == [
        str(a.path.relative_to(workspace.root)) for a in (one, two)
    ]
    assert (run.history(made)["judge.auroc"] == 1.0).all()
    diagnosed = toy.ok(
        "diagnose", str(made.path), "--judge", "translation", "--device", "cpu", workspace=workspace.root
    )
    summary = json.loads((Path(diagnosed.paths[-1]) / "summary.json").read_text())
    assert summary["detection"]["auroc"] == 1.0


def test_without_either_it_is_refused_with_what_to_type(workspace: Chain) -> None:
    one = toy.ok("translate", "--lang", "es", "--name", "one", workspace=workspace.root).made
    done = toy.ccr(*TRAIN, str(one.path), workspace=workspace.root)
    assert done.code == 4 and "ccr translate --lang es --back" in done.err


@pytest.mark.parametrize("kind", ["back", "second"])
def test_one_missing_text_leaves_the_way_out(kind: str, workspace: Chain) -> None:
    frame = translation.read(drawn(workspace).find("translation"))
    rows = frame["direction"] == ("back" if kind == "back" else "forward")
    short = frame.drop(index=frame.index[rows & (frame["split"] == "train")][0])
    data, pairs = dataset.read(workspace.find("dataset")), noise.read(workspace.find("noise"))
    given = (short, frame) if kind == "back" else (frame, short)
    feats = workspace.find("features")
    found = training_triplets(data, {"es": {"": given[0]}}, pairs, feats, frozenset(), given[1])
    assert (found.back is None) == (kind == "back") and all(found.references) == (kind == "back")
    assert found.dropped == 0, "what is not read need not be there"
    if kind == "second":  # which is read where there is no way back
        given = (frame[frame["direction"] == "forward"], short)
    less = training_triplets(data, {"es": {"": given[0]}}, pairs, feats, frozenset(), given[1], compared=True)
    assert less.dropped == 1 and len(less) == len(found) - 1
    assert (less.back is None) == (kind == "second") and less.wrong is not None
    score_N, null_M = agreement(less)
    p_N, wrong_N = clean_probability(score_N, null_M), less.wrong["vt_wrong"].to_numpy(bool)
    assert len(p_N) == len(less) and p_N[~wrong_N].min() > p_N[wrong_N].max()


@pytest.fixture(scope="module")
def one_lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which one training caption could not be translated back."""
    root, folder = tmp_path_factory.mktemp("lost"), toy.toy()
    chosen = {item[0] for item in folder.items if item[1] == "train"}
    english = next(caption[4] for caption in folder.captions if caption[1] in chosen and caption[2] == "en")
    del folder.tables["es-en"][folder.tables["en-es"][english]]
    toy.ok("data", "import", folder.write(root / "source"), workspace=root)
    translated = toy.ccr("translate", "--lang", "es", "--back", workspace=root)
    assert translated.code == 3 and translated.made.counts["failed"] == 1
    toy.ok("extract", *toy.ENCODER, workspace=root)
    return root


@pytest.mark.parametrize("options", [("--method", "nrccr"), ("--method", "infonce", "--set", "judge=translation")])
def test_a_caption_that_was_not_translated_back_is_left_out(options: tuple[str, ...], one_lost: Path) -> None:
    done = toy.ok("train", *options, "--epochs", "1", *toy.SMALL, workspace=one_lost)
    assert "1 triplet left out" in done.err and "no back-translation" in done.err
    assert (done.made.counts["triplets"], run.config(done.made)["dropped"]) == (47, 1)
    diagnosed = toy.ok("diagnose", done.made.path, "--judge", "translation", "--device", "cpu", workspace=one_lost)
    assert diagnosed.made.counts["pairs"] == 47 and "left out" not in diagnosed.err


def test_who_reads_no_way_back_loses_nothing_and_a_judge_that_does_says_so(one_lost: Path) -> None:
    made = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=one_lost).made
    assert made.counts["triplets"] == 48
    done = toy.ok("diagnose", made.path, "--judge", "translation", "--device", "cpu", workspace=one_lost)
    assert done.made.counts["pairs"] == 47 and "warning: 1 triplet " in done.err


def test_one_missing_way_back_takes_that_witness_from_its_caption_alone(one_lost: Path) -> None:
    chain = Chain(one_lost / "source", one_lost)
    translated = translation.read(chain.find("translation"))
    data, feats = dataset.read(chain.find("dataset")), chain.find("features")
    found = training_triplets(data, {"es": {"": translated}}, None, feats)
    lost_N = np.array([text is None for text in found.backs])
    assert lost_N.sum() == 1 and found.back is None
    readings = TripletReadings(found, 0, None, 0, lambda sim_BB: sim_BB)
    scores = readings.witness_scores()
    score_N, null_M = scores["way back"]
    assert (np.isnan(score_N) == lost_N).all() and (score_N[~lost_N] == 100).all()
    assert np.isnan(null_M).sum() <= 1 and np.nanmean(null_M) < 100
    assert "words of other translations" in scores and np.isfinite(scores["words of other translations"][0]).all()
    assert np.isfinite(load_judge("fusion").judge(readings, "").p.VT).all()


def test_a_correction_drops_its_own_way_back_alone(sources: Chain) -> None:
    found = triplets(sources, sources.find("translation"))
    rows_N = np.arange(len(found)) == 3
    corrected = found.correct(rows_N, np.full(len(found), "corregido", dtype=object))
    assert [text == "corregido" for text in corrected.target] == list(rows_N)
    assert corrected.back is None and found.back is not None
    assert corrected.backs == [None if gone else text for gone, text in zip(rows_N, found.back, strict=True)]
