"""Groups of weights: rates, layers, decay; and that the default optimiser steps are what they were."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn
from towers import MODELS

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.methods.config import Config as Rates
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.heads import Projection
from ccr_cli.nets.lora import Lora, targets_of
from ccr_cli.nets.text import NgramTextEncoder, TransformerTextEncoder
from ccr_cli.stages.train.step import parameter_groups


def ngrams() -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoder(Projection(7, 5, 6), NgramTextEncoder(32, 4), Projection(4, 5))


def dual(name: str, lora: bool = False, frozen: int = 0) -> DualEncoder:
    torch.manual_seed(0)
    encoder = TransformerTextEncoder(MODELS[name]())
    if lora:
        encoder.adapt(Lora(2, 4.0, targets_of(encoder.model), frozen))
    elif frozen:
        encoder.freeze(frozen)
    return DualEncoder(Projection(7, 5), encoder, Projection(encoder.dim, 5))


def settings(model: nn.Module, rates: Rates) -> dict[str, tuple[float, float]]:
    """Rate and decay of each weight by name."""
    dense, sparse = parameter_groups(model, rates)
    found = {id(w): (g["lr"], g.get("weight_decay", 0.0)) for g in (*dense, *sparse) for w in g["params"]}
    assert len(found) == sum(len(g["params"]) for g in (*dense, *sparse)), "no weight twice"
    return {name: found[id(w)] for name, w in model.named_parameters() if id(w) in found}


def test_ngram_encoders_have_one_dense_group_and_one_sparse() -> None:
    (dense,), (sparse,) = parameter_groups(ngrams(), Rates())
    assert dense["lr"] == 1e-3 and dense["weight_decay"] == 0 and len(dense["params"]) == 6
    assert sparse["lr"] == 5e-3 and [tuple(w.shape) for w in sparse["params"]] == [(32, 4)]


def test_what_is_not_trained_is_in_no_group() -> None:
    model = ngrams()
    model.visual_head.requires_grad_(False)
    model.text_encoder.requires_grad_(False)
    (dense,), sparse = parameter_groups(model, Rates())
    assert len(dense["params"]) == 2 and sparse == []
    model.requires_grad_(False)
    assert parameter_groups(model, Rates()) == ([], [])


@pytest.mark.parametrize("name", ["bert", "t5", "clip", "altclip"])
def test_a_pretrained_encoder_has_its_own_rate_that_falls_layer_by_layer(name: str) -> None:
    model = dual(name)
    found = settings(model, Rates(layer_decay=0.5))
    rates: dict[str, set[float]] = {}
    for key, (rate, _) in found.items():
        layer = re.search(r"(?:layers?|block)\.(\d)\.", key)
        where = "below" if "embed" in key else layer[1] if layer else "above"
        where = where if key.startswith("text_encoder") else "scratch"
        rates.setdefault(where, set()).add(rate)
    above = rates.pop("above", {2e-5})
    assert above == {2e-5} and rates == {"scratch": {1e-3}, "1": {2e-5}, "0": {1e-5}, "below": {5e-6}}
    even = {rate for rate, _ in settings(model, Rates()).values()}
    assert even == {1e-3, 2e-5}


def test_matrices_decay_and_nothing_else() -> None:
    for key, (_, decay) in settings(dual("bert"), Rates(weight_decay=0.01)).items():
        matrix = key.endswith("weight") and "embeddings" not in key and "LayerNorm" not in key
        assert decay == (0.01 if matrix else 0.0), key
    for key, (_, decay) in settings(dual("t5"), Rates(weight_decay=0.01)).items():
        table = "embed_tokens" in key or "relative_attention_bias" in key
        assert decay == (0.0 if table or "layer_norm" in key or key.endswith("bias") else 0.01), key
    assert settings(ngrams(), Rates(weight_decay=0.01))["text_encoder.bag.weight"] == (5e-3, 0.0)


def test_adapters_are_trained_from_scratch_and_the_layers_below_stay() -> None:
    found = settings(dual("bert", lora=True, frozen=1), Rates())
    assert {rate for rate, _ in found.values()} == {1e-3}
    encoder = {key for key in found if key.startswith("text_encoder")}
    assert encoder and all("lora_" in key and ".layer.1." in key for key in encoder)
    frozen = settings(dual("bert", frozen=1), Rates())
    assert not [key for key in frozen if ".layer.0." in key or "embeddings" in key]


def steps(model: DualEncoder, optimizers: list[Any], state: bool = False) -> list[torch.Tensor]:
    """Weights after some steps, and what the optimisers then know."""
    table = Tokens.from_lists([[[i % 32]] for i in range(40)])
    dice = torch.Generator().manual_seed(1)
    for step in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        texts = table.select(torch.arange(step, step + 20))
        visual_BD = torch.randn(20, 7, generator=dice)
        product_BB = model.embed_visual(Frames(visual_BD, torch.arange(21))) @ model.embed_text(texts).T
        loss = nn.functional.cross_entropy(product_BB * 5, torch.arange(20))
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
    moments = [v for o in optimizers for s in o.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [*(w.detach() for w in model.parameters()), *moments]


def test_without_decay_adamw_is_adam_bit_for_bit() -> None:
    def sparse_of(model: DualEncoder) -> Any:
        return torch.optim.SparseAdam(model.text_encoder.parameters(), lr=5e-3)

    before = ngrams()
    rest = [w for name, w in before.named_parameters() if not name.startswith("text_encoder")]
    wanted = steps(before, [torch.optim.Adam(rest, lr=1e-3, fused=True), sparse_of(before)])
    after = ngrams()
    dense, _ = parameter_groups(after, Rates())
    found = steps(after, [torch.optim.AdamW(dense, fused=True), sparse_of(after)])
    assert len(found) == len(wanted)
    assert all(one.numpy().tobytes() == two.numpy().tobytes() for one, two in zip(found, wanted, strict=True))
    start = list(ngrams().parameters())
    assert not any(torch.equal(one, two) for one, two in zip(found, start, strict=False))


def test_decay_draws_matrices_towards_zero() -> None:
    model = ngrams()
    dense, _ = parameter_groups(model, Rates(weight_decay=0.1))
    optimizer = torch.optim.AdamW(dense, fused=True)
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for name, weight in model.visual_head.named_parameters(prefix="visual_head"):
        factor = 1 - 1e-3 * 0.1 if weight.ndim > 1 else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor)
