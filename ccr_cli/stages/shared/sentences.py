"""Vectors of sentences by a pretrained encoder, pooled as its sentence-transformers settings say."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli import hub
from ccr_cli.artifacts.base import read_json
from ccr_cli.console import progress
from ccr_cli.data.tokens import HFTokenizer
from ccr_cli.nets.ragged import TextPooling
from ccr_cli.nets.text import TransformerTextEncoder, build_text_encoder
from ccr_cli.stages.shared.embedding import BATCH, choose_device

LONGEST = 128
"""Most tokens of a text that are read."""


def sentence_vectors(model: str, *texts: Sequence[str]) -> list[Tensor]:
    """Encodes lists of texts as unit vectors (N, D) of float32.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be downloaded, or has no safetensors.
        UsageError: If it is neither a folder nor a name.
    """
    located = hub.locate(model, "main")
    device = choose_device("auto")
    encoder = build_text_encoder(str(located.folder), pooling=pooling_of(located.folder)).to(device).eval()
    longest = encoder.longest if isinstance(encoder, TransformerTextEncoder) else None
    tokenizer = HFTokenizer(located.folder, min(LONGEST, longest or LONGEST))
    vectors = []
    with progress(sum(map(len, texts)), located.label, "texts") as advance, torch.no_grad():
        for side in texts:
            table, parts = tokenizer.encode(list(side)), []
            for rows in torch.split(torch.arange(len(table)), BATCH):
                parts.append(normalize(encoder(table.select(rows).to(device)).float(), dim=1))
                advance(len(rows))
            vectors.append(torch.cat(parts))
    return vectors


def pooling_of(folder: Path) -> TextPooling:
    """How tokens become one vector: `cls`, `max` or `mean`; `own` for the first token through a dense layer."""
    settings, modules = folder / "1_Pooling" / "config.json", folder / "modules.json"
    pooling = read_json(settings) if settings.is_file() else {}
    if pooling.get("pooling_mode_max_tokens") or pooling.get("pooling_mode") == "max":
        return "max"
    if not pooling.get("pooling_mode_cls_token") and pooling.get("pooling_mode") != "cls":
        return "mean"
    dense = modules.is_file() and "Dense" in modules.read_text(encoding="utf-8")
    return "own" if dense else "cls"
