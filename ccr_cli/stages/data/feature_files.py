"""Import of ready-made features: items with categories, image features and text features.

A text that exists only as a feature becomes a caption whose text is a key. Row i of the dataset's `texts.npy` is the
feature of caption i, and a run on such data looks its texts up there (`text_encoder=given`).

Shape suffixes: V items, D image feature, E text feature.
"""

import hashlib
from collections.abc import Callable
from functools import cache, partial
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
from ccr_cli.errors import ArtifactError, no_file
from ccr_cli.stages.data.collection import CollectionFiles, differences
from ccr_cli.stages.data.options import DEFAULTS, ImportOptions

Artifacts = list[base.Artifact]

LANG = "und"
"""Language of texts that exist only as features: BCP 47's `undetermined`."""
VALIDATION = 0.15
"""Fraction of the training items that becomes the validation split, if the file has none."""


def import_mat(workspace: Workspace, source: Path, options: ImportOptions = DEFAULTS) -> Artifacts:
    """Makes the dataset of a MATLAB file in SVCL's layout, and the features artifact of its image features."""
    if not source.is_file():
        raise no_file(source)
    name = slug(options.name or source.stem)
    request = {"name": name, "sources": {"mat": base.known_sha256(source)}}

    def write_manifest(site: Build, items: pd.DataFrame, captions: pd.DataFrame, content: LabelledItems) -> int:
        dims = f"{content.visual_VD.shape[1]} numbers a picture, {content.text_VE.shape[1]} a text"
        about = f"Ready-made features: {dims}; {content.label_V.max() + 1} categories."
        text = f'name = "{name}"\nsource_lang = "{LANG}"\ndescription = "{about}"\n'
        (site.folder / "manifest.toml").write_text(text, encoding="utf-8")
        return 0

    return _import(workspace, request, source, partial(read_svcl, source), write_manifest, options.force)


def import_labelled(workspace: Workspace, source: CollectionFiles, options: ImportOptions) -> Artifacts:
    """Makes the dataset and the features artifact of a collection of labelled features."""
    spec, path = _file(source)
    if path is None:
        source.refuse_problems()
    assert path is not None, "a missing file is a problem"

    def write_manifest(site: Build, items: pd.DataFrame, captions: pd.DataFrame, content: LabelledItems) -> int:
        source.problems += differences(source.variant, items, captions)
        if not options.allow_partial:
            source.refuse_problems()
        return source.write_manifest(site)

    request = source.request(slug(options.name or source.variant.name))
    made = _import(workspace, request, path, partial(_read, spec, path), write_manifest, options.force)
    source.warn_of_problems(dataset.read(made[0]), options.allow_partial)
    return made


def preview(source: CollectionFiles) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Items and captions of a collection of labelled features; None if its file is missing."""
    spec, path = _file(source)
    return None if path is None else _tables(source.variant.name, _read(spec, path))


def _file(source: CollectionFiles) -> tuple[FileSpec, Path | None]:
    """Returns the spec of a collection's feature file, and its path, None if it is missing."""
    spec = next(spec for spec in source.variant.files if spec.role == "features")
    return spec, source.place(spec.path)


def _read(spec: FileSpec, path: Path) -> LabelledItems:
    return read_svcl(path) if spec.format == "svcl" else read_labelled(path, spec.options)


def _import(
    workspace: Workspace,
    request: dict[str, Any],
    source: Path,
    read: Callable[[], LabelledItems],
    write_manifest: Callable[[Build, pd.DataFrame, pd.DataFrame, LabelledItems], int],
    force: bool,
) -> Artifacts:
    """Makes dataset and features of a file, read at most once; `write_manifest` returns the number of failures."""
    name, read, digest = str(request["name"]), cache(read), base.known_sha256(source)

    def write_dataset(site: Build) -> dict[str, int]:
        items, captions = _tables(name, read())
        write_table(site.folder / "items.parquet", items, dataset.ITEMS)
        write_table(site.folder / "captions.parquet", captions, dataset.CAPTIONS)
        _save(site.folder / dataset.TEXTS, read().text_VE)
        return dataset.counts(items, captions, write_manifest(site, items, captions, read()))

    def write_features(site: Build) -> dict[str, int]:
        visual_VD = read().visual_VD
        largest, limit = np.abs(visual_VD).max(), np.finfo(features.STORED).max
        if largest > limit:
            raise ArtifactError(
                f"the image features reach {largest:g}, half precision {limit:g}", hint="scale them down"
            )
        items = list(dataset.read(data).items["item_id"])
        for shard, first in enumerate(range(0, len(items), features.SHARD_ITEMS)):
            part = slice(first, first + features.SHARD_ITEMS)
            rows_ND = visual_VD[part].astype(features.STORED)
            _save(site.folder / features.shard_name(shard), rows_ND)
            path, count = site.folder / features.index_name(shard), len(rows_ND)
            features.write_index(path, items[part], shard, np.ones(count, dtype=np.int32), [None] * count)
        features.finish_index(site.folder, len(items))
        about = {"encoder": features.GIVEN, "dim": visual_VD.shape[1], "source": {"sha256": digest}}
        base.write_json(site.folder / "encoder.json", about)
        return {"items": len(items), "rows": len(items), "failed": 0}

    data = build_artifact(workspace, "dataset", name, request, write=write_dataset, force=force)
    encoded = {"encoder": features.GIVEN, "dtype": features.STORED.name, "source": digest}
    vectors = build_artifact(workspace, "features", features.GIVEN, encoded, [data], write=write_features, force=force)
    return [data, vectors]


def _tables(name: str, read: LabelledItems) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns items and captions; if the file has no validation items, a hash takes some from the training items."""
    width = len(str(len(read.label_V)))
    ids = [f"{name}-{number:0{width}d}" for number in range(1, len(read.label_V) + 1)]
    split = read.split_V
    if "val" not in split:
        hashes = [int(hashlib.sha256(f"val {i}".encode()).hexdigest()[:8], 16) / 2**32 for i in ids]
        split = ["val" if s == "train" and h < VALIDATION else s for h, s in zip(hashes, split, strict=True)]
    items = pd.DataFrame(
        {"item_id": ids, "split": split, "kind": "features", "media": None, "label": read.label_V, "group": ids}
    )
    captions = pd.DataFrame(
        {"caption_id": ids, "item_id": ids, "lang": LANG, "k": 0, "text": ids, "caption_set": "features"}
    )
    return items, captions


def _save(path: Path, rows: npt.NDArray[np.float32] | npt.NDArray[np.float16]) -> None:
    with base.atomic_open(path) as handle:
        np.save(handle, rows, allow_pickle=False)
