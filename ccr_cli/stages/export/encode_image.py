"""Pictures as the features of the encoders in `image.json`; needs torch, Pillow and the package of the encoder.

Shape suffixes: R rows of a picture, D feature.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from ccr_cli.encoders._transformers import Recipe
from ccr_cli.nets.tower import pooled

Array = npt.NDArray[np.float32]


class ImageEncoder:
    """Encodes a picture with each encoder of `image.json`, and joins the features.

    Args:
        folder: The folder of `image.json`.
        models: Folders of models whose weights are not included, by the names in `image.json`; by default the hub's.
    """

    def __init__(self, folder: Path, models: Mapping[str, str | Path]) -> None:
        parts = json.loads((folder / "image.json").read_text(encoding="utf-8"))["encoders"]
        self._parts = [(about, _recipe(about["recipe"]), _network(about, folder, models)) for about in parts]

    @torch.no_grad()
    def features(self, path: str | Path) -> Array:
        """Returns the features of a picture (R, D)."""
        parts = []
        with Image.open(path) as image:
            for about, recipe, network in self._parts:
                output = _output(about, network, recipe.scaled(recipe.levels(image)[None])).float()
                rows_RD = output.reshape(-1, output.shape[-1])
                parts.append(rows_RD.mean(0, keepdim=True) if about["mean"] else rows_RD)
        rows: Array = torch.cat(parts, dim=1).numpy()
        return rows


def _recipe(values: dict[str, Any]) -> Recipe:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Recipe(**fields)


def _output(about: dict[str, Any], network: Any, pixels_1CHW: Tensor) -> Tensor:
    if about["kind"] == "efficientnet-lite":
        features: Tensor = network.extract_features(pixels_1CHW).float().mean(dim=(2, 3))
        return features
    forward = getattr(network, "get_image_features", network)
    return pooled(forward(pixel_values=pixels_1CHW), about["pooling"], network.config, tuple(about["size"]))


def _network(about: dict[str, Any], folder: Path, models: Mapping[str, str | Path]) -> Any:
    weights = about["weights"]
    if about["kind"] == "efficientnet-lite":
        network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name(
            about["name"], image_size=about["image_size"]
        )
        package = importlib.import_module(weights["package"])
        path = Path(getattr(package, f"EfficientnetLite{about['name'][-1]}ModelFile").get_model_file_path())
        _check([path], weights["sha256"])
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
        return network.eval()
    import transformers

    kind = getattr(transformers, about["network"])
    if not issubclass(kind, transformers.PreTrainedModel):
        raise ValueError(f"{about['network']} is no model of transformers")
    if "file" not in weights:
        place = Path(models.get(weights["model"]) or _downloaded(weights))
        _check(sorted(place.glob("*.safetensors")), weights["sha256"])
        return kind.from_pretrained(place, use_safetensors=True, dtype=torch.float32).eval()
    settings = dict(about["model"])
    network = kind._from_config(transformers.AutoConfig.for_model(settings.pop("model_type"), **settings))
    state = load_file(folder / weights["file"])
    for name in {name for name, _ in network.named_children()} - {key.split(".")[0] for key in state}:
        delattr(network, name)  # such as the text side
    network.load_state_dict(state)
    return network.float().eval()


def _downloaded(weights: dict[str, Any]) -> str:
    if weights["revision"] == "local folder":
        raise ValueError(f"pass the folder of the model: Encoder(image_models={{{weights['model']!r}: FOLDER}})")
    from huggingface_hub import snapshot_download

    patterns = ["config.json", "model*.safetensors*"]
    return snapshot_download(weights["model"], revision=weights["revision"], allow_patterns=patterns)


def _check(paths: list[Path], expected: str) -> None:
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    found = next(iter(digests.values())) if len(digests) == 1 else hashlib.sha256(lines.encode()).hexdigest()
    if found != expected:
        raise ValueError(f"the weights {', '.join(map(str, paths)) or '(none)'} have sha256 {found}, not {expected}")
