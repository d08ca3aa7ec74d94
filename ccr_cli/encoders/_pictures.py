"""From a picture to a network's input: what transformers' image processors do, on Pillow alone.

A processor of transformers says what is to be done (`preprocessor_config.json`, with its class's defaults); doing it
is a few lines here. So torchvision is never needed, a picture of 1 x 100,000 pixels costs no more than any other, and
pixels stay in 8 bits until they are where the network runs. They are those of transformers' Pillow processors.

Shapes: H height, W width, C colours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ccr_cli.data.pictures import upright_rgb
from ccr_cli.encoders._loading import preparing
from ccr_cli.errors import UsageError
from ccr_cli.nets.tower import scaled
from ccr_cli.transformers_loading import transformers_loading

_SQUASHING_TORCHVISION = {"DINOv3ViTImageProcessor", "DINOv3ViTImageProcessorFast"}
"""Exists for torchvision alone. It resizes numbers between 0 and 1 instead of levels: not a level's difference."""
_SLENDER = 16
"""Where a picture, resized, is so many times what the crop shows of it, the rest is not made."""
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


@dataclass(frozen=True)
class Recipe:
    """How a picture becomes an input of a fixed size."""

    name: str
    """The processor's class."""
    shortest: int | None
    """Resized to this shortest side, in proportion."""
    squashed: tuple[int, int] | None
    """Resized to (height, width), out of proportion; with neither, not at all."""
    crop: tuple[int, int] | None
    """The middle (height, width); black where the picture is smaller."""
    resampling: int
    """Filter, as Pillow numbers them."""
    scale_C: tuple[float, float, float]
    """What a level is multiplied by."""
    shift_C: tuple[float, float, float]
    """What is added then."""

    def levels(self, image: Image.Image) -> torch.Tensor:
        """Returns the picture as a viewer shows it, resized and cropped: (3, H, W) uint8."""
        return torch.from_numpy(np.array(self.resized(upright_rgb(image)))).permute(2, 0, 1).contiguous()

    def tried(self, model: str, image: Image.Image) -> torch.Tensor:
        """Returns the levels of a picture, for the first time.

        Raises:
            ArtifactError: If sizes, filter or factors are none.
        """
        with preparing(model, "pictures"):
            if not all(math.isfinite(value) for value in (*self.scale_C, *self.shift_C)):
                raise ValueError("factors that are not finite")
            return self.levels(image)

    def scaled(self, levels_BCHW: torch.Tensor) -> torch.Tensor:
        """Returns what the network takes: float32, on the same device, channels last in memory."""
        return scaled(levels_BCHW, self.scale_C, self.shift_C)

    def resized(self, image: Image.Image) -> Image.Image:
        """Resizes and crops an RGB picture."""
        height, width = self._whole(image.height, image.width)
        crop_h, crop_w = self.crop or (height, width)
        seen_h, seen_w = min(height, crop_h), min(width, crop_w)
        top, left = (height - seen_h) // 2, (width - seen_w) // 2
        filtering = Image.Resampling(self.resampling)
        if height * width <= _SLENDER * crop_h * crop_w:
            seen = image.resize((width, height), filtering).crop((left, top, left + seen_w, top + seen_h))
        else:  # the same but for rounding, and the rest is never made
            step_h, step_w = image.height / height, image.width / width
            right, bottom = min((left + seen_w) * step_w, image.width), min((top + seen_h) * step_h, image.height)
            seen = image.resize((seen_w, seen_h), filtering, (left * step_w, top * step_h, right, bottom))
        if (seen_h, seen_w) == (crop_h, crop_w):
            return seen
        page = Image.new("RGB", (crop_w, crop_h))
        page.paste(seen, (math.ceil((crop_w - seen_w) / 2), math.ceil((crop_h - seen_h) / 2)))
        return page

    def _whole(self, height: int, width: int) -> tuple[int, int]:
        """The size before the crop."""
        if self.squashed:
            return self.squashed
        if not self.shortest:
            return height, width
        long = int(self.shortest * max(height, width) / min(height, width))
        return (long, self.shortest) if width <= height else (self.shortest, long)

    def describe(self) -> str:
        """Says it in words, for `encoder.json`."""
        steps = ["EXIF orientation applied", "alpha on white"]
        if self.shortest:
            steps.append(f"shortest side to {self.shortest} px")
        if self.squashed:
            steps.append(f"squashed to {self.squashed[1]} x {self.squashed[0]} px")
        if self.shortest or self.squashed:
            steps[-1] += f" ({Image.Resampling(self.resampling).name.lower()})"
        if self.crop:
            steps.append(f"middle {self.crop[1]} x {self.crop[0]} px")
        scale, shift = ([round(value, 6) for value in values] for values in (self.scale_C, self.shift_C))
        return ", ".join([*steps, f"level * {scale} + {shift}"]) + f": as {self.name}"


