"""What the encoders of transformers models share: loading a model by hub name or folder, and preparing its pictures.

A processor of transformers (`preprocessor_config.json`, with the defaults of its class) specifies how a picture becomes
an input; this module carries out its steps with Pillow only. So torchvision is not needed, a picture of 1 x 100,000
pixels costs no more than any other, and pixels stay in 8 bits until they are on the network's device. The results equal
those of transformers' Pillow processors.

Shapes: H height, W width, C colours.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError

from ccr_cli import hub
from ccr_cli.console import say
from ccr_cli.data.pictures import upright_rgb
from ccr_cli.encoders.base import dtype_name, first_line, pixels_of, sha256_of
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.tower import scaled
from ccr_cli.transformers_loading import transformers_loading

MALFORMED = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, TypeError, ValueError)
"""Errors that readers raise for a malformed file."""
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
PREPROCESSOR_HINT = "its folder needs the preprocessor_config.json that was published with it"
_SQUASHING_TORCHVISION = {"DINOv3ViTImageProcessor", "DINOv3ViTImageProcessorFast"}
"""Processors for torchvision only. They resize values from 0 to 1, not levels: less than one level of difference."""


@dataclass(frozen=True)
class Recipe:
    """How a picture becomes a network input of a fixed size. An export of a run contains the source of this class."""

    name: str
    """The processor's class."""
    shortest: int | None
    """Resize the shortest side to this, keeping the proportions."""
    squashed: tuple[int, int] | None
    """Resize to (height, width), whatever the proportions. If this and `shortest` are None, do not resize."""
    crop: tuple[int, int] | None
    """Crop to the middle (height, width), filled with black where the picture is smaller."""
    resampling: int
    """Pillow's number for the resampling filter."""
    scale_C: tuple[float, float, float]
    """Factor for the levels of each colour."""
    shift_C: tuple[float, float, float]
    """Number added to each colour after that."""

    def levels(self, image: Image.Image) -> torch.Tensor:
        """Returns the picture as a viewer shows it, resized and cropped: (3, H, W) uint8."""
        return pixels_of(self.resized(upright_rgb(image)))

    def scaled(self, levels_BCHW: torch.Tensor) -> torch.Tensor:
        """Returns the network's input: float32, on the same device, channels last in memory."""
        return scaled(levels_BCHW, self.scale_C, self.shift_C)

    def resized(self, image: Image.Image) -> Image.Image:
        """Resizes and crops an RGB picture."""
        height, width = self._whole(image.height, image.width)
        crop_h, crop_w = self.crop or (height, width)
        visible_h, visible_w = min(height, crop_h), min(width, crop_w)
        top, left = (height - visible_h) // 2, (width - visible_w) // 2
        filtering = Image.Resampling(self.resampling)
        if height * width <= 16 * crop_h * crop_w:
            visible = image.resize((width, height), filtering).crop((left, top, left + visible_w, top + visible_h))
        else:  # the same up to rounding, without inflating a slender picture
            step_h, step_w = image.height / height, image.width / width
            right, bottom = min((left + visible_w) * step_w, image.width), min((top + visible_h) * step_h, image.height)
            visible = image.resize((visible_w, visible_h), filtering, (left * step_w, top * step_h, right, bottom))
        if (visible_h, visible_w) == (crop_h, crop_w):
            return visible
        page = Image.new("RGB", (crop_w, crop_h))
        page.paste(visible, (math.ceil((crop_w - visible_w) / 2), math.ceil((crop_h - visible_h) / 2)))
        return page

    def _whole(self, height: int, width: int) -> tuple[int, int]:
        """Height and width before the crop."""
        if self.squashed:
            return self.squashed
        if not self.shortest:
            return height, width
        long = int(self.shortest * max(height, width) / min(height, width))
        return (long, self.shortest) if width <= height else (self.shortest, long)

    def describe(self) -> str:
        """Describes the recipe in words, for `encoder.json`."""
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


def first_levels(recipe: Recipe, model: str, image: Image.Image) -> torch.Tensor:
    """Returns the levels of the first picture; ArtifactError if a size, the filter or a factor is invalid."""
    with reading_preprocessor(model, "pictures"):
        if not all(math.isfinite(value) for value in (*recipe.scale_C, *recipe.shift_C)):
            raise ValueError("factors that are not finite")
        return recipe.levels(image)


def read_recipe(folder: Path, model: str) -> Recipe:
    """Reads from a model's own files how its pictures are prepared; `model` is the user's name for it, for messages.

    Raises:
        ArtifactError: If there is no such file, or it cannot be read.
        UsageError: If ccr does not support a step of the processor, or the resulting pictures differ in size.
    """
    with reading_preprocessor(model, "pictures"):
        processor, crops_as_well = _processor(folder, model)
        return recipe_of(processor, type(processor).__name__, model, "pictures", crops_as_well=crops_as_well)


@contextmanager
def reading_preprocessor(model: str, inputs: str) -> Iterator[None]:
    """Turns errors of malformed files on how `inputs` (`pictures` or `frames`) are prepared into ArtifactError."""
    try:
        yield
    except MALFORMED as error:
        message = f"the files of {model} do not specify how its {inputs} are prepared ({first_line(error)})"
        raise ArtifactError(message, hint=PREPROCESSOR_HINT) from None


