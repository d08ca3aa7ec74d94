"""An image model of transformers, from 8-bit pixels to vectors: frozen to encode media, or trained in a run.

Shapes: B pictures, H height, W width, L tokens, D vector.
"""

from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from ccr_cli.nets.lora import layers_of
from ccr_cli.transformers_loading import transformers_loading


class VisualTower(nn.Module):
    """A network, the part of its output that represents a picture, and the scaling of pixel values.

    Args:
        model: A transformers model that takes `pixel_values`; of a text-and-image model only the image side is used.
        pooling: `cls`, the first token; `mean` over the patches; `pooler`, the model's own; `tokens`, each patch.
        scale_C: Factor for the pixel values of each channel.
        shift_C: Offset of each channel, added after that.
        size: Height and width of a picture.

    Raises:
        AttributeError: If the network has no such output (also IndexError, RuntimeError, TypeError, ValueError).
    """

    dim: int

    def __init__(
        self,
        model: Any,
        pooling: str,
        scale_C: tuple[float, float, float],
        shift_C: tuple[float, float, float],
        size: tuple[int, int],
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.scale_C, self.shift_C, self.size = model, pooling, scale_C, shift_C, size
        self._dual = hasattr(model, "get_image_features")
        with torch.no_grad():
            output = self._tried()
        if output.ndim != 2 + (pooling == "tokens"):
            raise ValueError(f"the output has the shape {tuple(output.shape)}")
        self.dim = int(output.shape[-1])

    def forward(self, levels_BCHW: Tensor) -> Tensor:
        """Encodes uint8 pictures as (B, D), or as (B, L, D) for `tokens`, not normalised."""
        dtype = next(self.model.parameters()).dtype
        pixels_BCHW = scaled(levels_BCHW, self.scale_C, self.shift_C).to(dtype)
        forward = self.model.get_image_features if self._dual else self.model
        return pooled(forward(pixel_values=pixels_BCHW), self.pooling, self.model.config, self.size)

    def train_from(self, frozen_layers: int) -> "VisualTower":
        """Unfreezes the weights that the vectors depend on; removes parts that do not run, such as a text side.

        The lowest `frozen_layers` layers and the weights before them stay frozen; 0 trains all.
        """
        self.model.to(memory_format=torch.contiguous_format)  # the memory layout of a saved state
        self.requires_grad_(True)
        idle, hooks = set(), []
        for name, child in self.model.named_children():
            if any(True for _ in child.parameters()):
                idle.add(name)
            for part in child.modules():
                hooks.append(part.register_forward_hook(lambda *_, name=name: idle.discard(name)))
        with torch.enable_grad():
            weights = list(self.parameters())
            grads = torch.autograd.grad(self._tried().float().sum(), weights, allow_unused=True)
        for weight, grad in zip(weights, grads, strict=True):
            weight.requires_grad_(grad is not None)
        for hook in hooks:
            hook.remove()
        for name in idle:
            delattr(self.model, name)
        if frozen_layers:
            for weight in self.before_layers():
                weight.requires_grad_(False)
            layers_of(self.model)[:frozen_layers].requires_grad_(False)
        return self

    def before_layers(self) -> list[nn.Parameter]:
        """Weights below the lowest layer."""
        first = next(layers_of(self.model).parameters())
        return list(takewhile(lambda weight: weight is not first, self.model.parameters()))

    def config(self) -> dict[str, Any]:
        """Returns the settings for `tower_from_config` (without the weights)."""
        return {
            "network": type(self.model).__name__,
            "model": _nameless(self.model.config.to_dict()),
            "pooling": self.pooling,
            "scale": list(self.scale_C),
            "shift": list(self.shift_C),
            "size": list(self.size),
        }

    def _tried(self) -> Tensor:
        """The output for one black picture."""
        first = next(self.model.parameters())
        empty = torch.zeros(1, 3, *self.size, dtype=torch.uint8, device=first.device)
        training = self.model.training
        self.model.eval()
        output: Tensor = self(empty)
        self.model.train(training)
        return output


def _nameless(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without their origin and version."""
    kept = {key: value for key, value in settings.items() if key not in ("_name_or_path", "transformers_version")}
    return {key: _nameless(value) if isinstance(value, dict) else value for key, value in kept.items()}


def pooled(output: Any, pooling: str, settings: Any, size: tuple[int, int]) -> Tensor:
    """Takes the vectors from a network's output: (B, D), or (B, L, D) for `tokens`.

    `settings` is the network's configuration, `size` the height and width of a picture. An export of a run contains the
    source of this function, and of `scaled`.
    """
    if pooling == "pooler":
        out_BD: Tensor = output.image_embeds if "image_embeds" in output else output.pooler_output
        return out_BD.flatten(1) if out_BD.ndim == 4 else out_BD
    hidden_BLD: Tensor = output.last_hidden_state
    if hidden_BLD.ndim == 4:
        if pooling == "cls":
            raise ValueError("the output is a map and has no first token")
        hidden_BLD = hidden_BLD.flatten(2).transpose(1, 2)
    elif pooling == "cls":
        return hidden_BLD[:, 0]
    else:  # without the tokens before those of the patches
        before = {"swin": 0, "swinv2": 0, "dinov3_convnext": 1}.get(settings.model_type)
        if before is None:
            patch = getattr(settings, "vision_config", settings).patch_size
            height, width = (patch, patch) if isinstance(patch, int) else patch
            before = hidden_BLD.shape[1] - (size[0] // height) * (size[1] // width)
        hidden_BLD = hidden_BLD[:, before:]
    return hidden_BLD if pooling == "tokens" else hidden_BLD.float().mean(dim=1)


def scaled(levels_BCHW: Tensor, scale_C: tuple[float, ...], shift_C: tuple[float, ...]) -> Tensor:
    """Levels times `scale`, plus `shift`: float32, on the same device, channels last in memory."""
    factors = (torch.tensor(values, device=levels_BCHW.device)[:, None, None] for values in (scale_C, shift_C))
    scale_C11, shift_C11 = factors
    return torch.addcmul(shift_C11, levels_BCHW.to(torch.float32, memory_format=torch.channels_last), scale_C11)


def tower_from_config(config: dict[str, Any]) -> VisualTower:
    """Rebuilds the module that `config` describes, with fresh weights and without any file."""
    with transformers_loading():
        import transformers

        kind = getattr(transformers, config["network"])
        assert issubclass(kind, transformers.PreTrainedModel), kind
        network = kind._from_config(transformers.AutoConfig.for_model(**config["model"]))
    scale_C, shift_C, size = (tuple(config[name]) for name in ("scale", "shift", "size"))
    return VisualTower(network, config["pooling"], scale_C, shift_C, size)
