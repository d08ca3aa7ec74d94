"""Inception-I3D on RGB: 1024-d features of a clip, or of every eight frames of it, and 400 classes of Kinetics.

Carreira & Zisserman, "Quo Vadis, Action Recognition? A New Model and the Kinetics Dataset", CVPR 2017, figure 3:
Inception-V1 (Szegedy et al., CVPR 2015) with every filter extended along time. Convolutions and pools are padded as
in TensorFlow's SAME, so odd sizes round up, and batch normalisation has TensorFlow's epsilon of 1e-3. (Ports with an
epsilon of 1e-5, or with padding that ignores the input size, give different features.)

Parameters are named as in the widely used PyTorch weights (`rgb_imagenet.pt`); `from_state` also accepts the names of
another port (`conv3d_1a_7x7`, `mixed_3b.branch_1.0`, `batch3d`, `conv3d_0c_1x1`).

Shape suffixes: B clips, C channels, T frames, H height, W width, S segments of eight frames, D features, K classes.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccr_cli.errors import ArtifactError

Triple = tuple[int, int, int]

DIM = 1024
SIZE = 224
_EPSILON = 1e-3
_MOMENTUM = 0.01
_SHOWN = 8

MIXED: dict[str, tuple[int, int, int, int, int, int]] = {
    "Mixed_3b": (64, 96, 128, 16, 32, 32),
    "Mixed_3c": (128, 128, 192, 32, 96, 64),
    "Mixed_4b": (192, 96, 208, 16, 48, 64),
    "Mixed_4c": (160, 112, 224, 24, 64, 64),
    "Mixed_4d": (128, 128, 256, 24, 64, 64),
    "Mixed_4e": (112, 144, 288, 32, 64, 64),
    "Mixed_4f": (256, 160, 320, 32, 128, 128),
    "Mixed_5b": (256, 160, 320, 32, 128, 128),
    "Mixed_5c": (384, 192, 384, 48, 128, 128),
}
"""Channels of each block: 1x1x1; 1x1x1 before 3x3x3, twice; 1x1x1 after the pool."""

POOLS: dict[str, tuple[Triple, Triple]] = {
    "Conv3d_1a_7x7": ((1, 3, 3), (1, 2, 2)),
    "Conv3d_2c_3x3": ((1, 3, 3), (1, 2, 2)),
    "Mixed_3c": ((3, 3, 3), (2, 2, 2)),
    "Mixed_4f": ((2, 2, 2), (2, 2, 2)),
}
"""Window and stride of the pool that follows a layer."""


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis, as TensorFlow's SAME: ceil(size / stride) outputs, the odd zero comes last."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def pad_same(x_BCTHW: Tensor, kernel: Triple, stride: Triple) -> tuple[Tensor, Triple]:
    """Pads explicitly if an axis needs uneven padding; also returns the padding left to the operation itself."""
    sides = [same_padding(size, k, s) for size, k, s in zip(x_BCTHW.shape[2:], kernel, stride, strict=True)]
    (t, t_after), (h, h_after), (w, w_after) = sides
    if (t, h, w) == (t_after, h_after, w_after):
        return x_BCTHW, (t, h, w)
    return functional.pad(x_BCTHW, (w, w_after, h, h_after, t, t_after)), (0, 0, 0)


def max_pool_same(x_BCTHW: Tensor, kernel: Triple, stride: Triple) -> Tensor:
    """Max pooling with SAME padding; inputs are at least 0, so zeros at the border change nothing."""
    x_BCTHW, padding = pad_same(x_BCTHW, kernel, stride)
    return functional.max_pool3d(x_BCTHW, kernel, stride, padding)


class ConvUnit(nn.Module):
    """A SAME-padded convolution with batch normalisation and ReLU; the `last` one has a bias instead of both."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, last: bool = False) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(inputs, outputs, kernel, stride, bias=last)
        self.bn = None if last else nn.BatchNorm3d(outputs, eps=_EPSILON, momentum=_MOMENTUM)
        self._kernel, self._stride = (kernel,) * 3, (stride,) * 3

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        """Returns a block of ceil(size / stride) along each axis."""
        x_BCTHW, padding = pad_same(x_BCTHW, self._kernel, self._stride)
        conv = self.conv3d
        y_BCTHW = functional.conv3d(x_BCTHW, conv.weight, conv.bias, self._stride, padding)
        return y_BCTHW if self.bn is None else functional.relu(self.bn(y_BCTHW))


