"""What every frozen media encoder offers, and what they share.

Shapes: B inputs of a batch, L frames of a clip, R rows of an input, H height, W width, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.artifacts.base import sha256_file, sha256_text
from ccr_cli.console import say
from ccr_cli.data.sampling import Sampling


@dataclass(frozen=True)
class PictureConfig:
    """Options of every encoder of pictures: which frames of a video it is shown. Without videos they play no part."""

    fps: float = 1.0
    """Frames a second of a video, by the time at which they are shown; 0: every frame of the file."""

    frames: int = 0
    """So many frames, evenly over the whole video, in place of `fps`; 0: by `fps`."""

    def __post_init__(self) -> None:
        """Checks the values; a Config with a check of its own calls this one too.

        Raises:
            UsageError: If one of them is out of its range.
        """
        _ = self.sampling

    @property
    def sampling(self) -> Sampling:
        """Single frames."""
        return Sampling(fps=self.fps, frames=self.frames)


class Encoder(Protocol):
    """A frozen encoder: `Encoder(config, device, dtype)`, built from the `Config` of its own file.

    One input is a picture or, where `sampling.clip_frames` is more than 1, a clip of as many frames. Of a video, an
    encoder of pictures is shown single frames; an encoder of clips takes no pictures. Options in Config that have the
    name of a field of `Sampling` are recorded in a request only where there are videos.

    Beside it a file may have `missing()`, for `ccr doctor`, and `identity(config)`: what a request records in place
    of options that name a file. An encoder that can be trained further has its network as `tower`, and its file has
    `recipe(config)`: how pictures are prepared, without the weights.
    """

    dim: int
    """D, the width of one vector."""

    sampling: Sampling
    """Which frames of a video make the inputs: `config.sampling` of an encoder of pictures."""

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Turns one picture, or one frame, into (3, H, W), float32 or uint8, always of one shape.

        Called from worker threads. A frame is RGB, and goes through this once, however many clips it is in.
        """
        ...

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Encodes inputs.

        Args:
            batch: What `preprocess` gave, (B, 3, H, W), of clips (B, L, 3, H, W); on any device.

        Returns:
            (B, D), or (B, R, D) where an input has R rows (tokens, regions); float32, on any device, not normalised.
        """
        ...

    def compile(self) -> None:
        """Has `torch.compile` make what computes faster from the first batch on, for `--compile`."""
        ...

    def describe(self) -> dict[str, object]:
        """Says what made the vectors: model, revision, weights' sha256, preprocessing and backend, dtype."""
        ...


def shown_licence(located: hub.Located) -> str | None:
    """The licence that a model's card names, after saying it; None where it names none."""
    licence = hub.licence(located.folder)
    if licence:
        say(f"{located.label}, licence: {licence}")
    return licence


def sha256_of(paths: Iterable[Path]) -> str:
    """Returns the sha256 of one file, or for several the sha256 of their sorted `name digest` lines."""
    digests = {path.name: sha256_file(path) for path in paths}
    if len(digests) == 1:
        return next(iter(digests.values()))
    return sha256_text("".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())))
