"""Any video model of transformers by hub name or folder: VideoMAE, ViViT, X-CLIP.

A clip has as many frames as the model was made for; its vector (`pooling=auto`) is what its family is used by:

- VideoMAE (Tong et al., NeurIPS 2022): the mean over the tokens, and the layer norm of the classifier behind it where
  the checkpoint is one (`fc_norm`); 7.5 frames a second, as every fourth of 30;
- TimeSformer (Bertasius et al., ICML 2021): the class token behind the last layer norm, which its classifier reads;
  every 32nd frame of 30 a second, of clips of 16 frames (HR) every 16th, of 96 (L) every fourth;
- ViViT (Arnab et al., ICCV 2021): likewise; every second frame of 25 a second;
- V-JEPA 2 (Assran et al., 2025): the mean over the encoder's tokens; it is published with an attentive probe, which has
  to be trained; 4 frames a second;
- X-CLIP (Ni et al., ECCV 2022): the video embedding in the space of its texts; its frames lie evenly over the whole
  video, so it gives one row.

Clips touch, and those that reach over the end repeat the last frame. Frames are prepared as the model's own files say
(`preprocessor_config.json`, `video_preprocessor_config.json` or `processor_config.json`), on Pillow: torchvision is not
needed.

Shapes: B clips, L frames of a clip, N tokens, H height, W width, D embedding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.data.sampling import Sampling
from ccr_cli.encoders._loading import first_line, preparing, read_network, read_settings
from ccr_cli.encoders._pictures import Recipe
from ccr_cli.encoders.base import sha256_of, shown_licence
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.hub import locate
from ccr_cli.transformers_loading import transformers_loading

_RATES = {"videomae": 30 / 4, "timesformer": 30 / 32, "vivit": 25 / 2, "vjepa2": 4.0, "xclip": None}
"""Frames a second at which a family was trained on Kinetics; None: evenly over the video."""
_RATES_OF_LENGTHS = {("timesformer", 16): 30 / 16, ("timesformer", 96): 30 / 4}
"""The same, where a family has models with clips of several lengths."""
_POOLING = {"videomae": "mean", "timesformer": "cls", "vivit": "cls", "vjepa2": "mean", "xclip": "joint"}
_HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
_PREPARED: dict[str, dict[str, Any]] = {
    "VideoMAE": {"shorter": 224, "crop": 224, "factor": 1 / 255, "offset": False, "resample": 2} | _HALF,
    "Vivit": {"shorter": 256, "crop": 224, "factor": 1 / 127.5, "offset": True, "resample": 2} | _HALF,
    "VJEPA2": {"shorter": 292, "crop": 256, "factor": 1 / 255, "offset": False, "resample": 2} | _IMAGENET,
    "CLIP": {"shorter": 224, "crop": 224, "factor": 1 / 255, "offset": False, "resample": 3} | _CLIP,
}
"""What transformers' processors do where a model's files do not say; filters as Pillow numbers them."""
_FILES: dict[str, tuple[str, ...]] = {
    "video_preprocessor_config.json": (),
    "preprocessor_config.json": (),
    "processor_config.json": ("video_processor", "image_processor"),
}
"""What says how frames are prepared, and the parts of it that may."""


@dataclass(frozen=True)
class Config:
    """Options of the encoder."""

    model: str = "MCG-NJU/videomae-base-finetuned-kinetics"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""

    revision: str = "main"
    """Branch, tag or commit on the hub."""

    pooling: Literal["auto", "cls", "mean"] = "auto"
    """auto: as the family is used; cls: the first token; mean: over all tokens."""

    fps: float | None = None
    """Frames a second; none: as the family was trained on Kinetics; 0: every frame of the file."""

    frames: int = 0
    """So many frames, evenly over the whole video, in place of `fps`; 0: by `fps`."""

    clip_stride: int = 0
    """Frames from the start of a clip to that of the next; 0: clips that touch."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            UsageError: If one of them is out of its range.
        """
        Sampling(fps=self.fps or 0.0, frames=self.frames, clip_stride=self.clip_stride)


def identity(config: Config) -> dict[str, str]:
    """What a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    return hub.missing(Config().model)


