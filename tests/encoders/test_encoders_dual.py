"""Both sides of every family of dual encoders against transformers' own logits, tokenizer and processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tinydual
import torch
import toy
import transformers
from torch.nn.functional import normalize

from ccr_cli.encoders import clip
from ccr_cli.errors import UsageError
from ccr_cli.methods import infonce
from ccr_cli.nets.text import TransformerTextEncoder, build_text_encoder, text_encoder_from_config
from ccr_cli.stages.shared.text_encoders import make_text_side

CPU = torch.device("cpu")
TEXTS = ["red circle", "a picture of one square that is blue", "Ring", "a picture of one green " + "cross " * 30]
ITEMS = ["red-circle", "blue-square", "green-ring"]


@pytest.mark.parametrize("family", tinydual.FAMILIES)
def test_similarities_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder = tinydual.save(family, tmp_path / family)
    pictures = [toy.draw(item).resize((60, 40)) for item in ITEMS]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = "max_length" if family.startswith("siglip") else True
    inputs = tokenizer(TEXTS, padding=padding, truncation=True, max_length=tinydual.LONGEST, return_tensors="pt")
    if family.startswith("siglip"):
        inputs = {"input_ids": inputs["input_ids"]}
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        theirs = model(pixel_values=pixels, **inputs)

    images = clip.Encoder(clip.Config(model=str(folder)), CPU, torch.float32)
    v_VD = normalize(images.encode(torch.stack([images.preprocess(picture) for picture in pictures])), dim=1)
    config: Any = infonce.Config(text_encoder=str(folder), pooling="own", max_tokens=0)
    tokens, encoder = make_text_side(config, None)  # type: ignore[arg-type]
    assert isinstance(encoder, TransformerTextEncoder) and encoder.dim == images.dim
    with torch.no_grad():
        t_TD = normalize(encoder.eval()(tokens.encode(TEXTS).select(torch.arange(len(TEXTS)))), dim=1)
    torch.testing.assert_close(v_VD, theirs.image_embeds, atol=1e-5, rtol=0)
    torch.testing.assert_close(t_TD, normalize(theirs.text_embeds, dim=1), atol=1e-5, rtol=0)
    bias = getattr(model, "logit_bias", torch.zeros(1))
    sim_VT = (theirs.logits_per_image - bias) / model.logit_scale.exp()
    torch.testing.assert_close(v_VD @ t_TD.T, sim_VT.detach(), atol=1e-5, rtol=0)
    assert sim_VT.std() > 1e-3
    again: Any = text_encoder_from_config(encoder.config())
    again.load_state_dict(encoder.state_dict())
    assert again.config() == encoder.config() and again.pad_left == (family == "siglip-2")


def test_models_of_one_side_or_of_regions_are_refused(tmp_path: Path) -> None:
    folder = tinydual.save("clip", tmp_path / "clip")
    model: Any = transformers.AutoModel.from_pretrained(folder)
    refused = {
        "CLIPTextModel": (model.text_model, "ccr train --set text_encoder="),
        "CLIPVisionModel": (model.vision_model, "--encoder vision"),
        "CLIPSegModel": (
            transformers.CLIPSegModel(
                transformers.CLIPSegConfig(
                    text_config=model.config.text_config.to_dict(), vision_config=model.config.vision_config.to_dict()
                )
            ),
            "--set model=openai/",
        ),
    }
    for name, (part, hint) in refused.items():
        part.save_pretrained(tmp_path / name)
        transformers.AutoImageProcessor.from_pretrained(folder, backend="pil").save_pretrained(tmp_path / name)
        with pytest.raises(UsageError, match=name) as caught:
            clip.Encoder(clip.Config(model=str(tmp_path / name)), CPU, torch.float32)
        assert hint in (caught.value.hint or "")
    with pytest.raises(UsageError, match="CLIPVisionModel"):
        build_text_encoder(str(tmp_path / "CLIPVisionModel"))


def test_the_text_side_of_a_checkpoint_in_half_precision_is_float32(tmp_path: Path) -> None:
    folder = tinydual.save("clip", tmp_path / "clip")
    transformers.AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    assert {weight.dtype for weight in build_text_encoder(str(folder), pooling="own").parameters()} == {torch.float32}
