"""One run on several languages: what it is trained on, who judges it, and what is said of each language."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from torch.nn.functional import normalize

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, noise, run, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.methods import infonce
from ccr_cli.methods.base import Belief
from ccr_cli.metrics.detection import detection
from ccr_cli.stages import engine, judging, trainer
from ccr_cli.stages.embed import embed_visuals, encode_and_embed
from ccr_cli.stages.load import load_method
from ccr_cli.stages.material import Material, gather
from ccr_cli.stages.samples import best_runs
from ccr_cli.stages.scoring import score_gallery
from ccr_cli.stages.select import Inputs
from ccr_cli.stages.sources import find_sources, with_noise
from ccr_cli.stages.triplets import Triplets, gallery

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
    toy.ok("translate", *BOTH, "--back", "--queries", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok(*TRAIN, *BOTH, "--name", "both", workspace=root)
    toy.ok(*TRAIN, *BOTH, "--langs", "draw", "--name", "drawn", workspace=root)
    toy.ok(*TRAIN, "--lang", "es", "--name", "spanish", workspace=root)
    for name in ("both", "drawn", "spanish"):
        toy.ok("evaluate", f"runs/{name}", *CPU, workspace=root)
    toy.ok("diagnose", "runs/both", *CPU, workspace=root)
    return root


@pytest.fixture
def space(root: Path, tmp_path: Path) -> Path:
    """A copy for a test to change."""
    shutil.copytree(root, tmp_path / "workspace")
    return tmp_path / "workspace"


def made(root: Path, name: str) -> base.Artifact:
    return base.load(root / "runs" / name)


def material(root: Path, langs: str = "all", **options: Any) -> Material:
    """What the run on both languages is trained on."""
    inputs = Inputs(Workspace(root))
    sources = find_sources(inputs, "es+fr", "infonce")
    sources = with_noise(inputs, sources, 0.4, style="caption", target="translation", seed=0)
    config = infonce.Config(batch_size=16, buckets=512, dim=32, dropout=0.0, text_dropout=0.0, **options)
    return gather(sources, config, {"method": "infonce", "seed": 0, "select_on": "mt", "langs": langs})


def test_every_caption_has_a_triplet_in_each_language(root: Path) -> None:
    both, spanish = made(root, "both"), made(root, "spanish")
    assert (both.request["lang"], both.request["langs"]) == (["es", "fr"], "all")
    assert spanish.request["lang"] == "es" and "langs" not in spanish.request | run.config(spanish)
    assert both.counts["triplets"] == 2 * spanish.counts["triplets"] and both.counts["steps"] == 2 * 9
    parents = [Path(p.path).name.split("-")[0] for p in both.parents if p.kind == "translation"]
    assert parents == ["es", "fr"] == list(run.config(both)["translations"])
    alone = [frame for _, frame in run.evidence(spanish)]
    for number, (_, frame) in enumerate(run.evidence(both)):
        assert not frame.duplicated(KEYS).any() and set(frame["lang"]) == {"es", "fr"}
        for lang in ("es", "fr"):
            assert list(frame.loc[frame["lang"] == lang, "slot_id"]) == list(alone[number]["slot_id"])
    assert "lang" not in alone[0]


def test_the_order_of_languages_and_naming_one_twice_change_nothing(space: Path) -> None:
    options = ("--name", "again", "--epochs", "1")
    first = toy.ok(*TRAIN, "--lang", "fr", "--lang", "es", *options, workspace=space).made
    assert toy.ok(*TRAIN, "--lang", "es+fr", *options, workspace=space).made.id == first.id
    assert first.request["lang"] == ["es", "fr"]
    twice = toy.ok(*TRAIN, "--lang", "es", "--lang", "es", "--name", "twice", workspace=space).made
    assert (twice.id, twice.files) == (made(space, "spanish").id, made(space, "spanish").files)


def test_names_tell_languages_and_the_draw_apart(root: Path) -> None:
    def name(*options: str) -> str:
        planned = toy.ok("train", "--method", "infonce", *options, "--dry-run", "--json", workspace=root).out
        return str(json.loads(planned)["made"][-1]["name"])

    one, both, drawn = name("--lang", "es"), name(*BOTH), name(*BOTH, "--langs", "draw")
    assert one.startswith("toy-es-infonce-seed0") and both.startswith("toy-es-fr-infonce-seed0")
    assert drawn.startswith("toy-es-fr-infonce-seed0") and drawn != both


def test_an_epoch_of_a_draw_has_each_caption_once(root: Path) -> None:
    whole, drawn = material(root), material(root, "draw")
    assert drawn.per_epoch == 48 and whole.per_epoch == len(whole.triplets) == len(drawn.triplets) == 96
    seen = []
    for epoch in (1, 2, 3, 4):
        rows = drawn.order(torch.Generator().manual_seed(epoch), epoch)
        again = drawn.order(torch.Generator().manual_seed(epoch), epoch)
        assert torch.equal(rows, again) and len({drawn.triplets.slot_ids[row] for row in rows}) == len(rows) == 48
        langs = drawn.triplets.lang_N[rows.numpy()]
        assert 10 < langs.sum() < 38, "about half of the captions in each"
        seen.append(set(rows.tolist()))
    assert len(set.union(*seen)) > 80 and len({frozenset(rows) for rows in seen}) == 4
    every = whole.order(torch.Generator().manual_seed(1), 1)
    assert sorted(every.tolist()) == list(range(96))
    assert made(root, "drawn").counts["steps"] == made(root, "spanish").counts["steps"] == 9


def test_a_draw_that_is_stopped_ends_in_the_same_bytes(space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SAVE_SECONDS", 0.0)
    step, done = engine.Engine.step, []

    def stops(self: engine.Engine, *given: Any, **named: Any) -> Any:
        done.append(1)
        if len(done) == 6:
            raise KeyboardInterrupt
        return step(self, *given, **named)

    call = (*TRAIN, *BOTH, "--langs", "draw", "--name", "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(engine.Engine, "step", stops)
        assert toy.ccr(*call, workspace=space).code == 130
    finished = toy.ok(*call, workspace=space)
    assert "going on after epoch 1 of 3, step 2 of" in finished.err
    assert finished.made.id == made(space, "drawn").id


def test_one_mismatch_moves_the_same_captions_in_each_language(root: Path) -> None:
    triplets = material(root).triplets
    (_, spanish), (_, french) = triplets.by_language()
    assert spanish.langs == ("es",) and french.langs == ("fr",)
    assert spanish.wrong is not None and french.wrong is not None and spanish.wrong["vt_wrong"].sum() == 19
    pd.testing.assert_frame_equal(spanish.wrong, french.wrong)
    given = noise.read(next(iter(Workspace(root).artifacts("noise")))).set_index("slot_id")["given_translation_of"]
    data = dataset.read(next(iter(Workspace(root).artifacts("dataset"))))
    english = data.captions.set_index("caption_id")["text"]
    for part, lang in ((spanish, "es"), (french, "fr")):
        table = toy.bilingual().tables[f"en-{lang}"]
        assert part.target == [table[english[given[slot]]] for slot in part.slot_ids]
        assert part.back == [english[given[slot]] for slot in part.slot_ids]


def test_another_language_of_an_item_is_no_negative(root: Path) -> None:
    m = material(root)
    torch.manual_seed(0)
    method = infonce.Method(m.config, m.triplets.visual.dim, m.text_encoder())
    made = engine.Engine(method, m, torch.device("cpu"), torch.float32)
    p = judging.trust(m.triplets)
    belief = Belief(*(torch.from_numpy(side).float() for side in (p.VS, p.VT, p.ST)))
    first = m.triplets.item_N == m.triplets.item_N[0]
    own = torch.arange(len(first))[first]
    assert len(own) == 4, "two captions in two languages"
    terms = made.step([own], belief, judged=False)
    assert all(float(value) == 0.0 for value in terms.values()), "where all are of one item, there is nothing to learn"
    other = torch.arange(len(first))[~first][:1]
    assert float(made.step([torch.cat([own, other])], belief, judged=False)["infonce_vt"]) > 0


def seen(triplets: Triplets) -> judging.Embedded:
    """Random vectors in which translations into the second language are far nearer to their captions."""
    generator = torch.Generator().manual_seed(0)
    n = len(triplets)
    v_VD = normalize(torch.randn(len(triplets.item_ids), 16, generator=generator), dim=1)
    s_ND = normalize(v_VD[triplets.item_N] + 0.3 * torch.randn(n, 16, generator=generator), dim=1)
    wrong_N1 = torch.from_numpy(triplets.wrong["vt_wrong"].to_numpy(np.float32))[:, None]  # type: ignore[index]
    near_N1 = torch.from_numpy(np.where(triplets.lang_N == 1, 4.0, 1.0)).float()[:, None]
    t_ND = normalize((1 - wrong_N1) * near_N1 * s_ND + torch.randn(n, 16, generator=generator), dim=1)
    return judging.Embedded(v_VD, s_ND, t_ND, triplets.item_N)


@pytest.mark.parametrize("judge", ["gmm", "two-group"])
def test_a_mixture_is_fitted_to_each_language(judge: str, root: Path) -> None:
    triplets = material(root).triplets
    embedded = seen(triplets)
    how: dict[str, Any] = {"seed": 3, "batch_size": 16, "read": lambda sim: sim}
    opinion = judging.ask(judge, "cross_lingual", embedded, triplets, **how)
    fit = registry.load("judges", judge).clean_probability
    s_ND, t_ND = embedded.s_ND.double().numpy(), embedded.t_ND.double().numpy()
    expected = np.empty(len(triplets))
    for number in (0, 1):
        rows = np.flatnonzero(triplets.lang_N == number)
        left, right = embedded.select(rows).shuffled(3)
        null = (s_ND[rows][left] * t_ND[rows][right]).sum(axis=1)
        expected[rows] = fit((s_ND[rows] * t_ND[rows]).sum(axis=1), null)
    np.testing.assert_allclose(opinion.p.ST, expected, atol=1e-4)
    left, right = embedded.shuffled(3)
    together = fit((s_ND * t_ND).sum(axis=1), (s_ND[left] * t_ND[right]).sum(axis=1))
    assert np.abs(together - expected).max() > 0.1, "one fit for both says something else"
    np.testing.assert_allclose(opinion.similarity["ST"], (s_ND * t_ND).sum(axis=1), atol=1e-6)


def test_the_triangle_sees_one_language_after_the_other(root: Path) -> None:
    triplets = material(root).triplets
    embedded = seen(triplets)
    how: dict[str, Any] = {"seed": 3, "batch_size": 16, "read": lambda sim: sim}
    opinion = judging.ask("triangle", "", embedded, triplets, **how)
    quality = judging.quality(opinion, triplets)
    for number, (rows, part) in enumerate(triplets.by_language()):
        alone = judging.ask("triangle", "", embedded.select(rows), part, **how)
        for side in ("VS", "VT", "ST"):
            np.testing.assert_array_equal(getattr(opinion.p, side)[rows], getattr(alone.p, side))
        assert quality["langs"][triplets.langs[number]] == judging.quality(alone, part)
    for what, share in opinion.shares.items():
        mean = np.mean([quality["langs"][lang][f"wrong_{what}"] for lang in ("es", "fr")])
        assert quality[f"wrong_{what}"] == share == pytest.approx(mean)


def test_round_trips_are_compared_language_by_language(root: Path) -> None:
    triplets = material(root, judge="translation").triplets
    said = judging.from_texts(triplets, seed=0)
    for rows, part in triplets.by_language():
        np.testing.assert_array_equal(said.VT[rows], judging.from_texts(part, seed=0).VT)
        assert part.wrong is not None and detection(said.VT[rows], part.wrong["vt_wrong"])["auroc"] == 1.0


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
        scores = score_gallery(found, embed_visuals(method, found.visual, torch.device("cpu")), texts)
        kept = history.loc[artifact.counts["best_epoch"], f"val.langs.{translation.language(translated)}.SumR"]
        assert kept == pytest.approx(scores.sum_r)
    for epoch, frame in run.evidence(artifact):
        wrong = material(root).triplets.wrong
        assert wrong is not None
        for lang, rows in frame.groupby("lang"):
            auroc = detection(rows["p_clean"], wrong.loc[rows.index, "vt_wrong"])["auroc"]
            assert history.loc[epoch, f"judge.langs.{lang}.auroc"] == pytest.approx(auroc, abs=5e-3)


def figures(artifact: base.Artifact) -> dict[str, dict[str, Any]]:
    return {f"{r['lang']} {r['fusion']}": r for r in evaluation.results(artifact)}


def test_each_language_is_evaluated_as_if_alone(space: Path) -> None:
    whole = figures(base.load(space / "evaluations/both-test"))
    assert list(whole) == ["es none", "es 0.8raw", "fr none", "fr 0.8raw", "en none"]
    for lang, other in (("es", "fr"), ("fr", "es")):
        alone = figures(toy.ok("evaluate", "runs/both", "--lang", lang, *CPU, workspace=space).made)
        assert {name: r for name, r in whole.items() if other not in name} == alone
        signature = dict(part.split(":", 1) for part in whole[f"{lang} none"]["signature"].split("|"))
        assert (signature["lang"], signature["mt"]) == (lang, f"recorded:hand+{other}=recorded:hand")
    assert "|mt:es=recorded:hand+fr=recorded:hand|" in whole["en none"]["signature"]


def test_a_language_without_captions_of_the_split_is_left_out_with_a_word(space: Path) -> None:
    done = toy.ok("evaluate", "runs/both", "--split", "val", *CPU, workspace=space)
    assert {r["lang"] for r in evaluation.results(done.made)} == {"es", "en"}
    assert "fr is not measured: toy has no human fr captions for its val items" in done.err
    refused = toy.ccr("evaluate", "runs/both", "--split", "val", "--lang", "fr", *CPU, workspace=space)
    assert (refused.code, refused.out) == (4, "") and "no human fr captions" in refused.err


def test_a_report_sets_the_run_beside_those_on_one_language(space: Path) -> None:
    done = toy.ok(*TRAIN, *BOTH, "--select-on", "human", "--name", "human", workspace=space)
    assert "fr does not count for model selection: toy has no human fr captions" in done.err
    assert run.config(done.made)["select"] == "human" and run.config(done.made)["validation"] == [5, 5]
    toy.ok("evaluate", "runs/human", *CPU, workspace=space)
    tables = toy.ok("report", workspace=space).made.path / "tables"
    alone, marked = {"uml", "uml [lang=es+fr]", "uml [lang=es+fr, drawn]"}, "uml [lang=es+fr, select=human]"
    assert set(pd.read_csv(tables / "sumr.csv", comment="#")["method"]) == alone
    rows = pd.read_csv(tables / "settings.csv", comment="#").groupby(["setting"])["method"].agg(list)
    assert [marked] in rows[[setting.startswith("toy test, queries in fr") for setting in rows.index]].to_list()
    shown = pd.read_csv(tables / "detection.csv", comment="#")
    assert list(shown["method"]) == ["uml [lang=es+fr]"] * 2 and list(shown["lang"]) == ["es", "fr"]
    page = (tables.parent / "report.html").read_text(encoding="utf-8")
    assert "queries in fr" in page and "translation (es or fr)" in page


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
        assert own["detection"] == pytest.approx(detection(rows["p_clean"], noisy))
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
    given = toy.ok("translate", *BOTH, "--back", "--queries", workspace=space).out
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
        (None, ("--lang", "es", "--langs", "draw"), 2, "--langs draw goes with several languages"),
        (None, (*BOTH, "--langs", "some"), 2, "--langs is all or draw"),
        (None, (*BOTH, "--lang", "de"), 4, "there is no translation into de"),
        (another_set, (), 4, "was not made from"),
        (second_spanish, (), 2, "several translations into one language"),
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
