"""data import of ready-made features: items and categories, features of the pictures, features of the texts.

A text that exists only as a feature becomes a caption whose text is a key; row i of the dataset's `texts.npy` is the
feature of caption i, and a run on such data looks its texts up there (`text_encoder=given`).
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.tables import write_table
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.data.mat import Paired, read_mat
from ccr_cli.errors import ArtifactError

LANG = "und"
"""Of texts that are there as features alone: BCP 47's `undetermined`."""
VALIDATION = 0.15
"""Share of the training items that validates, as such files name none."""


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
    with building(workspace, "dataset", name, {"name": name, "sources": {"mat": digest}}, force=force) as build:
        if build.done is None:
            read = read_mat(source)
            items, captions = _tables(name, read)
            write_table(build.folder / "items.parquet", items, dataset.ITEMS)
            write_table(build.folder / "captions.parquet", captions, dataset.CAPTIONS)
            _save(build.folder / dataset.TEXTS, read.text_VE)
            (build.folder / "manifest.toml").write_text(_manifest(name, read), encoding="utf-8")
            counts = {f"items.{split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
            build.finish({**dict(sorted(counts.items())), f"captions.{LANG}": len(captions), "failed": 0})
        data = build.done
        assert data is not None
    request = {"encoder": features.GIVEN, "dtype": "float16", "source": digest}
    with building(workspace, "features", features.GIVEN, request, [data], data=data.name, force=force) as build:
        if build.done is None:
            read = read_mat(source)
            _features(build.folder, list(dataset.read(data).items["item_id"]), read.visual_VD)
            about = {"encoder": features.GIVEN, "dim": read.visual_VD.shape[1], "source": {"sha256": digest}}
            base.write_json(build.folder / "encoder.json", about)
            build.finish({"items": len(read.visual_VD), "rows": len(read.visual_VD), "failed": 0})
        assert build.done is not None
        return [data, build.done]


def _tables(name: str, read: Paired) -> tuple[pd.DataFrame, pd.DataFrame]:
    width = len(str(len(read.label_V)))
    ids = [f"{name}-{number:0{width}d}" for number in range(1, len(read.label_V) + 1)]
    split = [
        ("val" if _validates(i) else "train") if train else "test" for i, train in zip(ids, read.train_V, strict=True)
    ]
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


def _manifest(name: str, read: Paired) -> str:
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
