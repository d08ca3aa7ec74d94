"""Image models: each family against transformers' own forward on its own processor's output, on tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
import transformers as tr
from PIL import Image
from toy import Chain

from ccr_cli.artifacts import features
from ccr_cli.encoders import clip, vision
from ccr_cli.errors import ArtifactError, UsageError

CPU = torch.device("cpu")
WIDTH: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
MAPS: dict[str, Any] = {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 1, 1]}
SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4,
}  # fmt: skip
SQUARE = {"height": 32, "width": 32}
Taken = Callable[[Any, torch.Tensor], torch.Tensor]


def clip_like(kind: str) -> Any:
    text = TEXT | ({"hidden_size": 16, "project_dim": 16} if kind == "AltCLIP" else {})
    config = getattr(tr, f"{kind}Config")(text_config=text, vision_config=WIDTH, projection_dim=24)
    return getattr(tr, f"{kind}Model")(config)


def embedding(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """The space of the texts, step by step: the pooled output of the vision tower, projected."""
    pooled: torch.Tensor = model.visual_projection(model.vision_model(pixels).pooler_output)
    return pooled


def normed(state: torch.Tensor, layer: Any) -> torch.Tensor:
    centred = state - state.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + layer.eps).sqrt()
    result: torch.Tensor = scaled * layer.weight + layer.bias
    return result


def first(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    state: torch.Tensor = model(pixels).last_hidden_state
    return state[:, 0]


def average(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    state: torch.Tensor = model(pixels).last_hidden_state
    return state.mean(dim=(2, 3)) if state.ndim == 4 else state.mean(dim=1)


CROPPING = dict(size={"shortest_edge": 36}, crop_size=SQUARE)
FAMILIES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Taken, int, int]] = {
    # model, processor, what stands for a picture, regions, tokens that are none
    "clip": (lambda: clip_like("CLIP"), lambda: tr.CLIPImageProcessorPil(**CROPPING), embedding, 16, 1),
    "altclip": (lambda: clip_like("AltCLIP"), lambda: tr.CLIPImageProcessorPil(**CROPPING), embedding, 16, 1),
    "metaclip-2": (lambda: clip_like("MetaClip2"), lambda: tr.CLIPImageProcessorPil(**CROPPING), embedding, 16, 1),
    "chinese-clip": (
        lambda: clip_like("ChineseCLIP"), lambda: tr.ChineseCLIPImageProcessorPil(**CROPPING), embedding, 16, 1,
    ),
    "siglip": (
        lambda: tr.SiglipModel(tr.SiglipConfig(text_config=TEXT | {"projection_size": 16}, vision_config=WIDTH)),
        lambda: tr.SiglipImageProcessorPil(size=SQUARE),
        lambda model, pixels: model.vision_model.head(model.vision_model(pixels).last_hidden_state), 16, 0,
    ),
    "clip-vision": (
        lambda: tr.CLIPVisionModel(tr.CLIPVisionConfig(**WIDTH)), lambda: tr.CLIPImageProcessorPil(**CROPPING),
        lambda model, pixels: normed(first(model, pixels), model.post_layernorm), 16, 1,
    ),
    "clip-vision-projected": (
        lambda: tr.CLIPVisionModelWithProjection(tr.CLIPVisionConfig(**WIDTH, projection_dim=24)),
        lambda: tr.CLIPImageProcessorPil(**CROPPING), embedding, 16, 1,
    ),
    "siglip-vision": (
        lambda: tr.SiglipVisionModel(tr.SiglipVisionConfig(**WIDTH)), lambda: tr.SiglipImageProcessorPil(size=SQUARE),
        lambda model, pixels: model.head(model(pixels).last_hidden_state), 16, 0,
    ),
    "vit": (
        lambda: tr.ViTForImageClassification(tr.ViTConfig(**WIDTH)), lambda: tr.ViTImageProcessorPil(size=SQUARE),
        lambda model, pixels: first(model.vit, pixels), 16, 1,
    ),
    "deit": (lambda: tr.DeiTModel(tr.DeiTConfig(**WIDTH)), lambda: tr.DeiTImageProcessorPil(
        size={"height": 36, "width": 36}, crop_size=SQUARE), first, 16, 2),
    "vit-msn": (lambda: tr.ViTMSNModel(tr.ViTMSNConfig(**WIDTH)), lambda: tr.ViTImageProcessorPil(size=SQUARE),
        first, 16, 1),
    "ijepa": (lambda: tr.IJepaModel(tr.IJepaConfig(**WIDTH)), lambda: tr.ViTImageProcessorPil(size=SQUARE),
        average, 16, 0),
    "beit": (
        lambda: tr.BeitModel(tr.BeitConfig(**WIDTH)),
        lambda: tr.BeitImageProcessorPil(size=SQUARE, do_center_crop=False),
        lambda model, pixels: normed(model(pixels).last_hidden_state[:, 1:].mean(1), model.pooler.layernorm), 16, 1,
    ),
    "dinov2": (lambda: tr.Dinov2Model(tr.Dinov2Config(**WIDTH)), lambda: tr.BitImageProcessorPil(**CROPPING),
        first, 16, 1),
    "dinov2-with-registers": (
        lambda: tr.Dinov2WithRegistersModel(tr.Dinov2WithRegistersConfig(**WIDTH, num_register_tokens=3)),
        lambda: tr.BitImageProcessorPil(**CROPPING), first, 16, 4,
    ),
    "dinov3": (
        lambda: tr.DINOv3ViTModel(tr.DINOv3ViTConfig(**WIDTH, num_register_tokens=4)),
        lambda: tr.ViTImageProcessorPil(size=SQUARE), first, 16, 5,
    ),
    "dinov3-convnext": (
        lambda: tr.DINOv3ConvNextModel(tr.DINOv3ConvNextConfig(**MAPS, image_size=64)),
        lambda: tr.ViTImageProcessorPil(size={"height": 64, "width": 64}), first, 4, 1,
    ),
    "swin": (lambda: tr.SwinModel(tr.SwinConfig(**SWIN)), lambda: tr.ViTImageProcessorPil(size=SQUARE), average, 64, 0),
    "swinv2": (lambda: tr.Swinv2Model(tr.Swinv2Config(**SWIN)), lambda: tr.ViTImageProcessorPil(size=SQUARE),
        average, 64, 0),
    "resnet": (
        lambda: tr.ResNetForImageClassification(tr.ResNetConfig(embedding_size=8, **MAPS)),
        lambda: tr.ConvNextImageProcessorPil(size={"shortest_edge": 64}),
        lambda model, pixels: average(model.resnet, pixels), 4, 0,
    ),
    "regnet": (
        lambda: tr.RegNetModel(tr.RegNetConfig(embedding_size=8, groups_width=4, **MAPS)),
        lambda: tr.ConvNextImageProcessorPil(size={"shortest_edge": 64}), average, 4, 0,
    ),
    "convnext": (
        lambda: tr.ConvNextModel(tr.ConvNextConfig(**MAPS)),
        lambda: tr.ConvNextImageProcessorPil(size={"shortest_edge": 64}),
        lambda model, pixels: normed(average(model, pixels), model.layernorm), 4, 0,
    ),
    "convnextv2": (
        lambda: tr.ConvNextV2Model(tr.ConvNextV2Config(**MAPS)),
        lambda: tr.ConvNextImageProcessorPil(size={"shortest_edge": 64}),
        lambda model, pixels: normed(average(model, pixels), model.layernorm), 4, 0,
    ),
}  # fmt: skip


def picture(width: int, height: int) -> Image.Image:
    """Noise that is as smooth as a photograph."""
    small = np.random.default_rng(width).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def saved(folder: Path, model: Any, processor: Any) -> Any:
    for parameter in model.parameters():  # what is 0 or 1 at the start would hide that it is left out
        torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5 if parameter.ndim == 4 else 0.4)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean, layer.running_var = (
                torch.randn_like(layer.bias) * 0.1,
                torch.rand_like(layer.bias) + 0.1,
            )
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def make(folder: Path, pooling: str = "auto", dtype: torch.dtype = torch.float32) -> vision.Encoder:
    return vision.Encoder(vision.Config(model=str(folder), pooling=pooling), CPU, dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", toy.some_fast(FAMILIES, *list(FAMILIES)[::4]))
def test_every_family_gives_what_its_own_code_gives(family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    build, processor, taken, regions, specials = FAMILIES[family]
    model = saved(tmp_path, build(), processor())
    encoder = make(tmp_path)
    pictures = [picture(60, 40), picture(41, 90), picture(36, 36)]
    pixels = torch.stack([encoder.preprocess(p) for p in pictures])
    theirs = processor()(images=pictures, return_tensors="pt")["pixel_values"]
    assert pixels.shape == theirs.shape and pixels.dtype == torch.uint8
    with torch.no_grad():
        expected = taken(model, theirs)
    found = encoder.encode(pixels)
    assert found.dtype == torch.float32 and found.shape == (3, encoder.dim) == expected.shape
    assert torch.allclose(found, expected, atol=2e-5, rtol=2e-5)
    assert (found[0] - found[1]).norm() > 1e-3 * found[0].norm()
    assert torch.allclose(encoder.encode(pixels[1:2]), found[1:2], atol=2e-5, rtol=2e-5)

    tokens = make(tmp_path, "tokens")
    rows = tokens.encode(pixels)
    with torch.no_grad():
        tower = next(
            (getattr(model, part) for part in ("vision_model", "vit", "resnet") if hasattr(model, part)), model
        )
        state = tower(theirs).last_hidden_state
    if state.ndim == 4:
        state = torch.stack([state[:, :, y, x] for y in range(state.shape[2]) for x in range(state.shape[3])], dim=1)
    assert rows.shape == (3, regions, tokens.dim) and state.shape[1] == regions + specials
    assert torch.allclose(rows, state[:, specials:], atol=2e-5, rtol=2e-5)
    assert torch.allclose(make(tmp_path, "mean").encode(pixels), rows.mean(1), atol=2e-5, rtol=2e-5)
    described = encoder.describe()
    assert described["attention"] == ("eager" if hasattr(model.config, "depths") and family != "swin" else "sdpa")


@pytest.mark.slow
def test_resnet_152_has_2048_numbers() -> None:
    """The published config is transformers' default but for the depths."""
    with torch.device("meta"):
        model = tr.ResNetModel(tr.ResNetConfig(depths=[3, 8, 36, 3]))
        assert model(torch.empty(1, 3, 224, 224)).pooler_output.flatten(1).shape == (1, 2048)


