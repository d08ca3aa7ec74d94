"""Runs that start from the alignment of the dual encoder that made the features, and the one that stays there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tinydual
import torch
import toy
import transformers
from torch.nn.functional import normalize
from toy import Chain, Outcome

from ccr_cli.artifacts import base, dataset, features
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


@pytest.mark.parametrize("options", [("head=identity",), ("head=residual", "lora_rank=2")])
def test_at_step_0_a_run_scores_what_the_model_does(options: tuple[str, ...], aligned: Chain) -> None:
    """That every method does is among the contract tests."""
    wanted_VT = similarities(aligned, aligned.find("run", "pretrained"))
    made = train(aligned, "uml", *options, "epochs=0").made
    torch.testing.assert_close(similarities(aligned, made), wanted_VT, atol=1e-6, rtol=0)


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
    evaluated = toy.ok("evaluate", "--lang", "es", "--lang", "en", "--device", "cpu", workspace=root).made
    assert evaluated.counts["results"] == 2


@pytest.mark.parametrize("family", ["clip", "siglip-2", "altclip"])
def test_an_export_has_the_similarities_of_the_model(family: str, sources: Chain, tmp_path: Path) -> None:
    """The command itself compares the export with the run."""
    root = tmp_path / "workspace"
    shutil.copytree(sources.root / "datasets", root / "datasets")
    model = tinydual.save(family, tmp_path / "model")
    toy.ok("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={model}", workspace=root)
    run = toy.ok("train", "--method", "pretrained", "--device", "cpu", workspace=root).made
    assert toy.ok("export", run.path, workspace=root).made.counts["dim"] == tinydual.DIM
