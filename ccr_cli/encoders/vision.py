"""Any image model of transformers by hub name or folder: DINOv2, ViT, ResNet.

The vector of a picture is the one that its family is used by (`pooling=auto`):

- models with texts too (CLIP, SigLIP, SigLIP 2, MetaCLIP 2, Chinese-CLIP, AltCLIP, ...): the image embedding in the
  space of the texts, `get_image_features`, as in Radford et al., ICML 2021, and Zhai et al., ICCV 2023;
- CLIP's and SigLIP's image side alone: its pooled output (with CLIP's projection, where the checkpoint has it);
- ViT (Dosovitskiy et al., ICLR 2021, eq. (4)), DeiT, ViT-MSN, DINOv2 (Oquab et al., TMLR 2024; with and without
  registers) and DINOv3: the class token behind the last layer norm. ViT's `pooler` is not used: most checkpoints have
  none, and it would be made up of random numbers;
- I-JEPA (Assran et al., CVPR 2023): the mean over the patches, as there is no class token;
- BEiT, Swin, Swin v2: the mean over the patches, normalised (by Swin before it, by BEiT behind it), which their
  classifiers read;
- ResNet (He et al., CVPR 2016), RegNet: the global average of the last map, of ResNet-152 2,048 numbers; ConvNeXT, v1
  and v2, and DINOv3's: that, and the layer norm behind it.

Of the families above `pooling=tokens` gives one row a patch, or a position of the last map, in reading order and from
the last hidden state as transformers returns it: not projected, and without class and register tokens, which are no
regions.

Shapes: B batch, H height, W width, L tokens, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.encoders._loading import first_line, read_network, read_settings
from ccr_cli.encoders._pictures import Recipe, read_recipe
from ccr_cli.encoders.base import PictureConfig, sha256_of, shown_licence
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.hub import locate
from ccr_cli.nets.tower import VisualTower
from ccr_cli.transformers_loading import transformers_loading

_ALTERNATIVES = "or take an encoder that needs no model of the hub: --encoder efficientnet-lite0"
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
    """auto: as the family is used; cls: the first token; mean: over the patches; pooler: the model's own; tokens: each
    patch for itself."""


def identity(config: Config) -> dict[str, str]:
    """What a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


def recipe(config: Config) -> Recipe:
    """How pictures are prepared for a model; its weights are not read."""
    return read_recipe(locate(config.model, config.revision, _ALTERNATIVES).folder, config.model)


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    return hub.missing(Config().model)


class Encoder:
    """A frozen image model.

    Args:
        config: Options.
        device: Where it runs.
        dtype: Precision of the network; results are float32.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched.
        ArtifactError: If its folder lacks weights, is damaged, or does not say how pictures are prepared.
        UsageError: If the model is none of pictures of one size, or its family is not known and no pooling is named.
    """

    name = "vision"
    dim: int

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        self.config = config
        self.sampling = config.sampling
        self.device = device
        self.dtype = dtype
        self._located = locate(config.model, config.revision, _ALTERNATIVES)
        self._model = self._load().eval().requires_grad_(False).to(device, memory_format=torch.channels_last)
        self._recipe = recipe = read_recipe(self._located.folder, config.model)
        _, height, width = recipe.tried(config.model, Image.new("RGB", (8, 8), "white")).shape
        try:
            self.tower = VisualTower(self._model, self._pooling, recipe.scale_C, recipe.shift_C, (height, width))
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(
                f"{config.model} ({type(self._model).__name__}) makes no vectors of pictures of {width} x {height} "
                f"by pooling={self._pooling} ({first_line(error)})"
            ) from None
        self.dim = self.tower.dim
        self._licence = shown_licence(self._located)

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Does what the checkpoint's own image processor does, to the picture as a viewer shows it.

        Returns:
            (3, H, W) uint8; `encode` scales.
        """
        return self._recipe.levels(image)

    @torch.inference_mode()
    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Returns (B, D), of `pooling=tokens` (B, L, D), float32, not normalised."""
        found: torch.Tensor = self.tower(batch.to(self.device)).float()
        return found

    def compile(self) -> None:
        """Compiles the network, of a dual encoder its image side."""
        getattr(self._model, "vision_model", self._model).compile()

    def describe(self) -> dict[str, object]:
        """Says what made the vectors."""
        return {
            "encoder": self.name,
            "model": self._located.label,
            "revision": self._located.revision,
            "licence": self._licence,
            "weights_sha256": sha256_of(self._located.weights),
            "dim": self.dim,
            "architecture": type(self._model).__name__,
            "pooling": self._pooling,
            "activation": getattr(self._settings, "hidden_act", None),
            "attention": self._model.config._attn_implementation,
            "preprocessing": self._recipe.describe(),
            "preprocessing_backend": "pil",
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def _load(self) -> Any:
        """Loads the network, and finds out what of its output stands for a picture."""
        folder, name = self._located.folder, self.config.model
        with transformers_loading():
            import transformers

            settings = read_settings(folder, name)
            try:
                network = transformers.MODEL_MAPPING[type(settings)]
            except KeyError as error:
                raise UsageError(f"{name} is of no family that transformers loads ({first_line(error)})") from None
            named = next(iter(settings.architectures or []), "")
            if named.endswith("VisionModelWithProjection"):
                network = getattr(transformers, named)
            if settings.model_type in ("siglip2", "siglip2_vision_model"):
                raise UsageError(
                    f"{name} takes pictures of any shape (NaFlex): that is not offered here",
                    hint="SigLIP 2 of a fixed size: --set model=google/siglip2-base-patch16-224",
                )
            self._check(network)
            self._family: str = settings.model_type
            self._settings: Any = getattr(settings, "vision_config", settings)
            self._dual = hasattr(network, "get_image_features")
            self._pooling = self._choose(network)
            attention = "sdpa" if network._supports_sdpa else "eager"
            model, missing_keys = read_network(network, folder, name, dtype=self.dtype, attn_implementation=attention)
        lacking = [key for key in missing_keys if self._pooling == "pooler" or "pooler" not in key]
        if lacking:
            raise ArtifactError(
                f"{name} lacks {len(lacking)} weights of {network.__name__}, {lacking[0]} for one: they would be random"
            )
        return model

    def _check(self, network: Any) -> None:
        """Raises UsageError where the model is none for this encoder."""

    def _choose(self, network: Any) -> str:
        """What `auto` stands for."""
        if self.config.pooling != "auto":
            return self.config.pooling
        if self._dual:
            return "pooler"
        if self._family not in _AUTO:
            raise UsageError(
                f"{self.config.model} ({network.__name__}) is of a family that is not known here: which part of its "
                "output stands for a picture?",
                hint="say it: --set pooling=cls, mean, pooler or tokens",
            )
        return _AUTO[self._family]
