"""data import of ready-made features: items and categories, features of the pictures, features of the texts.

A text that exists only as a feature becomes a caption whose text is a key; row i of the dataset's `texts.npy` is the
feature of caption i, and a run on such data looks its texts up there (`text_encoder=given`).

Shape suffixes: V items, D image feature, E text feature.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.data.collections import FileSpec
from ccr_cli.data.formats.labelled import read_labelled
from ccr_cli.data.labelled_mat import read_mat
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data import collection

LANG = "und"
"""Of texts that are there as features alone: BCP 47's `undetermined`."""
VALIDATION = 0.15
"""Share of the training items that validates, where a file names none."""
SVCL = "svcl"
"""The layout of `data.mat`, as a manifest calls it."""


@dataclass(frozen=True)
class Given:
    """Items with an image feature, a text feature and one category each."""

    split_V: list[str]
    visual_VD: npt.NDArray[np.float32]
    text_VE: npt.NDArray[np.float32]
    label_V: npt.NDArray[np.int64]


def import_given(
    workspace: Workspace, source: Path, *, name: str | None = None, force: bool = False
) -> list[base.Artifact]:
    """Makes a dataset artifact of a MATLAB file, and a features artifact of its image features.

    Args:
        workspace: Where to.
        source: The file, see `data.mat`.
        name: Name of the dataset artifact; by default the file's.
        force: Import again.

    Returns:
        The dataset and the features.

    Raises:
        ArtifactError: If the file is not there or does not fit.
    """
    if not source.is_file():
        raise ArtifactError(f"there is no file {source}")
    name = slug(name or source.stem)
    digest = base.sha256_file(source)

    def finish(site: Build, items: pd.DataFrame, captions: pd.DataFrame, read: Given) -> dict[str, int]:
        (site.folder / "manifest.toml").write_text(_manifest(name, read), encoding="utf-8")
        counts = {f"items.{split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
        return {**dict(sorted(counts.items())), f"captions.{LANG}": len(captions), "failed": 0}

    request = {"name": name, "sources": {"mat": digest}}
    return _make(workspace, name, request, lambda: _svcl(source), finish, digest, force)


def import_features(
    workspace: Workspace, material: collection.Material, name: str, *, allow_partial: bool, force: bool
) -> list[base.Artifact]:
    """Makes the artifacts of a collection of labelled features.

    Args:
        workspace: Where to.
        material: Its file.
        name: Name of the dataset artifact.
        allow_partial: Take other counts than the manifest's, and record them.
        force: Import again.

    Returns:
        The dataset and the features.

    Raises:
        ArtifactError: If the file does not fit.
    """
    place = _place(material)
    if place is None:
        raise material.refuse(material.problems)

    def finish(site: Build, items: pd.DataFrame, captions: pd.DataFrame, read: Given) -> dict[str, int]:
        material.problems += collection.differences(material.variant, items, captions)
        if material.problems and not allow_partial:
            raise material.refuse(material.problems)
        return collection.finish(site, material, items, captions)

    request = collection.request(material, name)
    digest = base.sha256_file(place)
    made = _make(workspace, name, request, lambda: _material(material), finish, digest, force)
    collection.tell(dataset.read(made[0]), material, allow_partial)
    return made


def _make(
    workspace: Workspace,
    name: str,
    request: dict[str, Any],
    read: Callable[[], Given],
    finish: Callable[[Build, pd.DataFrame, pd.DataFrame, Given], dict[str, int]],
    digest: str,
    force: bool,
) -> list[base.Artifact]:
    """Makes the dataset artifact and the features artifact; the file is read once where both are to be made."""
    known: Given | None = None

    def write_dataset(site: Build) -> dict[str, int]:
        nonlocal known
        known = read()
        items, captions = _tables(name, known)
        write_table(site.folder / "items.parquet", items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", captions, dataset.CAPTIONS)
        _save(site.folder / dataset.TEXTS, known.text_VE)
        return finish(site, items, captions, known)

    def write_features(site: Build) -> dict[str, int]:
        visual_VD = (known or read()).visual_VD
        _features(site.folder, list(dataset.read(data).items["item_id"]), visual_VD)
        about = {"encoder": features.GIVEN, "dim": visual_VD.shape[1], "source": {"sha256": digest}}
        base.write_json(site.folder / "encoder.json", about)
        return {"items": len(visual_VD), "rows": len(visual_VD), "failed": 0}

    data = build_artifact(workspace, "dataset", name, request, write=write_dataset, force=force)
    wanted = {"encoder": features.GIVEN, "dtype": "float16", "source": digest}
    vectors = build_artifact(workspace, "features", features.GIVEN, wanted, [data], write=write_features, force=force)
    return [data, vectors]


def preview(material: collection.Material) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Items and captions of a collection of labelled features, None where its file is missing.

    Raises:
        ArtifactError: If the file does not fit.
    """
    return None if _place(material) is None else _tables(material.variant.name, _material(material))


def _place(material: collection.Material) -> Path | None:
    return material.place(_spec(material).path)


def _spec(material: collection.Material) -> FileSpec:
    return next(each for each in material.variant.files if each.role == "features")


def _material(material: collection.Material) -> Given:
    place, spec = _place(material), _spec(material)
    assert place is not None
    return _svcl(place) if spec.format == SVCL else _labelled(place, spec.options)


def _svcl(path: Path) -> Given:
    read = read_mat(path)
    split_V = ["train" if train else "test" for train in read.train_V]
    return Given(split_V, read.visual_VD, read.text_VE, read.label_V)


def _labelled(path: Path, keys: Any) -> Given:
    parts = read_labelled(path, keys).splits
    split_V = [split for split, part in parts.items() for _ in part.label_V]
    visual, text, label = (
        np.concatenate([getattr(part, field) for part in parts.values()])
        for field in ("visual_VD", "text_VE", "label_V")
    )
    return Given(split_V, visual, text, label)


def _tables(name: str, read: Given) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Items and captions; where the file names no validation items, a hash takes some of those for training."""
    width = len(str(len(read.label_V)))
    ids = [f"{name}-{number:0{width}d}" for number in range(1, len(read.label_V) + 1)]
    split = read.split_V
    if "val" not in split:
        split = ["val" if s == "train" and _validates(i) else s for i, s in zip(ids, split, strict=True)]
    items = pd.DataFrame(
        {"item_id": ids, "split": split, "kind": "features", "media": None, "label": read.label_V, "group": ids}
    )
    captions = pd.DataFrame(
        {"caption_id": ids, "item_id": ids, "lang": LANG, "k": 0, "text": ids, "caption_set": "features"}
    )
    return items, captions


def _validates(item_id: str) -> bool:
    """Whether a training item validates: a hash decides, so it is the same everywhere."""
    return int(hashlib.sha256(f"val {item_id}".encode()).hexdigest()[:8], 16) < VALIDATION * 2**32


def _manifest(name: str, read: Given) -> str:
    dims = f"{read.visual_VD.shape[1]} numbers a picture, {read.text_VE.shape[1]} a text"
    about = f"Ready-made features: {dims}; {read.label_V.max() + 1} categories."
    return f'name = "{name}"\nsource_lang = "{LANG}"\ndescription = "{about}"\n'


def _features(folder: Path, item_ids: list[str], visual_VD: npt.NDArray[np.float32]) -> None:
    if np.abs(visual_VD).max() > np.finfo(np.float16).max:
        raise ArtifactError("the image features are too large for half precision", hint="scale them down")
    number = np.arange(len(item_ids))
    shard, first = np.divmod(number, features.SHARD_ITEMS)
    for at in range(int(shard.max()) + 1):
        _save(folder / features.shard_name(at), visual_VD[shard == at].astype(np.float16))
    index = pd.DataFrame(
        {
            "item_id": item_ids,
            "shard": shard.astype(np.int32),
            "first_row": first,
            "n_rows": np.int32(1),
            "status": "ok",
            "error": None,
        }
    )
    write_table(folder / "index.parquet", index, features.INDEX)


def _save(path: Path, rows: npt.NDArray[np.float32] | npt.NDArray[np.float16]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    with base.atomic_open(path) as handle:
        handle.write(buffer.getbuffer())
