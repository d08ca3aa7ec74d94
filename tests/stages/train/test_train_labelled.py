"""Categories from training to evaluation, training without a translation, and texts that are features."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from scipy.io import savemat
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation, run
from ccr_cli.artifacts.evaluation import read_outside
from ccr_cli.artifacts.signature import Signature
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.losses.credibility import credibility
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")
SMALL = (*toy.SMALL, "--epochs", "3", "--set", "hidden=32", "--set", "lr=0.005")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Toy items in six categories (their shapes), no translation, and a run of fume; read only."""
    root = tmp_path_factory.mktemp("plain")
    folder = toy.toy("plain")
    shapes = list(toy.SHAPES)
    for item in folder.items:
        item[4] = str(10 + shapes.index(item[0].split("-")[1]))
    path = folder.write(root / "source")
    space = root / "workspace"
    toy.ok("data", "import", path, workspace=space)
    toy.ok("extract", *toy.ENCODER, workspace=space)
    toy.ok("train", "--method", "fume", *SMALL, workspace=space)
    return Chain(path, space)


@pytest.fixture
def copy(plain: Chain, tmp_path: Path) -> Chain:
    shutil.copytree(plain.root, tmp_path / "copy")
    return Chain(plain.folder, tmp_path / "copy")


def results(artifact: base.Artifact) -> list[dict[str, Any]]:
    return evaluation.results(artifact)


def test_a_run_without_translation_says_so(plain: Chain) -> None:
    made = plain.find("run")
    config = run.config(made)
    assert {p.kind for p in made.parents} == {"dataset", "features"}
    assert (config["lang"], config["select"], config["criterion"]) == ("en", "human", "mAP")
    assert config["options"]["classes"] == 6
    history = run.history(made)
    chosen = history["val.mAP"].to_numpy()
    assert made.counts["best_epoch"] == chosen.argmax() + 1
    np.testing.assert_allclose(chosen, (history["val.t2v.mAP"] + history["val.v2t.mAP"]) / 2)


@pytest.mark.slow
def test_every_stage_reads_it(copy: Chain) -> None:
    for command in (("evaluate",), ("diagnose",), ("search", "red ring")):
        done = copy.ccr(*command, *CPU)
        assert done.code == 0, done.err
    (only,) = results(copy.find("evaluation"))
    assert (only["lang"], only["fusion"]) == ("en", "none")
    done = copy.ccr("report")
    assert done.code == 0, done.err


def test_a_method_that_needs_translations_asks_for_them(copy: Chain) -> None:
    done = copy.ccr("train", "--method", "infonce", *SMALL)
    assert done.code == 4 and "ccr translate" in done.err
    done = copy.ccr("train", "--method", "infonce", "--lang", "en", *SMALL)
    assert done.code == 4 and "ccr translate" not in done.err and "en is the captions' own language" in done.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--lang", "es"), 4, "no translation of plain into es"),
        (("--noise", "0.4"), 2, "--noise-target pair"),
        (("--set", "left_out=3"), 2, "no item of plain has the category 3"),
        (("--set", "dim=4"), 2, "6 categories need as many dimensions"),
        (("--set", "text_encoder=given"), 4, "brings no features of its texts"),
    ],
)
def test_what_cannot_be_trained_is_said(copy: Chain, options: tuple[str, ...], code: int, message: str) -> None:
    done = copy.ccr("train", "--method", "fume", *SMALL, *options)
    assert done.code == code and message in done.err, done.err


def test_noise_on_the_pair_needs_no_translation(copy: Chain) -> None:
    done = copy.ccr("train", "--method", "fume", *SMALL, "--noise", "0.4", "--noise-target", "pair", "--name", "noisy")
    assert done.code == 0, done.err
    assert done.made.counts["triplets"] == 48
    drawn = copy.ccr("train", "--method", "fume", *SMALL, copy.find("noise").path, "--dry-run")
    assert drawn.code == 0, drawn.err


def test_with_a_translation_it_is_a_third_view(workspace: Chain) -> None:
    spanish = workspace.ccr("train", "--method", "fume", *SMALL)
    assert spanish.code == 0, spanish.err
    assert run.config(spanish.made)["lang"] == "es" and spanish.made.has_parent("translation")
    english = workspace.ccr("train", "--method", "fume", "--lang", "en", *SMALL)
    assert english.code == 0, english.err
    assert run.config(english.made)["lang"] == "en" and not english.made.has_parent("translation")


def test_categories_are_needed(workspace: Chain, tmp_path: Path) -> None:
    folder = toy.toy("unlabelled")
    folder.items[0][4] = ""
    toy.ok("data", "import", folder.write(tmp_path / "source"), workspace=tmp_path)
    toy.ok("extract", *toy.ENCODER, workspace=tmp_path)
    done = toy.ccr("train", "--method", "fume", *SMALL, workspace=tmp_path)
    assert done.code == 4 and "have no label" in done.err


