"""The tokenizer and the text encoder of a run, which belong together."""

from __future__ import annotations

from typing import Any

import torch

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.data.tokens import GivenTokenizer, HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.text import GivenTextEncoder, TextEncoder, TransformerTextEncoder, build_text_encoder

GIVEN = "given"


def make_tokenizer(config: Any, data: Dataset) -> Tokenizer:
    """The tokenizer of a method's options; ArtifactError if it needs text features and the data set has none."""
    if config.text_encoder == GIVEN:
        if data.text_features() is None:
            raise ArtifactError(f"{data.name} brings no features of its texts", hint="--set text_encoder=ngram")
        return GivenTokenizer(list(data.captions["text"]))
    if config.text_encoder == "ngram":
        return NgramTokenizer(buckets=config.buckets)
    return HFTokenizer(config.text_encoder, config.max_tokens)


def make_text_encoder(config: Any, data: Dataset) -> TextEncoder:
    """The text encoder that goes with it; UsageError if texts may be longer than it can read."""
    if config.text_encoder == GIVEN:
        features_TD = data.text_features()
        assert features_TD is not None, "the tokenizer was made before"
        return GivenTextEncoder(torch.from_numpy(features_TD))
    encoder = build_text_encoder(
        config.text_encoder,
        buckets=config.buckets,
        dim=config.dim,
        frozen_layers=config.frozen_layers,
        pooling=config.pooling,
        lora_rank=config.lora_rank,
        lora_alpha=config.lora_alpha,
    )
    longest = encoder.longest if isinstance(encoder, TransformerTextEncoder) else None
    if longest is not None and config.max_tokens > longest:
        problem = f"{config.text_encoder} reads {longest} tokens at most, and max_tokens is {config.max_tokens}"
        raise UsageError(problem, hint=f"--set max_tokens={longest}")
    return encoder
