"""What the encoders of transformers models share: locating, loading and describing a model by hub name or folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError

from ccr_cli import hub
from ccr_cli.console import say
from ccr_cli.encoders._pictures import MALFORMED, Recipe
from ccr_cli.encoders.base import dtype_name, first_line, sha256_of
from ccr_cli.errors import ArtifactError, UsageError


def identity(config: Any) -> dict[str, str]:
    """Returns what a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


class TransformersEncoder:
    """A frozen model of transformers, by hub name or folder; results are float32 whatever the precision `dtype`.

    `alternatives` names what else the user could do where the model is not available, for the hint.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched.
        ArtifactError: If its folder has no complete model.
    """

    name: str
    dim: int
    _model: Any
    _recipe: Recipe

    def __init__(self, config: Any, device: torch.device, dtype: torch.dtype, alternatives: str = "") -> None:
        self.config, self.device, self.dtype = config, device, dtype
        self._located = hub.locate(config.model, config.revision, alternatives)
        self._licence = hub.licence(self._located.folder)
        if self._licence:
            say(f"{self._located.label}, licence: {self._licence}")

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Resizes and crops as the model's own processor does; `encode` scales.

        Returns:
            (3, H, W) uint8.
        """
        return self._recipe.levels(image)

    def describe(self) -> dict[str, object]:
        """Returns what made the vectors."""
        return {
            "encoder": self.name,
            "model": self._located.label,
            "revision": self._located.revision,
            "licence": self._licence,
            "weights_sha256": sha256_of(self._located.weights),
            "dim": self.dim,
            "architecture": type(self._model).__name__,
            **self._details(),
            "preprocessing": self._recipe.describe(),
            "preprocessing_backend": "pil",
            "dtype": dtype_name(self.dtype),
        }

    def _details(self) -> dict[str, object]:
        """What an encoder adds to `describe`."""
        raise NotImplementedError


def read_settings(folder: Path, name: str) -> Any:
    """Reads the `config.json` of the model that the user calls `name`; call within `transformers_loading`."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except OSError as error:
        raise ArtifactError(f"the config.json of {name} cannot be read ({first_line(error)})") from None
    except (AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{name} is of no family that transformers loads ({first_line(error)})") from None


def read_network(network: Any, folder: Path, name: str, optional: tuple[str, ...] = (), **options: Any) -> Any:
    """Reads a model's weights, from safetensors only; call within `transformers_loading`.

    Weights whose names contain one of `optional` may be absent; `options` are those of `from_pretrained`.

    Raises:
        ArtifactError: If weights are absent, cannot be read, or belong to another model.
    """
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # the error below names what is missing
    try:
        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        model, report = network.from_pretrained(str(folder), output_loading_info=True, **safe, **options)
    except torch.OutOfMemoryError:
        raise
    except (*MALFORMED, RuntimeError, SafetensorError) as error:
        raise ArtifactError(f"{name} does not load as {network.__name__} ({first_line(error)})") from None
    finally:
        transformers.logging.set_verbosity(verbosity)
    absent = sorted(key for key in report["missing_keys"] if not any(part in key for part in optional))
    if absent:
        raise ArtifactError(
            f"{name} lacks {len(absent)} weights of {network.__name__}, such as {absent[0]}: they would be random"
        )
    return model
