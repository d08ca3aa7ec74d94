"""ccr evaluate --ensemble, and a softmax in place of an uncertainty, against similarities averaged in numpy.

Shape suffixes: V visual items, T texts, D embedding, M models.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
import toy
from scipy.special import rel_entr, softmax
from sklearn.metrics import roc_auc_score
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.metrics.softmax_uncertainty import fit_temperature
from ccr_cli.report.page import compose
from ccr_cli.stages.evaluate import uncertainty
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import gallery

Array = npt.NDArray[np.float64]
CPU = ("--device", "cpu")
DEVICE = torch.device("cpu")
LONG = ("--epochs", "6", "--set", "lr=0.02", *toy.SMALL)
"""As the runs of the chain."""


@pytest.fixture(scope="module")
def several(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Three seeds of infonce, one of them evaluated alone, and uml with noise; read only."""
    root = tmp_path_factory.mktemp("several") / "workspace"
    shutil.copytree(chain.root, root)
    toy.ok("train", "--method", "infonce", "--sweep", "seed=1,2", *LONG, workspace=root)
    return Chain(chain.folder, root)


def runs(chain: Chain, word: str = "infonce") -> list[base.Artifact]:
    return sorted((base.load(p) for p in (chain.root / "runs").iterdir() if word in p.name), key=lambda a: a.name)


def together(chain: Chain, *options: str | Path, stdin: str | None = None) -> toy.Outcome:
    paths = [a.path for a in runs(chain)] if stdin is None else ["-"]
    return toy.ok("evaluate", *paths, "--ensemble", *options, *CPU, workspace=chain.root, stdin=stdin)


def seen(chain: Chain, trained: base.Artifact, split: str, captions: pd.DataFrame) -> tuple[Any, Array, Array]:
    """The gallery of a run, with its vectors in float64."""
    data = dataset.read(chain.find("dataset", "toy"))
    method, tokenizer = load_method(trained, DEVICE)
    found = gallery(data, chain.find("features"), split, captions, "captions", method.config.needs())
    text_TD = encode_and_embed(method, tokenizer, found.texts, DEVICE)
    return found, embed_visuals(method, found.visual, DEVICE).double().numpy(), text_TD.double().numpy()


def spanish(chain: Chain) -> pd.DataFrame:
    captions = dataset.read(chain.find("dataset", "toy")).captions
    return captions[captions["lang"] == "es"]


def temperature(chain: Chain, trained: base.Artifact) -> float:
    """Fitted to the machine translations of the half of validation that chose the epoch."""
    machine = translation.read(chain.find("translation"))
    queries = machine.loc[machine["direction"] == "forward", ["caption_id", "item_id", "text"]]
    found, v_VD, t_TD = seen(chain, trained, "val-select", queries)
    return fit_temperature(torch.from_numpy(t_TD @ v_VD.T), torch.from_numpy(found.item_T))


def test_an_ensemble_ranks_by_the_mean_and_states_what_its_members_do(several: Chain) -> None:
    done = together(several, "-v")
    members = runs(several)
    result = evaluation.results(done.made)[0]
    captions = spanish(several)
    parts = [seen(several, each, "test", captions) for each in members]
    found = parts[0][0]
    sims_MTV = np.stack([t_TD @ v_VD.T for _, v_VD, t_TD in parts])
    fitted = [temperature(several, each) for each in members]
    assert result["temperature"] == pytest.approx(fitted, rel=1e-3)

    mean_TV = sims_MTV.mean(0)
    own_T = mean_TV[np.arange(len(mean_TV)), found.item_T]
    rank_T = 1 + (mean_TV > own_T[:, None]).sum(1)
    p_MTV = np.stack([softmax(sim / t, axis=1) for sim, t in zip(sims_MTV, fitted, strict=True)])
    wrong_T = 1 - p_MTV.mean(0)[np.arange(len(mean_TV)), mean_TV.argmax(1)]
    apart_T = rel_entr(p_MTV, p_MTV.mean(0)).sum(2).mean(0) / np.log(len(members))
    ranks: Any = evaluation.read_ranks(done.made)
    mine = ranks[(ranks["result"] == 0) & (ranks["direction"] == "t2v")]
    assert mine["query_id"].to_list() == found.caption_ids and mine["rank"].to_list() == rank_T.tolist()
    assert mine["uncertainty"].to_numpy() == pytest.approx(wrong_T, rel=1e-3)
    told = result["calibration"]["t2v"]
    assert list(told["trivial"]) == ["top similarity", "margin", "disagreement"]
    for auroc, score_T in ((told["auroc"], wrong_T), (told["trivial"]["disagreement"]["auroc"], apart_T)):
        assert auroc == pytest.approx(roc_auc_score(rank_T > 1, score_T))
    assert told["ece"] >= 0 and "gaps" in told["trivial"]["disagreement"]
    assert "es, mean of 3 runs: SumR" in done.err and "AUROC: softmax at temperature 0." in done.err


