"""One run on several translations of one language: which one an epoch takes, and what is said of each."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from safetensors.torch import load_file
from torch.nn.functional import normalize

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, noise, run, translation
from ccr_cli.artifacts.description import short
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.judges.base import Belief, load_judge
from ccr_cli.methods import infonce
from ccr_cli.metrics.detection import detection
from ccr_cli.report.tables.comparable import results_frame
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train import loop
from ccr_cli.stages.train import step as engine
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import find_sources, with_noise
from ccr_cli.stages.train.training_data import TrainingData

CPU = ("--device", "cpu")
TRAIN = ("train", "--method", "uml", "--noise", "0.4", "--epochs", "3", "--set", "lr=0.02", *toy.SMALL)
NAMES = ("translations/toy/es-one", "translations/toy/es-two")
LACKING = 4
"""Captions that the second engine did not translate."""


def second(text: str) -> str:
    """The second engine's translation, by the first one's."""
    return f"otra vez {text}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two translations into Spanish, and a run on both; read only."""
    place = tmp_path_factory.mktemp("alternatives")
    root, folder = place / "workspace", toy.bilingual()
    source = folder.write(place / "toy")
    train = {item[0] for item in folder.items if item[1] == "train"}
    lacking = [c[4] for c in folder.captions if c[1] in train and c[2] == "en"][:LACKING]
    known = {text: second(made) for text, made in folder.tables["en-es"].items() if text not in lacking}
    toy.write_table(source / "translations/other-en-es.tsv", ("source", "target"), known.items())
    toy.ok("data", "import", source, workspace=root)
    toy.ok("translate", "--lang", "es", "--back", "--set", "engine=hand", "--name", "es-one", workspace=root)
    made = toy.ccr("translate", "--lang", "es", "--set", "engine=other", "--name", "es-two", workspace=root)
    assert made.code == 3 and made.made.counts["failed"] == LACKING
    toy.ok("translate", "--lang", "fr", "--name", "fr", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok(*TRAIN, *NAMES, "--name", "both", workspace=root)
    toy.ok("diagnose", "runs/both", *CPU, workspace=root)
    return root


def material(root: Path, mix: str = "draw", *more: str, langs: str = "all", **settings: Any) -> TrainingData:
    """What a run on both is trained on, and on further translations."""
    inputs = Inputs.from_paths(Workspace(root), [*NAMES, *more])
    options = TrainingOptions(method="infonce", translation_mix=mix, langs=langs, noise=0.4)
    sources = with_noise(inputs, find_sources(inputs, None, "infonce"), options)
    config = infonce.Config(batch_size=16, buckets=512, dim=32, dropout=0.0, text_dropout=0.0, **settings)
    return TrainingData(sources, config, options)


def made_by_two(data: TrainingData) -> Any:
    """Which triplets have the second engine's translation."""
    return np.array(data.triplets.alternative_N) == "es-two"


def epoch_rows(data: TrainingData, epoch: int, p_N: Any = None) -> list[int]:
    """The triplets of an epoch."""
    p = torch.ones(len(data.triplets)) if p_N is None else torch.as_tensor(p_N)
    rows: list[int] = data.order(torch.Generator().manual_seed(epoch), epoch, Belief(p, p, p)).tolist()
    return rows


@pytest.mark.slow
def test_every_caption_has_a_triplet_of_each_translation_with_the_same_mismatch(root: Path) -> None:
    data = material(root)
    (_, one), (_, two) = data.triplets.by_translation()
    assert set(one.alternative_N) == {"es-one"} and set(two.alternative_N) == {"es-two"}  # type: ignore[arg-type]
    assert one.langs == two.langs == ("es",) and data.triplets.dropped == 0
    given = noise.read(next(iter(Workspace(root).artifacts("noise")))).set_index("slot_id")["given_translation_of"]
    english = dataset.read(next(iter(Workspace(root).artifacts("dataset")))).captions.set_index("caption_id")["text"]
    table = toy.toy().tables["en-es"]
    assert one.target == [table[english[given[slot]]] for slot in one.slot_ids] and len(one) == 48
    assert two.target == [second(table[english[given[slot]]]) for slot in two.slot_ids] and len(two) == 48 - LACKING
    assert one.wrong is not None and two.wrong is not None and one.wrong["vt_wrong"].sum() == 19
    wrong = one.wrong.set_index(pd.Index(one.slot_ids)).loc[two.slot_ids].reset_index(drop=True)
    pd.testing.assert_frame_equal(wrong, two.wrong)
    assert list(data.validation["es"].texts)[:2] == [
        table[english[i[:-3]]] for i in data.validation["es"].caption_ids[:2]
    ]


def test_an_epoch_has_each_caption_once_in_a_translation_drawn_anew(root: Path) -> None:
    data = material(root)
    slots, of_two = np.array(data.triplets.slot_ids), made_by_two(data)
    both = np.isin(slots, slots[of_two])
    drawn = np.zeros(len(slots))
    for epoch in range(1, 401):
        rows = epoch_rows(data, epoch)
        assert len(set(slots[rows])) == len(rows) == data.per_epoch == 48
        drawn[rows] += 1
    assert epoch_rows(data, 7) == epoch_rows(material(root), 7) != epoch_rows(data, 8)
    assert (drawn[~both] == 400).all(), "the only translation of a caption is always taken"
    assert drawn[both].min() > 200 - 5 * 10 and drawn[both].max() < 200 + 5 * 10, "standard deviation 10"
    assert np.corrcoef(drawn[of_two][:-1], drawn[of_two][1:])[0, 1] < 0.6, "each caption for itself"


def test_belief_weights_the_draw_or_decides_it(root: Path) -> None:
    data, trusted = material(root, "weighted", judge="lexical"), material(root, "trusted", judge="lexical")
    slots, of_two = np.array(data.triplets.slot_ids), made_by_two(data)
    p_N = np.where(of_two, 0.25, 0.75)
    share = np.mean([of_two[epoch_rows(data, epoch, p_N)].sum() for epoch in range(1, 201)]) / (48 - LACKING)
    assert share == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / 200 / (48 - LACKING)))
    p_N = np.random.default_rng(0).random(len(slots))
    best = {slot: max(np.flatnonzero(slots == slot), key=lambda row: p_N[row]) for slot in slots}
    assert sorted(epoch_rows(trusted, 1, p_N)) == sorted(best.values())
    apart_N2 = np.stack([p_N / 2, p_N * 3 / 2], axis=1)
    assert epoch_rows(trusted, 1, apart_N2) == epoch_rows(trusted, 1, p_N), "two models that are judged one by one"
    assert of_two[epoch_rows(trusted, 1)].sum() == 0, "equally believed: the first that was named"
    never = np.where(of_two, 0.0, 1.0)
    assert of_two[epoch_rows(data, 1, never)].sum() == 0
    assert len(epoch_rows(data, 1, np.zeros(len(slots)))) == 48


