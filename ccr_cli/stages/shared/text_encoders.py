"""The tokenizer and the text encoder of a run, which belong together."""

from typing import Any

import torch

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.data.tokens import GivenTokenizer, HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.text import GivenTextEncoder, TextEncoder, TransformerTextEncoder, build_text_encoder

GIVEN = "given"


def make_text_side(config: Any, data: Dataset) -> tuple[Tokenizer, TextEncoder]:
    """The tokenizer and the text encoder of a method's options.

    Raises:
        ArtifactError: If they need text features and the data set has none.
        UsageError: If texts may be longer than the encoder can read.
    """
    if config.text_encoder == GIVEN:
        features_TD = data.text_features()
        if features_TD is None:
            raise ArtifactError(f"{data.name} brings no features of its texts", hint="--set text_encoder=ngram")
        given = GivenTextEncoder(torch.from_numpy(features_TD))
        return GivenTokenizer(list(data.captions["text"])), given
    tokenizer: Tokenizer
    if config.text_encoder == "ngram":
        tokenizer = NgramTokenizer(buckets=config.buckets)
    else:
        tokenizer = HFTokenizer(config.text_encoder, config.max_tokens)
    names = ("buckets", "dim", "frozen_layers", "pooling", "lora_rank", "lora_alpha")
    encoder = build_text_encoder(config.text_encoder, **{name: getattr(config, name) for name in names})
    longest = encoder.longest if isinstance(encoder, TransformerTextEncoder) else None
    if longest is not None and config.max_tokens > longest:
        problem = f"{config.text_encoder} reads {longest} tokens at most, and max_tokens is {config.max_tokens}"
        raise UsageError(problem, hint=f"--set max_tokens={longest}")
    if isinstance(tokenizer, HFTokenizer):
        tokenizer.limit(longest)
    return tokenizer, encoder
