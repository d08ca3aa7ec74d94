"""Adapters: what they adapt, what is trained, and that they can be saved, rebuilt and merged."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch
from towers import MODELS, VOCABULARY

from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.nets.lora import Lora, targets_of
from ccr_cli.nets.text import TransformerTextEncoder, text_encoder_from_config

FAMILIES = ["bert", "xlm-roberta", "distilbert", "t5", "clip", "altclip", "siglip"]
every_family = pytest.mark.parametrize("name", FAMILIES)


def texts() -> Tokens:
    dice = torch.Generator().manual_seed(0)
    lists = [torch.randint(4, VOCABULARY, (n, 1), generator=dice).tolist() for n in (5, 2, 9)]
    return Tokens.from_lists(lists).select(torch.arange(len(lists)))


def adapted(name: str, first: int = 0, seed: int = 0) -> TransformerTextEncoder:
    torch.manual_seed(seed)
    encoder = TransformerTextEncoder(MODELS[name]().eval())
    encoder.adapt(Lora(2, 4.0, targets_of(encoder.model), first))
    return encoder


def trained(encoder: TransformerTextEncoder) -> set[str]:
    return {name for name, weight in encoder.named_parameters() if weight.requires_grad}


def moved(encoder: TransformerTextEncoder) -> TransformerTextEncoder:
    """The same after steps that changed the adapters."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if "lora_" in name:
                weight.normal_()
    return encoder


def test_query_and_value_where_peft_knows_the_model_else_all_linear_maps() -> None:
    assert targets_of(MODELS["bert"]()) == ("query", "value")
    assert targets_of(TransformerTextEncoder(MODELS["t5"]()).model) == ("q", "v")
    assert targets_of(MODELS["distilbert"]()) == ("k_lin", "lin1", "lin2", "out_lin", "q_lin", "v_lin")


@every_family
def test_adapters_change_nothing_at_first_and_are_all_that_is_trained(name: str) -> None:
    torch.manual_seed(0)
    bare = TransformerTextEncoder(MODELS[name]().eval())
    encoder = adapted(name)
    torch.testing.assert_close(encoder(texts()), bare(texts()))
    assert trained(encoder) and all("lora_" in key for key in trained(encoder))
    before = {key: weight.clone() for key, weight in encoder.state_dict().items() if "lora_" not in key}
    optimizer = torch.optim.SGD([w for w in encoder.parameters() if w.requires_grad], lr=1.0)
    for _ in range(2):
        encoder(texts()).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(encoder.state_dict()[key], weight) for key, weight in before.items())
    assert not torch.allclose(encoder(texts()), bare(texts()), atol=1e-4)


@every_family
def test_adapters_are_rebuilt_from_settings_and_weights_alone(name: str) -> None:
    encoder = moved(adapted(name))
    again: Any = text_encoder_from_config(json.loads(json.dumps(encoder.config())))
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again.eval()(texts()), encoder(texts()))
    assert trained(again) == trained(encoder)


@every_family
def test_merging_gives_the_model_without_adapters_the_same_vectors(name: str) -> None:
    encoder = moved(adapted(name))
    merged = encoder.merged()
    bare = TransformerTextEncoder(MODELS[name]())
    assert merged.state_dict().keys() == bare.state_dict().keys() and "lora" not in merged.config()
    torch.testing.assert_close(merged(texts()), encoder(texts()), rtol=1e-4, atol=1e-5)
    assert encoder.lora is not None and trained(encoder), "the encoder itself keeps them"
    assert bare.merged() is bare


def test_frozen_layers_have_no_adapters() -> None:
    assert all(".layer.1." in key for key in trained(adapted("bert", first=1)))
    assert any(".layer.0." in key for key in trained(adapted("bert")))


def test_adapters_without_a_layer_are_refused() -> None:
    with pytest.raises(UsageError, match=r"frozen_layers=2\b.*\b2\b"):
        adapted("bert", first=2)


def test_one_seed_one_start() -> None:
    one, same, other = (adapted("bert", seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(weight, same[key]) for key, weight in one.items())
    assert any(not torch.equal(weight, other[key]) for key, weight in one.items() if "lora_A" in key)


def test_peft_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UnavailableError, match="peft") as error:
        targets_of(MODELS["bert"]())
    assert error.value.hint == "pip install 'ccr-cli[lora]'"
