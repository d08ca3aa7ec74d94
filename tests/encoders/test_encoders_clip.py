"""The clip encoder on tiny CLIP and SigLIP checkpoints made here; nothing comes from a network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import hub_server
import numpy as np
import pytest
import torch
import toy
import transformers
from PIL import Image
from toy import Chain

from ccr_cli import hub
from ccr_cli.artifacts import features
from ccr_cli.artifacts.base import Artifact
from ccr_cli.encoders import base, clip
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

CPU = torch.device("cpu")
TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24)
    transformers.CLIPModel(config).save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessorPil(**size).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def siglip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("siglip")
    torch.manual_seed(0)
    config = transformers.SiglipConfig(text_config=TEXT | {"projection_size": 16}, vision_config=VISION)
    transformers.SiglipModel(config).save_pretrained(folder)
    transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def make(folder: Path | str, dtype: torch.dtype = torch.float32) -> clip.Encoder:
    return clip.Encoder(clip.Config(model=str(folder)), CPU, dtype)


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (50, 70, 3), dtype=np.uint8))


@pytest.mark.parametrize(("name", "dim"), [("clip_folder", 24), ("siglip_folder", 16)])
def test_pictures(name: str, dim: int, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(name)
    encoder = make(folder)
    assert encoder.dim == dim
    pixels = torch.stack([encoder.preprocess(picture(seed)) for seed in range(3)])
    assert pixels.shape == (3, 3, 32, 32)
    found = encoder.encode(pixels)
    assert found.shape == (3, dim) and found.dtype == torch.float32
    model = transformers.AutoModel.from_pretrained(folder).eval()
    text = {"input_ids": torch.zeros(1, 12, dtype=torch.long)}
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    theirs = processor(images=[picture(seed) for seed in range(3)], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model(pixel_values=theirs, **text).image_embeds
    assert torch.allclose(found / found.norm(dim=1, keepdim=True), expected, atol=1e-5)
    assert not torch.allclose(found.norm(dim=1), torch.ones(3), atol=1e-3)


def test_transparent_pixels_are_white(clip_folder: Path) -> None:
    encoder = make(clip_folder)
    clear = encoder.preprocess(Image.new("RGBA", (40, 40), (255, 0, 0, 0)))
    assert torch.equal(clear, encoder.preprocess(Image.new("RGB", (40, 40), "white")))


def test_describe(clip_folder: Path) -> None:
    facts = make(clip_folder, torch.bfloat16).describe()
    assert facts["model"] == clip_folder.name and facts["revision"] == "local folder"
    assert facts["weights_sha256"] == base.sha256_of([clip_folder / "model.safetensors"])
    assert facts["activation"] == "quick_gelu" and facts["attention"] == "sdpa"
    assert "CLIPImageProcessorPil" in str(facts["preprocessing"])
    assert (facts["preprocessing_backend"], facts["dtype"], facts["dim"]) == ("pil", "bfloat16", 24)


def test_the_precision_is_the_one_asked_for(clip_folder: Path) -> None:
    encoder = make(clip_folder, torch.bfloat16)
    found = encoder.encode(encoder.preprocess(picture(0))[None])
    assert found.dtype == torch.float32
    full = make(clip_folder)
    assert torch.cosine_similarity(found, full.encode(full.preprocess(picture(0))[None])).item() > 0.99


@pytest.mark.slow
def test_a_broken_torchvision_does_no_harm(clip_folder: Path, tmp_path: Path) -> None:
    fake = tmp_path / "torchvision"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch\n"
        "from PIL import Image; from ccr_cli.encoders import clip\n"
        "e = clip.Encoder(clip.Config(model=sys.argv[2]), torch.device('cpu'), torch.float32)\n"
        "assert e.encode(e.preprocess(Image.new('RGB', (40, 40)))[None]).shape == (1, 24)\n"
        "assert 'torchvision' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(clip_folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_model_without_an_image_side(tmp_path: Path, clip_folder: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text((clip_folder / "preprocessor_config.json").read_text())
    with pytest.raises(UsageError, match="BertModel"):
        make(tmp_path)


def test_folders_and_names_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        make(tmp_path)
    with pytest.raises(UsageError):
        make("no such/place/at all")


def test_shards_of_weights_must_all_be_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_bytes(b"1")
    assert hub.weights_of(tmp_path) == ()
    (tmp_path / "model-2.safetensors").write_bytes(b"2")
    assert [path.name for path in hub.weights_of(tmp_path)] == ["model-1.safetensors", "model-2.safetensors"]


def test_a_cached_model_is_found_by_name(clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789" * 4
    repository = tmp_path / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / commit).symlink_to(clip_folder, target_is_directory=True)
    encoder = make("someone/tiny")
    assert encoder.describe()["revision"] == commit
    assert encoder.describe()["model"] == "someone/tiny"


@pytest.mark.parametrize("network", ["offline", "hanging", "down"])
def test_no_model_and_no_network_is_said_at_once(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", network == "offline")

    def ask(*args: Any, **kwargs: Any) -> Any:
        if network == "hanging":
            time.sleep(30)
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(hub, "in_time", partial(hub.in_time, seconds=0.2))
    if network != "offline":
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", ask)
    start = time.monotonic()
    with pytest.raises(UnavailableError, match="openai/clip-vit-base-patch32") as caught:
        clip.Encoder(clip.Config(), CPU, torch.float32)
    assert time.monotonic() - start < 5
    assert "hf download openai/clip-vit-base-patch32" in (caught.value.hint or "")


def test_the_hub_says_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))

    def ask(*args: Any, **kwargs: Any) -> Any:
        raise RepositoryNotFoundError("no", response=httpx.Response(404, request=httpx.Request("GET", "https://x")))

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", ask)
    with pytest.raises(UnavailableError, match="404"):
        clip.Encoder(clip.Config(model="someone/nothing", revision="v2"), CPU, torch.float32)


def test_a_moved_folder_is_the_same_request(clip_folder: Path, workspace: Chain, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(clip_folder, folder)

    def extracted() -> Artifact:
        call = ("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={folder}")
        return toy.ok(*call, workspace=workspace.root).made

    first = extracted()
    command = features.command(first, Path("datasets/other"))
    assert f"extract datasets/other --encoder clip --set model={folder} --set revision=main" in command
    folder = folder.rename(tmp_path / "elsewhere")
    assert extracted() == first
    model = transformers.CLIPModel.from_pretrained(folder)
    torch.nn.init.normal_(model.visual_projection.weight)
    model.save_pretrained(folder)
    assert extracted().id != first.id


@pytest.mark.slow
def test_extract_takes_the_conversion_of_the_hub(clip_folder: Path, workspace: Chain, tmp_path: Path) -> None:
    old = shutil.copytree(clip_folder, tmp_path / "old")
    (old / "model.safetensors").rename(old / "pytorch_model.bin")
    with hub_server.serve("someone/tiny") as hub_of_one:
        hub_of_one.revisions["main"] = old
        hub_of_one.pull(21, clip_folder)
        call = "ccr extract --encoder clip --set model=someone/tiny --name"
        first = toy.shell(f"HF_ENDPOINT={hub_of_one.url} {call} first", workspace.root)
    second = toy.shell(f"{call} second", workspace.root)
    assert first.code == second.code == 0, first.err + second.err
    assert "revision refs/pr/21" in first.err and "refs/pr" not in second.err
    assert toy.digests(first.made.path) == toy.digests(second.made.path)
    recorded = json.loads((first.made.path / "encoder.json").read_text())
    assert (recorded["model"], recorded["revision"]) == ("someone/tiny", hub_server.commit("refs/pr/21"))