def test_languages_are_mixed_after_their_translations(root: Path) -> None:
    whole, drawn = (
        material(root, "draw", "translations/toy/fr"),
        material(root, "draw", "translations/toy/fr", langs="draw"),
    )
    assert whole.per_epoch == 96 and drawn.per_epoch == 48
    counts = pd.Series([len({(whole.triplets.slot_N[r], whole.triplets.lang_N[r]) for r in epoch_rows(whole, 1)}), 96])
    assert counts.nunique() == 1
    french = np.mean([(drawn.triplets.lang_N[epoch_rows(drawn, epoch)] == 1).mean() for epoch in range(1, 101)])
    assert french == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 4800)), "two translations make no language likelier"


def test_judges_fit_each_translation_and_compare_it_with_the_other(root: Path) -> None:
    triplets = material(root, judge="translation").triplets
    generator = torch.Generator().manual_seed(0)
    v_VD, s_ND, t_ND = (normalize(torch.randn(n, 8, generator=generator), dim=1) for n in (24, 88, 88))
    embedded = judging.TripletEmbeddings(v_VD, s_ND, t_ND, triplets.item_N)
    for name in ("two-group", "translation", "lexical"):
        opinion = judging.judge_triplets(load_judge(name), "cross_lingual", embedded, triplets, seed=3)
        for rows, part in triplets.by_translation():
            alone = judging.judge_triplets(load_judge(name), "cross_lingual", embedded.select(rows), part, seed=3)
            np.testing.assert_array_equal(opinion.p.VT[rows], alone.p.VT)
    (_, one), (_, two) = triplets.by_translation()
    assert one.back is None and len(one) == len(two) == 48 - LACKING, "what cannot be compared is left out"
    table = toy.toy().tables["en-es"]
    assert one.references == [(second(table[text]),) for text in one.source]
    assert two.references == [(table[text],) for text in two.source]
    assert list(judging.quality(opinion, triplets)["translations"]) == ["es-one", "es-two"]