def test_precision(tmp_path: Path) -> None:
    torch.manual_seed(0)
    build, processor, *_ = FAMILIES["dinov2"]
    saved(tmp_path, build(), processor())
    full = make(tmp_path)
    pixels = full.preprocess(picture(50, 50))[None]
    for dtype in (torch.bfloat16, torch.float16):
        half = make(tmp_path, dtype=dtype)
        found = half.encode(pixels)
        assert found.dtype == torch.float32 and half.describe()["dtype"] == str(dtype).removeprefix("torch.")
        assert torch.cosine_similarity(found, full.encode(pixels)).item() > 0.99


def test_the_vision_tower_says_what_made_the_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build, processor, *_ = FAMILIES["dinov2-with-registers"]
    saved(tmp_path, build(), processor())
    (tmp_path / "README.md").write_text("---\ntags: [x]\nlicense: apache-2.0\n---\n# A model\nlicense: other\n")
    facts = make(tmp_path, "tokens").describe()
    assert "licence: apache-2.0" in capsys.readouterr().err
    assert (facts["encoder"], facts["pooling"], facts["licence"]) == ("vision", "tokens", "apache-2.0")
    assert "EXIF orientation applied" in str(facts["preprocessing"])
    assert "shortest side to 36 px (bicubic), middle 32 x 32 px" in str(facts["preprocessing"])


