"""`ccr evaluate --translate-test`: translated queries as a system beside the queries as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tinydual
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, evaluation, translation
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import TRANSLATE_TEST, fusion_value, is_translate_test, read_fusion
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.differences import QueryRanks
from ccr_cli.report.tables.systems import systems
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def untranslated(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A run of `source-only` in a workspace without any translation."""
    root = tmp_path_factory.mktemp("untranslated") / "ws"
    shutil.copytree(chain.root, root)
    for place in ("runs", "translations", "evaluations"):
        shutil.rmtree(root / place)
    toy.ok("train", "--method", "source-only", "--epochs", "2", *toy.SMALL, workspace=root)
    return Chain(chain.folder, root)


def test_translated_queries_search_alone(finished: Chain) -> None:
    """R@K of the English translations, counted in numpy; the same artifact as fusion of weight 0."""
    run = finished.find("run", "uml")
    made = toy.ok("evaluate", run.path, "--translate-test", *CPU, workspace=finished.root).made
    weightless = toy.ok("evaluate", run.path, "--fusion-weight", "0", *CPU, workspace=finished.root)
    assert weightless.made.id == made.id
    plain, alone, english = evaluation.results(made)
    assert [plain["fusion"], alone["fusion"], english["fusion"]] == ["none", TRANSLATE_TEST, "none"]
    assert (plain["label"], alone["label"]) == ("uml", "uml (translate-test)")
    assert read_fusion(alone["signature"].fusion)[::2] == (TRANSLATE_TEST, 0)
    assert alone["signature"].fusion.startswith(f"{TRANSLATE_TEST}:recorded:")

    data = dataset.read(finished.find("dataset", "toy"))
    visual, ids = read_visuals(finished.find("features"), list(items_of(data.items, "test")["item_id"]), frozenset())
    method, tokenizer = load_method(run, torch.device("cpu"))
    rows = data.captions[data.captions["item_id"].isin(ids) & (data.captions["lang"] == "es")]
    queries = translation.read(finished.find("translation"))
    english_of = dict(zip(queries["source_caption_id"], queries["text"], strict=True))
    texts = tokenizer.encode([english_of[caption] for caption in rows["caption_id"]])
    with torch.no_grad():
        v_VD = method.embed_visual(visual).double().numpy()
        t_TD = method.embed_text(texts.select(torch.arange(len(rows)))).double().numpy()
    sim_TV = t_TD @ v_VD.T
    right_T = np.array([ids.index(item) for item in rows["item_id"]])
    rank_T = 1 + (sim_TV > sim_TV[np.arange(len(rows)), right_T][:, None]).sum(1)
    for k in (1, 5, 10):
        assert alone["t2v"][f"R@{k}"] == pytest.approx(100 * (rank_T <= k).mean())


@pytest.mark.slow
def test_the_translation_may_be_made_afterwards(untranslated: Chain, tmp_path: Path) -> None:
    chain = Chain(untranslated.folder, shutil.copytree(untranslated.root, tmp_path / "ws"))
    call = ("evaluate", chain.find("run").path, "--lang", "es", "--translate-test", *CPU)
    short = tuple(word for word in call if word not in ("--lang", "es"))  # in the languages that are translated
    for words, lang in ((call, "es"), (short, "LANG")):
        refused = chain.ccr(*words)
        assert (refused.code, refused.out) == (4, "")
        assert f"ccr translate datasets/toy --with-queries --lang {lang}" in refused.err
    toy.ok("translate", "--lang", "es", workspace=chain.root)
    assert chain.ccr(*call).code == 4, "a translation without queries is of no use"
    made = toy.ok("translate", "--lang", "es", "--with-queries", workspace=chain.root).made
    done = toy.ok(*call, workspace=chain.root).made
    assert made.id in {parent.id for parent in done.parents}
    plain, alone, english = evaluation.results(done)
    assert alone["label"] == "source-only (translate-test)" and alone["SumR"] != plain["SumR"]
    again = evaluation.results(toy.ok(*short, workspace=chain.root).made)
    assert [(r["lang"], r["label"], r["SumR"]) for r in again] == [
        (r["lang"], r["label"], r["SumR"]) for r in (plain, alone, english)
    ]
    assert plain["signature"].mt == alone["signature"].mt == "none"


@pytest.mark.slow
def test_a_pretrained_model_and_another_data_set(untranslated: Chain, tmp_path: Path) -> None:
    chain = Chain(untranslated.folder, shutil.copytree(untranslated.root, tmp_path / "ws"))
    other = toy.bilingual("other").write(tmp_path / "other")
    toy.ok("data", "import", other, workspace=chain.root)
    model = tinydual.save("clip", tmp_path / "tiny")
    call = ("evaluate", "--zero-shot", "--translate-test", "--model", model, *CPU)
    assert chain.ccr(*call).code == 4
    toy.ok("translate", chain.find("dataset", "toy").path, "--lang", "es", "--with-queries", workspace=chain.root)
    done = toy.ok(*call, workspace=chain.root)
    assert "left out" in done.err and "datasets/other --with-queries" in done.err
    found = {(r["lang"], r["label"]) for r in evaluation.results(done.made)}
    assert found == {("es", "pretrained"), ("es", "pretrained (translate-test)"), ("en", "pretrained")}