def test_what_an_ensemble_says_of_itself(several: Chain) -> None:
    done = together(several)
    made, members = done.made, runs(several)
    assert made.name.startswith("toy-es-infonce-x3-test-") and made.request["ensemble"] == 3
    assert {p.id for p in made.parents if p.kind == "run"} == {each.id for each in members}
    (single,) = (a for a in several_evaluations(several) if evaluation.run_id(a) == several_first(several).id)
    alone = {(r["lang"], r["fusion"]): r for r in evaluation.results(single)}
    for result in evaluation.results(made):
        assert (result["label"], result["method"], result["seed"]) == ("infonce x3", "infonce", 0)
        assert result["ensemble"] == [each.name for each in members] and result["run"] == "toy-es-infonce-x3"
        told = result["signature"].fields
        other = alone[result["lang"], result["fusion"]]["signature"].fields
        assert told == other | {"sim": "cosine-mean3"}
    again = toy.ok(
        "evaluate", *(a.path for a in reversed(members)), "--ensemble", "--json", *CPU, workspace=several.root
    )
    assert made.path.name in again.out and base.load(made.path).id == made.id
    assert "mean of 3 runs" in toy.ok("show", made.path, workspace=several.root).err


def several_evaluations(chain: Chain) -> list[base.Artifact]:
    return [base.load(path) for path in sorted((chain.root / "evaluations").iterdir())]


def several_first(chain: Chain) -> base.Artifact:
    return runs(chain)[0]


def test_a_sweep_is_an_ensemble_in_a_pipe(several: Chain) -> None:
    """The paths of data and runs come along."""
    swept = toy.ok("train", "--method", "infonce", "--sweep", "seed=1,2", *LONG, workspace=several.root)
    done = together(several, stdin=swept.out)
    assert done.made.request["ensemble"] == 2 and done.made.name.startswith("toy-es-infonce-x2-test-")
    assert set(swept.paths) < set(done.paths)


def twin(chain: Chain, root: Path, name: str, **changes: Any) -> Path:
    """A copy of a workspace with another run of the same weights, whose config says something else."""
    shutil.copytree(chain.root, root)
    place = root / "runs" / name
    shutil.copytree(runs(chain)[0].path, place)
    base.write_json(place / "config.json", base.read_json(place / "config.json") | changes)
    record = base.read_json(place / base.RECORD)
    config = place / "config.json"
    for entry in record["files"]:
        if entry["path"] == config.name:
            entry |= {"bytes": config.stat().st_size, "sha256": base.sha256_file(config)}
    record |= {"name": name, "request": record["request"] | {"seed": 9}}
    parents, files = [base.Parent(**p) for p in record["parents"]], [base.FileEntry(**f) for f in record["files"]]
    record["id"] = base.identity("run", record["schema"], record["request"], parents, files)
    base.write_json(place / base.RECORD, record)
    return place