def test_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    build, processor, *_ = FAMILIES["vit"]
    saved(tmp_path, build(), processor())
    first_ = vision.identity(vision.Config(model=str(tmp_path)))
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings | {"resample": 3}))
    assert vision.identity(vision.Config(model=str(tmp_path))) != first_


def test_rows_of_patches_through_the_command(tmp_path: Path, workspace: Chain) -> None:
    torch.manual_seed(0)
    build, processor, *_ = FAMILIES["dinov2"]
    saved(tmp_path, build(), processor())
    call = ("extract", "--encoder", "vision", "--device", "cpu", "--batch-size", "5", "--set", f"model={tmp_path}")
    one = toy.ok(*call, workspace=workspace.root).made
    rows = toy.ok(*call, "--set", "pooling=tokens", workspace=workspace.root).made
    assert one.path != rows.path
    index = features.read_index(rows)
    assert set(index["n_rows"]) == {16} and set(features.read_index(one)["n_rows"]) == {1}
    encoder = make(tmp_path, "tokens")
    for item in index["item_id"][:3]:
        found, *_ = features.read_rows(rows, [item], pooled=False)
        expected = encoder.encode(encoder.preprocess(toy.draw(item))[None])[0]
        assert torch.allclose(torch.from_numpy(found), expected, atol=2e-3, rtol=2e-3)