class Mixed(nn.Module):
    """Four branches side by side, joined along the channels."""

    def __init__(self, inputs: int, channels: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        a, b1, b2, c1, c2, d = channels
        self.b0 = ConvUnit(inputs, a)
        self.b1a, self.b1b = ConvUnit(inputs, b1), ConvUnit(b1, b2, 3)
        self.b2a, self.b2b = ConvUnit(inputs, c1), ConvUnit(c1, c2, 3)
        self.b3b = ConvUnit(inputs, d)
        self.outputs = a + b2 + c2 + d

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        """Returns a block of the same size."""
        pooled_BCTHW = max_pool_same(x_BCTHW, (3, 3, 3), (1, 1, 1))
        branches = (self.b0(x_BCTHW), self.b1b(self.b1a(x_BCTHW)), self.b2b(self.b2a(x_BCTHW)), self.b3b(pooled_BCTHW))
        return torch.cat(branches, dim=1)


class InceptionI3d(nn.Module):
    """The network with K = `classes` classes, meant to be used frozen: `.eval().requires_grad_(False)`."""

    def __init__(self, classes: int = 400) -> None:
        super().__init__()
        self.Conv3d_1a_7x7 = ConvUnit(3, 64, 7, 2)
        self.Conv3d_2b_1x1 = ConvUnit(64, 64)
        self.Conv3d_2c_3x3 = ConvUnit(64, 192, 3)
        width = 192
        for name, channels in MIXED.items():
            block = Mixed(width, channels)
            self.add_module(name, block)
            width = block.outputs
        self.logits = ConvUnit(width, classes, last=True)

    def forward(self, clip_BCTHW: Tensor) -> Tensor:
        """Features (B, D) float32 of whole clips, not normalised.

        Clips are RGB in [-1, 1], published for 224 x 224; any number of frames and any size work.
        """
        return self.pool(self.segments(clip_BCTHW))

    def segments(self, clip_BCTHW: Tensor) -> Tensor:
        """Features (B, S, D) float32 of every eight frames, S = ceil(T / 8): the last block averaged over space."""
        x_BCTHW = clip_BCTHW
        for name, layer in self.named_children():
            if name == "logits":
                break
            x_BCTHW = layer(x_BCTHW)
            if name in POOLS:
                x_BCTHW = max_pool_same(x_BCTHW, *POOLS[name])
        return x_BCTHW.float().mean(dim=(3, 4)).transpose(1, 2)

    @staticmethod
    def pool(segment_BSD: Tensor) -> Tensor:
        """Mean of the means of neighbouring segments, (B, D).

        The published head averages windows of two segments, then all windows, so segments at the ends count half. A
        clip of one segment, shorter than that window, keeps the segment's features.
        """
        if segment_BSD.shape[1] > 1:
            segment_BSD = (segment_BSD[:, 1:] + segment_BSD[:, :-1]) / 2
        return segment_BSD.mean(dim=1)

    def classify(self, feature_BD: Tensor) -> Tensor:
        """Logits (B, K) of pooled features: the published mean of the windows' logits, since the map is linear."""
        layer = self.logits.conv3d
        return functional.linear(feature_BD.to(layer.weight.dtype), layer.weight.flatten(1), layer.bias)


_RENAMED = (
    (r"^module\.", ""),
    (r"^conv3d_0c_1x1\.", "logits."),
    (r"^conv3d_(?=\d)", "Conv3d_"),
    (r"^mixed_", "Mixed_"),
    (r"\.branch_0\.", ".b0."),
    (r"\.branch_([12])\.0\.", r".b\1a."),
    (r"\.branch_([12])\.1\.", r".b\1b."),
    (r"\.branch_3\.1\.", ".b3b."),
    (r"\.batch3d\.", ".bn."),
)


def usual_name(name: str) -> str:
    """Translates a parameter's name in either port to the name used here."""
    for pattern, new in _RENAMED:
        name = re.sub(pattern, new, name)
    return name


def from_state(state: Mapping[str, Tensor], source: str) -> InceptionI3d:
    """Builds the network, frozen and in float32, from named weights of either port; they determine K.

    `num_batches_tracked` is not needed. `source` is where the weights come from, for messages.

    Raises:
        ArtifactError: If the weights do not fit the network.
    """
    loaded = {usual_name(name): tensor for name, tensor in state.items() if not name.endswith(".num_batches_tracked")}
    last = loaded.get("logits.conv3d.weight")
    with torch.device("meta"):
        network = InceptionI3d(len(last) if last is not None and last.ndim else 400)
    expected = {name: t for name, t in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    wrong = {
        "missing": sorted(expected.keys() - loaded.keys()),
        "unknown": sorted(loaded.keys() - expected.keys()),
        "of another shape": [
            f"{name} {tuple(loaded[name].shape)}, not {tuple(tensor.shape)}"
            for name, tensor in expected.items()
            if name in loaded and loaded[name].shape != tensor.shape
        ],
    }
    if any(wrong.values()):
        parts = [
            f"{len(names)} {kind}: {', '.join(names[:_SHOWN])}"
            + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            for kind, names in wrong.items()
            if names
        ]
        hint = "expected: rgb_imagenet.pt with Conv3d_1a_7x7.conv3d.weight ... logits.conv3d.bias"
        raise ArtifactError(f"{source} holds no weights of Inception-I3D on RGB: {'; '.join(parts)}", hint=hint)
    network = network.to_empty(device="cpu")
    counts = {name: torch.zeros_like(t) for name, t in network.state_dict().items() if name not in expected}
    network.load_state_dict({**{name: loaded[name].float() for name in expected}, **counts})
    return network.eval().requires_grad_(False)
