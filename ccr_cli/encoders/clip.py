"""CLIP, SigLIP and similar models of transformers, by hub name or folder.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021; Zhai et
al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023. Pictures are encoded as in `vision.py`: the vector is
the projected image embedding, before normalisation. `nets/text.py` reads the text side of such a model.
"""

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

from ccr_cli import hub
from ccr_cli.encoders import vision
from ccr_cli.encoders.vision import identity, recipe
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

__all__ = ["Config", "Encoder", "identity", "missing", "recipe"]


@dataclass(frozen=True)
class Config(vision.Config):
    """Options of the encoder."""

    model: str = "openai/clip-vit-base-patch32"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""


missing = partial(hub.missing, Config.model)
_FAMILIES = ("clip", "siglip", "metaclip_2", "altclip", "chinese_clip")
"""Model types whose image and text sides are both tested."""
_REFUSED = {"siglip2": "takes pictures of any shape (NaFlex)"} | dict.fromkeys(
    ("clipseg", "groupvit", "owlvit", "owlv2"), "finds regions of a picture, not pictures"
)
_REGIONS = ("CLIPSeg", "GroupViT", "OwlViT", "Owlv2")
"""Prefixes of classes that have both sides but were trained to find parts of a picture."""


def usable() -> dict[str, str]:
    """Why each dual encoder in the hub's cache cannot be used, for `ccr doctor`; empty if it can."""
    found = {}
    for name, settings in hub.cached().items():
        kind = str(settings.get("model_type"))
        if kind in _REFUSED:
            found[name] = _REFUSED[kind]
        elif kind in _FAMILIES:
            try:
                located = hub.find(name)
                there = {path.name for path in located.folder.iterdir()} if located else set()
                absent = [f for f in ("preprocessor_config.json", "tokenizer_config.json") if f not in there]
                found[name] = "" if not absent else f"incomplete: no {absent[0] if located else 'weights'}"
            except (ArtifactError, UnavailableError) as error:
                found[name] = error.message
    return found


class Encoder(vision.Encoder):
    """The image side of a frozen dual encoder."""

    name = "clip"

    def _check(self, network: Any) -> None:
        model = f"{self.config.model} ({network.__name__})"
        if network.__name__.startswith(_REGIONS):
            problem = f"{model} was trained to find regions of a picture, not pictures"
            raise UsageError(problem, hint="use a CLIP: --set model=openai/clip-vit-base-patch32")
        if hasattr(network, "get_image_features") and hasattr(network, "get_text_features"):
            return
        if "pixel_values" in inspect.signature(network.forward).parameters:
            hint = f"an image model: --encoder vision --set model={self.config.model}"
        else:
            hint = f"it has no image side; as the text side of a run: ccr train --set text_encoder={self.config.model}"
        raise UsageError(f"{model} does not have both an image side and a text side", hint=hint)