class Encoder:
    """A frozen video model.

    Args:
        config: Options.
        device: Where it runs.
        dtype: Precision of the network; results are float32.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched.
        UsageError: If it is of another family.
        ArtifactError: If weights are missing, or it does not say how frames are prepared.
    """

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self._located = locate(config.model, config.revision)
        self._licence = shown_licence(self._located)
        self._load()
        self._recipe = read_recipe(self._located.folder, config.model)
        settings = self._model.config
        length = getattr(settings, "frames_per_clip", None) or getattr(settings, "vision_config", settings).num_frames
        usual = _RATES_OF_LENGTHS.get((self._family, int(length)), _RATES[self._family])
        fps = usual if config.fps is None else config.fps
        frames = config.frames or (length if fps is None else 0)
        self.sampling = Sampling(fps or 0.0, frames, int(length), config.clip_stride)
        side = self._recipe.tried(config.model, Image.new("RGB", (320, 240)))
        try:
            self.dim = int(self.encode(side.expand(1, length, *side.shape)).shape[1])
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"{config.model} does not take clips of {length} frames of {side.shape[2]} x {side.shape[1]} px, "
                f"as which its files prepare them ({first_line(error)})"
            ) from None

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Resizes and crops a frame; the scaling comes when it is encoded.

        Returns:
            (3, H, W) uint8.
        """
        return self._recipe.levels(image)

    @torch.inference_mode()
    def encode(self, batch_BLCHW: torch.Tensor) -> torch.Tensor:
        """Returns (B, D) float32, not normalised."""
        levels_BCHW = batch_BLCHW.to(self.device).flatten(0, 1)
        clip_BLCHW = self._recipe.scaled(levels_BCHW).to(self.dtype).reshape(batch_BLCHW.shape)
        if self._family == "xclip":
            output = self._model.get_video_features(pixel_values=clip_BLCHW)
            joint_BD: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
            return joint_BD.float()
        inputs: dict[str, Any] = {"pixel_values": clip_BLCHW}
        if self._family == "vjepa2":
            inputs = {"pixel_values_videos": clip_BLCHW, "skip_predictor": True}
        hidden_BND: torch.Tensor = self._model(**inputs).last_hidden_state
        if self._pooling == "cls":
            return hidden_BND[:, 0].float()
        mean_BD = hidden_BND.float().mean(dim=1)
        return mean_BD if self._norm is None else self._norm(mean_BD.to(self.dtype)).float()

    def compile(self) -> None:
        """Compiles the network, of X-CLIP what sees frames."""
        (self._model.vision_model if self._family == "xclip" else self._model).compile()

    def describe(self) -> dict[str, object]:
        """Says what made the vectors."""
        return {
            "encoder": "video",
            "model": self._located.label,
            "revision": self._located.revision,
            "licence": self._licence,
            "weights_sha256": sha256_of(self._located.weights),
            "dim": self.dim,
            "architecture": type(self._model).__name__,
            "pooling": f"{self._pooling}{', fc_norm' if self._norm is not None else ''}",
            "attention": self._model.config._attn_implementation,
            "sampling": vars(self.sampling),
            "preprocessing": self._recipe.describe(),
            "preprocessing_backend": "pil",
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def _load(self) -> None:
        folder, name = self._located.folder, self.config.model
        with transformers_loading():
            import transformers

            settings = read_settings(folder, name)
            self._family = str(settings.model_type)
            if self._family not in _POOLING:
                raise UsageError(
                    f"{name} is of the family {self._family}; video models: {', '.join(_POOLING)}",
                    hint="image models: --encoder vision, which takes the frames of videos one by one",
                )
            classifier = "VideoMAEForVideoClassification" in (settings.architectures or [])
            network = transformers.VideoMAEForVideoClassification if classifier else transformers.AutoModel
            model, missing_keys = read_network(network, folder, name, dtype=self.dtype)
        lacking = [key for key in missing_keys if "pooler" not in key and "predictor" not in key]
        if lacking:
            raise ArtifactError(f"{name} lacks {len(lacking)} weights, {lacking[0]} for one")
        model = model.eval().requires_grad_(False).to(self.device)
        auto = self.config.pooling == "auto" or self._family == "xclip"
        self._pooling = _POOLING[self._family] if auto else self.config.pooling
        if self._family == "xclip" and self.config.pooling != "auto":
            raise UsageError("X-CLIP has one vector for a clip, that of its texts' space", hint="leave pooling out")
        self._norm: Any = model.fc_norm if classifier and self._pooling == "mean" else None
        self._model: Any = model.videomae if classifier else model


def read_recipe(folder: Path, model: str) -> Recipe:
    """Reads how a model's frames are prepared.

    Args:
        folder: Holds one of `_FILES`.
        model: What the user calls it.

    Raises:
        ArtifactError: If it does not say.
        UsageError: If it is done in a way that is not known here.
    """
    with preparing(model, "frames"):
        return _recipe(_said(folder), model)


def _said(folder: Path) -> dict[str, Any]:
    """What the first file says that says something of frames; `processor_config.json` holds several processors."""
    for name, parts in _FILES.items():
        if (folder / name).is_file():
            said = json.loads((folder / name).read_text(encoding="utf-8"))
            for found in (said[part] for part in parts if part in said) if parts else (said,):
                return dict(found)
    return {}


def _recipe(said: dict[str, Any], model: str) -> Recipe:
    keys = ("video_processor_type", "image_processor_type", "feature_extractor_type")
    kind = next((str(said[key]) for key in keys if said.get(key)), "")
    usual = next((steps for family, steps in _PREPARED.items() if kind.startswith(family)), None)
    if not said or usual is None:
        raise ArtifactError(
            f"{model} does not say how its frames are prepared" + (f" ({kind} is not known here)" if kind else ""),
            hint="its folder needs the preprocessor_config.json that was published with it",
        )
    size = said["size"] if said.get("size") is not None else usual["shorter"]
    crop = said["crop_size"] if said.get("crop_size") is not None else usual["crop"]
    crop_HW = (crop, crop) if isinstance(crop, int) else (int(crop["height"]), int(crop["width"]))
    shorter, squashed = None, None
    if kind.startswith("VJEPA2"):  # whatever the file says
        shorter = int(crop_HW[0] * 256 / 224)
    elif isinstance(size, int):
        shorter = size
    elif "shortest_edge" in size:
        shorter = int(size["shortest_edge"])
    elif {"height", "width"} <= set(size):
        squashed = (int(size["height"]), int(size["width"]))
    else:
        raise UsageError(f"{model} resizes its frames to {size}: not known here")
    if not said.get("do_resize", True):
        raise UsageError(f"{model} does not resize its frames: that is not offered here")
    if not said.get("do_center_crop", True) and squashed is None:
        raise UsageError(f"the frames of {model} are not of one size: that is not offered here")
    factor = float(said.get("rescale_factor", usual["factor"])) if said.get("do_rescale", True) else 1.0
    offset = 1.0 if said.get("do_rescale", True) and said.get("offset", usual["offset"]) else 0.0
    mean, std = (said.get(name, usual[name]) for name in ("image_mean", "image_std"))
    if not said.get("do_normalize", True):
        mean, std = [0.0] * 3, [1.0] * 3
    return Recipe(
        name=kind,
        shortest=shorter,
        squashed=squashed,
        crop=crop_HW if said.get("do_center_crop", True) else None,
        resampling=int(said.get("resample", usual["resample"])),
        scale_C=tuple(factor / s for s in std),
        shift_C=tuple(-(offset + m) / s for m, s in zip(mean, std, strict=True)),
    )
