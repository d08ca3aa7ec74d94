"""Runs that train the encoder of their features too, from the media: a tiny CLIP on pictures and videos."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyclip
import torch
import toy
import videos
from safetensors.torch import load_file
from toy import Chain

from ccr_cli.artifacts import base, evaluation, features
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.sampling import Sampling
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.ragged import mean_rows
from ccr_cli.stages.export.encode import Encoder
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.picture_encoder import PictureEncoder
from ccr_cli.stages.shared.pixels import encoder_input, load_tower, read_pixels
from ccr_cli.stages.shared.triplets import read_visuals
from ccr_cli.stages.train import loop

CPU = torch.device("cpu")
TRAIN = (
    "train",
    "--method",
    "infonce",
    "--set",
    "finetune=true",
    "--epochs",
    "2",
    "--set",
    "encoder_lr=0.003",
    *toy.SMALL,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyclip.save(tmp_path_factory.mktemp("model") / "clip")


@pytest.fixture(scope="module")
def encoded(sources: Chain, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace whose features a tiny CLIP made; read only."""
    root = tmp_path_factory.mktemp("encoded") / "workspace"
    shutil.copytree(sources.root, root)
    shutil.rmtree(root / "features")
    toy.ok("extract", "--encoder", "clip", "--set", f"model={model}", "--device", "cpu", workspace=root)
    return Chain(sources.folder, root)


@pytest.fixture
def place(encoded: Chain, tmp_path: Path) -> Chain:
    """A copy for a test to change."""
    root = tmp_path / "workspace"
    shutil.copytree(encoded.root, root)
    return Chain(encoded.folder, root)


def alike(feats: base.Artifact, ids: list[str]) -> float:
    """Least cosine of what the network makes of pictures, and the features of the same items."""
    pictures, found = read_pixels(feats, ids)
    whole = pictures.to("cpu")
    assert found == ids and whole.rows_ND.dtype == torch.uint8
    with torch.no_grad():
        seen_VD = mean_rows(load_tower(feats, 0).eval()(whole.rows_ND), whole.offsets_V1)
    rows, _, _ = features.read_rows(feats, ids, pooled=True)
    return torch.cosine_similarity(seen_VD, torch.from_numpy(rows)).min().item()


def cosine(run: base.Artifact, export: base.Artifact, picture: Path, **options: Any) -> float:
    """Of a picture's vectors by the run and by its export."""
    method, _ = load_method(run, CPU)
    feats = Workspace(run.path.parents[1]).parent(run, "features")
    item = PictureEncoder(feats, CPU, method.config.needs()).file(picture)
    with torch.no_grad():
        own_D = method.embed_visual(item)[0].numpy()
    return float(own_D @ Encoder(export.path, **options).encode_image(picture))


@pytest.mark.parametrize("licence", ["apache-2.0", "other"])
@pytest.mark.slow
def test_an_export_has_the_encoder_or_names_it(licence: str, encoded: Chain, model: Path, tmp_path: Path) -> None:
    licensed, root = tmp_path / "clip", tmp_path / "workspace"
    shutil.copytree(model, licensed)
    (licensed / "README.md").write_text(f"---\nlicense: {licence}\n---\n")
    shutil.copytree(encoded.root, root)
    toy.ok("extract", "--encoder", "clip", "--set", f"model={licensed}", "--device", "cpu", "--force", workspace=root)
    run = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root).made
    export, picture = toy.ok("export", run.path, workspace=root).made, encoded.folder / "media" / "red-circle.png"
    (about,) = export.json("image.json")["encoders"]
    assert (export.path / "image1.safetensors").is_file() == (licence == "apache-2.0")
    if licence == "apache-2.0":
        assert about["weights"] == {"file": "image1.safetensors"}
        assert not any(name.startswith("text_model") for name in load_file(export.path / "image1.safetensors"))
        assert cosine(run, export, picture) > 0.9999
        return
    assert about["weights"]["sha256"] == base.sha256_file(licensed / "model.safetensors")
    assert cosine(run, export, picture, image_models={"clip": licensed}) > 0.9999
    with pytest.raises(ValueError, match="image_models"):
        cosine(run, export, picture)
    other = tinyclip.save(tmp_path / "other", seed=1)
    with pytest.raises(ValueError, match=about["weights"]["sha256"]):
        cosine(run, export, picture, image_models={"clip": other})


