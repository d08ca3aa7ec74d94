"""Media as pixels, for a run that trains the encoder of its features: decoded once, kept in the cache.

What a run reads in place of features is what their encoder was shown: the same pictures, or frames of a video,
prepared in the same way, as 8-bit levels. The network scales them.

Shape suffixes: V items, N pictures of all of them, C colours, H height, W width, D feature.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
from ccr_cli.data.formats.base import is_video
from ccr_cli.data.frames import Frames
from ccr_cli.data.sampling import Sampling
from ccr_cli.encoders._pictures import Recipe
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.nets.ragged import mean_rows
from ccr_cli.nets.tower import VisualTower
from ccr_cli.stages.shared.disk_space import require_space
from ccr_cli.stages.shared.media import MediaError, MediaReader, Medium
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.prefetch import End, Prefetch, decoding_threads

CHECKED = 8
"""Items on which the network is held against the features."""
ALIKE = 0.99
"""Least cosine of what it makes of them; features are in half precision, and may have been computed so."""
AHEAD = 64
"""Pictures that wait to be written."""


@dataclass(frozen=True)
class Eye:
    """What an encoder is shown of a medium."""

    recipe: Recipe
    """How a picture becomes levels."""
    sampling: Sampling
    """Which frames of a video."""

    @property
    def stills(self) -> bool:
        """Whether it is shown pictures, and not clips of videos alone."""
        return self.sampling.clip_frames == 1

    def preprocess(self, image: Image.Image) -> Tensor:
        """Returns the levels of a picture, (3, H, W) uint8."""
        return self.recipe.levels(image)

    def file(self, path: Path) -> Frames:
        """Reads a picture, or the frames of a video, as one item.

        Raises:
            UsageError: If it cannot be read.
        """
        real = path.resolve()
        medium = Medium("video" if is_video(real.name) else "image", real.name)
        try:
            levels_NCHW = torch.stack(list(MediaReader(real.parent, self).read(medium)))
        except MediaError as error:
            raise UsageError(f"{path} cannot be searched with: {error}") from None
        return Frames(levels_NCHW, torch.tensor([0, len(levels_NCHW)]))

    def image(self, image: Image.Image) -> Frames:
        """A picture that is open, as one item; where `stills`."""
        return Frames.single(self.preprocess(image)[None])


def load_tower(feats: base.Artifact, frozen_layers: int) -> VisualTower:
    """The network that encoded features, ready to be trained.

    Args:
        feats: The features.
        frozen_layers: Its lowest layers that are not trained.

    Raises:
        ArtifactError: If ccr did not encode the features, or the encoder is here another one.
        UnavailableError: If it is not here.
        UsageError: If it is none that can be trained.
    """
    module, config = _encoder(feats)
    _require_model(feats, module, config)
    encoder = module.Encoder(config, torch.device("cpu"), torch.float32)
    told, here = base.read_json(feats.file("encoder.json"))["weights_sha256"], encoder.describe()["weights_sha256"]
    if here != told:
        raise ArtifactError(
            f"the weights of {config.model} are here others than those that made {feats.path}",
            hint=f"extract again: {features.command(feats, feats.path.parent)} --force",
        )
    tower: VisualTower = encoder.tower
    return tower.train_from(frozen_layers)


def require_same(tower: VisualTower, pictures: Frames, feats: base.Artifact, item_ids: list[str]) -> None:
    """Compares what a network makes of some pictures with the features of these items.

    Raises:
        ArtifactError: If they differ: then the media are not those that were encoded.
    """
    some = pictures.select(torch.arange(min(CHECKED, len(pictures))))
    wanted_VD, _, _ = features.read_rows(feats, item_ids[: len(some)], pooled=True)
    with torch.no_grad():
        tower.eval()
        seen = tower(some.rows_ND).float()
        rows_ND = seen if seen.ndim == 2 else seen.mean(1)
        found_VD = mean_rows(rows_ND, some.offsets_V1)
    alike = torch.cosine_similarity(found_VD, torch.from_numpy(wanted_VD)).min().item()
    if not alike >= ALIKE:
        raise ArtifactError(
            f"the media are not those that {feats.path} were made of: their vectors have a cosine of {alike:.2f}",
            hint=f"extract again: {features.command(feats, feats.path.parent)} --force",
        )


def eye_of(feats: base.Artifact) -> Eye:
    """What the encoder of features was shown; features say it themselves, unless they were merged without the model.

    Raises:
        ArtifactError: If ccr did not encode the features, or the encoder is asked and is here another one.
        UnavailableError: If it is asked and not here.
        UsageError: If it is none that can be trained.
    """
    module, config = _encoder(feats)
    told = (feats.about.get("environment") or {}).get("recipe")
    if told:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
        recipe = Recipe(**values)
    else:
        _require_model(feats, module, config)
        recipe = module.recipe(config)
    return Eye(recipe, config.sampling)


def _encoder(feats: base.Artifact) -> tuple[Any, Any]:
    """The plug-in that encoded features, and its options."""
    parts = features.parts(feats)
    name = str(parts[0].request["encoder"])
    if len(parts) > 1 or features.FROM in parts[0].request or name == features.GIVEN:
        raise ArtifactError(
            f"{feats.path} are not of one encoder of ccr's, so there is none to be trained",
            hint="ccr extract --encoder clip, or leave finetune out",
        )
    module = registry.load("encoders", name)
    if not hasattr(module, "recipe"):
        raise UsageError(f"the encoder {name} cannot be trained", hint="ccr extract --encoder clip, or vision")
    request, given = parts[0].request, parts[0].given
    options = {k: v for k, v in {**request, **given}.items() if k not in ("encoder", "dtype", "pool")}
    return module, configure(module.Config, options, f"encoder {name}")


def _require_model(feats: base.Artifact, module: Any, config: Any) -> None:
    """Refuses a model's folder that is another one than when the features were made."""
    recorded = features.parts(feats)[0].request["model"]
    if module.identity(config).get("model", config.model) != recorded:
        state = "is not what it was" if Path(config.model).expanduser().is_dir() else "is not there any more, as it was"
        raise ArtifactError(
            f"{config.model} {state} when {feats.path} were made with it",
            hint=f"extract again: {features.command(feats, feats.path.parent)} --force",
        )


