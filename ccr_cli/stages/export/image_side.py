"""The picture side of an exported model: the encoder of its features, and the vectors of the data set's items.

Shape suffixes: V visual items, D embedding.
"""

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ccr_cli.artifacts import base, features
from ccr_cli.console import say
from ccr_cli.data import pictures
from ccr_cli.encoders import base as encoders
from ccr_cli.encoders._transformers import Recipe
from ccr_cli.errors import CcrError, UsageError
from ccr_cli.nets.tower import VisualTower, pooled, scaled
from ccr_cli.stages.export import encode_image
from ccr_cli.stages.shared.picture_encoder import encoder_of
from ccr_cli.stages.shared.pixels import encoder_input

OPEN = {"apache-2.0", "mit", "isc", "unlicense", "bsd", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0"}
"""Licences, in lower case, under which weights may be passed on."""
_OWN_SOURCES = (
    pictures.upright_rgb,
    pictures.upright,
    pictures.rgb_on_white,
    encoders.pixels_of,
    scaled,
    Recipe,
    pooled,
)


@dataclass(frozen=True)
class ImageNetwork:
    """An encoder of pictures, as `image.json` describes it."""

    about: dict[str, Any]
    tensors: Mapping[str, Tensor]
    """Its weights; none if they are not included."""
    folder: Path | None = None
    """Where the model is on this machine, if its weights are not included."""


def image_networks(feats: base.Artifact, tower: VisualTower | None) -> list[ImageNetwork]:
    """Returns the encoders that made features, or a run's trained `tower`; none, with a message, if unknown."""
    if tower is not None:
        about = {"kind": "transformers", **tower.config(), "recipe": asdict(encoder_input(feats).recipe), "mean": False}
        return [ImageNetwork({**about, "weights": {"file": "image1.safetensors"}}, tower.model.state_dict())]
    manifest, networks = feats.json("encoder.json"), []
    recorded = manifest.get(features.PARTS, [manifest])
    try:
        for number, (part, facts) in enumerate(zip(features.parts(feats), recorded, strict=True), 1):
            encoder = encoder_of(feats, part, facts, torch.device("cpu"))
            if not hasattr(encoder, "plain"):
                raise UsageError(f"the encoder {part.request['encoder']} has no `plain`")
            about = {**encoder.plain(), "mean": part.request.get("pool") == "mean"}
            if hasattr(encoder, "tower") and str(facts.get("licence")).lower() in OPEN:
                about["weights"] = {"file": f"image{number}.safetensors"}
                networks.append(ImageNetwork(about, encoder.tower.train_from(0).model.state_dict()))
            else:
                networks.append(ImageNetwork(about, {}, getattr(encoder, "folder", None)))
    except CcrError as error:
        say(f"  the export takes features, not pictures: {error.message}")
        return []
    return networks


def write_networks(networks: list[ImageNetwork], folder: Path) -> None:
    """Writes `image.json`, the included weights and `encode_image.py`."""
    for network in networks:
        if network.tensors:
            tensors = {name: tensor.float().contiguous() for name, tensor in network.tensors.items()}
            save_file(tensors, folder / network.about["weights"]["file"])
    what = "encoders of pictures, whose features are joined: recipe is the preprocessing, weights where they are"
    base.write_json(folder / "image.json", {"what": what, "encoders": [network.about for network in networks]})
    (folder / "encode_image.py").write_text(_standalone(), encoding="utf-8")


def _standalone() -> str:
    """Returns the source of `encode_image.py` together with that of everything it imports from ccr."""
    lines = inspect.getsource(encode_image).splitlines(keepends=True)
    kept = "".join(line for line in lines if not line.startswith("from ccr_cli"))
    own = "\n\n".join(inspect.getsource(part) for part in _OWN_SOURCES)
    more = (
        "import math\nfrom contextlib import suppress\nfrom dataclasses import dataclass\n\nfrom PIL import ImageOps\n"
    )
    return kept.replace("Array = ", f"{more}\nArray = ", 1).replace(
        "class ImageEncoder", f"{own}\n\nclass ImageEncoder", 1
    )


def write_gallery(item_ids: list[str], visual_VD: Tensor, folder: Path) -> None:
    """Writes the items' vectors and ids."""
    save_file({"vectors": visual_VD.contiguous()}, folder / "gallery.safetensors")
    what = "item of each row of `vectors` in gallery.safetensors"
    base.write_json(folder / "gallery.json", {"what": what, "ids": item_ids})
