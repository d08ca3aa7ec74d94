"""Any video model of transformers by hub name or folder: VideoMAE, ViViT, X-CLIP.

A clip has as many frames as the model was trained on. With `pooling=auto` its vector is the usual one of the model's
family:

- VideoMAE (Tong et al., NeurIPS 2022): the mean over the tokens, then the layer norm of the classifier if the
  checkpoint has one (`fc_norm`); 7.5 frames per second, every fourth of 30;
- TimeSformer (Bertasius et al., ICML 2021): the class token after the last layer norm, the input of its
  classifier; every 32nd frame of 30 per second, with clips of 16 frames (HR) every 16th, of 96 (L) every fourth;
- ViViT (Arnab et al., ICCV 2021): the same; every second frame of 25 per second;
- V-JEPA 2 (Assran et al., 2025): the mean over the encoder's tokens; it is published with an attentive probe, which
  would have to be trained; 4 frames per second;
- X-CLIP (Ni et al., ECCV 2022): the video embedding in the space of its texts; its frames are evenly spread over the
  whole video, so it gives one row.

Clips are adjacent; one that reaches past the end repeats the last frame. Frames are prepared with Pillow as the model's
own files specify (`preprocessor_config.json`, `video_preprocessor_config.json` or `processor_config.json`), so
torchvision is not needed.

Shapes: B clips, L frames of a clip, N tokens, H height, W width, D embedding.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from PIL import Image

from ccr_cli import hub
from ccr_cli.artifacts.base import read_json
from ccr_cli.data.sampling import Sampling
from ccr_cli.encoders._transformers import (
    IMAGENET,
    PREPROCESSOR_HINT,
    Recipe,
    TransformersEncoder,
    first_levels,
    identity,
    read_network,
    read_settings,
    reading_preprocessor,
    recipe_of,
)
from ccr_cli.encoders.base import first_line
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.transformers_loading import transformers_loading

__all__ = ["Config", "Encoder", "identity", "missing"]
_RATES = {"videomae": 30 / 4, "timesformer": 30 / 32, "vivit": 25 / 2, "vjepa2": 4.0, "xclip": None}
"""Frames per second at which a family was trained on Kinetics; None: evenly spread over the video."""
_RATES_OF_LENGTHS = {("timesformer", 16): 30 / 16, ("timesformer", 96): 30 / 4}
"""The same for a family with several clip lengths, by family and length."""
_POOLING = {"videomae": "mean", "timesformer": "cls", "vivit": "cls", "vjepa2": "mean", "xclip": "joint"}
_HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
_PREPARED: dict[str, dict[str, Any]] = {
    "VideoMAE": {"size": 224, "crop_size": 224, "rescale_factor": 1 / 255, "resample": 2} | _HALF,
    "Vivit": {"size": 256, "crop_size": 224, "rescale_factor": 1 / 127.5, "offset": True, "resample": 2} | _HALF,
    "VJEPA2": {"size": 292, "crop_size": 256, "rescale_factor": 1 / 255, "resample": 2} | IMAGENET,
    "CLIP": {"size": 224, "crop_size": 224, "rescale_factor": 1 / 255, "resample": 3} | _CLIP,
}
"""Defaults of transformers' processors, for what a model's files leave out; filters as Pillow numbers them."""
_FILES: dict[str, tuple[str, ...]] = {
    "video_preprocessor_config.json": (),
    "preprocessor_config.json": (),
    "processor_config.json": ("video_processor", "image_processor"),
}
"""Files that may specify how frames are prepared, and the parts of them that do."""


@dataclass(frozen=True)
class Config:
    """Options of the encoder."""

    model: str = "MCG-NJU/videomae-base-finetuned-kinetics"
    """Name on the hub, or a folder with config.json, weights and preprocessor_config.json."""

    revision: str = "main"
    """Branch, tag or commit on the hub."""

    pooling: Literal["auto", "cls", "mean"] = "auto"
    """auto: the usual one of the model family; cls: the first token; mean: the mean over all tokens."""

    fps: float | None = None
    """Frames per second; none: the rate at which the family was trained on Kinetics; 0: every frame of the file."""

    frames: int = 0
    """Encode this many frames, evenly spread over the whole video, instead of using `fps`; 0: use `fps`."""

    clip_stride: int = 0
    """Frames from the start of one clip to the start of the next; 0: adjacent clips."""

    def __post_init__(self) -> None:
        Sampling(fps=self.fps or 0.0, frames=self.frames, clip_stride=self.clip_stride)


missing = partial(hub.missing, Config.model)


class Encoder(TransformersEncoder):
    """A frozen video model.

    Raises:
        UsageError: If its family is not supported, or it rejects clips prepared as its own files specify.
        ArtifactError: If weights are absent, or its files do not specify how frames are prepared.
    """

    name = "video"
    config: Config

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, device, dtype)
        self._load()
        self._recipe = read_recipe(self._located.folder, config.model)
        settings = self._model.config
        length = getattr(settings, "frames_per_clip", None) or getattr(settings, "vision_config", settings).num_frames
        default_fps = _RATES_OF_LENGTHS.get((self._family, int(length)), _RATES[self._family])
        fps = default_fps if config.fps is None else config.fps
        frames = config.frames or (length if fps is None else 0)
        self.sampling = Sampling(fps or 0.0, frames, int(length), config.clip_stride)
        side = first_levels(self._recipe, config.model, Image.new("RGB", (320, 240)))
        try:
            self.dim = int(self.encode(side.expand(1, length, *side.shape)).shape[1])
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            size = f"{length} frames of {side.shape[2]} x {side.shape[1]} px"
            message = f"{config.model} does not take clips of {size}, as its files prepare them ({first_line(error)})"
            raise UsageError(message) from None
        self._details = {
            "pooling": f"{self._pooling}{', fc_norm' if self._norm is not None else ''}",
            "attention": self._model.config._attn_implementation,
            "sampling": vars(self.sampling),
        }

    @torch.inference_mode()
    def encode(self, batch_BLCHW: torch.Tensor) -> torch.Tensor:
        """Returns (B, D) float32, not normalised."""
        levels_BCHW = batch_BLCHW.to(self.device).flatten(0, 1)
        clip_BLCHW = self._recipe.scaled(levels_BCHW).to(self.dtype).reshape(batch_BLCHW.shape)
        if self._family == "xclip":
            output = self._model.get_video_features(pixel_values=clip_BLCHW)
            joint_BD: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
            return joint_BD.float()
        own = {"pixel_values_videos": clip_BLCHW, "skip_predictor": True}
        inputs: dict[str, Any] = own if self._family == "vjepa2" else {"pixel_values": clip_BLCHW}
        hidden_BND: torch.Tensor = self._model(**inputs).last_hidden_state
        if self._pooling == "cls":
            return hidden_BND[:, 0].float()
        mean_BD = hidden_BND.float().mean(dim=1)
        return mean_BD if self._norm is None else self._norm(mean_BD.to(self.dtype)).float()

    def compile(self) -> None:
        """Compiles the network; for X-CLIP, its image side."""
        (self._model.vision_model if self._family == "xclip" else self._model).compile()

    def _load(self) -> None:
        folder, name = self._located.folder, self.config.model
        with transformers_loading():
            import transformers

            settings = read_settings(folder, name)
            self._family = str(settings.model_type)
            if self._family not in _POOLING:
                hint = "for an image model use --encoder vision, which encodes the frames of videos one by one"
                raise UsageError(f"{name} is of the family {self._family}; video models: {', '.join(_POOLING)}", hint)
            classifier = "VideoMAEForVideoClassification" in (settings.architectures or [])
            network = transformers.VideoMAEForVideoClassification if classifier else transformers.AutoModel
            model = read_network(network, folder, name, ("pooler", "predictor"), dtype=self.dtype)
        model = model.eval().requires_grad_(False).to(self.device)
        if self._family == "xclip" and self.config.pooling != "auto":
            raise UsageError("X-CLIP has one vector per clip, in the space of its texts", hint="leave pooling out")
        self._pooling = _POOLING[self._family] if self.config.pooling == "auto" else self.config.pooling
        self._norm: Any = model.fc_norm if classifier and self._pooling == "mean" else None
        self._model: Any = model.videomae if classifier else model


def read_recipe(folder: Path, model: str) -> Recipe:
    """Reads how a model's frames are prepared, from one of `_FILES`; UsageError if ccr does not support it."""
    with reading_preprocessor(model, "frames"), transformers_loading():
        from transformers.image_utils import SizeDict

        content = _preprocessor(folder)
        keys = ("video_processor_type", "image_processor_type", "feature_extractor_type")
        kind = next((str(content[key]) for key in keys if content.get(key)), "")
        default = next((settings for family, settings in _PREPARED.items() if kind.startswith(family)), None)
        if default is None:
            reason = f" ({kind} is unknown)" if kind else ""
            message = f"the files of {model} do not specify how its frames are prepared{reason}"
            raise ArtifactError(message, hint=PREPROCESSOR_HINT)
        steps = dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize"), True)
        processor = SimpleNamespace(**steps | default | content)
        if not processor.do_resize:
            raise UsageError(f"{model} does not resize its frames, which ccr does not support")
        size, crop = (getattr(processor, name) or default[name] for name in ("size", "crop_size"))
        processor.crop_size = SizeDict(**({"height": crop, "width": crop} if isinstance(crop, int) else crop))
        if kind.startswith("VJEPA2"):  # whatever size the file has
            size = int(processor.crop_size.height * 256 / 224)
        processor.size = SizeDict(**({"shortest_edge": size} if isinstance(size, int) else size))
        return recipe_of(processor, kind, model, "frames")


def _preprocessor(folder: Path) -> dict[str, Any]:
    """The first specification of the preprocessing in `_FILES`; `processor_config.json` can hold several."""
    for name, parts in _FILES.items():
        if (folder / name).is_file():
            content = read_json(folder / name)
            for part in (content[part] for part in parts if part in content) if parts else (content,):
                return dict(part)
    return {}
