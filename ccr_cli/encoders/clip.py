"""CLIP, SigLIP and similar models of transformers, by hub name or folder.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021; Zhai et
al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023. Pictures are encoded as in `vision.py`: the vector is
the projected image embedding, before normalisation. The text side is the zero-shot baseline without training
(multilingual checkpoints: SigLIP 2, MetaCLIP 2, AltCLIP, ...).

Shapes: T texts, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ccr_cli import hub
from ccr_cli.encoders import vision
from ccr_cli.encoders.vision import identity, recipe
from ccr_cli.errors import UsageError
from ccr_cli.transformers_loading import transformers_loading

__all__ = ["Config", "Encoder", "identity", "missing", "recipe"]
_TEXT_BATCH = 64


@dataclass(frozen=True)
class Config(vision.Config):
    """Options of the encoder."""

    model: str = "openai/clip-vit-base-patch32"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""


missing = partial(hub.missing, Config.model)


class Encoder(vision.Encoder):
    """A frozen dual encoder: its image side encodes media, its text side is a baseline."""

    name = "clip"
    _tokenizer: Any = None

    def _check(self, network: Any) -> None:
        if not hasattr(network, "get_image_features"):
            message = f"{self.config.model} ({network.__name__}) does not have both an image side and a text side"
            raise UsageError(message, hint=f"an image model: --encoder vision --set model={self.config.model}")

    @torch.inference_mode()
    def encode_text(self, texts: list[str]) -> torch.Tensor:
        """Encodes texts into the space of the images.

        SigLIP was trained on texts padded to its full length and needs them that way; for the others texts are
        padded to the longest of a batch. Longer texts are cut at the model's length.

        Returns:
            (T, D) float32 on the CPU, not normalised.

        Raises:
            UsageError: If the model has no text side.
        """
        if not hasattr(self._model, "get_text_features"):
            raise UsageError(f"{self.config.model} has no text side")
        if self._tokenizer is None:
            with transformers_loading():
                from transformers import AutoTokenizer

                folder = str(self._located.folder)
                self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer = self._tokenizer
        settings = getattr(self._model.config, "text_config", self._model.config)
        length = min(int(settings.max_position_embeddings), int(tokenizer.model_max_length))
        padding = "max_length" if self._model.config.model_type.startswith("siglip") else "longest"
        parts = [torch.empty(0, self.dim)]
        for first in range(0, len(texts), _TEXT_BATCH):
            part = texts[first : first + _TEXT_BATCH]
            batch = tokenizer(part, padding=padding, truncation=True, max_length=length, return_tensors="pt")
            inputs = {name: tensor.to(self.device) for name, tensor in batch.items()}
            parts.append(self._model.get_text_features(**inputs).pooler_output.float().cpu())
        return torch.cat(parts)