def read_recipe(folder: Path, model: str) -> Recipe:
    """Reads what a model's own files say of its pictures.

    Args:
        folder: Holds `preprocessor_config.json` or `processor_config.json`.
        model: What the user calls it.

    Raises:
        ArtifactError: If there is no such file, or it cannot be read.
        UsageError: If the processor does something that is not done here, or its pictures differ in size.
    """
    with preparing(model, "pictures"):
        return _recipe(*_processor(folder, model), model)


def _recipe(processor: Any, crops_as_well: bool, model: str) -> Recipe:
    name = type(processor).__name__

    def on(step: str) -> bool:
        return bool(getattr(processor, step, None))

    size, shortest, squashed, crop = processor.size, None, None, None
    if on("do_resize"):
        if size.height and size.width:
            squashed = (size.height, size.width)
        elif size.shortest_edge and not size.longest_edge:
            shortest = size.shortest_edge
        else:
            raise UsageError(f"{model} resizes its pictures to {size}: not known here")
    if on("do_center_crop"):
        crop = (processor.crop_size.height, processor.crop_size.width)
    if crops_as_well and shortest:
        side = int(shortest)
        shortest, squashed, crop = (
            (int(side / processor.crop_pct), None, (side, side)) if side < 384 else (None, (side, side), None)
        )
    if not (crop or squashed) or on("do_pad"):
        raise UsageError(f"the pictures of {model} ({name}) are not of one size: that is not offered here")
    factor = float(processor.rescale_factor) if on("do_rescale") else 1.0
    mean, std = (processor.image_mean, processor.image_std) if on("do_normalize") else ([0.0] * 3, [1.0] * 3)
    return Recipe(
        name=name,
        shortest=shortest,
        squashed=squashed,
        crop=crop,
        resampling=int(processor.resample),
        scale_C=_three(factor / s for s in std),
        shift_C=_three(-m / s for m, s in zip(mean, std, strict=True)),
    )


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)


def _processor(folder: Path, model: str) -> tuple[Any, bool]:
    """Returns the model's processor, and whether it crops within the resizing as ConvNeXT's does."""
    with transformers_loading():
        from transformers import AutoImageProcessor, BeitImageProcessorPil, ConvNextImageProcessorPil
        from transformers import ViTImageProcessorPil as Squashing
        from transformers.image_processing_backends import PilBackend
        from transformers.models.auto.image_processing_auto import get_image_processor_config

        said = get_image_processor_config(str(folder), local_files_only=True)
        if said.get("image_processor_type") in _SQUASHING_TORCHVISION:
            return Squashing(**(_IMAGENET | said)), False
        processor = AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", local_files_only=True, trust_remote_code=False
        )
    kind = type(processor)
    usual = kind.__mro__[1] is PilBackend and {"resize", "center_crop", "_preprocess"}.isdisjoint(vars(kind))
    if not (usual or kind in (BeitImageProcessorPil, ConvNextImageProcessorPil)):
        raise UsageError(f"{model} prepares its pictures with {kind.__name__}, whose steps are not known here")
    return processor, kind is ConvNextImageProcessorPil
