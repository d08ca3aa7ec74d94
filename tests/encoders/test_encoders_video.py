"""The encoder video on tiny models of every family, made here: their own preprocessing, their own vectors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
import transformers
import videos
from PIL import Image
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil
from transformers.models.vivit.image_processing_vivit import VivitImageProcessor

from ccr_cli.artifacts import base, features
from ccr_cli.encoders import video
from ccr_cli.errors import ArtifactError, UsageError

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
FRAMES = {"image_size": 32, "patch_size": 16}
TEXT: dict[str, Any] = {**SMALL, "vocab_size": 30, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 1}
PIL_MAE = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}


def _xclip() -> Any:
    vision = {**SMALL, **FRAMES, "num_frames": 4, "mit_hidden_size": 24, "mit_intermediate_size": 32,
              "mit_num_attention_heads": 2}  # fmt: skip
    return transformers.XCLIPModel(transformers.XCLIPConfig(text_config=TEXT, vision_config=vision, projection_dim=24))


MAKE: dict[str, Any] = {
    "videomae": lambda: transformers.VideoMAEModel(transformers.VideoMAEConfig(**SMALL, **FRAMES, num_frames=4)),
    "videomae-classifier": lambda: transformers.VideoMAEForVideoClassification(
        transformers.VideoMAEConfig(**SMALL, **FRAMES, num_frames=4)
    ),
    "timesformer": lambda: transformers.TimesformerModel(
        transformers.TimesformerConfig(**SMALL, **FRAMES, num_frames=4)
    ),
    "vivit": lambda: transformers.VivitModel(
        transformers.VivitConfig(**SMALL, image_size=32, num_frames=4, tubelet_size=[2, 16, 16])
    ),
    "vjepa2": lambda: transformers.VJEPA2Model(
        transformers.VJEPA2Config(
            patch_size=16, crop_size=32, frames_per_clip=4, hidden_size=24, num_attention_heads=2, num_hidden_layers=2,
            pred_hidden_size=24, pred_num_attention_heads=2, pred_num_hidden_layers=1, pred_num_mask_tokens=1,
        )
    ),
    "xclip": _xclip,
}  # fmt: skip
SAID: dict[str, dict[str, Any]] = {
    "vivit": {"image_processor_type": "VivitImageProcessor", "size": {"shortest_edge": 40}, "crop_size": 32},
    "vjepa2": {"video_processor_type": "VJEPA2VideoProcessor", "crop_size": {"height": 32, "width": 32}},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, make in MAKE.items():
        torch.manual_seed(0)
        found[name] = tmp_path_factory.mktemp(name)
        model = make()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(found[name])
        said = SAID.get(name, {"image_processor_type": "VideoMAEImageProcessor", **PIL_MAE})
        where = "video_preprocessor_config.json" if name == "vjepa2" else "preprocessor_config.json"
        (found[name] / where).write_text(json.dumps(said))
    return found


def clips(count: int = 2) -> list[list[Image.Image]]:
    dice = np.random.default_rng(0)
    levels = dice.integers(0, 256, (count, 4, 60, 80, 3), dtype=np.uint8)
    return [[Image.fromarray(frame) for frame in clip] for clip in levels]


def expected(name: str, folder: Path) -> torch.Tensor:
    """What transformers gives, with its own processor where it works without torchvision."""
    if name == "vivit":
        crop = {"height": 32, "width": 32}
        processor: Any = VivitImageProcessor(size={"shortest_edge": 40}, crop_size=crop)
        pixels = torch.cat([processor(clip, return_tensors="pt")["pixel_values"] for clip in clips()])
    else:
        own: dict[str, Any] = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}
        own |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
        processor = VideoMAEImageProcessorPil(**(own if name == "vjepa2" else PIL_MAE))
        pixels = processor(clips(), return_tensors="pt")["pixel_values"]
    model: Any = type(MAKE[name]()).from_pretrained(folder).eval().requires_grad_(False)
    if name == "xclip":
        ids = torch.tensor([[0, 5, 1]])
        joint: torch.Tensor = model(input_ids=ids, pixel_values=pixels).video_embeds
        return joint
    if name == "videomae-classifier":
        kept: list[torch.Tensor] = []
        model.classifier.register_forward_hook(lambda module, given, out: kept.append(given[0]))
        model(pixels)
        return kept[0]
    if name == "vjepa2":
        tokens: torch.Tensor = model(pixels, skip_predictor=True).last_hidden_state
        return tokens.mean(dim=1)
    hidden: torch.Tensor = model(pixels).last_hidden_state
    return hidden.mean(dim=1) if name == "videomae" else hidden[:, 0]


@pytest.mark.parametrize("name", MAKE)
def test_vectors_are_those_of_the_family(name: str, folders: dict[str, Path]) -> None:
    encoder = video.Encoder(video.Config(str(folders[name])), CPU, torch.float32)
    batch = torch.stack([torch.stack([encoder.preprocess(frame) for frame in clip]) for clip in clips()])
    assert batch.shape == (2, 4, 3, 32, 32) and batch.dtype == torch.uint8
    found, wanted = encoder.encode(batch), expected(name, folders[name])
    assert found.shape == (2, encoder.dim) and found.dtype == torch.float32
    if name == "xclip":  # the whole model returns unit vectors
        found = found / found.norm(dim=1, keepdim=True)
        wanted = wanted.reshape(2, -1) / wanted.reshape(2, -1).norm(dim=1, keepdim=True)
    assert wanted.std(dim=0).mean() > 1e-3, "the two clips differ"
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    assert encoder.sampling.clip_frames == 4
    assert (encoder.sampling.frames, encoder.sampling.fps == 0) == ((4, True) if name == "xclip" else (0, False))
    facts = encoder.describe()
    assert facts["dim"] == encoder.dim and facts["weights_sha256"] and "px" in str(facts["preprocessing"])
    half = video.Encoder(video.Config(str(folders[name])), CPU, torch.bfloat16).encode(batch)
    assert half.dtype == torch.float32 and torch.cosine_similarity(half, encoder.encode(batch)).min() > 0.98


@pytest.mark.parametrize(("length", "fps"), [(8, 30 / 32), (16, 30 / 16), (96, 30 / 4)])
def test_timesformers_of_longer_clips_see_more_frames_a_second(
    length: int, fps: float, folders: dict[str, Path], tmp_path: Path
) -> None:
    settings = transformers.TimesformerConfig(**SMALL, **FRAMES, num_frames=length)
    transformers.TimesformerModel(settings).save_pretrained(tmp_path)
    shutil.copy(folders["timesformer"] / "preprocessor_config.json", tmp_path)
    encoder = video.Encoder(video.Config(str(tmp_path)), CPU, torch.float32)
    assert (encoder.sampling.clip_frames, encoder.sampling.fps) == (length, fps)
    asked = video.Encoder(video.Config(str(tmp_path), fps=30 / 32), CPU, torch.float32)
    assert asked.sampling.fps == 30 / 32


def test_options(folders: dict[str, Path]) -> None:
    folder = str(folders["vivit"])
    encoder = video.Encoder(video.Config(folder, fps=3, clip_stride=2, pooling="mean"), CPU, torch.float32)
    assert (encoder.sampling.fps, encoder.sampling.clip_stride) == (3, 2)
    assert str(encoder.describe()["pooling"]) == "mean"
    assert video.Encoder(video.Config(folder, frames=8), CPU, torch.float32).sampling.frames == 8
    with pytest.raises(UsageError, match="X-CLIP"):
        video.Encoder(video.Config(str(folders["xclip"]), pooling="mean"), CPU, torch.float32)
    with pytest.raises(UsageError, match="fps=-1"):
        video.Config(folder, fps=-1)


def test_models_that_are_none(folders: dict[str, Path], tmp_path: Path) -> None:
    bare = shutil.copytree(folders["videomae"], tmp_path / "bare")
    (bare / "preprocessor_config.json").unlink()
    with pytest.raises(ArtifactError):
        video.Encoder(video.Config(str(bare)), CPU, torch.float32)
    (bare / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "VideoMAEImageProcessor"}))
    with pytest.raises(UsageError, match=r"\b4\b.*\b224 x 224\b"):
        video.Encoder(video.Config(str(bare)), CPU, torch.float32)
    vit = tmp_path / "vit"
    transformers.ViTModel(transformers.ViTConfig(**SMALL, **FRAMES)).save_pretrained(vit)
    with pytest.raises(UsageError, match="vit"):
        video.Encoder(video.Config(str(vit)), CPU, torch.float32)


NAMED = {"image_processor_type": "VideoMAEImageProcessor", **PIL_MAE}


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("config.json", "{", ArtifactError, "config.json"),
        ("config.json", "{}", UsageError, ""),
        ("config.json", {"model_type": "nothing"}, UsageError, "nothing"),
        ("config.json", {"model_type": "videomae", **SMALL, **FRAMES, "hidden_size": 32}, ArtifactError, "AutoModel"),
        ("model.safetensors", "torn", ArtifactError, "AutoModel"),
        ("preprocessor_config.json", "{", ArtifactError, ""),
        ("preprocessor_config.json", [], ArtifactError, ""),
        ("preprocessor_config.json", [1], ArtifactError, ""),
        ("preprocessor_config.json", NAMED | {"size": {"longest_edge": 40}}, UsageError, "longest_edge"),
        ("preprocessor_config.json", NAMED | {"crop_size": {"shortest_edge": 32}}, ArtifactError, "height"),
        ("preprocessor_config.json", NAMED | {"image_std": [0, 1, 1]}, ArtifactError, "division by zero"),
        ("preprocessor_config.json", NAMED | {"resample": 99}, ArtifactError, "99"),
    ],
)
def test_folders_that_do_not_load(
    file: str, content: object, error: type[Exception], message: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["videomae"], tmp_path, dirs_exist_ok=True)
    (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(error) as caught:
        video.Encoder(video.Config(str(tmp_path)), CPU, torch.float32)
    assert tmp_path.name in str(caught.value) and message in str(caught.value)


def test_memory_that_does_not_suffice_is_no_fault_of_the_model(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, batch: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(video.Encoder, "encode", full)
    with pytest.raises(torch.OutOfMemoryError):
        video.Encoder(video.Config(str(folders["videomae"])), CPU, torch.float32)


def test_what_newer_files_say_of_frames(tmp_path: Path) -> None:
    said = {"video_processor": {"video_processor_type": "VideoMAEVideoProcessor", **PIL_MAE, "size": None}}
    (tmp_path / "processor_config.json").write_text(json.dumps(said))
    recipe = video.read_recipe(tmp_path, "mine")
    assert (recipe.shortest, recipe.crop, recipe.resampling) == (224, (32, 32), Image.Resampling.BILINEAR)
    said = {"image_processor": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}}}
    (tmp_path / "processor_config.json").write_text(json.dumps(said))
    recipe = video.read_recipe(tmp_path, "mine")
    assert (recipe.shortest, recipe.crop, recipe.resampling) == (40, (224, 224), Image.Resampling.BICUBIC)
    clip = transformers.CLIPImageProcessor()
    np.testing.assert_allclose(recipe.scale_C, [1 / 255 / std for std in clip.image_std])
    np.testing.assert_allclose(recipe.shift_C, [-m / s for m, s in zip(clip.image_mean, clip.image_std, strict=True)])


def test_clips_of_files_become_rows(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = toy.Folder("clips")
    for item in "ab":
        folder.items.append([item, "train", "video", f"{item}.mp4", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", f"a video of {item}", "main"])
    place = folder.write(tmp_path / "clips", pictures=False)
    videos.write_video(place / "media" / "a.mp4", 40)
    videos.write_video(place / "media" / "b.mp4", 10)
    root = tmp_path / "workspace"
    toy.ok("data", "import", place, workspace=root)
    call = ("extract", "--encoder", "video", "--device", "cpu", "--set", f"model={folders['videomae']}")
    made = toy.ok(*call, workspace=root).made
    assert list(features.read_index(made)["n_rows"]) == [3, 1], "12 and 3 moments at 7.5 a second"
    assert made.request["fps"] is None
    assert base.read_json(made.file("encoder.json"))["sampling"]["fps"] == 7.5
    again = toy.ok(*call, "--set", "fps=10", "--set", "clip_stride=2", workspace=root).made
    assert list(features.read_index(again)["n_rows"]) == [7, 1]
