"""Import of ready-made features: items with categories, image features and text features.

A text that exists only as a feature becomes a caption whose text is a key. Row i of the dataset's `texts.npy` is the
feature of caption i, and a run on such data looks its texts up there (`text_encoder=given`).

Shape suffixes: V items, D image feature, E text feature.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
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
from ccr_cli.data.labelled import LabelledItems, read_labelled, read_svcl
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.data.collection import CollectionFiles, differences, warn_of_problems, write_manifest

Artifacts = list[base.Artifact]

LANG = "und"
"""Language of texts that exist only as features: BCP 47's `undetermined`."""
VALIDATION = 0.15
"""Fraction of the training items that becomes the validation split, if the file has none."""


def import_mat(workspace: Workspace, source: Path, *, name: str | None = None, force: bool = False) -> Artifacts:
    """Makes a dataset artifact of a MATLAB file, and a features artifact of its image features.

    Args:
        workspace: Where to.
        source: The file; `data.labelled.read_svcl` describes its layout.
        name: Name of the dataset artifact; by default the file's.
        force: Import again.

    Returns:
        The dataset and the features.

    Raises:
        ArtifactError: If the file does not exist or does not fit.
    """
    if not source.is_file():
        raise ArtifactError(f"there is no file {source}")
    name = slug(name or source.stem)
    digest = base.sha256_file(source)

    def describe(site: Build, items: pd.DataFrame, captions: pd.DataFrame, read: LabelledItems) -> int:
        dims = f"{read.visual_VD.shape[1]} numbers a picture, {read.text_VE.shape[1]} a text"
        about = f"Ready-made features: {dims}; {read.label_V.max() + 1} categories."
        text = f'name = "{name}"\nsource_lang = "{LANG}"\ndescription = "{about}"\n'
        (site.folder / "manifest.toml").write_text(text, encoding="utf-8")
        return 0

    request = {"name": name, "sources": {"mat": digest}}
    return _import(workspace, name, request, lambda: read_svcl(source), describe, digest, force)


def import_labelled(
    workspace: Workspace, source: CollectionFiles, name: str, *, allow_partial: bool, force: bool
) -> Artifacts:
    """Makes the artifacts of a collection of labelled features.

    Args:
        workspace: Where to.
        source: Its file.
        name: Name of the dataset artifact.
        allow_partial: Accept other counts than the manifest's, and record them.
        force: Import again.

    Returns:
        The dataset and the features.

    Raises:
        ArtifactError: If the file does not fit.
    """
    path = source.place(_spec(source).path)
    if path is None:
        raise source.error()

    def describe(site: Build, items: pd.DataFrame, captions: pd.DataFrame, read: LabelledItems) -> int:
        source.problems += differences(source.variant, items, captions)
        source.refuse_problems(allow_partial)
        return write_manifest(site, source)

    digest = base.sha256_file(path)
    made = _import(workspace, name, source.request(name), lambda: _read(source), describe, digest, force)
    warn_of_problems(dataset.read(made[0]), source, allow_partial)
    return made


def _import(
    workspace: Workspace,
    name: str,
    request: dict[str, Any],
    read: Callable[[], LabelledItems],
    describe: Callable[[Build, pd.DataFrame, pd.DataFrame, LabelledItems], int],
    digest: str,
    force: bool,
) -> Artifacts:
    """Makes the dataset and the features; the file is read once if both are made. `describe` returns the failures."""
    known: LabelledItems | None = None

    def write_dataset(site: Build) -> dict[str, int]:
        nonlocal known
        known = read()
        items, captions = _tables(name, known)
        write_table(site.folder / "items.parquet", items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", captions, dataset.CAPTIONS)
        _save(site.folder / dataset.TEXTS, known.text_VE)
        return dataset.counts(items, captions, describe(site, items, captions, known))

    def write_features(site: Build) -> dict[str, int]:
        visual_VD = (known or read()).visual_VD
        _write_features(site.folder, list(dataset.read(data).items["item_id"]), visual_VD)
        about = {"encoder": features.GIVEN, "dim": visual_VD.shape[1], "source": {"sha256": digest}}
        base.write_json(site.folder / "encoder.json", about)
        return {"items": len(visual_VD), "rows": len(visual_VD), "failed": 0}

    data = build_artifact(workspace, "dataset", name, request, write=write_dataset, force=force)
    encoded = {"encoder": features.GIVEN, "dtype": "float16", "source": digest}
    vectors = build_artifact(workspace, "features", features.GIVEN, encoded, [data], write=write_features, force=force)
    return [data, vectors]


def preview(source: CollectionFiles) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Items and captions of a collection of labelled features; None if its file is missing.

    Raises:
        ArtifactError: If the file does not fit.
    """
    present = source.place(_spec(source).path) is not None
    return _tables(source.variant.name, _read(source)) if present else None


def _spec(source: CollectionFiles) -> FileSpec:
    return next(spec for spec in source.variant.files if spec.role == "features")


def _read(source: CollectionFiles) -> LabelledItems:
    spec = _spec(source)
    path = source.place(spec.path)
    assert path is not None
    return read_svcl(path) if spec.format == "svcl" else read_labelled(path, spec.options)


def _tables(name: str, read: LabelledItems) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Items and captions; if the file has no validation items, a hash takes some of the training items."""
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
    """Whether a training item moves to the validation split: a hash decides, so it is the same everywhere."""
    return int(hashlib.sha256(f"val {item_id}".encode()).hexdigest()[:8], 16) < VALIDATION * 2**32


def _write_features(folder: Path, item_ids: list[str], visual_VD: npt.NDArray[np.float32]) -> None:
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
