"""Runs that start from the alignment of the dual encoder that made the features, and the one that stays there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tinydual
import tinytext
import torch
import toy
import transformers
from torch.nn.functional import normalize
from toy import Chain, Outcome

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, diagnosis, features, run
from ccr_cli.data.frames import Frames
from ccr_cli.stages.shared.embedding import encode_and_embed
from ccr_cli.stages.shared.load_run import load_method

CPU = torch.device("cpu")
SMALL = ("--batch-size", "16", "--device", "cpu")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two CLIPs of different weights."""
    root = tmp_path_factory.mktemp("models")
    return {name: tinydual.save("clip", root / name, seed) for name, seed in (("one", 3), ("other", 4))}


@pytest.fixture(scope="module")
def aligned(sources: Chain, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace with features of the first, and the run `pretrained`."""
    root = tmp_path_factory.mktemp("aligned") / "workspace"
    shutil.copytree(sources.root, root)
    shutil.rmtree(root / "features")
    toy.ok("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={models['one']}", workspace=root)
    toy.ok("train", "--method", "pretrained", "--name", "pretrained", "--device", "cpu", workspace=root)
    return Chain(sources.folder, root)


def train(chain: Chain, method: str, *options: str) -> Outcome:
    return chain.ccr("train", "--method", method, *SMALL, *(word for o in options for word in ("--set", o)))


def similarities(chain: Chain, run: base.Artifact) -> torch.Tensor:
    """Of all pictures and all captions."""
    method, tokenizer = load_method(run, CPU)
    data = dataset.read(chain.find("dataset"))
    rows, offsets, _ = features.read_rows(chain.find("features"), list(data.items["item_id"]), pooled=True)
    with torch.no_grad():
        visual_VD = method.embed_visual(Frames(torch.from_numpy(rows), torch.from_numpy(offsets)))
        return visual_VD @ encode_and_embed(method, tokenizer, list(data.captions["text"]), CPU).T


def test_the_run_has_the_similarities_of_the_model(aligned: Chain, models: dict[str, Path]) -> None:
    run = aligned.find("run", "pretrained")
    assert run.counts["epochs"] == run.counts["steps"] == run.counts["best_epoch"] == 0
    data = dataset.read(aligned.find("dataset"))
    model = transformers.AutoModel.from_pretrained(models["one"])
    processor = transformers.AutoImageProcessor.from_pretrained(models["one"], backend="pil")
    tokens = transformers.AutoTokenizer.from_pretrained(models["one"])
    pixels = processor(images=[toy.draw(item) for item in data.items["item_id"]], return_tensors="pt")["pixel_values"]
    texts = tokens(list(data.captions["text"]), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        output = model(pixel_values=pixels, **texts)
    wanted_VT = normalize(output.image_embeds, dim=1) @ normalize(output.text_embeds, dim=1).T
    torch.testing.assert_close(similarities(aligned, run), wanted_VT, atol=1e-3, rtol=0)  # features are in float16
    assert toy.ccr("verify", "--deep", run.path, workspace=aligned.root).code == 0


TRAINED = [name for name in registry.names("methods") if registry.load("methods", name).Method.TRAINED]
OWN_START = ("nrccr", "fume", "disncl", "distil")
"""Methods with networks of their own behind the text encoder, and a student."""


@pytest.mark.parametrize(
    "name",
    [name if name in (*OWN_START, "trine") else pytest.param(name, marks=pytest.mark.slow) for name in TRAINED],
)
def test_at_step_0_a_run_scores_what_the_model_does(name: str, aligned: Chain) -> None:
    wanted_VT = similarities(aligned, aligned.find("run", "pretrained"))
    done = train(aligned, name, "head=residual", "lora_rank=2", "epochs=0")
    if name in OWN_START:
        assert (done.code, done.out) == (2, ""), done.err
        return
    torch.testing.assert_close(similarities(aligned, done.made), wanted_VT, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_training_that_does_not_help_keeps_the_model(aligned: Chain) -> None:
    done = train(aligned, "infonce", "head=residual", "epochs=2", "lr=1e-9", "encoder_lr=1e-9")
    assert done.code == 0 and "did not improve" in done.err
    history = [json.loads(line) for line in (done.made.path / "history.jsonl").read_text().splitlines()]
    assert [(entry["epoch"], entry["best"]) for entry in history] == [(0, True), (1, False), (2, False)]
    assert (done.made.counts["epochs"], done.made.counts["best_epoch"]) == (2, 0)
    wanted_VT = similarities(aligned, aligned.find("run", "pretrained"))
    torch.testing.assert_close(similarities(aligned, done.made), wanted_VT, atol=1e-6, rtol=0)
    again = train(aligned, "infonce", "head=residual", "epochs=2", "lr=0.02", "encoder_lr=0.005")
    assert again.made.counts["best_epoch"] > 0 and "did not improve" not in again.err


def test_a_learned_temperature_starts_at_the_models_own(aligned: Chain, models: dict[str, Path]) -> None:
    options = ("head=identity", "epochs=0", "learn_temperature=true")
    scale = transformers.AutoModel.from_pretrained(models["one"]).logit_scale.exp().item()
    assert train(aligned, "infonce", *options).made.request["temperature"] == pytest.approx(1 / scale, abs=1e-6)
    assert train(aligned, "infonce", *options, "temperature=0.3").made.request["temperature"] == 0.3


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["two-group", "gmm", "triangle", "osa"])
def test_a_judge_of_an_epoch_speaks_before_the_first_step_if_there_is_no_warm_up(judge: str, aligned: Chain) -> None:
    how = ("head=residual", "epochs=1", "lr=0.02", "judge_side=cross_modal")
    plain, judged = (
        train(aligned, "infonce", *how, *more, "warmup_epochs=0").made for more in ((), (f"judge={judge}",))
    )
    losses = [run.history(made)["loss.infonce_vt"].iloc[1] for made in (plain, judged)]
    assert (losses[0] != losses[1]) or judge == "triangle"  # which finds nothing wrong here
    epochs = [epoch for epoch, _ in run.evidence(judged)]
    assert epochs == [0, 1] and run.history(judged)["judge.mean_p_clean"].between(0, 1).all()
    waiting = train(aligned, "infonce", *how, f"judge={judge}", "warmup_epochs=1").made
    assert [epoch for epoch, _ in run.evidence(waiting)] == ([0, 1] if judge == "osa" else [1])
    assert bool(run.history(waiting)["loss.infonce_vt"].iloc[1] == losses[0]) == (judge != "osa")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["infonce", "ncr"])
def test_osa_reads_the_pretrained_model_and_keeps_its_opinion(method: str, aligned: Chain, tmp_path: Path) -> None:
    sides = {}
    for side in ("cross_modal", "cross_lingual"):
        made = train(aligned, method, "head=identity", "epochs=2", "judge=osa", f"judge_side={side}").made
        frames = [frame for _, frame in run.evidence(made)]
        assert len(frames) == 3 and run.history(made)["judge.mean_p_clean"].round(4).nunique() == 1
        first, *later = (frame["p_clean"] for frame in frames)
        assert all(np.allclose(p, first, atol=1e-6) for p in later) and not np.allclose(first, 1)
        sides[side] = first
        of_model = toy.ok(
            "diagnose", "pretrained", "--judge", "osa", "--judge-side", side, "--device", "cpu", workspace=aligned.root
        )
        pairs = diagnosis.read_pairs(of_model.made).set_index("slot_id").loc[frames[0]["slot_id"]]
        assert np.allclose(pairs["sim_vt"], frames[0]["sim_vt"], atol=1e-5)
        column = "sim_vt" if side == "cross_modal" else "sim_st"
        for sim, p in (
            (frames[0][column], first),
            (pairs[column], pairs["p_clean"]),
        ):  # each with its own shuffled pairs
            x = np.linspace(0, 2 / 3, 10_001)
            between = (p > 1e-3) & (p < 0.95)
            beta = sim[between] - np.interp(p[between], 27 / 4 * x**2 * (1 - x), x)
            assert between.sum() > 5 and np.ptp(beta) < 1e-3 and (sim[p < 1e-6] <= beta.mean() + 1e-3).all()
    assert not np.allclose(sides["cross_modal"], sides["cross_lingual"])
    encoder = tinytext.save("bert", tmp_path / "sentences")
    made = train(aligned, "infonce", "epochs=2", "judge=osa", f"sentence_encoder={encoder}").made  # a new head
    assert [epoch for epoch, _ in run.evidence(made)] == [1, 2] and made.request["sentence_encoder"] != str(encoder)
    refused = train(aligned, "infonce", "judge=osa", f"sentence_encoder={encoder}", "judge_side=both")
    assert refused.code == 2 and "judge_side=cross_lingual" in refused.err


@pytest.mark.parametrize(
    ("method", "option", "code", "message"),
    [
        ("pretrained", "text_encoder={other}", 4, "sha256"),
        ("pretrained", "pooling=mean", 2, "pooling=mean"),
        ("pretrained", "dim=8", 2, "16 dimensions and the texts 16 (dim=8)"),
        ("pretrained", "epochs=1", 2, "--set head=residual"),
        ("pretrained", "judge=oracle", 2, "judge=oracle"),
        ("infonce", "epochs=0", 2, "epochs >= 1"),
        ("pretrained", "visual=gpo", 2, "visual=gpo"),
        ("infonce", "judge=osa", 2, "head=residual"),
        ("pretrained", "judge=osa", 2, "ccr diagnose --judge"),
    ],
)
def test_what_does_not_fit_is_refused(
    method: str, option: str, code: int, message: str, aligned: Chain, models: dict[str, Path]
) -> None:
    done = train(aligned, method, option.format(**models))
    assert (done.code, done.out) == (code, "") and message in done.err


def test_features_of_no_dual_encoder_are_refused(sources: Chain) -> None:
    done = train(sources, "pretrained")
    assert done.code == 2 and "ccr extract --encoder clip" in done.err


def test_a_collection_of_test_items_alone(models: dict[str, Path], tmp_path: Path) -> None:
    folder = toy.toy("tested")
    for item in folder.items:
        item[1] = "test"
    root = tmp_path / "workspace"
    toy.ok("data", "import", folder.write(tmp_path / "tested"), workspace=root)
    toy.ok("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={models['one']}", workspace=root)
    made = toy.ok("train", "--method", "pretrained", "--device", "cpu", workspace=root).made
    assert made.counts["triplets"] == 0
    evaluated = toy.ok("evaluate", "--lang", "es", "--lang", "en", "--device", "cpu", workspace=root)
    assert evaluated.made.counts["results"] == 2
    assert "--translate-test" in evaluated.err and "--epochs" not in evaluated.err, "it is close to chance"


@pytest.mark.parametrize("family", ["clip", "siglip-2", pytest.param("altclip", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_an_export_has_the_similarities_of_the_model(family: str, sources: Chain, tmp_path: Path) -> None:
    """The command itself compares the export with the run."""
    root = tmp_path / "workspace"
    toy.copy_datasets(sources.root, root)
    model = tinydual.save(family, tmp_path / "model")
    toy.ok("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={model}", workspace=root)
    run = toy.ok("train", "--method", "pretrained", "--device", "cpu", workspace=root).made
    assert toy.ok("export", run.path, workspace=root).made.counts["dim"] == tinydual.DIM


def test_without_a_translation_captions_are_judged_by_the_picture(aligned: Chain) -> None:
    made = toy.ok("train", "--method", "pretrained", "--lang", "en", "--device", "cpu", workspace=aligned.root).made
    assert not made.has_parent("translation")
    done = toy.ok("diagnose", made.path, "--device", "cpu", workspace=aligned.root).made
    assert done.request["judge_side"] == "cross_modal"
    refused = aligned.ccr("diagnose", made.path, "--judge-side", "cross_lingual", "--device", "cpu")
    assert refused.code == 2 and "cross_modal" in refused.err


@pytest.mark.parametrize(
    ("weight", "value", "command", "code", "message"),
    [
        ("visual_projection.weight", 1e8, "extract", 1, "half precision"),
        ("text_projection.weight", float("nan"), "train", 4, "not finite"),
    ],
)
def test_vectors_that_are_not_finite_are_refused(
    weight: str, value: float, command: str, code: int, message: str, sources: Chain, tmp_path: Path
) -> None:
    root = tmp_path / "workspace"
    toy.copy_datasets(sources.root, root)
    model = tinydual.save("clip", tmp_path / "model")
    network = transformers.AutoModel.from_pretrained(model)
    with torch.no_grad():
        network.get_parameter(weight).mul_(value)
    network.save_pretrained(model)
    done = toy.ccr("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={model}", workspace=root)
    if command == "train":
        assert done.code == 0
        done = toy.ccr("train", "--method", "pretrained", "--device", "cpu", workspace=root)
    assert (done.code, done.out) == (code, "") and message in done.err
