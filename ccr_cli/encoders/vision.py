"""Any image model of transformers by hub name or folder: DINOv2, ViT, ResNet.

With `pooling=auto` the vector of a picture is the usual one of the model's family:

- models with a text side (CLIP, SigLIP, SigLIP 2, MetaCLIP 2, Chinese-CLIP, AltCLIP, ...): the image embedding in the
  space of the texts, `get_image_features`, as in Radford et al., ICML 2021, and Zhai et al., ICCV 2023;
- the image side of CLIP or SigLIP alone: its pooled output (with CLIP's projection if the checkpoint has one);
- ViT (Dosovitskiy et al., ICLR 2021, eq. (4)), DeiT, ViT-MSN, DINOv2 (Oquab et al., TMLR 2024; with and without
  registers) and DINOv3: the class token after the last layer norm. ViT's `pooler` is not used: most checkpoints lack
  its weights, and it would be random;
- I-JEPA (Assran et al., CVPR 2023): the mean over the patches, as it has no class token;
- BEiT, Swin, Swin v2: the mean over the patches with a layer norm (before the mean in Swin, after it in BEiT), which is
  the input of their classifiers;
- ResNet (He et al., CVPR 2016), RegNet: the global average of the last feature map (2,048 numbers for ResNet-152);
  ConvNeXT, v1 and v2, and DINOv3's ConvNeXT: the same, with the layer norm after it.

For these families `pooling=tokens` gives one row per patch, or per position of the last feature map, in reading order
and from the last hidden state as transformers returns it: not projected, and without class and register tokens.

Shapes: B batch, H height, W width, L tokens, D embedding.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.encoders._transformers import (
    Recipe,
    TransformersEncoder,
    first_levels,
    identity,
    read_network,
    read_recipe,
    read_settings,
)
from ccr_cli.encoders.base import PictureConfig, first_line, sha256_of
from ccr_cli.errors import UsageError
from ccr_cli.nets.tower import VisualTower
from ccr_cli.transformers_loading import transformers_loading

__all__ = ["Config", "Encoder", "identity", "missing", "recipe"]
_ALTERNATIVES = "or use an encoder that needs no model from the hub: --encoder efficientnet-lite0"
_CLASS_TOKEN = ("vit", "deit", "vit_msn", "dinov2", "dinov2_with_registers", "dinov3_vit")
_OWN_POOLING = (
    *("clip_vision_model", "siglip_vision_model", "beit", "swin", "swinv2"),
    *("resnet", "regnet", "convnext", "convnextv2", "dinov3_convnext"),
)
_AUTO = {**dict.fromkeys(_CLASS_TOKEN, "cls"), **dict.fromkeys(_OWN_POOLING, "pooler"), "ijepa": "mean"}


@dataclass(frozen=True)
class Config(PictureConfig):
    """Options of the encoder."""

    model: str = "facebook/dinov2-base"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""

    revision: str = "main"
    """Branch, tag or commit on the hub."""

    pooling: Literal["auto", "cls", "mean", "pooler", "tokens"] = "auto"
    """auto: the usual one of the model family; cls: the first token; mean: the mean over the patches; pooler: the
    model's own; tokens: one row per patch."""


def recipe(config: Config) -> Recipe:
    """Returns how pictures are prepared for a model, without reading its weights."""
    return read_recipe(hub.locate(config.model, config.revision, _ALTERNATIVES).folder, config.model)


missing = partial(hub.missing, Config.model)


class Encoder(TransformersEncoder):
    """A frozen image model.

    Raises:
        ArtifactError: If its folder lacks weights, is damaged, or does not say how pictures are prepared.
        UsageError: If the model does not take pictures of one size, or its family is unknown and `pooling` is auto.
    """

    name = "vision"
    config: Config

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype, _ALTERNATIVES)
        self.sampling = config.sampling
        self._model = self._load().eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
        self._recipe = recipe = read_recipe(self._located.folder, config.model)
        _, height, width = first_levels(recipe, config.model, Image.new("RGB", (8, 8), "white")).shape
        try:
            self.tower = VisualTower(self._model, self._pooling, recipe.scale_C, recipe.shift_C, (height, width))
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            model, how = f"{config.model} ({type(self._model).__name__})", f"pooling={self._pooling}"
            problem = f"{model} makes no vectors of pictures of {width} x {height} by {how} ({first_line(error)})"
            raise UsageError(problem) from None
        self.dim = self.tower.dim
        self._details = {
            "pooling": self._pooling,
            "activation": getattr(self._settings, "hidden_act", None),
            "attention": self._model.config._attn_implementation,
        }

    @torch.inference_mode()
    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns (B, D), or (B, L, D) with `pooling=tokens`; float32, not normalised."""
        vectors: torch.Tensor = self.tower(batch.to(self.device)).float()
        return vectors

    def plain(self) -> dict[str, Any]:
        """Returns what an export builds the encoder from."""
        named = {"model": self._located.label, "revision": self._located.revision}
        weights = named | {"sha256": sha256_of(self._located.weights)}
        return {"kind": "transformers", **self.tower.config(), "recipe": asdict(self._recipe), "weights": weights}

    def compile(self) -> None:
        """Compiles the network; for a dual encoder, its image side."""
        getattr(self._model, "vision_model", self._model).compile()

    def _load(self) -> Any:
        """Loads the network and chooses its pooling."""
        folder, name = self._located.folder, self.config.model
        with transformers_loading():
            import transformers

            settings = read_settings(folder, name)
            try:
                network = transformers.MODEL_MAPPING[type(settings)]
            except KeyError as error:
                raise UsageError(f"{name} is of no family that transformers loads ({first_line(error)})") from None
            architecture = next(iter(settings.architectures or []), "")
            if architecture.endswith("VisionModelWithProjection"):
                network = getattr(transformers, architecture)
            if settings.model_type in ("siglip2", "siglip2_vision_model"):
                hint = "SigLIP 2 of a fixed size: --set model=google/siglip2-base-patch16-224"
                raise UsageError(f"{name} takes pictures of any shape (NaFlex), which ccr does not support", hint)
            self._check(network)
            self._settings: Any = getattr(settings, "vision_config", settings)
            usual = "pooler" if hasattr(network, "get_image_features") else _AUTO.get(settings.model_type)
            pooling = usual if self.config.pooling == "auto" else self.config.pooling
            if pooling is None:
                why = "ccr cannot choose which part of its output represents a picture"
                problem = f"{name} ({network.__name__}) is of an unknown family: {why}"
                raise UsageError(problem, hint="choose it: --set pooling=cls, mean, pooler or tokens")
            self._pooling = pooling
            optional = () if pooling == "pooler" else ("pooler",)
            attention = "sdpa" if network._supports_sdpa else "eager"
            return read_network(network, folder, name, optional, dtype=self.dtype, attn_implementation=attention)

    def _check(self, network: Any) -> None:
        """Raises UsageError if this encoder cannot use the model; a subclass may override it."""
