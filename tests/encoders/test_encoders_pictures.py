"""Pictures as inputs: against transformers' own processors, and pictures that are out of the ordinary."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tr
from PIL import Image
from torch.nn.functional import interpolate

from ccr_cli.data import pictures
from ccr_cli.encoders import _transformers
from ccr_cli.errors import ArtifactError, UsageError

PROCESSORS: dict[str, Any] = {
    "clip": tr.CLIPImageProcessorPil(),
    "clip, padded": tr.CLIPImageProcessorPil(size={"shortest_edge": 50}, crop_size={"height": 64, "width": 72}),
    "clip, not resized": tr.CLIPImageProcessorPil(do_resize=False),
    "clip, levels": tr.CLIPImageProcessorPil(do_rescale=False, do_normalize=False),
    "siglip": tr.SiglipImageProcessorPil(size={"height": 96, "width": 64}),
    "chinese-clip": tr.ChineseCLIPImageProcessorPil(),
    "vit": tr.ViTImageProcessorPil(),
    "deit": tr.DeiTImageProcessorPil(),
    "beit": tr.BeitImageProcessorPil(),
    "dinov2": tr.BitImageProcessorPil(size={"shortest_edge": 256}),
    "blip": tr.BlipImageProcessorPil(size={"height": 48, "width": 48}),
    "resnet": tr.ConvNextImageProcessorPil(size={"shortest_edge": 224}, crop_pct=0.875),
    "convnext": tr.ConvNextImageProcessorPil(size={"shortest_edge": 384}),
}
SIZES = [(500, 375), (375, 500), (1, 1), (2, 3), (224, 224), (64, 63), (301, 1000), (225, 224), (1000, 90)]


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def pixels(ours: _transformers.Recipe, picture: Image.Image) -> torch.Tensor:
    levels = ours.levels(picture)
    assert levels.dtype == torch.uint8 and levels.is_contiguous()
    return ours.scaled(levels[None])[0]


def recipe(folder: Path, processor: Any) -> _transformers.Recipe:
    processor.save_pretrained(folder)
    return _transformers.read_recipe(folder, "mine")


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_the_processor(name: str, tmp_path: Path) -> None:
    ours = recipe(tmp_path, PROCESSORS[name])
    for size in SIZES:
        found = pixels(ours, noise(*size))
        theirs = PROCESSORS[name](images=noise(*size), return_tensors="pt")["pixel_values"][0].float()
        assert found.dtype == torch.float32 and found.shape == theirs.shape
        assert torch.allclose(found, theirs, atol=1e-5, rtol=1e-5), size


MEANS = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
OLD: dict[str, tuple[dict[str, Any], Any]] = {
    # as the hub has them since before sizes were dictionaries
    "clip": (
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 48, "crop_size": 40, "do_center_crop": True,
         "resample": 3, **MEANS},
        tr.CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 40, "width": 40}, **MEANS),
    ),
    "vit": (
        {"feature_extractor_type": "ViTFeatureExtractor", "size": 40, "resample": 2, **MEANS},
        tr.ViTImageProcessorPil(size={"height": 40, "width": 40}, **MEANS),
    ),
    "resnet": (
        {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 56, "crop_pct": 0.875, "resample": 3, **MEANS},
        tr.ConvNextImageProcessorPil(size={"shortest_edge": 56}, crop_pct=0.875, **MEANS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", OLD)
def test_files_of_older_checkpoints(model: str, tmp_path: Path) -> None:
    said, processor = OLD[model]
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model}))
    found = pixels(_transformers.read_recipe(tmp_path, "mine"), noise(70, 61))
    theirs = processor(images=noise(70, 61), return_tensors="pt")["pixel_values"][0]
    assert torch.allclose(found, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [(3, 400), (700, 5), (1, 90)])
def test_slender_pictures_differ_by_rounding_alone(size: tuple[int, int], tmp_path: Path) -> None:
    ours = recipe(tmp_path, PROCESSORS["clip"])
    plain = Image.linear_gradient("L").resize(size).convert("RGB")
    theirs = PROCESSORS["clip"](images=plain, return_tensors="pt")["pixel_values"][0]
    levels = (pixels(ours, plain) - theirs).abs() / torch.tensor(ours.scale_C)[:, None, None]
    assert levels.max() < 1.01


def test_a_line_of_a_picture_costs_no_more_than_another(tmp_path: Path) -> None:
    """Resized as a whole, it would have 15 thousand million pixels."""
    for size in ((300_000, 1), (1, 300_000)):
        assert recipe(tmp_path, PROCESSORS["clip"]).levels(noise(*size)).shape == (3, 224, 224)


def test_a_model_published_for_torchvision_alone(tmp_path: Path) -> None:
    nothing = dict.fromkeys(["crop_size", "device", "disable_grouping", "do_center_crop", "do_pad", "return_tensors"])
    said = nothing | {
        "image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 40, "width": 56}, "resample": 2,
        "data_format": "channels_first", "default_to_square": True, "rescale_factor": 1 / 255,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    ours = _transformers.read_recipe(tmp_path, "mine")
    picture = noise(101, 77)
    levels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 255
    resized = interpolate(levels, size=(40, 56), mode="bilinear", antialias=True, align_corners=False)[0]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    theirs = (resized - mean[:, None, None]) / std[:, None, None]
    assert ((pixels(ours, picture) - theirs).abs() * std[:, None, None] * 255).max() < 1.01


def shown(image: Image.Image) -> list[list[tuple[int, ...]]]:
    rgb = pictures.upright_rgb(image)
    assert rgb.mode == "RGB"
    return [[rgb.getpixel((x, y)) for x in range(rgb.width)] for y in range(rgb.height)]  # type: ignore[misc]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_a_viewer_turns_it(orientation: int) -> None:
    upright = noise(5, 3)
    stored = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }.get(orientation)  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    (upright.transpose(stored) if stored is not None else upright).save(file, "png", exif=exif)
    with Image.open(file) as image:
        assert shown(image) == shown(upright)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.jpg"])
def test_a_picture_with_broken_exif_data_is_shown_as_it_is(name: str, tmp_path: Path) -> None:
    noise(64, 48).save(tmp_path / name, exif=b"Exif\0\0garbage-garbage")
    with Image.open(tmp_path / name) as image:
        image.load()
        assert pictures.upright_rgb(image).tobytes() == image.convert("RGB").tobytes()


def test_deep_grey_and_transparent_pictures() -> None:
    deep = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    assert shown(deep) == [[(0,) * 3, (128,) * 3, (255,) * 3]]
    assert shown(Image.new("L", (1, 1), 7)) == [[(7, 7, 7)]]
    assert shown(Image.new("RGBA", (1, 1), (9, 9, 9, 0))) == [[(255, 255, 255)]]
    assert shown(Image.new("LA", (1, 1), (9, 255))) == [[(9, 9, 9)]]


def test_what_cannot_be_prepared_here(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="mine"):
        _transformers.read_recipe(tmp_path, "mine")
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(ArtifactError, match="mine"):
        _transformers.read_recipe(tmp_path, "mine")
    with pytest.raises(UsageError, match="mine"):
        recipe(tmp_path, tr.CLIPImageProcessorPil(do_center_crop=False))
    with pytest.raises(UsageError, match="EfficientNetImageProcessorPil"):
        recipe(tmp_path, tr.EfficientNetImageProcessorPil())
    with pytest.raises(UsageError, match=r"\b30\b.*\b40\b|\b40\b.*\b30\b"):
        recipe(tmp_path, tr.CLIPImageProcessorPil(size={"shortest_edge": 30, "longest_edge": 40}))
