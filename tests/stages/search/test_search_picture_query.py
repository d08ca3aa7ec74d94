"""Pictures as queries, and captions as answers."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
import transformers
import videos
from fastapi import HTTPException
from PIL import Image
from rows import in_npz
from toy import Chain

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.server import Service
from ccr_cli.stages.search.stage import open_searcher
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.picture_encoder import PictureEncoder
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")


def search(chain: Chain, *options: str | Path, word: str = "uml") -> dict[str, Any]:
    run = chain.find("run", word).path
    found: dict[str, Any] = json.loads(
        toy.ok("search", *options, run, "--json", "--top", "100", *CPU, workspace=chain.root).out
    )
    return found


def media(chain: Chain, item: str) -> Path:
    return chain.folder / "media" / f"{item}.png"


def vectors(chain: Chain, split: str) -> dict[str, torch.Tensor]:
    """The vector of every item of a split."""
    items = items_of(dataset.read(chain.find("dataset")).items, split)
    method, _ = load_method(chain.find("run", "uml"), torch.device("cpu"))
    visual, ids = read_visuals(chain.find("features"), list(items["item_id"]), frozenset())
    with torch.no_grad():
        return dict(zip(ids, method.embed_visual(visual), strict=True))


def test_a_picture_finds_itself_and_what_is_like_it(chain: Chain) -> None:
    known = vectors(chain, "test")
    for item in list(known)[:3]:
        found = search(chain, "--image", media(chain, item))
        assert found["image"] == str(media(chain, item)) and found["uncertainty"] is None
        assert found["hits"][0]["item_id"] == item
        wanted = {other: float(known[item] @ vector) for other, vector in known.items()}
        assert {h["item_id"]: h["similarity"] for h in found["hits"]} == pytest.approx(wanted, abs=1e-3)


def test_a_picture_finds_captions_by_the_method_s_own_score(chain: Chain) -> None:
    data = dataset.read(chain.find("dataset"))
    item, vector = next(iter(vectors(chain, "test").items()))
    tests = set(items_of(data.items, "test")["item_id"])
    for langs, option in ((("es", "en"), ()), (("es",), ("--lang", "es"))):
        table = data.captions[data.captions["item_id"].isin(tests) & data.captions["lang"].isin(langs)]
        method, tokenizer = load_method(chain.find("run", "uml"), torch.device("cpu"))
        with torch.no_grad():
            rows = torch.arange(len(table))
            text_TD = method.embed_text(tokenizer.encode(list(table["text"])).select(rows))
            sim_1T, uncertainty_1 = method.score(vector[None], text_TD)
        found = search(chain, "--image", media(chain, item), "--find", "captions", *option)
        wanted = dict(zip(table["caption_id"], sim_1T[0].tolist(), strict=True))
        assert {h["caption_id"]: h["similarity"] for h in found["hits"]} == pytest.approx(wanted, abs=1e-3)
        assert uncertainty_1 is not None and found["uncertainty"] == pytest.approx(float(uncertainty_1), abs=1e-3)
        said = table.set_index("caption_id")
        for hit in found["hits"]:
            assert (hit["caption"], hit["lang"], hit["item_id"]) == tuple(
                said.loc[hit["caption_id"], ["text", "lang", "item_id"]]
            )
            assert Path(hit["image"]) == media(chain, hit["item_id"])


def test_words_find_captions(chain: Chain) -> None:
    data = dataset.read(chain.find("dataset"))
    caption = data.captions[data.captions["item_id"].isin(items_of(data.items, "test")["item_id"])].iloc[0]
    found = search(chain, caption["text"], "--find", "captions")
    assert found["hits"][0]["caption"] == caption["text"] and found["hits"][0]["similarity"] == pytest.approx(1)
    assert found["uncertainty"] is None, "it speaks of pictures"


def test_a_language_chooses_run_and_captions(chain: Chain) -> None:
    run = chain.find("run", "uml").path
    assert chain.ccr("search", "red", run, "--lang", "en", *CPU).code == 0
    done = chain.ccr("search", "rouge", run, "--lang", "fr", *CPU)
    assert (done.code, done.out) == (4, "") and str(run) in done.err and " fr" in done.err
    assert "ccr translate --lang fr | ccr train - --method uml" in done.err.replace("\n", " ")
    done = chain.ccr("search", "rouge", run, "--image", "red.png", *CPU)
    assert done.code == 2 and "rouge" in done.err and "--image" in done.err
    assert chain.ccr("search", "rojo", "--lang", "es", *CPU).err.count("runs/") >= 2
    assert " fr" in chain.ccr("search", "rouge", "--lang", "fr", *CPU).err


def bomb(path: Path) -> Path:
    Image.new("1", (8_100, 8_100)).save(path)
    return path


def test_what_is_no_picture_is_refused(chain: Chain, tmp_path: Path) -> None:
    text, cut = tmp_path / "a.png", tmp_path / "b.png"
    text.write_text("no picture")
    cut.write_bytes(media(chain, "red-circle").read_bytes()[:60])
    for path in (tmp_path / "none.png", tmp_path, text, cut, bomb(tmp_path / "bomb.png"), "https://host/a.png"):
        done = chain.ccr("search", "--image", path, chain.find("run", "uml").path, *CPU)
        assert (done.code, done.out) == (2, "") and Path(path).name in done.err and "Error:" not in done.err, path


def test_a_folder_is_no_picture(chain: Chain, tmp_path: Path) -> None:
    done = chain.ccr("search", "--image", tmp_path, chain.find("run", "uml").path, *CPU)
    assert done.code == 2 and f"{tmp_path} is a folder, not a file\n  try: name a file in it: ls" in done.err


def test_features_of_others_have_no_encoder_here(workspace: Chain, tmp_path: Path) -> None:
    data = dataset.read(workspace.find("dataset"))
    rows = {item: np.ones((1, 8), np.float32) * i for i, item in enumerate(data.items["item_id"])}
    source = in_npz(tmp_path / "mine", rows)
    made = toy.ok(
        "extract", data.artifact.path, "--from", source, "--encoder-name", "clip", workspace=workspace.root
    ).made
    with pytest.raises(ArtifactError, match=re.escape(str(made.path))):
        PictureEncoder(made, torch.device("cpu"))


def test_another_encoder_of_the_same_name_is_refused(workspace: Chain) -> None:
    own, data = workspace.find("features"), workspace.find("dataset")
    other = {**base.read_json(own.file("encoder.json")), "weights_sha256": "0" * 64, "preprocessing": "none"}
    with building(Workspace(workspace.root), "features", "other", own.request, [data]) as build:
        for file in own.files:
            shutil.copy(own.path / file.path, build.folder / file.path)
        base.write_json(build.folder / "encoder.json", other)
        made = build.finish(own.counts)
    with pytest.raises(ArtifactError, match="preprocessing, weights_sha256"):
        PictureEncoder(made, torch.device("cpu"))


def test_joined_features_need_every_encoder(workspace: Chain) -> None:
    small = ("--encoder", "efficientnet-lite0", "--set", "image_size=64", *CPU)
    toy.ok("extract", *small, "--name", "larger", workspace=workspace.root)
    parts = [f.path for f in Workspace(workspace.root).artifacts("features")]
    made = toy.ok("extract", "--concat", *parts, workspace=workspace.root).made
    encoder = PictureEncoder(made, torch.device("cpu"))
    for item in ("red-circle", "blue-bar"):
        wanted, _, _ = features.read_rows(made, [item], pooled=False)
        found = encoder.file(media(workspace, item)).rows_ND.numpy()
        np.testing.assert_allclose(found, wanted, atol=2e-3, rtol=1e-2)
        with Image.open(media(workspace, item)) as image:
            assert np.array_equal(encoder.image(image).rows_ND.numpy(), found)


@pytest.mark.parametrize("pool", ["none", pytest.param("mean", marks=pytest.mark.slow)])
def test_a_video_is_a_query_where_videos_are_searched(pool: str, tmp_path: Path) -> None:
    folder = toy.Folder("clips")
    folder.items.append(["a", "train", "video", "a.mp4", "", "a"])
    folder.captions.append(["a-en0", "a", "en", "0", "a clip", "main"])
    place, root = folder.write(tmp_path / "clips", pictures=False), tmp_path / "workspace"
    videos.write_video(place / "media" / "a.mp4", 50)
    toy.ok("data", "import", place, workspace=root)
    made = toy.ok("extract", *toy.ENCODER, "--set", "frames=4", "--pool", pool, workspace=root).made
    encoder = PictureEncoder(made, torch.device("cpu"))
    wanted, _, _ = features.read_rows(made, ["a"], pooled=False)
    found = encoder.file(place / "media" / "a.mp4").rows_ND.numpy()
    np.testing.assert_allclose(found, wanted, atol=2e-3, rtol=1e-2)
    still = tmp_path / "still.png"
    toy.draw("red-circle").save(still)
    assert len(encoder.file(still).rows_ND) == 1
    with pytest.raises(UsageError, match=r"none\.mp4"):
        encoder.file(tmp_path / "none.mp4")


@pytest.mark.slow
def test_an_encoder_of_clips_is_not_asked_for_pictures(tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.VideoMAEConfig(**small, num_attention_heads=2, image_size=32, patch_size=16, num_frames=2)
    transformers.VideoMAEModel(config).save_pretrained(tmp_path / "videomae")
    said = {"image_processor_type": "VideoMAEImageProcessor", "size": {"shortest_edge": 32}, "crop_size": 32}
    (tmp_path / "videomae" / "preprocessor_config.json").write_text(json.dumps(said))
    folder = toy.toy("clips")
    for item in folder.items:
        item[2:4] = ["video", "one.mp4"]
    place, root = folder.write(tmp_path / "clips", pictures=False), tmp_path / "workspace"
    videos.write_video(place / "media" / "one.mp4", 12)
    toy.ok("data", "import", place, workspace=root)
    toy.ok("extract", "--encoder", "video", "--set", f"model={tmp_path / 'videomae'}", *CPU, workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
    still = io.BytesIO()
    toy.draw("red-ring").save(still, "png")
    service = Service(open_searcher(Inputs(Workspace(root)), SearchOptions(device="cpu")))
    assert service.pictures is False
    with pytest.raises(HTTPException) as refusal:
        asyncio.run(service.picture(still.getvalue(), 3))
    assert refusal.value.status_code == 501
    assert len(asyncio.run(service.text("rojo", "es", 3))["hits"]) == 3
