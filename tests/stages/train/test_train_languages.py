"""One run on several languages: what it is trained on, who judges it, and what is said of each language."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, noise, run, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.metrics.detection import detection
from ccr_cli.report.page import compose
from ccr_cli.report.tables.comparable import results_frame
from ccr_cli.report.tables.table import Table, to_csv
from ccr_cli.stages.report.examples import best_runs
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.scoring import EmbeddedGallery, score_gallery
from ccr_cli.stages.shared.triplets import gallery
from ccr_cli.stages.train import loop
from ccr_cli.stages.train import step as engine

CPU = ("--device", "cpu")
TRAIN = ("train", "--method", "uml", "--noise", "0.4", "--epochs", "3", "--set", "lr=0.02", *toy.SMALL)
BOTH = ("--lang", "es", "--lang", "fr")
KEYS = ["slot_id", "lang"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run on two languages, one that draws among them, and one on Spanish alone; read only."""
    place = tmp_path_factory.mktemp("languages")
    root = place / "workspace"
    toy.ok("data", "import", toy.bilingual().write(place / "toy"), workspace=root)
    toy.ok("translate", *BOTH, "--back", "--with-queries", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok(*TRAIN, *BOTH, "--name", "both", workspace=root)
    toy.ok(*TRAIN, *BOTH, "--language-mix", "draw", "--name", "drawn", workspace=root)
    toy.ok(*TRAIN, "--lang", "es", "--name", "spanish", workspace=root)
    for name in ("both", "drawn", "spanish"):
        toy.ok("evaluate", f"runs/{name}", *CPU, workspace=root)
    toy.ok("diagnose", "runs/both", *CPU, workspace=root)
    return root


def made(root: Path, name: str) -> base.Artifact:
    return base.load(root / "runs" / name)


@pytest.mark.slow
def test_every_caption_has_a_triplet_in_each_language(root: Path) -> None:
    both, spanish = made(root, "both"), made(root, "spanish")
    assert (both.request["lang"], both.request["langs"]) == (["es", "fr"], "all")
    assert spanish.request["lang"] == "es" and "langs" not in spanish.request | run.config(spanish)
    assert made(root, "drawn").counts["steps"] == spanish.counts["steps"] == 9
    assert both.counts["triplets"] == 2 * spanish.counts["triplets"] and both.counts["steps"] == 2 * 9
    parents = [Path(p.path).name.split("-")[0] for p in both.parents if p.kind == "translation"]
    assert parents == ["es", "fr"] == list(run.config(both)["translations"])
    alone = [frame for _, frame in run.evidence(spanish)]
    for number, (_, frame) in enumerate(run.evidence(both)):
        assert not frame.duplicated(KEYS).any() and set(frame["lang"]) == {"es", "fr"}
        for lang in ("es", "fr"):
            assert list(frame.loc[frame["lang"] == lang, "slot_id"]) == list(alone[number]["slot_id"])
    assert "lang" not in alone[0]


@pytest.mark.slow
def test_the_order_of_languages_and_naming_one_twice_change_nothing(space: Path) -> None:
    options = ("--name", "again", "--epochs", "1")
    done = toy.ok(*TRAIN, "--lang", "fr", "--lang", "es", *options, workspace=space)
    first, first_said = done.made, " ".join(done.err.split())
    assert toy.ok(*TRAIN, "--lang", "es+fr", *options, workspace=space).made.id == first.id
    assert first.request["lang"] == ["es", "fr"]
    assert re.search(r"SumR \d+\.\d on validation: es \d+\.\d, fr \d+\.\d \(half of it: 20", first_said)
    twice = toy.ok(*TRAIN, "--lang", "es", "--lang", "es", "--name", "twice", workspace=space).made
    assert (twice.id, twice.files) == (made(space, "spanish").id, made(space, "spanish").files)


@pytest.mark.slow
def test_names_tell_languages_and_the_draw_apart(root: Path) -> None:
    def name(*options: str) -> str:
        planned = toy.ok("train", "--method", "infonce", *options, "--dry-run", "--json", workspace=root).out
        return str(json.loads(planned)["made"][-1]["name"])

    one, both, drawn = name("--lang", "es"), name(*BOTH), name(*BOTH, "--language-mix", "draw")
    assert one.startswith("toy-es-infonce-seed0") and both.startswith("toy-es-fr-infonce-seed0")
    assert drawn.startswith("toy-es-fr-infonce-seed0") and drawn != both


@pytest.mark.slow
def test_a_draw_that_is_stopped_ends_in_the_same_bytes(space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    step, done = engine.Engine.step, []

    def stops(self: engine.Engine, *given: Any, **named: Any) -> Any:
        done.append(1)
        if len(done) == 6:
            raise KeyboardInterrupt
        return step(self, *given, **named)

    call = (*TRAIN, *BOTH, "--language-mix", "draw", "--name", "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(engine.Engine, "step", stops)
        assert toy.ccr(*call, workspace=space).code == 130
    finished = toy.ok(*call, workspace=space)
    assert "going on after step 2 of 3 of epoch 2 of 3" in finished.err
    assert finished.made.id == made(space, "drawn").id


def test_the_epoch_is_chosen_by_the_mean_over_languages(root: Path) -> None:
    artifact = made(root, "both")
    history: Any = run.history(artifact).set_index("epoch")
    each = history[["val.langs.es.SumR", "val.langs.fr.SumR"]]
    np.testing.assert_allclose(history["val.SumR"], each.mean(axis=1))
    assert artifact.counts["best_epoch"] == history["val.SumR"].idxmax()
    assert run.config(artifact)["validation"] == [20, 5] and run.config(artifact)["select"] == "mt"
    method, tokenizer = load_method(artifact, torch.device("cpu"))
    inputs = Workspace(root)
    data, feats = dataset.read(inputs.parent(artifact, "dataset")), inputs.parent(artifact, "features")
    for link in (p for p in artifact.parents if p.kind == "translation"):
        translated = inputs.linked(artifact, link)
        frame = translation.read(translated)
        forward = frame.loc[frame["direction"] == "forward", ["caption_id", "item_id", "text"]]
        found = gallery(data, feats, "val-select", forward, "translations", frozenset())
        texts = encode_and_embed(method, tokenizer, found.texts, torch.device("cpu"))
        visuals = embed_visuals(method, found.visual, torch.device("cpu"))
        scores = score_gallery(EmbeddedGallery(found, visuals, texts))
        kept = history.loc[artifact.counts["best_epoch"], f"val.langs.{translation.language(translated)}.SumR"]
        assert kept == pytest.approx(scores.sum_r)
    for epoch, frame in run.evidence(artifact):
        wrong = noise.read(inputs.parent(artifact, "noise")).set_index("slot_id")["vt_wrong"]
        for lang, rows in frame.groupby("lang"):
            auroc = detection(rows["p_clean"], wrong.loc[rows["slot_id"]], 0.5)["auroc"]
            assert history.loc[epoch, f"judge.langs.{lang}.auroc"] == pytest.approx(auroc, abs=5e-3)


def figures(artifact: base.Artifact) -> dict[str, dict[str, Any]]:
    return {f"{r['lang']} {r['fusion']}": r for r in evaluation.results(artifact)}


def test_each_language_is_evaluated_as_if_alone(space: Path) -> None:
    whole = figures(base.load(space / "evaluations/both-test"))
    assert list(whole) == ["es none", "es 0.8raw", "fr none", "fr 0.8raw", "en none"]
    for lang, other in (("es", "fr"), ("fr", "es")):
        alone = figures(toy.ok("evaluate", "runs/both", "--lang", lang, *CPU, workspace=space).made)
        assert {name: r for name, r in whole.items() if other not in name} == alone
        signature = whole[f"{lang} none"]["signature"]
        assert (signature.lang, signature.mt) == (lang, f"recorded:hand+{other}=recorded:hand")
    assert whole["en none"]["signature"].mt == "es=recorded:hand+fr=recorded:hand"


def test_a_language_without_captions_of_the_split_is_left_out_with_a_word(space: Path) -> None:
    done = toy.ok("evaluate", "runs/both", "--split", "val", *CPU, workspace=space)
    assert {r["lang"] for r in evaluation.results(done.made)} == {"es", "en"}
    assert "fr is not evaluated: toy has no human fr captions for its val items" in done.err
    refused = toy.ccr(
        "evaluate", "runs/both", "--split", "val", "--lang", "fr", "--queries", "human", *CPU, workspace=space
    )
    assert (refused.code, refused.out) == (4, "") and "no human fr captions" in refused.err


def read(table: Table) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(to_csv(table)))


@pytest.mark.slow
def test_a_report_sets_the_run_beside_those_on_one_language(space: Path) -> None:
    done = toy.ok(*TRAIN, *BOTH, "--select-on", "human", "--name", "human", workspace=space)
    assert "fr does not count for model selection: toy has no human fr captions" in done.err
    assert run.config(done.made)["select"] == "human" and run.config(done.made)["validation"] == [5, 5]
    toy.ok("evaluate", "runs/human", *CPU, workspace=space)
    tables = compose.overview(gather(Inputs(Workspace(space)))).tables
    alone, marked = {"uml", "uml [lang=es+fr]", "uml [lang=es+fr, drawn]"}, "uml [lang=es+fr, select=human]"
    assert set(read(tables["sumr"])["method"]) == alone
    rows = read(tables["settings"]).groupby(["setting"])["method"].agg(list)
    assert [marked] in rows[[setting.startswith("toy test, queries in fr") for setting in rows.index]].to_list()
    shown = read(tables["detection"])
    assert list(shown["method"]) == ["uml [lang=es+fr]"] * 2 and list(shown["lang"]) == ["es", "fr"]


@pytest.mark.slow
def test_who_trains_on_what_people_wrote_is_marked(space: Path, tmp_path: Path) -> None:
    """Where the table says so by its name, and where the captions are those of the data set."""
    human = tmp_path / "human.tsv"
    shutil.copy(space / "datasets/toy/translations/hand-en-es.tsv", human)
    given = ("translate", "datasets/toy", "--lang", "es", "--engine", "recorded", "--set", f"table={human}")
    translated = toy.ok(*given, "--name", "people", workspace=space).made.path
    french = next((space / "translations/toy").glob("fr*"))
    done = toy.ok(*TRAIN, translated, french, "--name", "people", workspace=space)
    assert run.config(done.made)["human"] == ["es"] and "human" not in run.config(made(space, "both"))
    assert "people wrote the es training captions" in done.err
    found = figures(toy.ok("evaluate", done.made.path, *CPU, workspace=space).made)
    assert found["es none"]["signature"].mt == "human:recorded:human.tsv+fr=recorded:hand"
    assert found["fr none"]["signature"].mt == "recorded:hand+es=human:recorded:human.tsv"
    label = "uml [lang=es+fr, es=people, captions=human]"
    for gone in (False, True):
        if gone:
            shutil.rmtree(done.made.path)
            label = "uml [lang=es+fr, captions=human]"
        given_ = [str(space / "evaluations" / name) for name in ("people-test", "both-test")]
        told = gather(Inputs.from_paths(Workspace(space), given_))
        assert label in set(results_frame(told.results, told.facts)["label"])
    data = dataset.read(next(iter(Workspace(space).artifacts("dataset"))))
    frame = translation.read(base.load(french))
    assert not translation.by_people(frame, data.captions)
    wrote = frame[(frame["direction"] == "forward") & (frame["split"] == "train")]
    for share, said in ((0.4, False), (0.6, True)):
        same = wrote.iloc[: round(share * len(wrote))].assign(lang="fr", caption_set="main")
        captions = pd.concat([data.captions, same[data.captions.columns]])
        assert translation.by_people(frame, captions) == said
    assert not translation.by_people(frame, captions.assign(lang="de"))


def test_a_diagnosis_is_of_each_language(root: Path) -> None:
    (artifact,) = (a for a in Workspace(root).artifacts("diagnosis") if a.name.startswith("both"))
    pairs, summary = diagnosis.read_pairs(artifact), diagnosis.summary(artifact)
    assert summary["lang"] == ["es", "fr"] and not pairs.duplicated(KEYS).any() and len(pairs) == 96
    assert sorted(pairs["place"]) == list(range(1, 97)) and {w["lang"] for w in summary["most_suspicious"]} <= {
        "es",
        "fr",
    }
    for lang, rows in pairs.groupby("lang"):
        own, noisy = summary["langs"][lang], rows["truth"] == "noisy"
        assert own["detection"] == pytest.approx(detection(rows["p_clean"], noisy, 0.5))
        assert (own["pairs"], own["called_noisy"]) == (48, (rows["verdict"] == "noisy").sum())
        evidence = [frame.set_index("slot_id") for _, frame in run.evidence(made(root, "both"), str(lang))]
        np.testing.assert_array_equal(rows["p_first"], evidence[0].loc[rows["slot_id"], "p_clean"])
        best = evidence[made(root, "both").counts["best_epoch"] - 1].loc[rows["slot_id"]]
        np.testing.assert_allclose(rows["sim_vt"], best["sim_vt"], atol=1e-5)
    summed = sum(each["called_noisy"] for each in summary["langs"].values())
    assert summary["called_noisy"] == artifact.counts["called_noisy"] == summed


def test_searches_and_samples_know_all_languages(space: Path) -> None:
    shutil.rmtree(space / "runs/drawn")
    assert toy.ok("search", "rouge", "--lang", "fr", *CPU, workspace=space).out
    assert {lang: a.name for lang, a in best_runs(Inputs(Workspace(space)))}["fr"] == "both"
    exported = toy.ok("export", "runs/both", workspace=space).made
    card = (exported.path / "README.md").read_text(encoding="utf-8")
    assert "translations into es" in card and "translations into fr" in card and '- "fr"' in card


def test_a_pipe_brings_all_languages(space: Path) -> None:
    given = toy.ok("translate", *BOTH, "--back", "--with-queries", workspace=space).out
    piped = toy.ok(*TRAIN, "-", "--name", "piped", "--epochs", "1", workspace=space, stdin=given).made
    assert piped.request["lang"] == ["es", "fr"]
    swept = toy.ok(
        *TRAIN, "-", "--epochs", "1", "--sweep", "lang=es,fr,es+fr", "--dry-run", workspace=space, stdin=given
    )
    assert [line.split("\t")[0] for line in swept.out.splitlines()[1:]] == ["es", "fr", "es+fr"]


def another_set(space: Path) -> str:
    folder = toy.bilingual("other").write(space.parent / "other")
    data = toy.ok("data", "import", folder, workspace=space).made
    return str(toy.ok("translate", data.path, "--lang", "fr", workspace=space).made.path)


def second_spanish(space: Path) -> str:
    return str(toy.ok("translate", "datasets/toy", "--lang", "es", "--name", "two", workspace=space).made.path)


def forward_french(space: Path) -> str:
    return str(toy.ok("translate", "datasets/toy", "--lang", "fr", "--name", "short", workspace=space).made.path)


@pytest.mark.parametrize(
    ("give", "options", "code", "message"),
    [
        (None, ("--lang", "es", "--language-mix", "draw"), 2, "--language-mix draw"),
        (None, (*BOTH, "--language-mix", "some"), 2, "'some'"),
        (None, (*BOTH, "--lang", "de"), 4, "there is no translation into de"),
        (another_set, (), 4, "was not made from"),
        (second_spanish, ("--translation-mix", "some"), 2, "'some'"),
        (None, (*BOTH, "--translation-mix", "first"), 2, "--translation-mix first"),
        (forward_french, ("--method", "nrccr"), 4, "the translations into fr lack them"),
    ],
)
def test_what_does_not_go_together(
    give: Callable[[Path], str] | None, options: tuple[str, ...], code: int, message: str, space: Path
) -> None:
    spanish, french = (str(p) for p in sorted((space / "translations/toy").iterdir()))
    given = []
    if give is not None:
        given = [spanish, give(space)] if give is not second_spanish else [spanish, french, give(space)]
    done = toy.ccr(*TRAIN, *given, *options, workspace=space)
    assert (done.code, done.out) == (code, "") and message in done.err, done.err