def recipe_of(processor: Any, name: str, model: str, inputs: str, *, crops_as_well: bool = False) -> Recipe:
    """Converts a processor's settings to a recipe; UsageError if ccr does not support them.

    `processor`, of the class `name`, holds the settings as attributes, and sizes as transformers' `SizeDict`. With
    `crops_as_well`, resizing includes a crop. `model` (the user's name for it) and `inputs` (`pictures` or `frames`)
    are for messages.
    """

    def on(step: str) -> bool:
        return bool(getattr(processor, step, None))

    size, shortest, squashed, crop = processor.size, None, None, None
    if on("do_resize"):
        if size.height and size.width:
            squashed = (size.height, size.width)
        elif size.shortest_edge and not size.longest_edge:
            shortest = size.shortest_edge
        else:
            raise UsageError(f"{model} resizes its {inputs} to {dict(size)}, which ccr does not support")
    if on("do_center_crop"):
        crop = (processor.crop_size.height, processor.crop_size.width)
        if None in crop:
            raise ValueError(f"a crop without height and width: {dict(processor.crop_size)}")
    if crops_as_well and shortest:
        side = int(shortest)
        if side < 384:
            shortest, squashed, crop = int(side / processor.crop_pct), None, (side, side)
        else:
            shortest, squashed = None, (side, side)
    if not (crop or squashed) or on("do_pad"):
        raise UsageError(f"the {inputs} of {model} ({name}) are not of one size, which ccr does not support")
    factor = float(processor.rescale_factor) if on("do_rescale") else 1.0
    mean, std = (processor.image_mean, processor.image_std) if on("do_normalize") else ([0.0] * 3, [1.0] * 3)
    offset = int(on("do_rescale") and on("offset"))
    scale_C = _three(factor / s for s in std)
    shift_C = _three(-(offset + m) / s for m, s in zip(mean, std, strict=True))
    return Recipe(name, shortest, squashed, crop, int(processor.resample), scale_C, shift_C)


def _three(values: Iterable[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)


def _processor(folder: Path, model: str) -> tuple[Any, bool]:
    """Returns the model's processor, and whether its resizing includes a crop, as ConvNeXT's does."""
    with transformers_loading():
        from transformers import BeitImageProcessorPil, ConvNextImageProcessorPil
        from transformers import ViTImageProcessorPil as Squashing
        from transformers.image_processing_backends import PilBackend
        from transformers.image_processing_base import ImageProcessingMixin
        from transformers.models.auto.image_processing_auto import AutoImageProcessor

        content, _ = ImageProcessingMixin.get_image_processor_dict(str(folder), local_files_only=True)
        if content.get("image_processor_type") in _SQUASHING_TORCHVISION:
            return Squashing(**(IMAGENET | content)), False
        processor = AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", local_files_only=True, trust_remote_code=False
        )
    kind = type(processor)
    standard = kind.__mro__[1] is PilBackend and {"resize", "center_crop", "_preprocess"}.isdisjoint(vars(kind))
    if not (standard or kind in (BeitImageProcessorPil, ConvNextImageProcessorPil)):
        raise UsageError(f"{model} prepares its pictures with {kind.__name__}, which ccr does not support")
    return processor, kind is ConvNextImageProcessorPil


def identity(config: Any) -> dict[str, str]:
    """Returns what a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


class TransformersEncoder:
    """A frozen model of transformers, by hub name or folder; results are float32 whatever the precision `dtype`.

    `alternatives` says, for the hint, what else the user can do if the model is not available.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched.
        ArtifactError: If its folder has no complete model.
    """

    name: str
    dim: int
    _model: Any
    _recipe: Recipe
    _details: dict[str, object]
    """What a subclass adds to `describe`."""

    def __init__(self, config: Any, device: torch.device, dtype: torch.dtype, alternatives: str = "") -> None:
        self.config, self.device, self.dtype = config, device, dtype
        self._located = hub.locate(config.model, config.revision, alternatives)
        self._licence = hub.licence(self._located.folder)
        if self._licence:
            say(f"{self._located.label}, licence: {self._licence}")

    @property
    def folder(self) -> Path:
        """The folder of the model on this machine."""
        return self._located.folder

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Resizes and crops as the model's own processor does; `encode` scales.

        Returns:
            (3, H, W) uint8.
        """
        return self._recipe.levels(image)

    def describe(self) -> dict[str, object]:
        """Returns the model and the preprocessing that made the vectors."""
        return {
            "encoder": self.name,
            "model": self._located.label,
            "revision": self._located.revision,
            "licence": self._licence,
            "weights_sha256": sha256_of(self._located.weights),
            "dim": self.dim,
            "architecture": type(self._model).__name__,
            **self._details,
            "preprocessing": self._recipe.describe(),
            "preprocessing_backend": "pil",
            "dtype": dtype_name(self.dtype),
        }


def read_settings(folder: Path, name: str) -> Any:
    """Reads the `config.json` of the model that the user calls `name`; call within `transformers_loading`."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except OSError as error:
        raise ArtifactError(f"the config.json of {name} cannot be read ({first_line(error)})") from None
    except (AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{name} is of no family that transformers loads ({first_line(error)})") from None


def read_network(network: Any, folder: Path, name: str, optional: tuple[str, ...] = (), **options: Any) -> Any:
    """Reads a model's weights, from safetensors only; call within `transformers_loading`.

    Weights whose names contain one of `optional` may be absent; `options` are those of `from_pretrained`.

    Raises:
        ArtifactError: If weights are absent, cannot be read, or belong to another model.
    """
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # the error below names what is missing
    try:
        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        model, report = network.from_pretrained(str(folder), output_loading_info=True, **safe, **options)
    except torch.OutOfMemoryError:
        raise
    except (*MALFORMED, RuntimeError, SafetensorError) as error:
        raise ArtifactError(f"{name} does not load as {network.__name__} ({first_line(error)})") from None
    finally:
        transformers.logging.set_verbosity(verbosity)
    absent = sorted(key for key in report["missing_keys"] if not any(part in key for part in optional))
    if absent:
        problem = f"{name} lacks {len(absent)} weights of {network.__name__}, such as {absent[0]}: they would be random"
        raise ArtifactError(problem)
    return model