@pytest.mark.slow
def test_trained_and_untrained_systems_share_one_table(finished: Chain, tmp_path: Path) -> None:
    """Zero-shot, translate-test and trained runs, with what validation says and what it lacks."""
    root = shutil.copytree(finished.root, tmp_path / "ws")
    model = tinydual.save("clip", tmp_path / "model")
    translated = finished.find("translation").path.relative_to(finished.root)
    call = ("evaluate", "--zero-shot", "--model", model, *CPU)
    toy.ok(*call, "--translate-test", root / translated, workspace=root)
    toy.ok(*call, workspace=root)  # a run without the translation: the same model
    made = gather(Inputs(Workspace(root)))
    frame = comparable.results_frame(made.results, made.facts)
    main, *others = comparable.views(frame)
    names = {"pretrained", f"pretrained ({TRANSLATE_TEST})"}
    assert (main.lang, main.split) == ("es", "test") and {"uml", "infonce"} < {*main.frame["method"]}
    assert {Label.parse(label).base for label in main.frame["label"]} >= names
    assert not any({*main.frame["run"]} <= {*view.frame["run"]} for view in others if view.lang == "es")
    table = systems(frame, main, made.costs, QueryRanks(made.rankings))
    assert table is not None
    labels = [str(row.cells[0].value) for row in table.rows]
    assert sum(Label.parse(label).method == "pretrained" for label in labels) == 2, labels
    assert table.notes[0].count("ccr evaluate") == 2 and table.notes[0].count("--translate-test") == 1


def test_it_is_compared_with_the_queries_as_they_are(finished: Chain, tmp_path: Path) -> None:
    run = finished.find("run", "uml").path
    toy.ok("evaluate", run, "--translate-test", *CPU, workspace=finished.root)
    told = json.loads(toy.ok("compare", run, "--json", workspace=finished.root).out)["comparisons"]
    assert [(c["first"], c["second"], c["lang"]) for c in told] == [("uml", "uml (translate-test)", "es")]
    every = ("compare", run, finished.find("run", "infonce").path, "--by", "none", "--all", "--json")
    told = json.loads(toy.ok(*every, workspace=finished.root).out)["comparisons"]
    assert {(c["second"], c["lang"], c["fusion"]) for c in told} == {
        ("uml (translate-test)", "es", "none"),
        ("infonce", "es", "none"),
        ("infonce", "es", "0.8raw"),
        ("infonce", "en", "none"),
    }


def test_it_has_a_row_of_its_own_in_the_table_of_the_run() -> None:
    def result(label: str, fusion: str, sum_r: float) -> dict[str, object]:
        signature = (
            "data:toy@0a1b2c3d|split:test|lang:es|caption_set:human|q:12|gallery:12|dir:t2v+v2t|protocol:full|pos:any"
            f"|ties:mid|sim:cosine|fusion:{fusion}|mt:none|noise:none|unc:none|select:mt|leak:own-split|ccr:0.1.0"
        )
        named = fusion.partition(":")[0]
        about = {"run": "r", "data": "toy", "split": "test", "lang": "es", "role": "target", "label": label}
        return about | {"method": "m", "noise": 0.0, "seed": 0, "fusion": named, "signature": signature, "SumR": sum_r}

    plain, one, two = (
        result("m", "none", 1.0),
        result("m (translate-test)", f"{TRANSLATE_TEST}:hf:opus", 2.0),
        result("m (translate-test)", f"{TRANSLATE_TEST}:apertium:spa-eng-3alone", 3.0),
    )
    facts = {"r": comparable.RunFacts("r", "m")}
    (view,) = comparable.views(comparable.results_frame([("r", plain), ("r", one)], facts))
    assert dict(zip(view.frame["label"], view.frame["SumR"], strict=True)) == {"m": 1.0, "m (translate-test)": 2.0}
    frame = comparable.results_frame([("r", plain), ("r", one), ("r", two)], facts)
    assert set(frame["label"]) == {
        "m",
        "m (translate-test by hf opus)",
        "m (translate-test by apertium spa-eng)",
    }
    assert len(comparable.views(frame)) == 1


def test_what_a_signature_and_a_label_say() -> None:
    assert fusion_value(0, "minmax", 3, "hf:opus") == "translate-test:hf:opus-3alone"
    assert read_fusion("translate-test:hf:opus-3alone") == (TRANSLATE_TEST, "hf:opus", 3)
    assert is_translate_test("0raw-2alone") and is_translate_test(TRANSLATE_TEST)
    assert not (is_translate_test("0.2raw") or is_translate_test("none"))
    label = Label.parse("uml (paper) x2 [beta=1]").translate_test()
    assert str(label) == "uml (paper, translate-test) x2 [beta=1]" and label.is_translate_test
    assert label.translate_test("hf opus").runs[0].extras == ("paper", "translate-test by hf opus")
    assert comparable.is_plain("infonce (translate-test)") and not comparable.is_plain("infonce (oracle)")


@pytest.mark.parametrize(
    "options",
    [("--fusion-weight", "0.5"), ("--task", "text"), ("--queries", "mt")],
)
def test_what_does_not_go_with_it(options: tuple[str, ...], chain: Chain) -> None:
    done = chain.ccr("evaluate", chain.find("run", "uml").path, "--translate-test", *options, *CPU)
    assert (done.code, done.out) == (2, "") and options[1] in done.err
