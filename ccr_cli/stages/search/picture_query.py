"""Pictures as queries: encoded by the very encoder that made the features.

Shape suffixes: R rows of an input, D feature.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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

_WHATEVER = {"model", "revision", "licence", *features.OF_VIDEOS}
"""In encoder.json, but not what makes a picture's vector: the weights have their sha256."""


class PictureEncoder:
    """Whatever encoded the features of a data set, ready for one more picture.

    Args:
        feats: The features; of joined ones each part's encoder is needed.
        device: Where the encoders run.

    Raises:
        ArtifactError: If ccr did not encode them, or the encoder of that name is another one here.
        UnavailableError: If an encoder is not installed.
    """

    def __init__(self, feats: base.Artifact, device: torch.device) -> None:
        about = base.read_json(feats.file("encoder.json"))
        parts = features.parts(feats)
        recorded = about.get(features.PARTS, [about])
        self._parts = [
            (_encoder(feats, part, told, device), part.request.get("pool") == "mean")
            for part, told in zip(parts, recorded, strict=True)
        ]

    def file(self, path: Path) -> Frames:
        """Encodes a picture, or the frames of a video, as one item.

        Raises:
            UsageError: If it cannot be read.
        """
        real = path.resolve()
        medium = Medium("video" if is_video(real.name) else "image", real.name)
        try:
            return self._item([list(MediaReader(real.parent, model).read(medium)) for model, _ in self._parts])
        except MediaError as error:
            raise UsageError(f"{path} cannot be searched with: {error}") from None

    @property
    def stills(self) -> bool:
        """Whether it encodes pictures, and not clips of videos alone."""
        return all(model.sampling.clip_frames == 1 for model, _ in self._parts)

    def image(self, image: Image.Image) -> Frames:
        """Encodes a picture that is open, as one item; where `stills`."""
        return self._item([[model.preprocess(image)] for model, _ in self._parts])

    def _item(self, inputs: Sequence[Sequence[Tensor]]) -> Frames:
        found = [_rows(model, given, mean) for (model, mean), given in zip(self._parts, inputs, strict=True)]
        if len({len(rows_RD) for rows_RD in found}) > 1:
            raise UsageError("the encoders of the joined features give different numbers of rows")
        rows_RD = torch.cat(found, dim=1)
        return Frames(rows_RD, torch.tensor([0, len(rows_RD)]))


@torch.inference_mode()
def _rows(model: Any, inputs: Sequence[Tensor], mean: bool) -> Tensor:
    """The rows of one item as an artifact would hold them: in half precision."""
    given = model.encode(torch.stack(list(inputs))).float().cpu().numpy()
    rows_RD = given.reshape(-1, given.shape[-1])
    if mean:
        rows_RD = rows_RD.mean(axis=0, dtype=np.float64, keepdims=True)
    return torch.from_numpy(rows_RD.astype(np.float16).astype(np.float32))


def _encoder(feats: base.Artifact, part: features.Part, told: dict[str, Any], device: torch.device) -> Any:
    """The encoder of one part, which must be the one that the features name.

    Raises:
        ArtifactError: If it is not.
    """
    name = str(part.request["encoder"])
    if features.FROM in part.request or name == features.GIVEN:
        raise ArtifactError(
            f"the features of {feats.path} were made elsewhere, so ccr cannot encode a picture as they were",
            hint="search with words, or train on features of ccr extract",
        )
    options = {k: v for k, v in {**part.request, **part.given}.items() if k not in ("encoder", "dtype", "pool")}
    module = registry.load("encoders", name)
    dtype = DTYPES[str(part.request["dtype"])]
    model = module.Encoder(configure(module.Config, options, f"encoder {name}"), device, dtype)
    here = json.loads(json.dumps(model.describe()))
    if other := sorted(k for k in {*here, *told} - _WHATEVER if here.get(k) != told.get(k)):
        raise ArtifactError(
            f"the encoder {name} is here another one than that of {feats.path}: {', '.join(other)} differ",
            hint=f"extract again and train on that: {features.command(feats, feats.path.parent)} --force",
        )
    return model
