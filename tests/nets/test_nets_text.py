"""Text encoders: pooling against a loop, independence of the batch, gradients, rebuilding."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from towers import LAYERS, LONGEST, MODELS
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel

from ccr_cli.data.tokens import Tokens
from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.nets.text import (
    NgramTextEncoder,
    TransformerTextEncoder,
    build_text_encoder,
    text_encoder_from_config,
)

LISTS = [[5, 6, 7, 8, 9, 10], [11], [12, 13], [5, 5, 5, 14, 15, 16, 17, 18, 19]]


def _table() -> Tokens:
    return Tokens.from_lists([[i] for i in ids] for ids in LISTS)


def _bert() -> Any:
    return BertModel(BertConfig(vocab_size=40, **LAYERS))


def test_ngram_encoder_is_the_mean_of_its_rows() -> None:
    torch.manual_seed(0)
    encoder = NgramTextEncoder(32, 6)
    rows = torch.tensor([3, 1, 1, 0])
    out_BD = encoder(_table().select(rows))
    for i, row in enumerate(rows.tolist()):
        torch.testing.assert_close(out_BD[i], encoder.bag.weight[LISTS[row]].mean(0))
    assert out_BD.shape == (4, 6) and encoder.dim == 6


@pytest.mark.parametrize("sparse", [True, False])
def test_ngram_encoder_moves_only_the_rows_it_read(sparse: bool) -> None:
    encoder = NgramTextEncoder(32, 4, sparse=sparse)
    encoder(_table().select(torch.tensor([1, 2]))).sum().backward()
    gradient = encoder.bag.weight.grad
    assert gradient is not None and gradient.is_sparse == sparse
    dense = gradient.to_dense() if sparse else gradient
    assert dense.abs().sum(1).nonzero().flatten().tolist() == [11, 12, 13]


def test_tokens_of_the_ngram_encoder_are_means_of_their_ngrams() -> None:
    encoder = NgramTextEncoder(32, 6)
    texts = [[[3, 4, 5], [6]], [[7]], [[8, 9], [10], [3, 4]]]
    tokens = Tokens.from_lists(texts).select(torch.tensor([2, 0, 1]))
    x_BLD, mask_BL = encoder.tokens(tokens)
    assert mask_BL.sum(1).tolist() == [3, 2, 1] and x_BLD.shape == (3, 3, 6)
    for b, row in enumerate([2, 0, 1]):
        for place, ids in enumerate(texts[row]):
            torch.testing.assert_close(x_BLD[b, place], encoder.bag.weight[ids].mean(0))
    assert not x_BLD[~mask_BL].any()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_trained_is_read(name: str) -> None:
    encoder = TransformerTextEncoder(MODELS[name]())
    encoder(_table().select(torch.arange(len(LISTS)))).square().sum().backward()
    assert not [key for key, weight in encoder.named_parameters() if weight.requires_grad and weight.grad is None]


@pytest.mark.parametrize("name", MODELS)
def test_freezing_leaves_the_upper_layers(name: str) -> None:
    encoder = TransformerTextEncoder(MODELS[name]())
    encoder.freeze(1)
    encoder(_table().select(torch.arange(len(LISTS)))).square().sum().backward()
    trained = [key for key, weight in encoder.named_parameters() if weight.requires_grad]
    layers = {found.group(1) for key in trained if (found := re.search(r"(?:layers?|block)\.(\d+)\.", key))}
    assert layers == {"1"} and not [key for key in trained if "embed" in key or "shared" in key]
    for key, weight in encoder.named_parameters():
        assert (weight.grad is None) or weight.requires_grad, key


def test_more_layers_than_there_are_cannot_be_frozen() -> None:
    with pytest.raises(UsageError, match=r"frozen_layers=3\b.*\b2\b"):
        TransformerTextEncoder(MODELS["bert"]()).freeze(3)


def test_tables_of_relative_places_freeze_with_the_embeddings() -> None:
    size = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    encoder = TransformerTextEncoder(MPNetModel(MPNetConfig(**size)))
    encoder.freeze(1)
    trained = [key for key, weight in encoder.named_parameters() if weight.requires_grad]
    assert trained and not [key for key in trained if "embed" in key or "relative" in key]


@pytest.mark.parametrize("name", MODELS)
def test_a_text_is_the_same_alone_and_in_any_batch(name: str) -> None:
    torch.manual_seed(0)
    encoder = TransformerTextEncoder(MODELS[name]()).eval()
    table = _table()
    with torch.no_grad():
        together_BD = encoder(table.select(torch.arange(len(LISTS))))
        for i in range(len(LISTS)):
            torch.testing.assert_close(
                encoder(table.select(torch.tensor([i])))[0], together_BD[i], rtol=1e-4, atol=1e-5
            )
    assert together_BD.shape == (len(LISTS), encoder.dim) and encoder.dim == (12 if name == "altclip" else 16)


def test_pooling_is_the_mean_over_real_tokens() -> None:
    torch.manual_seed(0)
    model = _bert().eval()
    encoder = TransformerTextEncoder(model)
    with torch.no_grad():
        alone_LD = model(input_ids=torch.tensor([LISTS[0]])).last_hidden_state[0]
        pooled_BD = encoder(_table().select(torch.tensor([0, 3])))
    torch.testing.assert_close(pooled_BD[0], alone_LD.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_transformer_is_rebuilt_from_its_settings(name: str) -> None:
    encoder = TransformerTextEncoder(MODELS[name]()).eval()
    again = text_encoder_from_config(encoder.config()).eval()
    again.load_state_dict(encoder.state_dict())
    tokens = _table().select(torch.tensor([3, 1]))
    with torch.no_grad():
        torch.testing.assert_close(again(tokens), encoder(tokens))


def test_an_ngram_encoder_is_rebuilt_from_its_settings() -> None:
    encoder: Any = build_text_encoder("ngram", buckets=32, dim=4)
    again = text_encoder_from_config(encoder.config())
    again.load_state_dict(encoder.state_dict())
    assert isinstance(again, NgramTextEncoder) and again.bag.sparse == encoder.bag.sparse


def test_an_encoder_is_built_from_a_folder(tmp_path: Path) -> None:
    model = _bert()
    model.save_pretrained(tmp_path)
    encoder: Any = build_text_encoder(str(tmp_path))
    weight = encoder.model.embeddings.word_embeddings.weight
    torch.testing.assert_close(weight, model.embeddings.word_embeddings.weight)
    fresh: Any = text_encoder_from_config(encoder.config())
    assert not torch.equal(fresh.model.embeddings.word_embeddings.weight, weight)


def test_an_absent_model_is_refused_quickly() -> None:
    start = time.monotonic()
    with pytest.raises(UnavailableError, match="no-such-model"):
        build_text_encoder("nobody/no-such-model")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", MODELS)
def test_the_longest_text_is_read_and_no_longer_one(name: str) -> None:
    encoder = TransformerTextEncoder(MODELS[name]()).eval()
    after_padding = name in ("roberta", "xlm-roberta", "altclip", "mpnet")
    assert encoder.longest == (None if name in ("t5", "mt5") else LONGEST - 2 * after_padding)
    if encoder.longest is not None:
        table = Tokens.from_lists([[[5]] * encoder.longest, [[5]] * (encoder.longest + 1)])
        assert encoder(table.select(torch.tensor([0]))).isfinite().all()
        with pytest.raises((IndexError, ValueError, RuntimeError)):
            encoder(table.select(torch.tensor([1])))
