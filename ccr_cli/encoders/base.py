"""What every frozen media encoder offers, and the two helpers that they share.

Shapes: B batch, H height, W width, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from PIL import Image

from ccr_cli.artifacts.base import sha256_file, sha256_text


class Encoder(Protocol):
    """A frozen encoder: `Encoder(config, device, dtype)`, built from the `Config` of its own file.

    Beside it a file may have `missing()`, for `ccr doctor`, and `identity(config)`: what a request records in place
    of options that name a file.
    """

    dim: int
    """D, the width of one vector."""

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Turns one picture into (3, H, W) float32. Called from worker threads."""
        ...

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Returns (B, D) float32 on the CPU, not normalised."""
        ...

    def describe(self) -> dict[str, object]:
        """Says what made the vectors: model, revision, weights' sha256, preprocessing and backend, dtype."""
        ...


def sha256_of(paths: Iterable[Path]) -> str:
    """Returns the sha256 of one file, or for several the sha256 of their sorted `name digest` lines."""
    digests = {path.name: sha256_file(path) for path in paths}
    if len(digests) == 1:
        return next(iter(digests.values()))
    return sha256_text("".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())))


def rgb_on_white(image: Image.Image) -> Image.Image:
    """Returns the picture as RGB; one with transparency is laid on white, as on a page.

    A plain `convert("RGB")` would show whatever colour hides under the transparent pixels, mostly black.
    16-bit grey (modes `I` and `I;16...`) is scaled to 8 bits, where Pillow would clip it.
    """
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        page = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        return Image.alpha_composite(page, picture).convert("RGB")
    return image.convert("RGB")
