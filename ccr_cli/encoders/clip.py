"""CLIP, SigLIP and their kin, through transformers, by hub name or folder.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021; Zhai et
al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023. The vector is the projected image embedding
(`get_image_features`), before normalisation. The text side serves as the zero-shot baseline that needs no
training (multilingual checkpoints: SigLIP 2, MetaCLIP 2, AltCLIP, ...).

Activation (GELU or QuickGELU), image processor and its backend change the vectors silently, so all of them
are recorded. The processor always runs on Pillow: torchvision is never needed, nor imported.

Shapes: B batch, H height, W width, T texts, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.encoders.base import PictureConfig, rgb_on_white, sha256_of
from ccr_cli.errors import UsageError
from ccr_cli.hub import locate
from ccr_cli.transformers_loading import transformers_loading

_ALTERNATIVES = "or take an encoder that needs no model of the hub: --encoder efficientnet-lite0"
_TEXT_BATCH = 64


@dataclass(frozen=True)
class Config(PictureConfig):
    """Options of the encoder."""

    model: str = "openai/clip-vit-base-patch32"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""

    revision: str = "main"
    """Branch, tag or commit on the hub."""


def identity(config: Config) -> dict[str, str]:
    """What a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    return hub.missing(Config().model)


class Encoder:
    """A frozen dual encoder; its image side encodes media, its text side serves as a baseline.

    Args:
        config: Options.
        device: Where it runs.
        dtype: Precision of the network; results are float32.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched.
        UsageError: If the model has no image side, or none that takes pictures of one size.
    """

    dim: int

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        self.config = config
        self.sampling = config.sampling
        self.device = device
        self.dtype = dtype
        self._located = locate(config.model, config.revision, _ALTERNATIVES)
        folder = str(self._located.folder)
        with transformers_loading():
            from transformers import AutoImageProcessor, AutoModel

            model = AutoModel.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="sdpa",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
            self._processor: Any = AutoImageProcessor.from_pretrained(
                folder, backend="pil", local_files_only=True, trust_remote_code=False
            )
        if not hasattr(model, "get_image_features"):
            raise UsageError(
                f"{config.model} ({type(model).__name__}) has no image side",
                hint="--set model=NAME with a CLIP, SigLIP, MetaCLIP, AltCLIP, ... checkpoint",
            )
        self._model: Any = model.eval().requires_grad_(False).to(device)
        self._tokenizer: Any = None
        probe = self.preprocess(Image.new("RGB", (8, 8), "white"))
        if probe.ndim != 3:
            raise UsageError(f"{config.model} does not take pictures of one fixed size")
        self.dim = int(self.encode(probe[None]).shape[1])

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Lays the picture on white and applies the checkpoint's own resizing, cropping and scaling.

        Returns:
            (3, H, W) float32.
        """
        batch = self._processor(images=rgb_on_white(image), return_tensors="pt")
        pixels: torch.Tensor = batch["pixel_values"][0]
        return pixels.float()

    @torch.inference_mode()
    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Returns (B, D) float32 on the CPU, not normalised."""
        pixels_BCHW = pixels_BCHW.to(device=self.device, dtype=self.dtype)
        return _vectors(self._model.get_image_features(pixel_values=pixels_BCHW))

    @torch.inference_mode()
    def encode_text(self, texts: list[str]) -> torch.Tensor:
        """Encodes texts into the space of the images.

        SigLIP was trained on texts padded to its full length, and is only right that way; the others are
        padded to the longest text of a batch. Longer texts are cut at the model's length.

        Args:
            texts: Any number of texts, in any language that the checkpoint knows.

        Returns:
            (T, D) float32 on the CPU, not normalised.

        Raises:
            UsageError: If the model has no text side.
        """
        if not hasattr(self._model, "get_text_features"):
            raise UsageError(f"{self.config.model} has no text side")
        tokenizer = self._load_tokenizer()
        settings = getattr(self._model.config, "text_config", self._model.config)
        length = min(int(settings.max_position_embeddings), int(tokenizer.model_max_length))
        padding = "max_length" if self._model.config.model_type.startswith("siglip") else "longest"
        parts = [torch.empty(0, self.dim)]
        for first in range(0, len(texts), _TEXT_BATCH):
            batch = tokenizer(
                texts[first : first + _TEXT_BATCH],
                padding=padding,
                truncation=True,
                max_length=length,
                return_tensors="pt",
            )
            inputs = {name: tensor.to(self.device) for name, tensor in batch.items()}
            parts.append(_vectors(self._model.get_text_features(**inputs)))
        return torch.cat(parts)

    def describe(self) -> dict[str, object]:
        """Says what made the vectors."""
        config = self._model.config
        vision = getattr(config, "vision_config", config)
        return {
            "encoder": "clip",
            "model": self._located.label,
            "revision": self._located.revision,
            "weights_sha256": sha256_of(self._located.weights),
            "dim": self.dim,
            "architecture": type(self._model).__name__,
            "activation": getattr(vision, "hidden_act", None),
            "attention": config._attn_implementation,
            "preprocessing": f"alpha on white, {type(self._processor).__name__}",
            "preprocessing_backend": "pil",
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def _load_tokenizer(self) -> Any:
        if self._tokenizer is None:
            with transformers_loading():
                from transformers import AutoTokenizer

                self._tokenizer = AutoTokenizer.from_pretrained(
                    str(self._located.folder), local_files_only=True, trust_remote_code=False
                )
        return self._tokenizer


def _vectors(output: Any) -> torch.Tensor:
    """Unwraps what `get_*_features` returns: a tensor before transformers 5, an output object since."""
    tensor: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
    return tensor.float().cpu()
