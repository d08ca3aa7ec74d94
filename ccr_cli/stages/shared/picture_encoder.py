"""The encoders that made features, to encode more pictures: queries of a search, and exports.

Shape suffixes: R rows of an input, D feature.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts import base, features
from ccr_cli.data.formats.base import is_video
from ccr_cli.data.frames import Frames
from ccr_cli.encoders.base import DTYPES
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.shared.media import MediaError, MediaReader, Medium
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.pixels import encoder_input

_IGNORED = {"model", "revision", "licence", *features.OF_VIDEOS}
"""Keys of encoder.json that do not change the vector of a picture: the weights are compared by their sha256."""


class PictureEncoder:
    """The encoder of a data set's features (or the encoders, of joined features), ready for more pictures.

    For a method that needs `media` (`Config.needs`), it only preprocesses them. Raises ArtifactError if ccr did not
    encode the features, or the encoder has changed since.
    """

    def __init__(self, feats: base.Artifact, device: torch.device, needs: frozenset[str] = frozenset()) -> None:
        self._parts: list[tuple[Any, Callable[[list[Tensor]], Tensor]]] = []
        if "media" in needs:
            self._parts.append((encoder_input(feats), torch.stack))
            return
        manifest = feats.json("encoder.json")
        for part, recorded in zip(features.parts(feats), manifest.get(features.PARTS, [manifest]), strict=True):
            model = encoder_of(feats, part, recorded, device)
            self._parts.append((model, partial(_rows, model, part.request.get("pool") == "mean")))

    def file(self, path: Path) -> Frames:
        """Encodes a picture, or the frames of a video, as one item; raises UsageError if it cannot be read."""
        real = path.resolve()
        medium = Medium("video" if is_video(real.name) else "image", real.name)
        try:
            return self._item([list(MediaReader(real.parent, model).read(medium)) for model, _ in self._parts])
        except MediaError as error:
            cause, _, rest = str(error).partition(": ")
            why = "it is not a picture that ccr can read" if cause == "UnidentifiedImageError" else rest
            raise UsageError(f"cannot search with {path}: {why}") from None

    @property
    def stills(self) -> bool:
        """Whether it encodes pictures, not only video clips."""
        return all(model.sampling.clip_frames == 1 for model, _ in self._parts)

    def image(self, image: Image.Image) -> Frames:
        """Encodes an open picture as one item; only if `stills`."""
        return self._item([[model.preprocess(image)] for model, _ in self._parts])

    def _item(self, inputs: Sequence[list[Tensor]]) -> Frames:
        parts = [rows(tensors) for (_, rows), tensors in zip(self._parts, inputs, strict=True)]
        if len({len(rows_RD) for rows_RD in parts}) > 1:
            raise UsageError("the encoders of the joined features give different numbers of rows")
        rows_RD = torch.cat(parts, dim=1)
        return Frames(rows_RD, torch.tensor([0, len(rows_RD)]))


@torch.inference_mode()
def _rows(model: Any, mean: bool, inputs: list[Tensor]) -> Tensor:
    """The rows of one item as an artifact would hold them, rounded to half precision."""
    output = model.encode(torch.stack(inputs)).float().cpu().numpy()
    rows_RD = output.reshape(-1, output.shape[-1])
    if mean:
        rows_RD = rows_RD.mean(axis=0, dtype=np.float64, keepdims=True)
    return torch.from_numpy(rows_RD.astype(features.STORED).astype(np.float32))


def encoder_of(feats: base.Artifact, part: features.EncoderPart, recorded: dict[str, Any], device: torch.device) -> Any:
    """Loads the encoder of one part; raises ArtifactError if it differs from the one that the features record."""
    name = str(part.request["encoder"])
    if features.FROM in part.request or name == features.GIVEN:
        raise ArtifactError(
            f"the features {feats.path} were not made by ccr, so it cannot encode a picture like them",
            hint="search with words, or train on features from ccr extract",
        )
    module = registry.load("encoders", name)
    dtype = DTYPES[str(part.request["dtype"])]
    model = module.Encoder(configure(module.Config, part.options, f"encoder {name}"), device, dtype)
    current = json.loads(json.dumps(model.describe())) | registry.installed_source("encoders", name)
    recorded = {**recorded, **({registry.SOURCE: source} if (source := part.request.get(registry.SOURCE)) else {})}
    if other := sorted(k for k in {*current, *recorded} - _IGNORED if current.get(k) != recorded.get(k)):
        raise ArtifactError(
            f"the encoder {name} differs from that of {feats.path} in {', '.join(other)}",
            hint=f"extract again and train on the result: {features.command(feats, feats.path.parent)} --force",
        )
    return model