def naive_map(sim_QG: np.ndarray, query: np.ndarray, gallery: np.ndarray) -> float:
    """Mean average precision over all of the gallery, from sorted lists; no ties."""
    total = []
    for scores, label in zip(sim_QG, query, strict=True):
        hits = np.flatnonzero(gallery[np.argsort(-scores)] == label) + 1
        total.append((np.arange(1, len(hits) + 1) / hits).mean())
    return 100 * float(np.mean(total))


def naive_curve(sim_QG: np.ndarray, query: np.ndarray, gallery: np.ndarray) -> list[float]:
    """Interpolated precision at recalls 0, 0.1, ... 1, from sorted lists; no ties."""
    rows = []
    for scores, label in zip(sim_QG, query, strict=True):
        right = gallery[np.argsort(-scores)] == label
        found = np.cumsum(right)
        precision = found / np.arange(1, len(right) + 1)
        rows.append([precision[10 * found >= tenth * found[-1]].max() for tenth in range(11)])
    return [100 * float(value) for value in np.mean(rows, axis=0)]


def embedded(chain: Chain, split: str, left_out: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """Method, item vectors and labels, text vectors and labels of a split's English side."""
    data = dataset.read(chain.find("dataset"))
    method, tokenizer = load_method(chain.find("run"), torch.device("cpu"))
    items = items_of(data.items, split)
    items = items[~items["label"].isin(left_out)]
    label_of = dict(zip(items["item_id"], items["label"], strict=True))
    captions = data.captions[(data.captions["lang"] == "en") & data.captions["item_id"].isin(set(label_of))]
    visual, ids = read_visuals(chain.find("features"), list(items["item_id"]), frozenset())
    texts = tokenizer.encode(list(captions["text"])).select(torch.arange(len(captions)))
    with torch.no_grad():
        v_VD, t_TD = method.embed_visual(visual), method.embed_text(texts)
    return (
        method,
        v_VD,
        np.array([label_of[i] for i in ids], dtype=int),
        t_TD,
        np.array([label_of[i] for i in captions["item_id"]], dtype=int),
    )


def test_labelled_figures_are_those_of_sorted_lists(copy: Chain) -> None:
    made = copy.ccr("evaluate", *CPU).made
    (result,) = results(made)
    fields = result["signature"].fields
    assert (fields["protocol"], fields["pos"], fields["unc"], fields["mt"]) == ("labelled", "label", "query", "none")
    method, v_VD, v_label, t_TD, t_label = embedded(copy, "test")
    sim = (v_VD @ t_TD.T).double().numpy()
    assert result["v2t"]["mAP"] == pytest.approx(naive_map(sim, v_label, t_label))
    assert result["t2v"]["mAP"] == pytest.approx(naive_map(sim.T, t_label, v_label))
    best = t_label[sim.argmax(axis=1)] == v_label
    assert result["v2t"]["R@1"] == pytest.approx(100 * best.mean())
    for side, (sim_QG, own, other) in {"v2t": (sim, v_label, t_label), "t2v": (sim.T, t_label, v_label)}.items():
        assert result["precision"][side] == pytest.approx(naive_curve(sim_QG, own, other))
    assert result["precision"]["recall"] == [tenth / 10 for tenth in range(11)]
    # deletion: the pairs kept whose uncertainty does not exceed 0.5, eq. (10)
    u_V, u_T = (method.score(x, x)[1].double().numpy() for x in (v_VD, t_TD))
    kept = 1 - (1 - u_V[:, None]) * (1 - u_T[None, :]) <= 0.5
    at = result["deletion"]["v2t"]["threshold"]
    assert (at["pairs"], at["rate"]) == (int(kept.sum()), pytest.approx(1 - kept.mean()))
    for kind in ("uncertainty", "similarity"):
        curve = result["deletion"]["t2v"][kind]
        assert curve[0]["map_kept"] == curve[0]["map_all"] == pytest.approx(result["t2v"]["mAP"])
        assert [point["rate"] for point in curve] == sorted(point["rate"] for point in curve)


def test_the_protocol_can_be_chosen(copy: Chain, chain: Chain, finished: Chain) -> None:
    full = copy.ccr("evaluate", *CPU, "--protocol", "full").made
    usual = copy.ccr("evaluate", *CPU).made
    assert full.name != usual.name
    (result,) = results(full)
    fields = result["signature"].fields
    assert (fields["protocol"], fields["pos"]) == ("full", "any") and not {"deletion", "precision"} & set(result)
    made = finished.ccr("evaluate", finished.find("run", "infonce").path, *CPU, "--protocol", "labelled").made
    assert {r["signature"].protocol for r in results(made)} == {"labelled"}
    # every toy item is its own category: both protocols agree
    before = {r["lang"] + r["fusion"]: r["SumR"] for r in results(chain.find("evaluation", "infonce"))}
    assert {r["lang"] + r["fusion"]: r["SumR"] for r in results(made)} == before
    mixed = finished.ccr("compare", finished.find("evaluation", "uml").path, made.path, "--by", "none")
    assert mixed.code == 4 and "protocol is full and labelled" in mixed.err
    assert "ccr evaluate RUN --protocol labelled" in mixed.err
    wrong = copy.ccr("evaluate", *CPU, "--protocol", "half")
    assert wrong.code == 2 and "full or labelled" in wrong.err


@pytest.mark.slow
def test_what_stands_for_a_result_by_category_is_map(copy: Chain) -> None:
    done = toy.ok("evaluate", *CPU, workspace=copy.root)
    (only,) = results(done.made)
    mean = (only["t2v"]["mAP"] + only["v2t"]["mAP"]) / 2
    low, high = only["intervals"]["mAP"]
    assert f"plain en (source): mAP {mean:.1f} ± {(high - low) / 2:.1f}; " in done.err and "SumR" not in done.err
    assert low < mean < high <= 100
    made = toy.ok("report", workspace=copy.root).made
    assert {"tables/map.csv", "figures/map.svg", "figures/training.svg"} <= {f.path for f in made.files}
    page = made.file("report.html").read_text(encoding="utf-8")
    assert f"Without synthetic noise, fume reaches mAP@all {mean:.1f}" in page
    assert "SumR" not in page
    other = toy.ok("evaluate", "--protocol", "full", *CPU, workspace=copy.root)
    assert "plain en (source): SumR " in other.err
    both = toy.ok("report", workspace=copy.root).made
    texts = [both.file(f"tables/{name}.md").read_text(encoding="utf-8") for name in ("settings", "settings-map")]
    assert "SumR (of 600)" in texts[0] and "mAP@all (of 100)" in texts[1]


@pytest.mark.slow
def test_categories_left_out_are_not_trained_on_and_told_apart(copy: Chain) -> None:
    shutil.rmtree(copy.root / "runs")
    made = copy.ccr("train", "--method", "fume", *SMALL, "--set", "left_out=11,14").made
    assert run.config(made)["options"]["classes"] == 4
    data = dataset.read(copy.find("dataset"))
    train = items_of(data.items, "train")
    assert made.counts["triplets"] == 2 * (~train["label"].isin([11, 14])).sum()
    (result,) = results(copy.ccr("evaluate", made.path, *CPU).made)
    assert result["signature"].protocol == "labelled-without-11,14"
    method, v_VD, v_label, t_TD, t_label = embedded(copy, "test", (11, 14))
    assert result["v2t"]["mAP"] == pytest.approx(naive_map((v_VD @ t_TD.T).double().numpy(), v_label, t_label))
    _, every_VD, label, _, _ = embedded(copy, "test")
    unknown = np.isin(label, [11, 14])
    u_V = method.score(every_VD, t_TD)[1].numpy()
    higher = (u_V[unknown][:, None] > u_V[~unknown][None, :]).mean()
    level = (u_V[unknown][:, None] == u_V[~unknown][None, :]).mean()
    ood = result["ood"]
    assert ood["left_out"] == [11, 14]
    assert (ood["v2t"]["known"], ood["v2t"]["unknown"]) == ((~unknown).sum(), unknown.sum())
    assert ood["v2t"]["auroc"] == pytest.approx(higher + level / 2)
    told = read_outside(copy.find("evaluation"))
    assert told is not None
    own = told[told["direction"] == "v2t"]
    assert own["left_out"].to_numpy().tolist() == sorted(unknown.tolist())
    for column, want in (("uncertainty", u_V), ("entropy", entropies(method, every_VD))):
        both = np.concatenate([want[~unknown], want[unknown]])
        assert own[column].to_numpy() == pytest.approx(both, rel=1e-5), column
    page = toy.ok("report", workspace=copy.root).made
    assert {"outside.svg", "entropy.svg"} <= {path.name for path in page.path.joinpath("figures").iterdir()}
    html = page.file("report.html").read_text(encoding="utf-8")
    assert "with and without a match in the gallery: categories left out of training" in html
    assert "categories against its uncertainty" in html


def test_ood_asks_what_it_says_with_categories_left_out_too(copy: Chain) -> None:
    options = ("--method", "fume", *SMALL, "--epochs", "1", "--set", "left_out=11,14", "--name", "fewer")
    made = toy.ok("train", *options, workspace=copy.root).made
    for asked in ((), ("--ood", "half")):
        done = toy.ok("evaluate", made.path, "--protocol", "full", *asked, *CPU, workspace=copy.root)
        (result,) = results(done.made)
        assert result["signature"].protocol == "full-without-11,14" and result["signature"].gallery == "8"
        ood = result["ood"]
        if asked:
            signed = Signature.parse(ood["signature"])
            assert signed.protocol == "full-ood-half-seed0-without-11,14" and signed.gallery == "2x4"
            assert (ood["of"], ood["v2t"]["known"], ood["v2t"]["unknown"]) == ("half-seed0", 8, 8)
        else:
            assert (ood["left_out"], ood["v2t"]["known"], ood["v2t"]["unknown"]) == ([11, 14], 8, 4)


def entropies(method: Any, x_VD: torch.Tensor) -> np.ndarray:
    """Of credibilities that sum to one, over log of their number."""
    c_VK = credibility(method.categories(x_VD)).double().numpy()
    c_VK = c_VK / c_VK.sum(axis=1, keepdims=True)
    found: np.ndarray = -(c_VK * np.log(c_VK)).sum(axis=1) / np.log(c_VK.shape[1])
    return found


def test_fewer_classes_than_categories_are_refused(copy: Chain) -> None:
    done = copy.ccr("train", "--method", "fume", *SMALL, "--set", "classes=5")
    assert (done.code, done.out) == (2, "") and "classes=5, and the training items have 6 categories" in done.err


def test_texts_that_are_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = np.arange(90) % 3
    centre = rng.normal(size=(3, 8))
    content = {
        "X1": (centre[label] + 0.3 * rng.normal(size=(90, 8))).T,
        "X2": (centre[label][:, :5] + 0.3 * rng.normal(size=(90, 5))).T,
        "Y": np.eye(3)[label].T,
        "split": {"ind_train": np.arange(1, 61), "ind_test": np.arange(61, 91)},
    }
    savemat(tmp_path / "some.mat", {"data": content})
    space = tmp_path / "space"
    toy.ok("data", "import", tmp_path / "some.mat", workspace=space)
    done = toy.ccr("train", "datasets/some", "--method", "infonce", *SMALL, workspace=space)
    assert done.code == 4 and "cannot be translated: --method fume or pretrained or source-only" in done.err, done.err
    made = toy.ok("train", "--method", "fume", *SMALL, workspace=space).made
    config = run.config(made)
    assert made.name == f"some-und-fume-seed0-{made.name[-6:]}"
    assert config["options"]["text_encoder"] == "given" and config["text_encoder"]["kind"] == "given"
    (tmp_path / "some.mat").unlink()
    shutil.move(space, tmp_path / "moved")
    done = toy.ccr("evaluate", *CPU, workspace=tmp_path / "moved")
    assert done.code == 0, done.err
    (result,) = results(done.made)
    assert (result["lang"], result["caption_set"]) == ("und", "features")
    assert min(result["t2v"]["mAP"], result["v2t"]["mAP"]) > 60, "three separate clouds, by chance 33"
    done = toy.ccr("evaluate", "--corrupt", "0.3", *CPU, workspace=tmp_path / "moved")
    assert done.code == 2 and "reads texts as features, which have no words to corrupt" in done.err
    toy.ok("evaluate", "--corrupt", "0.3", "--corruption", "features", *CPU, workspace=tmp_path / "moved")
    found = toy.ccr("search", "some-61", *CPU, workspace=tmp_path / "moved")
    assert found.code == 0 and "some-" in found.out
    unknown = toy.ccr("search", "a dog", *CPU, workspace=tmp_path / "moved")
    assert unknown.code == 4 and "no vector of the text 'a dog'" in unknown.err


def test_the_name_of_a_run_on_features_is_plain(tmp_path: Path) -> None:
    """`given` is what such data are read by: it is the default there, and not worth six digits."""
    savemat(
        tmp_path / "two.mat",
        {
            "data": {
                "X1": np.random.default_rng(0).normal(size=(3, 40)),
                "X2": np.random.default_rng(1).normal(size=(2, 40)),
                "Y": np.eye(2)[np.arange(40) % 2].T,
                "split": {"ind_train": np.arange(1, 31), "ind_test": np.arange(31, 41)},
            }
        },
    )
    toy.ok("data", "import", tmp_path / "two.mat", workspace=tmp_path)
    done = toy.ok("train", "--method", "fume", "--dry-run", workspace=tmp_path)
    assert "two-und-fume-seed0\t" in done.out or "two-und-fume-seed0\n" in done.out
    assert not Workspace(tmp_path).artifacts("run")
