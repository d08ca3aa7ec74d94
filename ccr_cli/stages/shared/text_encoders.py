"""The text side of a method: a tokenizer and the text encoder that its options name, or given vectors.

Shape suffixes: N entries of a file, T texts, D vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.console import counted, warn
from ccr_cli.data import features as formats
from ccr_cli.data.tokens import GivenTokenizer, HFTokenizer, NgramTokenizer, Tokenizer
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.text import GivenTextEncoder, TextEncoder, TransformerTextEncoder, build_text_encoder

GIVEN = "given"
ALIKE = 0.999
"""Cosine above which two vectors of one text are taken for the same."""


@dataclass(frozen=True)
class TextVectors:
    """Vectors of texts, in place of a text encoder."""

    path: Path
    texts: list[str]
    """The texts, each once."""
    vector_TD: npt.NDArray[np.float32]

    @cached_property
    def tokenizer(self) -> GivenTokenizer:
        """Maps a text to its row."""
        return GivenTokenizer(self.texts)


def read_text_vectors(path: Path, captions: pd.DataFrame) -> TextVectors:
    """Reads the vectors of captions (`caption_id`, `text`), in any order; `data.features` documents the formats.

    An entry is named by the id of a caption, or by a text itself, such as a query. If several captions have the same
    text, its vector is the mean of theirs.

    Raises:
        ArtifactError: If the file is damaged or has an id twice, no caption is in it, or a vector is zero, not finite
            or of another length than the first.
    """
    text_of = dict(zip(captions["caption_id"], captions["text"], strict=True))
    known = set(text_of.values())
    with formats.opened(*formats.with_lists([path], [])[0]) as table:
        text_N = [text_of.get(name, name) for name in table.ids]
        if again := [name for name, times in Counter(table.ids).items() if times > 1]:
            raise ArtifactError(f"the id {again[0]!r} is twice in {path}", hint="one vector for each caption")
        others = [name for name, text in zip(table.ids, text_N, strict=True) if text not in known]
        if len(others) == len(text_N):
            entries = f"it has {_some(others)}" if others else "it is empty"
            hint = f"name vectors by ids of captions, such as {_some(list(text_of))}"
            raise ArtifactError(f"none of the {len(text_of):,} captions is in {path}: {entries}", hint=hint)
        if others:
            what = f"{len(others):,} of {len(text_N):,} vectors in {path.name} are named by no caption's id"
            warn(f"{what}, and are kept as those of the texts {_some(others)}")
        vector_ND = np.concatenate([_vector(table, n, name) for n, name in enumerate(table.ids)])
    texts = sorted(set(text_N))
    at = {text: row for row, text in enumerate(texts)}
    row_N = np.array([at[text] for text in text_N])
    sum_TD = np.zeros((len(texts), vector_ND.shape[1]))
    np.add.at(sum_TD, row_N, vector_ND)
    vector_TD = (sum_TD / np.bincount(row_N)[:, None]).astype(np.float32)
    product_N = np.einsum("nd,nd->n", vector_ND, vector_TD[row_N])
    cosine_N = product_N / (np.linalg.norm(vector_ND, axis=1) * np.linalg.norm(vector_TD[row_N], axis=1) + 1e-30)
    if several := {text_N[n] for n in np.flatnonzero(cosine_N < ALIKE)}:
        what = f"{counted(len(several), 'text')} with several vectors in {path.name}"
        warn(f"{what}: the mean stands for {_some(several)}")
    return TextVectors(path, texts, vector_TD)


def _vector(table: formats.FeatureTable, number: int, name: str) -> npt.NDArray[np.float32]:
    """Reads a vector (1, D); its values must fit half precision, as those of pictures do."""
    rows_TD, dim = table.rows(number), table.rows(0).shape[1]
    if rows_TD.shape != (1, dim):
        problem = f"{name!r} in {table.path} has {len(rows_TD)} x {rows_TD.shape[1]} numbers"
        raise ArtifactError(f"{problem}, expected one vector of {dim}, as the first entry has")
    formats.half_precision(name, rows_TD)
    if not rows_TD.any():
        raise ArtifactError(f"{name!r} in {table.path} is the zero vector, which has no direction")
    return rows_TD.astype(np.float32)


def _some(names: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(names)[:3])) + (", ..." if len(names) > 3 else "")


def readable_texts(
    tokenizer: Tokenizer, data: Dataset, translations: Mapping[str, Mapping[str, pd.DataFrame]], *, training: bool
) -> tuple[Dataset, dict[str, dict[str, pd.DataFrame]]]:
    """A data set and its translations, by language and name, without texts that have no vector.

    With `training`, warns of such texts among those of the training split.
    """
    if not isinstance(tokenizer, GivenTokenizer):
        return data, {lang: dict(each) for lang, each in translations.items()}
    read = {lang: {n: tokenizer.readable(frame) for n, frame in each.items()} for lang, each in translations.items()}
    items = set(data.items.loc[data.items["split"] == "train", "item_id"]) if training else set()
    forward = (frame[frame["direction"] == "forward"] for each in translations.values() for frame in each.values())
    texts = pd.concat([data.captions_in(data.source_lang), *forward])
    texts = texts.loc[texts["item_id"].isin(items) & texts["text"].notna(), ["text"]].drop_duplicates()
    if lacking := len(texts) - len(tokenizer.readable(texts)):
        warn(f"{lacking:,} of {len(texts):,} texts of training have no vector, and their triplets are left out")
    return replace(data, captions=tokenizer.readable(data.captions)), read


def make_text_side(
    config: Any, read: Callable[[], Dataset], vectors: TextVectors | None = None
) -> tuple[Tokenizer, TextEncoder]:
    """Makes the tokenizer and the text encoder of a method's options, or of the user's `vectors`.

    `read` returns the data set; it is called only if the options need it.

    Raises:
        ArtifactError: If they need text features and the data set has none.
        UsageError: If texts may be longer than the encoder can read.
    """
    if vectors is not None:
        return vectors.tokenizer, GivenTextEncoder(torch.from_numpy(vectors.vector_TD))
    if config.text_encoder == GIVEN:
        data = read()
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
