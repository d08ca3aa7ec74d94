"""Media as pixels, for a run that trains the encoder of its features: decoded once, kept in the cache.

Instead of features, such a run reads the input of their encoder: the same pictures or video frames, prepared in the
same way, as 8-bit levels. The network scales them.

Shape suffixes: V items, N pictures of all of them, C colours, H height, W width, D feature.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.cache_folder import cache_folder
from ccr_cli.console import progress, say
from ccr_cli.data.frames import Frames
from ccr_cli.data.sampling import Sampling
from ccr_cli.encoders._transformers import Recipe
from ccr_cli.errors import ArtifactError, UsageError, require_space
from ccr_cli.nets.ragged import mean_rows
from ccr_cli.nets.tower import VisualTower
from ccr_cli.stages.shared.media import MediaError, MediaReader, Medium, existing_root
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.prefetch import End, Prefetch, decoding_threads

CHECKED = 8
"""Items on which the network is compared with the features."""
ALIKE = 0.99
"""Least cosine between the network's vectors and the features, which are in half precision."""
AHEAD = 64
"""Pictures that may wait to be written."""


@dataclass(frozen=True)
class EncoderInput:
    """How an encoder's input is made from a medium."""

    recipe: Recipe
    """How a picture becomes levels."""
    sampling: Sampling
    """Which frames of a video."""

    def preprocess(self, image: Image.Image) -> Tensor:
        """Returns the levels of a picture, (3, H, W) uint8."""
        return self.recipe.levels(image)


def load_tower(feats: base.Artifact, frozen_layers: int) -> VisualTower:
    """Loads the network that encoded features, ready for training except for its lowest `frozen_layers`.

    Raises:
        ArtifactError: If ccr did not encode the features, or the encoder on this machine differs.
        UnavailableError: If the encoder is not on this machine.
        UsageError: If the encoder cannot be trained.
    """
    module, config = _encoder(feats)
    _require_model(feats, module, config)
    encoder = module.Encoder(config, torch.device("cpu"), torch.float32)
    if encoder.describe()["weights_sha256"] != feats.json("encoder.json")["weights_sha256"]:
        raise _changed(feats, f"the weights of {config.model} on this machine are not those that made {feats.path}")
    tower: VisualTower = encoder.tower
    return tower.train_from(frozen_layers)


def require_same(tower: VisualTower, pictures: Frames, feats: base.Artifact, item_ids: list[str]) -> None:
    """Compares a network's vectors of some pictures with the features of these items; ArtifactError if they differ."""
    some = pictures.select(torch.arange(min(CHECKED, len(pictures))))
    stored_VD, _, _ = features.read_rows(feats, item_ids[: len(some)], pooled=True)
    with torch.no_grad():
        tower.eval()
        output = tower(some.rows_ND).float()
        rows_ND = output if output.ndim == 2 else output.mean(1)
        computed_VD = mean_rows(rows_ND, some.offsets_V1)
    cosine = torch.cosine_similarity(computed_VD, torch.from_numpy(stored_VD)).min().item()
    if not cosine >= ALIKE:
        raise _changed(feats, f"the media are not those of {feats.path}: the cosine of their vectors is {cosine:.2f}")


def _changed(feats: base.Artifact, problem: str) -> ArtifactError:
    return ArtifactError(problem, hint=f"extract again: {features.command(feats, feats.path.parent)} --force")


def encoder_input(feats: base.Artifact) -> EncoderInput:
    """Returns how the encoder of features prepares its input; errors as for `load_tower`.

    It is recorded with the features, unless they were merged on a machine without the model: then the model is read.
    """
    module, config = _encoder(feats)
    recorded = feats.environment.get("recipe")
    if recorded:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in recorded.items()}
        recipe = Recipe(**values)
    else:
        _require_model(feats, module, config)
        recipe = module.recipe(config)
    return EncoderInput(recipe, config.sampling)


