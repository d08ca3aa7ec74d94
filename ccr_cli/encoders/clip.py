"""CLIP, SigLIP and similar models of transformers, by hub name or folder.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021; Zhai et
al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023. Pictures are encoded as in `vision.py`: the vector is
the projected image embedding, before normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ccr_cli import hub
from ccr_cli.encoders import vision
from ccr_cli.encoders.vision import identity, recipe
from ccr_cli.errors import UsageError

__all__ = ["Config", "Encoder", "identity", "missing", "recipe"]


@dataclass(frozen=True)
class Config(vision.Config):
    """Options of the encoder."""

    model: str = "openai/clip-vit-base-patch32"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""


missing = partial(hub.missing, Config.model)


class Encoder(vision.Encoder):
    """The image side of a frozen dual encoder."""

    name = "clip"

    def _check(self, network: Any) -> None:
        if not hasattr(network, "get_image_features"):
            message = f"{self.config.model} ({network.__name__}) does not have both an image side and a text side"
            raise UsageError(message, hint=f"an image model: --encoder vision --set model={self.config.model}")
