"""Texts without padding: the numbers of one padded batch, gradients too, and nothing read back from the device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from towers import MODELS, PACKED, VOCABULARY

from ccr_cli.data.tokens import Tokens
from ccr_cli.nets import text_transformer
from ccr_cli.nets.ragged import TextPooling, pool_tokens
from ccr_cli.nets.text import NgramTextEncoder, TransformerTextEncoder

LENGTHS = [3, 7, 1, 7, 2, 12, 5, 3, 1]
every_model = pytest.mark.parametrize("name", MODELS)
Gradients = dict[str, torch.Tensor]


def texts(lengths: list[int] = LENGTHS) -> Tokens:
    """Texts of given lengths, without the numbers that mean padding or an end."""
    dice = torch.Generator().manual_seed(0)
    lists = [torch.randint(4, VOCABULARY, (n, 1), generator=dice).tolist() for n in lengths]
    return Tokens.from_lists(lists).select(torch.arange(len(lists)))


def encoder_of(name: str, pooling: TextPooling = "mean") -> TransformerTextEncoder:
    torch.manual_seed(0)
    return TransformerTextEncoder(MODELS[name]().double(), pooling)


def padded(encoder: TransformerTextEncoder, given: Tokens) -> torch.Tensor:
    """The same texts as one padded batch, as anyone would run the model."""
    parts = torch.split(given.ids_N, given.lengths_B.tolist())
    ids_BL = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=encoder.pad_id)
    mask_BL = torch.arange(ids_BL.shape[1]) < given.lengths_B[:, None]
    states = encoder.model(input_ids=ids_BL, attention_mask=mask_BL.long()).last_hidden_state
    return pool_tokens(states, mask_BL, encoder.pooling)


def gradients(encoder: TransformerTextEncoder, out_BD: torch.Tensor) -> Gradients:
    encoder.zero_grad()
    weight = torch.linspace(-1, 1, out_BD.numel(), dtype=out_BD.dtype).view(out_BD.shape)
    (out_BD * weight).sum().backward()  # type: ignore[no-untyped-call]
    return {name: w.grad.clone() for name, w in encoder.named_parameters() if w.grad is not None}


def same(one: Gradients, two: Gradients) -> None:
    assert one.keys() == two.keys() and len(one) > 10
    for name, grad in one.items():
        torch.testing.assert_close(grad, two[name], rtol=0, atol=1e-10, msg=name)


@every_model
@pytest.mark.parametrize("overhead", [0, 4, 10**6], ids=["exact", "some", "one group"])
def test_vectors_and_gradients_are_those_of_one_padded_batch(
    name: str, overhead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_transformer, "OVERHEAD_CPU", overhead)
    encoder, given = encoder_of(name), texts()
    assert encoder.packs == (name in PACKED)
    wanted_BD, out_BD = padded(encoder, given), encoder(given)
    torch.testing.assert_close(out_BD, wanted_BD, rtol=0, atol=1e-10)
    same(gradients(encoder, encoder(given)), gradients(encoder, wanted_BD))


@every_model
def test_tokens_are_one_padded_block_in_the_order_given(name: str) -> None:
    encoder, given = encoder_of(name), texts()
    with torch.no_grad():
        x_BLD, mask_BL = encoder.tokens(given)
        assert x_BLD.shape == (len(LENGTHS), max(LENGTHS), encoder.token_dim)
        assert mask_BL.sum(1).tolist() == LENGTHS
        for text, ids in enumerate(torch.split(given.ids_N, LENGTHS)):
            alone_LD = encoder.model(input_ids=ids[None]).last_hidden_state[0]
            torch.testing.assert_close(x_BLD[text, : len(ids)], alone_LD, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"mpnet"}))
def test_nothing_is_read_back_from_the_device(name: str) -> None:
    """On the device `meta`, which computes shapes alone, whatever reads a value fails."""
    encoder, given = TransformerTextEncoder(MODELS[name]()).to("meta"), texts().to("meta")
    assert given.lengths_B.device.type == "cpu" and given.ids_N.device.type == "meta"
    assert encoder(given.join(given)).shape == (2 * len(LENGTHS), encoder.dim)
    assert encoder.tokens(given)[0].shape == (len(LENGTHS), max(LENGTHS), encoder.token_dim)


def test_neither_do_ngrams() -> None:
    assert NgramTextEncoder(VOCABULARY, 6).to("meta")(texts().to("meta")).shape == (len(LENGTHS), 6)


def test_dropout_is_drawn_where_the_model_is_trained() -> None:
    torch.manual_seed(0)
    model = MODELS["bert"]()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.3
    encoder, given = TransformerTextEncoder(model).train(), texts()
    assert not torch.equal(encoder(given), encoder(given))
    encoder.eval()
    assert torch.equal(encoder(given), encoder(given))


def test_attention_has_the_dropout_of_the_model() -> None:
    torch.manual_seed(0)
    encoder, given = TransformerTextEncoder(MODELS["bert"]()).train(), texts()
    assert torch.equal(encoder(given), encoder(given))
    for layer in encoder.model.encoder.layer:
        layer.attention.self.dropout.p = 0.3
    assert not torch.equal(encoder(given), encoder(given))


def test_the_model_is_left_as_it_was() -> None:
    encoder = encoder_of("bert")
    before = dict(vars(encoder.model.config))
    encoder(texts())
    assert vars(encoder.model.config) == before
    with pytest.raises((IndexError, RuntimeError)):
        encoder(texts([50]))  # longer than its positions reach
    assert vars(encoder.model.config) == before


def cost(lengths: list[int], parts: list[Any], overhead: int) -> int:
    return sum(len(part) * max(lengths[b] for b in part) + overhead for part in parts)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(0, 40))
def test_groups_are_the_cheapest(lengths: list[int], overhead: int) -> None:
    found = text_transformer.length_groups(np.array(lengths), overhead)
    assert sorted(itertools.chain(*found)) == list(range(len(lengths))), "every text once"
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    ends = [i for i in range(1, len(order)) if lengths[order[i]] != lengths[order[i - 1]]]
    least = min(
        cost(lengths, [order[a:b] for a, b in itertools.pairwise([0, *cuts, len(order)])], overhead)
        for n in range(min(len(ends), 8) + 1)
        for cuts in itertools.combinations(ends[:8], n)
    )
    mine = cost(lengths, found, overhead)
    assert mine == least if len(ends) <= 8 else mine <= least


def test_no_texts_no_groups() -> None:
    assert text_transformer.length_groups(np.array([], dtype=np.int64), 5) == []
