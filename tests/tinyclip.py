"""A CLIP of a few thousand random weights, as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 12, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip


def save(folder: Path, seed: int = 0) -> Path:
    """Writes the model and how its pictures are prepared."""
    torch.manual_seed(seed)
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=24)
    transformers.CLIPModel(config).save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessorPil(**size).save_pretrained(folder)
    return folder