def _encoder(feats: base.Artifact) -> tuple[Any, Any]:
    parts = features.parts(feats)
    name = str(parts[0].request["encoder"])
    if len(parts) > 1 or features.FROM in parts[0].request or name == features.GIVEN:
        problem = f"{feats.path} were not made by one encoder of ccr, so there is no encoder to train"
        raise ArtifactError(problem, hint="ccr extract --encoder clip, or leave finetune out")
    module = registry.load("encoders", name)
    if not hasattr(module, "recipe"):
        raise UsageError(f"the encoder {name} cannot be trained", hint="ccr extract --encoder clip, or vision")
    return module, configure(module.Config, parts[0].options, f"encoder {name}")


def _require_model(feats: base.Artifact, module: Any, config: Any) -> None:
    """Refuses a model folder that has changed since the features were made."""
    if module.identity(config).get("model", config.model) != feats.request["model"]:
        state = "has changed since" if Path(config.model).expanduser().is_dir() else "no longer exists as"
        raise _changed(feats, f"{config.model} {state} {feats.path} were made with it")


def read_pixels(feats: base.Artifact, item_ids: list[str]) -> tuple[Frames, list[str]]:
    """Returns the pictures of items, uint8, read from disk when they are selected, and the items with features.

    The first call decodes the media of the whole data set, as the encoder of the features does.

    Raises:
        ArtifactError: If a medium cannot be read, or no item has features.
        ResourceError: If there is too little disk space.
    """
    folder = cache_folder() / "pixels"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{feats.path.parent.name}-{feats.id[:16]}"
    table, index = folder / f"{name}.levels", folder / f"{name}.json"
    with filelock.FileLock(folder / f"{name}.lock"):
        if not index.is_file() or not table.is_file():
            _decode(feats, table, index)
    about = base.read_json(index)
    number = {item: v for v, item in enumerate(about["items"])}
    kept = [item for item in item_ids if item in number]
    if not kept:
        raise ArtifactError(f"{feats.path} has features of none of the {len(item_ids)} items")
    levels_NCHW = torch.from_numpy(np.memmap(table, np.uint8, "c", shape=tuple(about["shape"])))
    return Frames(levels_NCHW, torch.tensor(about["offsets"])).only(torch.tensor([number[item] for item in kept])), kept


def _decode(feats: base.Artifact, table: Path, index: Path) -> None:
    """Writes the pictures of all items with features."""
    preparation = encoder_input(feats)
    root, media = _media(feats)
    say(f"decoding {len(media)} media of {feats.path.parent.name}, once, into {table}")
    index.unlink(missing_ok=True)
    items, reader, threads = list(media), MediaReader(root, preparation), decoding_threads(torch.device("cpu"))
    counts = np.zeros(len(items), np.int64)
    shape: tuple[int, ...] = ()
    partial = table.with_suffix(".partial")
    ahead: Prefetch[Medium, Tensor] = Prefetch(list(media.values()), reader.read, workers=threads, most=AHEAD)
    try:
        with partial.open("wb") as handle, progress(len(items), "decode", "items") as advance:
            for number, part in ahead:
                if isinstance(part, End):
                    if isinstance(part.error, MediaError):
                        problem = f"{items[number]} has features, but its medium can no longer be read: {part.error}"
                        raise ArtifactError(problem, hint="set the folder of the media: CCR_MEDIA_ROOT=FOLDER")
                    if part.error is not None:
                        raise part.error
                    advance(1)
                    continue
                if not shape:
                    shape = tuple(part.shape)
                    require_space(table.parent, part.nbytes * len(items), "; CCR_CACHE=DIR keeps them elsewhere")
                handle.write(part.numpy().tobytes())
                counts[number] += 1
        partial.replace(table)
    finally:
        partial.unlink(missing_ok=True)
    offsets = [0, *np.cumsum(counts).tolist()]
    base.write_json(index, {"shape": [offsets[-1], *shape], "items": items, "offsets": offsets})


def _media(feats: base.Artifact) -> tuple[Path, dict[str, Medium]]:
    data = Workspace(feats.path.parents[2]).parent(feats, "dataset")
    encoded, items = set(features.encoded_items(feats)), dataset.read(data).items
    variable = os.environ.get("CCR_MEDIA_ROOT")
    root = existing_root(data, Path(variable) if variable else None, "CCR_MEDIA_ROOT=FOLDER")
    rows = zip(items["item_id"], items["kind"], items["media"], strict=True)
    return root, {item: Medium(kind, media) for item, kind, media in rows if item in encoded}