def test_the_network_begins_where_the_features_end(place: Chain) -> None:
    feats = place.find("features")
    ids = list(features.read_index(feats)["item_id"])
    assert alike(feats, ids[::-1]) >= 0.99999
    pictures, _ = read_visuals(feats, ids[3:5], frozenset({"media"}))
    one = PictureEncoder(feats, torch.device("cpu"), frozenset({"media"})).file(
        place.folder / "media" / f"{ids[4]}.png"
    )
    assert torch.equal(pictures.select(torch.tensor([1])).rows_ND, one.rows_ND)


@pytest.mark.slow
def test_a_run_from_media(place: Chain, model: Path) -> None:
    made = toy.ok(*TRAIN, workspace=place.root).made
    assert "from media" not in made.name and [parent.kind for parent in made.parents][-1] == "features"
    history = [json.loads(line) for line in made.file("history.jsonl").read_text().splitlines()]
    assert history[1]["loss"]["total"] < history[0]["loss"]["total"]
    weights = load_file(made.file("model.safetensors"))
    first = load_tower(place.find("features"), 0).state_dict()
    moved = {name: not torch.equal(weights[f"encoder.tower.{name}"], value) for name, value in first.items()}
    assert all(there for name, there in moved.items() if name.endswith("weight")), moved
    settings = base.read_json(made.file("config.json"))
    assert settings["visual_dim"] == 24 and str(model.parent) not in json.dumps(settings)

    measured = toy.ok("evaluate", made.path, "--device", "cpu", workspace=place.root).made
    scores = {result["lang"]: result["SumR"] for result in evaluation.results(measured)}
    model.rename(model.with_name("gone"))
    try:
        for name in ("CCR_CACHE", "HF_HOME"):  # decoded anew, and the model is not needed for it
            os.environ[name] = str(place.root / name)
        again = toy.ok("evaluate", made.path, "--device", "cpu", "--force", workspace=place.root).made
    finally:
        model.with_name("gone").rename(model)
        del os.environ["HF_HOME"]
    assert {result["lang"]: result["SumR"] for result in evaluation.results(again)} == scores
    toy.ok("diagnose", made.path, "--device", "cpu", workspace=place.root)
    found = toy.ok("search", "círculo rojo", made.path, "--device", "cpu", "--json", workspace=place.root)
    assert "similarity" in found.out
    picture = place.folder / "media" / "red-circle.png"
    call = ("search", "--image", picture, made.path, "--split", "all", "--device", "cpu", "--json")
    assert json.loads(toy.ok(*call, workspace=place.root).out)
    export = toy.ok("export", made.path, workspace=place.root).made
    assert cosine(made, export, picture) > 0.9999, "with the weights that were trained, though no licence is known"


@pytest.mark.slow
def test_equal_seeds_and_stops_give_equal_bytes(place: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (*TRAIN, "--set", "visual_frozen_layers=1")
    whole = toy.ok(*options, "--name", "whole", workspace=place.root).made
    rename, states = os.replace, []

    def stopping(source: Any, target: Any) -> None:
        rename(source, target)
        states.append(str(target).endswith("state.json"))
        if sum(states) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(os, "replace", stopping)
    assert toy.ccr(*options, "--name", "again", workspace=place.root).code == 130
    monkeypatch.setattr(os, "replace", rename)
    done = toy.ok(*options, "--name", "again", workspace=place.root)
    assert "going on after" in done.err and done.made.files == whole.files
    first, weights = load_tower(place.find("features"), 0).state_dict(), load_file(whole.file("model.safetensors"))
    held = [name for name in first if "layers.0." in name]
    assert held and all(torch.equal(weights[f"encoder.tower.{name}"], first[name]) for name in held)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("tcl", ()),
        pytest.param("nrccr", ("--set", "heads=2"), marks=pytest.mark.slow),
        pytest.param("disncl", ("--set", "visual=gpo"), marks=pytest.mark.slow),
        ("uml", ()),
    ],
)
def test_every_method_trains_it(method: str, options: tuple[str, ...], place: Chain) -> None:
    call = (*TRAIN, "--method", method, "--epochs", "1", *options)
    made = toy.ok(*call, workspace=place.root).made
    weights, first = load_file(made.file("model.safetensors")), load_tower(place.find("features"), 0).state_dict()
    towers = sorted({name.split(".tower.")[0] for name in weights if ".tower." in name})
    assert towers == (["encoder", "textual_queries"] if method == "tcl" else ["encoder"])
    name = "model.visual_projection.weight"
    assert all(not torch.equal(weights[f"{tower}.tower.{name}"], first[name]) for tower in towers)
    loaded, _ = load_method(made, CPU)
    trained = [name for name, weight in loaded.named_parameters() if ".tower." in name and weight.requires_grad]
    assert len(trained) > 20