def test_naflex_is_refused(tmp_path: Path) -> None:
    config = tr.Siglip2Config(
        text_config=TEXT | {"projection_size": 16},
        vision_config={k: v for k, v in WIDTH.items() if k != "image_size"} | {"num_patches": 16},
    )
    saved(tmp_path, tr.Siglip2Model(config), tr.SiglipImageProcessorPil(size=SQUARE))
    with pytest.raises(UsageError, match="NaFlex") as caught:
        make(tmp_path)
    assert "google/siglip2-base-patch16-224" in (caught.value.hint or "")


def test_weights_that_would_be_random_are_refused(tmp_path: Path) -> None:
    """A checkpoint for classification has no `pooler`: one that is asked for is refused."""
    build, processor, *_ = FAMILIES["vit"]
    saved(tmp_path, build(), processor())
    with pytest.raises(ArtifactError, match=r"\b2\b.*\bViTModel\b.* pooler\.dense\.bias"):
        make(tmp_path, "pooler")


def test_folders_that_do_not_load(tmp_path: Path) -> None:
    build, processor, *_ = FAMILIES["vit"]
    saved(tmp_path, build(), processor())
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"hidden_size": 24}))
    with pytest.raises(ArtifactError, match="ViTModel"):
        make(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="ViTModel"):
        make(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "config.json"),
        ("preprocessor_config.json", "{", ""),
        ("preprocessor_config.json", "[]", ""),
        ("preprocessor_config.json", '{"image_processor_type": "ViTImageProcessor", "image_std": [0,1,1]}', ""),
        ("preprocessor_config.json", '{"image_processor_type": "ViTImageProcessor", "resample": 99}', "99"),
    ],
)
def test_files_that_are_damaged(file: str, content: str, message: str, tmp_path: Path) -> None:
    build, processor, *_ = FAMILIES["vit"]
    saved(tmp_path, build(), processor())
    (tmp_path / file).write_text(content)
    with pytest.raises(ArtifactError) as caught:
        make(tmp_path)
    assert tmp_path.name in caught.value.message and message in caught.value.message


def test_families_that_are_not_known_are_asked_about(tmp_path: Path) -> None:
    config = tr.MobileNetV2Config(image_size=32, depth_multiplier=0.35)
    saved(tmp_path, tr.MobileNetV2Model(config), tr.ViTImageProcessorPil(size=SQUARE))
    with pytest.raises(UsageError, match="MobileNetV2Model") as caught:
        make(tmp_path)
    assert "--set pooling=" in (caught.value.hint or "")
    assert make(tmp_path, "pooler").dim == make(tmp_path, "mean").dim > 0
    with pytest.raises(UsageError, match="pooling=cls"):
        make(tmp_path, "cls")


def test_models_of_no_pictures_are_refused(tmp_path: Path) -> None:
    settings = {key: value for key, value in TEXT.items() if not key.endswith("_id")}
    saved(tmp_path, tr.BertModel(tr.BertConfig(**settings)), tr.ViTImageProcessorPil(size=SQUARE))
    with pytest.raises(UsageError, match="BertModel"):
        make(tmp_path)
    with pytest.raises(UsageError, match="BertModel"):
        make(tmp_path, "cls")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "none-of-them"}))
    with pytest.raises(UsageError):
        make(tmp_path)


def test_pictures_of_another_size_than_the_network_takes(tmp_path: Path) -> None:
    saved(tmp_path, FAMILIES["vit"][0](), tr.ViTImageProcessorPil(size={"height": 48, "width": 32}))
    with pytest.raises(UsageError, match="32 x 48"):
        make(tmp_path)


def test_clip_wants_texts(tmp_path: Path) -> None:
    build, processor, *_ = FAMILIES["dinov2"]
    saved(tmp_path, build(), processor())
    with pytest.raises(UsageError, match="Dinov2Model") as caught:
        clip.Encoder(clip.Config(model=str(tmp_path)), CPU, torch.float32)
    assert "--encoder vision" in (caught.value.hint or "")