@pytest.mark.parametrize(
    "options", [("--fusion", "minmax", "--corrupt", "0.3", "--ood", "half"), ("--task", "text", "--lang", "es")]
)
@pytest.mark.slow
def test_one_run_twice_is_itself(options: tuple[str, ...], several: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    again = twin(several, root, "toy-es-infonce-seed9")
    first = root / "runs" / runs(several)[0].name
    one = toy.ok("evaluate", first, *options, "--name", "one", *CPU, workspace=root).made
    two = toy.ok("evaluate", first, again, "--ensemble", *options, "--name", "two", *CPU, workspace=root).made
    for mine, both in zip(evaluation.results(one), evaluation.results(two), strict=True):
        assert [both[k] for k in ("t2v", "v2t", "SumR")] == [mine[k] for k in ("t2v", "v2t", "SumR")]
        assert both.get("temperature", []) == pytest.approx(2 * mine.get("temperature", []), rel=1e-4)
        for direction in ("t2v", "v2t") if mine["calibration"] else ():
            told, alone = both["calibration"][direction], mine["calibration"][direction]
            assert told["auroc"] == pytest.approx(alone["auroc"], abs=1e-9)
            assert set(told["trivial"]) - set(alone["trivial"]) == {"disagreement"}


@pytest.mark.parametrize(
    ("changes", "options", "message", "hint"),
    [
        ({"lang": "fr"}, (), "for queries in es and fr", "--lang LANG"),
        ({"criterion": "mAP"}, (), "by the protocol full and labelled", "--protocol full"),
        (
            {"options": {"left_out": "3", "judge": "none"}},
            (),
            "without the categories none and 3",
            "leave --ensemble out",
        ),
        (
            {"noise": {"style": "image", "target": "pair", "ratio": 0.4, "seed": 0}, "lang": "fr", "criterion": "mAP"},
            ("--lang", "es", "--protocol", "full"),
            "trained with noise none and image-pair-0.4",
            "give runs of one kind and ratio of noise",
        ),
    ],
)
def test_runs_that_are_no_ensemble(
    changes: dict[str, Any], options: tuple[str, ...], message: str, hint: str, several: Chain, tmp_path: Path
) -> None:
    other = twin(several, tmp_path / "ws", "toy-other", **changes)
    first = tmp_path / "ws" / "runs" / runs(several)[0].name
    done = toy.ccr("evaluate", first, other, "--ensemble", *options, *CPU, workspace=tmp_path / "ws")
    assert (done.code, done.out) == (2, "") and hint in done.err
    assert f"{first.name} and toy-other" in done.err and message in done.err


def test_one_run_is_no_ensemble(several: Chain) -> None:
    for given in ([], [runs(several)[0].path]):
        done = several.ccr("evaluate", *given, "--ensemble", *CPU)
        assert done.code == 2 and f"not {len(given)}" in done.err and "ccr evaluate RUN RUN --ensemble" in done.err


@pytest.mark.slow
def test_methods_may_differ_and_features_too(several: Chain, tmp_path: Path) -> None:
    """Of other features of the same data set each member reads its own."""
    root = tmp_path / "workspace"
    shutil.copytree(several.root, root)
    small = (*toy.ENCODER[:3], "image_size=48", *toy.ENCODER[4:])
    other = toy.ok("extract", *small, "--name", "larger", workspace=root).made
    options = ("--method", "uml", "--epochs", "2", *toy.SMALL)
    trained = toy.ok("train", other.path, *options, workspace=root).made
    first = root / "runs" / runs(several)[0].name
    made = toy.ok("evaluate", first, trained.path, "--ensemble", *CPU, workspace=root).made
    result = evaluation.results(made)[0]
    assert (result["label"], result["method"]) == ("infonce + uml", "infonce+uml")
    assert {p.id for p in made.parents if p.kind == "features"} == {other.id, several.find("features").id}
    chain = Chain(several.folder, root)
    captions = spanish(chain)
    sims = []
    for run_path, feats in ((first, several.find("features")), (trained.path, other)):
        method, tokenizer = load_method(base.load(run_path), DEVICE)
        data = dataset.read(chain.find("dataset", "toy"))
        found = gallery(data, feats, "test", captions, "captions", method.config.needs())
        v_VD, t_TD = (
            embed_visuals(method, found.visual, DEVICE),
            encode_and_embed(method, tokenizer, found.texts, DEVICE),
        )
        sims.append((t_TD @ v_VD.T).double().numpy())
    mean_TV = np.mean(sims, axis=0)
    rank_T = 1 + (mean_TV > mean_TV[np.arange(len(mean_TV)), found.item_T][:, None]).sum(1)
    ranks: Any = evaluation.read_ranks(made)
    assert ranks.loc[(ranks["result"] == 0) & (ranks["direction"] == "t2v"), "rank"].to_list() == rank_T.tolist()


def test_no_more_is_held_of_an_ensemble_than_is_allowed(several: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few queries say the same of each."""
    whole = together(several, "--name", "whole").made
    monkeypatch.setattr(uncertainty, "LARGEST", 30)
    monkeypatch.setattr("ccr_cli.metrics.softmax_uncertainty.BLOCK", 30)
    parts = together(several, "--name", "parts").made
    one, two = evaluation.read_ranks(whole), evaluation.read_ranks(parts)
    np.testing.assert_allclose(one["uncertainty"], two["uncertainty"], rtol=1e-4)
    assert one["rank"].equals(two["rank"])
    for a, b in zip(evaluation.results(whole), evaluation.results(parts), strict=True):
        if a["calibration"]:
            found = [each["calibration"]["t2v"]["trivial"]["disagreement"]["auroc"] for each in (a, b)]
            assert found[0] == pytest.approx(found[1])


def test_a_human_mark_of_one_marks_all(several: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(several.root, root)
    options = ("--method", "infonce", "--epochs", "2", "--select-on", "human", "--seed", "5", *toy.SMALL)
    marked = toy.ok("train", *options, workspace=root).made
    first = root / "runs" / runs(several)[0].name
    made = toy.ok("evaluate", first, marked.path, "--ensemble", *CPU, workspace=root).made
    assert {r["signature"].select for r in evaluation.results(made)} == {"human"}


@pytest.mark.slow
def test_without_validation_there_is_no_softmax(tmp_path: Path) -> None:
    folder = toy.toy()
    for item in folder.items:
        item[1] = "train" if item[1] == "val" else item[1]
    root = tmp_path / "ws"
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
    done = toy.ok("evaluate", "-v", *CPU, workspace=root)
    for result in evaluation.results(done.made):
        assert result["signature"].unc == "none" and "temperature" not in result
        assert set(result["calibration"]["t2v"]["trivial"]) == {"top similarity", "margin"}
    assert evaluation.read_ranks(done.made)["uncertainty"].isna().all()
    assert "AUROC: no uncertainty" in done.err and "no uncertainty: toy has no" in done.err


def test_an_ensemble_stands_beside_its_runs_and_is_none_of_them(several: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(several.root, root)
    paths = [root / "runs" / a.name for a in runs(several)]
    made = toy.ok("evaluate", *paths, "--ensemble", *CPU, workspace=root).made
    done = toy.ok("compare", paths[0], made.path, workspace=root)
    assert "infonce x3" in done.err and done.out.splitlines()[1].split("\t")[2:4] == ["infonce", "infonce x3"]
    lone = toy.ccr("compare", made.path, paths[1], workspace=root)
    assert lone.code == 2 and "of one run" in lone.err.replace("\n", " ")
    for path in paths[1:]:
        toy.ok("evaluate", path, *CPU, workspace=root)
    rows = toy.ok("compare", *paths, made.path, "-v", workspace=root).out.splitlines()
    head, first = (line.split("\t") for line in rows[:2])
    told = dict(zip(head, first, strict=True))
    assert (told["first"], told["first_seeds"], told["second"], told["second_seeds"]) == (
        "infonce",
        "3",
        "infonce x3",
        "1",
    )
    seen = compose.overview(gather(Inputs.from_paths(Workspace(root), map(str, paths))))
    table: Any = {row.cells[0].value: [cell.value for cell in row.cells[1:]] for row in seen.tables["sumr"].rows}
    whole, alone = evaluation.results(made)[0]["SumR"], table["infonce"][0]
    assert table["infonce x3"] == [whole, 1] and table["infonce"][1] == 3
    assert "infonce reaches SumR" in seen.findings.headline, "an ensemble is no method"
    gap = f"{abs(whole - alone):.1f} {'above' if whole > alone else 'below'} the mean of single runs"
    said = f"As an ensemble, infonce x3 reaches {whole:.1f}, {gap}"
    (sentence,) = (each for each in seen.findings.more if each.startswith(said))
    ends = re.search(r"95% interval,? (\S+) to ([^\s,)]+)", sentence.replace("\u2212", "-"))
    assert ends is not None, "the interval that compare says"
    assert [float(end) for end in ends.groups()] == pytest.approx([float(told["low"]), float(told["high"])], abs=0.06)
    assert ("; that may be due to chance" in sentence) == (float(told["low"]) <= 0 <= float(told["high"]))
    only = compose.overview(gather(Inputs.from_paths(Workspace(root), [str(made.path)])))
    assert [row.cells[0].value for row in only.tables["sumr"].rows] == ["infonce x3"]
    few = "12 queries are too few to measure anything. "
    assert only.findings.headline.startswith(f"{few}Without synthetic noise, infonce x3 reaches")
    card = toy.ok("export", paths[0], workspace=root).made
    assert [p.id for p in card.parents if p.kind == "evaluation"] != [] and made.id not in {p.id for p in card.parents}
    refused = toy.ccr("export", paths[0], made.path, "--name", "x", workspace=root)
    assert refused.code == 2 and made.name in refused.err