def test_a_run_records_each_translation(root: Path) -> None:
    made = base.load(root / "runs/both")
    ids = [base.load(root / name).id for name in NAMES]
    assert made.request["alternatives"] == {"es": ids} and made.request["translation_mix"] == "draw"
    assert [p.id for p in made.parents if p.kind == "translation"] == ids
    assert run.config(made)["translations"] == {"es": ["es-one", "es-two"]}
    assert made.counts["triplets"] == 96 - LACKING and made.counts["steps"] == 3 * 3
    for _, frame in run.evidence(made):
        assert list(frame)[:2] == ["slot_id", "alternative"] and not frame.duplicated(["slot_id", "alternative"]).any()
        assert dict(frame["alternative"].value_counts()) == {"es-one": 48, "es-two": 48 - LACKING}
    history: Any = run.history(made).set_index("epoch")
    wrong = noise.read(next(iter(Workspace(root).artifacts("noise")))).set_index("slot_id")["vt_wrong"]
    for epoch, frame in run.evidence(made, "es", "es-two"):
        auroc = detection(frame["p_clean"], wrong.loc[frame["slot_id"]], 0.5)["auroc"]
        assert history.loc[epoch, "judge.translations.es-two.auroc"] == pytest.approx(auroc, abs=5e-3)
    assert "translation mix draw" in short(made)