@pytest.mark.slow
def test_the_bundled_pictures(model: Path, tmp_path: Path) -> None:
    toy.ok("data", "import", "noto-emoji", workspace=tmp_path)
    toy.ok("translate", "--lang", "es", workspace=tmp_path)
    feats = toy.ok(
        "extract", "--encoder", "clip", "--set", f"model={model}", "--device", "cpu", workspace=tmp_path
    ).made
    assert alike(feats, list(features.read_index(feats)["item_id"])) >= 0.99999
    options = (*TRAIN, "--epochs", "3", "--set", "dropout=0", "--batch-size", "128")
    made, again = (toy.ok(*options, "--name", name, workspace=tmp_path).made for name in ("made", "again"))
    assert again.files == made.files
    losses = [json.loads(line)["loss"]["total"] for line in made.file("history.jsonl").read_text().splitlines()]
    assert losses == sorted(losses, reverse=True)
    toy.ok("evaluate", made.path, "--device", "cpu", workspace=tmp_path)


def test_rows_that_nothing_is_to_be_made_of_are_said(workspace: Chain) -> None:
    call = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL)
    assert "every training item has one row" in toy.ok(*call, "--set", "visual=gpo", workspace=workspace.root).err
    assert "one row" not in toy.ok(*call, workspace=workspace.root).err


def test_frames_of_videos(tmp_path: Path, model: Path) -> None:
    media, root = tmp_path / "clips" / "media", tmp_path / "workspace"
    folder = toy.Folder("clips")
    for item in ("long", "short"):
        folder.items.append([item, "train", "video", f"{item}.mp4", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
    folder.write(media.parent, pictures=False)
    for item, count in (("long", 50), ("short", 10)):
        videos.write_video(media / f"{item}.mp4", count)
    toy.ok("data", "import", media.parent, workspace=root)
    call = ("extract", "--encoder", "clip", "--set", f"model={model}", "--set", "fps=5", "--device", "cpu")
    feats = toy.ok(*call, workspace=root).made
    assert encoder_input(feats).sampling == Sampling(fps=5.0)
    pictures, ids = read_pixels(feats, ["short", "long"])
    counts = features.read_index(feats).set_index("item_id")["n_rows"]
    assert pictures.offsets_V1.diff().tolist() == [counts["short"], counts["long"]] and counts["long"] > counts["short"]
    assert ids == ["short", "long"] and alike(feats, ids) >= 0.99999


def test_what_cannot_be_trained_is_refused(
    place: Chain, sources: Chain, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feats = place.find("features")
    with pytest.raises(UsageError, match="efficientnet-lite0"):
        load_tower(sources.find("features"), 0)
    media = tmp_path / "media"
    monkeypatch.setenv("CCR_MEDIA_ROOT", str(media))
    with pytest.raises(ArtifactError, match=re.escape(str(media))):
        read_pixels(feats, ["red-circle"])
    media.mkdir()
    with pytest.raises(ArtifactError, match=r"red-circle .*FileNotFound"):
        read_pixels(feats, ["red-circle"])
    for path in (place.folder / "media").iterdir():
        toy.draw("black-square" if path.stem != "black-square" else "red-ring").save(media / path.name)
    refused = toy.ccr(*TRAIN, workspace=place.root)
    assert refused.code == 4 and "cosine" in refused.err
    moved = model.rename(model.with_name("elsewhere"))
    try:
        with pytest.raises(ArtifactError, match=re.escape(str(model))):
            load_tower(feats, 0)
    finally:
        moved.rename(model)