def read_pixels(feats: base.Artifact, item_ids: list[str]) -> tuple[Frames, list[str]]:
    """Reads the pictures of items; they are decoded when a data set's are asked for the first time.

    Args:
        feats: Features, whose encoder says how pictures are prepared.
        item_ids: Which items, in which order.

    Returns:
        The pictures, uint8, read from the disk as they are selected; and the items that have features.

    Raises:
        ArtifactError: If a medium cannot be read, or none has features.
        ResourceError: If there is no room for them.
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
        raise ArtifactError(f"{feats.path} has features of none of the {len(item_ids)} items asked for")
    levels_NCHW = torch.from_numpy(np.memmap(table, np.uint8, "c", shape=tuple(about["shape"])))
    return Frames(levels_NCHW, torch.tensor(about["offsets"])).only(torch.tensor([number[item] for item in kept])), kept


def _decode(feats: base.Artifact, table: Path, index: Path) -> None:
    """Writes the pictures of all items that have features."""
    eye = eye_of(feats)
    media = _media(feats)
    root = _root(feats)
    say(f"decoding {len(media)} media of {feats.path.parent.name}, once, into {table}")
    index.unlink(missing_ok=True)
    items = list(media)
    reader = MediaReader(root, eye)

    def read(item: str) -> Iterator[Tensor]:
        return reader.read(media[item])

    counts = np.zeros(len(items), np.int64)
    shape: tuple[int, ...] = ()
    partial = table.with_suffix(".partial")
    ahead: Prefetch[str, Tensor] = Prefetch(items, read, workers=decoding_threads(torch.device("cpu")), most=AHEAD)
    try:
        with partial.open("wb") as handle, progress(len(items), "decode", "items") as advance:
            for number, part in ahead:
                if isinstance(part, End):
                    if part.error is not None:
                        _refuse(items[number], part.error)
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


def _refuse(item: str, error: Exception) -> None:
    if not isinstance(error, MediaError):
        raise error
    raise ArtifactError(
        f"{item} has features, and its medium cannot be read any more: {error}",
        hint="CCR_MEDIA_ROOT=FOLDER says where the media are",
    )


def _media(feats: base.Artifact) -> dict[str, Medium]:
    """The media of the items that have features."""
    found = features.read_index(feats)
    there = set(found["item_id"][found["n_rows"] > 0])
    items = dataset.read(_data(feats)).items
    rows = zip(items["item_id"], items["kind"], items["media"], strict=True)
    return {item: Medium(kind, media) for item, kind, media in rows if item in there}


def _root(feats: base.Artifact) -> Path:
    named = os.environ.get("CCR_MEDIA_ROOT")
    root = Path(named) if named else dataset.media_root(_data(feats))
    if root is None or not root.is_dir():
        where = f"its media root {root} is not there" if root else "no media lie beside it"
        raise ArtifactError(f"{feats.path.parent.name} has no media: {where}", hint="say where: CCR_MEDIA_ROOT=FOLDER")
    return root.resolve()


def _data(feats: base.Artifact) -> base.Artifact:
    return Workspace(feats.path.parents[2]).parent(feats, "dataset")
