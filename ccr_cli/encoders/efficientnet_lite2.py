"""EfficientNet-Lite2 (ImageNet), 1280-d, 260 x 260; needs the extra efficientnet."""

from __future__ import annotations

from dataclasses import dataclass

from ccr_cli.encoders import efficientnet_lite0 as lite

LITE2 = lite.Variant(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", "efficientnet")
missing = LITE2.missing


@dataclass(frozen=True)
class Config(lite.Config):
    """Options of the encoder."""

    image_size: int = 260
    """Side of the square input in pixels; the network was trained with 260."""


class Encoder(lite.Encoder):
    """Frozen EfficientNet-Lite2."""

    variant = LITE2
