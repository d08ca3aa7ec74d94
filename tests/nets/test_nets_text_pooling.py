"""One vector of a text's tokens: every pooling against the model run on the text alone, and a model's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinytext
import torch
from towers import LONGEST, MODELS, VOCABULARY

from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import UsageError
from ccr_cli.nets.ragged import TextPooling, pool_tokens
from ccr_cli.nets.text import TransformerTextEncoder, build_text_encoder, text_encoder_from_config

POOLED: dict[TextPooling, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x_LD: x_LD.mean(0),
    "cls": lambda x_LD: x_LD[0],
    "max": lambda x_LD: x_LD.amax(0),
    "last": lambda x_LD: x_LD[-1],
}
OWN = ["bert", "roberta", "xlm-roberta", "clip", "clip-text", "chinese-clip", "altclip", "siglip", "siglip2"]


def texts(*lengths: int) -> Tokens:
    """Texts that end in the end-of-text mark of the CLIP-like."""
    dice = torch.Generator().manual_seed(0)
    lists = [[*torch.randint(4, VOCABULARY, (n - 1, 1), generator=dice).tolist(), [3]] for n in lengths]
    return Tokens.from_lists(lists).select(torch.arange(len(lists)))


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("name", ["bert", "clip", "t5"])
def test_pooling(name: str, pooling: TextPooling) -> None:
    torch.manual_seed(0)
    encoder, given = TransformerTextEncoder(MODELS[name](), pooling).eval(), texts(4, 9, 1, 6)
    with torch.no_grad():
        out_BD = encoder(given)
        for b, ids in enumerate(torch.split(given.ids_N, given.lengths_B.tolist())):
            wanted_D = POOLED[pooling](encoder.model(input_ids=ids[None]).last_hidden_state[0])
            torch.testing.assert_close(out_BD[b], wanted_D, rtol=1e-4, atol=1e-5)
    assert text_encoder_from_config(encoder.config()).config() == encoder.config()


def test_padding_is_pooled_by_none() -> None:
    x_BLD, mask_BL = torch.randn(2, 3, 4), torch.tensor([[True, True, True], [True, False, False]])
    x_BLD[1, 1:] = 1e6
    for pooling in POOLED:
        torch.testing.assert_close(pool_tokens(x_BLD, mask_BL, pooling)[1], x_BLD[1, 0])
    with pytest.raises(ValueError, match=r"^own\b"):
        pool_tokens(x_BLD, mask_BL, "own")


def own(model: Any, ids_BL: torch.Tensor, mask_BL: torch.Tensor) -> Any:
    """What transformers gives for texts, by the way that its documentation names."""
    if hasattr(model, "get_text_features"):
        return model.get_text_features(input_ids=ids_BL, attention_mask=mask_BL).pooler_output
    output = model(input_ids=ids_BL, attention_mask=mask_BL)
    return output.text_embeds if "text_embeds" in output else output.pooler_output


@pytest.mark.parametrize("name", OWN)
def test_the_own_vector_is_that_of_the_model(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    encoder, given = TransformerTextEncoder(model, "own").eval(), texts(4, 9, 2, 6)
    with torch.no_grad():
        out_BD = encoder(given)
        assert out_BD.shape == (4, encoder.dim)
        for b, ids in enumerate(torch.split(given.ids_N, given.lengths_B.tolist())):
            ids_1L, mask_1L = ids[None], torch.ones_like(ids)[None]
            if name.startswith("siglip"):  # was trained on texts padded to its full length, and looks at all of it
                ids_1L = torch.nn.functional.pad(ids_1L, (0, LONGEST - len(ids)), value=1)
                mask_1L = torch.ones_like(ids_1L)
            torch.testing.assert_close(out_BD[b], own(model, ids_1L, mask_1L)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OWN)
def test_an_encoder_with_its_own_vector_is_rebuilt_and_all_of_it_trained(name: str) -> None:
    encoder = TransformerTextEncoder(MODELS[name](), "own")
    again: Any = text_encoder_from_config(json.loads(json.dumps(encoder.config())))
    if name == "clip-text":  # only a folder says of which class its model is
        assert "projection.weight" not in again.state_dict()
    else:
        again.load_state_dict(encoder.state_dict())
        assert torch.equal(again.eval()(texts(5, 2)), encoder.eval()(texts(5, 2)))
    encoder(texts(5, 2, 7)).square().sum().backward()
    assert not [key for key, weight in encoder.named_parameters() if weight.requires_grad and weight.grad is None]


def test_a_text_tower_is_read_with_its_projection(tmp_path: Path) -> None:
    model = MODELS["clip-text"]().eval()
    model.save_pretrained(tmp_path)
    encoder: Any = build_text_encoder(str(tmp_path), pooling="own")
    assert encoder.dim == 10
    given = texts(5)
    with torch.no_grad():
        wanted_BD = model(input_ids=given.ids_N[None]).text_embeds
        torch.testing.assert_close(encoder.eval()(given), wanted_BD, rtol=1e-4, atol=1e-5)
    again: Any = text_encoder_from_config(json.loads(json.dumps(encoder.config())))
    again.load_state_dict(encoder.state_dict())
    plain: Any = build_text_encoder(str(tmp_path))
    assert plain.dim == 16 and plain.projection is None


def test_siglip_is_padded_with_what_its_tokenizer_says(tmp_path: Path) -> None:
    tinytext.save("siglip", tmp_path)
    encoder: Any = build_text_encoder(str(tmp_path), pooling="own")
    assert encoder.pad_id == 0 and encoder.config()["pad_id"] == 0
    assert text_encoder_from_config(encoder.config()).config() == encoder.config()


@pytest.mark.parametrize("name", ["distilbert", "t5", "mt5"])
def test_a_model_without_a_vector_of_its_own(name: str) -> None:
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        TransformerTextEncoder(MODELS[name](), "own")