def test_the_order_of_the_names_and_the_mix_make_other_runs(root: Path) -> None:
    def planned(*words: str) -> str:
        call = ("train", "--method", "infonce", "--set", "judge=lexical", *words, "--dry-run", "--json")
        return str(json.loads(toy.ok(*call, workspace=root).out)["made"][-1]["name"])

    runs = [planned(*NAMES, "--translation-mix", mix) for mix in ("draw", "weighted", "trusted", "first")]
    assert len({planned(NAMES[0]), *runs, planned(*NAMES[::-1])}) == 6 and planned(*NAMES) == runs[0]
    swept = toy.ok(
        *("train", "--method", "infonce", "--set", "judge=lexical", *NAMES, "--dry-run"),
        *("--sweep", "translation-mix=draw,weighted,trusted"),
        workspace=root,
    )
    assert [line.split("\t")[0] for line in swept.out.splitlines()[1:]] == ["draw", "weighted", "trusted"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--set", "judge=two-group", "--translation-mix", "weighted")])
def test_a_run_that_is_stopped_ends_in_the_same_bytes(
    options: tuple[str, ...], space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    step, done = engine.Engine.step, []

    def stops(self: engine.Engine, *given: Any, **named: Any) -> Any:
        done.append(1)
        if len(done) == 8:
            raise KeyboardInterrupt
        return step(self, *given, **named)

    call = (*TRAIN, *NAMES, *options)
    whole = toy.ok(*call, "--name", "whole", workspace=space).made if options else base.load(space / "runs/both")
    with monkeypatch.context() as patch:
        patch.setattr(engine.Engine, "step", stops)
        assert toy.ccr(*call, "--name", "stopped", workspace=space).code == 130
    finished = toy.ok(*call, "--name", "stopped", workspace=space)
    assert "going on after step 1 of 3 of epoch 3 of 3" in finished.err
    assert finished.made.files == whole.files


@pytest.mark.slow
@pytest.mark.soak
def test_two_processes_train_the_run_of_one(space: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ccr_cli"]
    options = (*NAMES, "--set", "dropout=0", "--set", "text_dropout=0", "--translation-mix", "weighted")
    call = (*TRAIN, "--set", "judge=two-group", *options)
    alone = toy.ok(*call, "--name", "alone", workspace=space).made
    names = [str(space / word) if word in NAMES else word for word in call]
    environment = toy.environment(space)
    done = subprocess.run([*command, *names, "--name", "shared"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shared = base.load(Path(done.stdout.splitlines()[-1]))
    assert shared.id == alone.id or shared.counts == alone.counts
    one, two = (load_file(a.file("model.safetensors")) for a in (alone, shared))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)


def test_a_diagnosis_has_each_translation_of_a_pair(root: Path, tmp_path: Path) -> None:
    (made,) = Workspace(root).artifacts("diagnosis")
    pairs, summary = diagnosis.read_pairs(made), diagnosis.summary(made)
    assert not pairs.duplicated(["slot_id", "alternative"]).any() and len(pairs) == 96 - LACKING
    assert list(pairs)[3:5] == ["lang", "alternative"] and "alternative" in summary["most_suspicious"][0]
    for name, rows in pairs.groupby("alternative"):
        own, noisy = summary["translations"][name], rows["truth"] == "noisy"
        assert own["detection"] == pytest.approx(detection(rows["p_clean"], noisy, 0.5))
        first = next(iter(run.evidence(base.load(root / "runs/both"), "es", str(name))))[1].set_index("slot_id")
        np.testing.assert_array_equal(rows["p_first"], first.loc[rows["slot_id"], "p_clean"])
        assert rows["translation"].str.startswith("otra vez").all() == (name == "es-two")
        assert rows["back"].notna().all() == (name == "es-one")


@pytest.mark.slow
def test_a_list_of_pairs_tells_the_translations_apart(space: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    done = toy.ok("diagnose", "runs/both", "--export", path, *CPU, workspace=space)
    assert [f"ccr translate {name} --only" in done.err for name in NAMES] == [True, True]
    rows = list(csv.DictReader(path.read_text("utf-8-sig").splitlines()))
    for row in rows:
        row |= {"verdict": "noisy" if row["alternative"] == "es-two" else "clean", "p_st": "0.5"}
    chosen = next(row for row in rows if row["alternative"] == "es-two" and row["slot_id"] == row["source_caption_id"])
    chosen["correction"] = "una corrección"
    with path.open("w", encoding="utf-8", newline="") as handle:
        lines = csv.DictWriter(handle, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)
    listed = (*TRAIN, *NAMES, "--verdicts", path, "--epochs", "1")
    dropped = toy.ok(*listed, workspace=space).made
    frame = next(iter(run.evidence(dropped)))[1]
    assert dict(frame["alternative"].value_counts()) == {"es-one": 48, "es-two": 1}
    trusted = toy.ok(
        *listed, "--translation-mix", "trusted", "--weigh-verdicts", "--set", "judge=none", workspace=space
    )
    assert trusted.made.counts["triplets"] == 96 - LACKING
    mended = toy.ccr("translate", NAMES[1], "--only", path, workspace=space).made
    table = translation.read(mended).set_index("source_caption_id")["text"]
    assert table[chosen["source_caption_id"]] == "una corrección"
    renewed = toy.ok(*TRAIN, NAMES[0], mended.path, "--epochs", "1", workspace=space).made
    assert run.config(renewed)["translations"] == {"es": ["es-one", mended.name]}


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_evaluations_and_reports_name_all_engines(space: Path) -> None:
    toy.ok(*TRAIN, NAMES[0], "--name", "one", workspace=space)
    for name in ("both", "one"):
        toy.ok("evaluate", f"runs/{name}", *CPU, workspace=space)
    queries = toy.ok("evaluate", "runs/both", "--queries", "mt", *CPU, workspace=space).made
    ranks = evaluation.read_ranks(queries)
    assert ((ranks["result"] == 0) & (ranks["direction"] == "t2v")).sum() == 24, "those of the first translation"
    signed = {r["lang"]: r["signature"].mt for r in evaluation.results(base.load(space / "evaluations/both-test"))}
    assert signed["es"] == "recorded:hand&recorded:other"
    told = gather(Inputs.from_paths(Workspace(space), [str(space / f"evaluations/{n}-test") for n in ("both", "one")]))
    assert set(results_frame(told.results, told.facts)["label"]) == {"uml", "uml [translations=2, drawn]"}
    toy.ok("report", workspace=space)
    assert toy.ok("search", "círculo", "--lang", "es", "runs/both", *CPU, workspace=space).out
    card = (toy.ok("export", "runs/both", workspace=space).made.path / "README.md").read_text("utf-8")
    assert "hand" in card and "other" in card


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((NAMES[0], "--translation-mix", "trusted"), 2, "--translation-mix trusted"),
        ((*NAMES, "translations/toy/fr", "--translation-mix", "first"), 2, "--translation-mix first"),
        ((*NAMES, "--translation-mix", "some"), 2, "'some'"),
        ((*NAMES, "--translation-mix", "weighted", "--set", "judge=none"), 2, "--set judge=lexical"),
        ((*NAMES, "--method", "nrccr"), 4, "into es lack them"),
        ((*NAMES, "--lang", "fr"), 4, "is not a translation"),
    ],
)
def test_what_does_not_go_together(options: tuple[str, ...], code: int, message: str, root: Path) -> None:
    done = toy.ccr(*TRAIN, *options, workspace=root)
    assert (done.code, done.out) == (code, "") and message in done.err, done.err


@pytest.mark.slow
def test_translations_of_other_data_are_refused(space: Path, tmp_path: Path) -> None:
    data = toy.ok("data", "import", toy.bilingual("other").write(tmp_path / "other"), workspace=space).made
    other = toy.ok("translate", data.path, "--lang", "es", workspace=space).made
    done = toy.ccr(*TRAIN, NAMES[0], other.path, workspace=space)
    assert (done.code, done.out) == (4, "") and "was not made from" in done.err
    shutil.copytree(space, tmp_path / "elsewhere")
    hand = ("translate", "datasets/toy", "--lang", "es", "--set", "engine=hand", "--name", "es-two", "--force")
    namesake = toy.ok(*hand, workspace=tmp_path / "elsewhere").made
    again = toy.ccr(*TRAIN, NAMES[1], namesake.path, workspace=space)
    assert (again.code, again.out) == (2, "") and "es-two" in again.err
