"""The interface of every frozen media encoder, and helpers that several of them use.

Shapes: B inputs of a batch, L frames of a clip, R rows of an input, H height, W width, D embedding.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image

from ccr_cli.artifacts.base import sha256_file, sha256_text
from ccr_cli.data.sampling import Sampling

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions of an encoder, by the value of `--dtype`."""


@dataclass(frozen=True)
class PictureConfig:
    """Options of every picture encoder, which only matter for videos: which frames to encode."""

    fps: float = 1.0
    """Frames per second of a video, by display time; 0: every frame of the file."""

    frames: int = 0
    """Encode this many frames, evenly spread over the whole video, instead of using `fps`; 0: use `fps`."""

    def __post_init__(self) -> None:
        _ = self.sampling  # checks the values

    @property
    def sampling(self) -> Sampling:
        """Single frames."""
        return Sampling(fps=self.fps, frames=self.frames)


class Encoder(Protocol):
    """A frozen encoder: `Encoder(config, device, dtype)`, built from the `Config` of its own file.

    An input is a picture or, where `sampling.clip_frames` is more than 1, a clip of that many frames. A picture
    encoder encodes single frames of a video; a clip encoder does not take pictures. Options in Config named like a
    field of `Sampling` are recorded in a request only if the data set has videos.

    A file may also define `missing()`, for `ccr doctor`, and `identity(config)`: what a request records in place
    of options that name a file. An encoder that can be trained further exposes its network as `tower`, and its file
    defines `recipe(config)`: how pictures are prepared, read without the weights. One that `ccr export` can include has
    `plain()`: JSON from which `stages/export/encode_image.py` builds it.
    """

    dim: int
    """D, the length of a vector."""

    sampling: Sampling
    """Which frames of a video become inputs; `config.sampling` for a picture encoder."""

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Turns one picture or frame into (3, H, W), float32 or uint8, always of the same shape.

        Called from worker threads. A frame is RGB and is prepared once, even if several clips contain it.
        """
        ...

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Encodes outputs of `preprocess`, (B, 3, H, W), or (B, L, 3, H, W) for clips; on any device.

        Returns:
            (B, D), or (B, R, D) if an input has R rows (tokens, regions); float32, on any device, not normalised.
        """
        ...

    def compile(self) -> None:
        """Applies `torch.compile`, for `--compile`; it takes effect with the first batch."""
        ...

    def describe(self) -> dict[str, object]:
        """Returns what made the vectors: model, revision, sha256 of the weights, preprocessing and backend, dtype."""
        ...


def dtype_name(dtype: torch.dtype) -> str:
    """Returns the name of a precision, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def weights_bytes(encoder: Encoder) -> int:
    """Returns the size of an encoder's weights in bytes, without the text side of a dual encoder."""
    networks = [part for part in vars(encoder).values() if isinstance(part, torch.nn.Module)]
    weights = {
        weight.data_ptr(): weight.nbytes
        for network in networks
        for name, weight in network.named_parameters()
        if ".text_" not in f".{name}"
    }
    return sum(weights.values())


def pixels_of(image: Image.Image) -> torch.Tensor:
    """Returns the levels of an RGB picture, (3, H, W) uint8."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def first_line(error: Exception) -> str:
    """Returns an error's first line, with the error's class if the line is too short to mean anything."""
    first = str(error).strip().split("\n", 1)[0]
    return first if len(first) > 12 else f"{type(error).__name__}: {first}"  # a KeyError is the key alone


def sha256_of(paths: Iterable[Path]) -> str:
    """Returns the sha256 of one file, or for several the sha256 of their sorted `name digest` lines."""
    digests = {path.name: sha256_file(path) for path in paths}
    if len(digests) == 1:
        return next(iter(digests.values()))
    return sha256_text("".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())))
