"""dataset: items, captions, the manifest, and (where they ship with it) media and recorded translations."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table

ITEMS = pa.schema(
    [
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("media", pa.string()),
        pa.field("label", pa.int32()),
        pa.field("group", pa.string(), nullable=False),
    ]
)
CAPTIONS = pa.schema(
    [
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("lang", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("caption_set", pa.string(), nullable=False),
    ]
)
TEXTS = "texts.npy"
"""Features of the captions, a row each in their order, where the data set brings them: then the text of a caption is
but a key."""


@dataclass(frozen=True)
class Dataset:
    """A data set in memory."""

    artifact: Artifact
    items: pd.DataFrame
    captions: pd.DataFrame
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.artifact.name

    @property
    def source_lang(self) -> str:
        """The language of the training captions."""
        return str(self.manifest.get("source_lang", "en"))

    def text_features(self) -> npt.NDArray[np.float32] | None:
        """Features of the captions, (T, E) in the order of `captions`; None where these are texts."""
        if not (self.artifact.path / TEXTS).is_file():
            return None
        rows: npt.NDArray[np.float32] = np.load(self.artifact.file(TEXTS), allow_pickle=False)
        return rows

    def languages(self) -> list[str]:
        """Languages that have captions, the source first."""
        langs = sorted(self.captions["lang"].unique())
        return sorted(langs, key=lambda lang: lang != self.source_lang)


def read(artifact: Artifact) -> Dataset:
    """Reads a dataset artifact."""
    return Dataset(
        artifact,
        artifact_table(artifact, "items.parquet", ITEMS),
        artifact_table(artifact, "captions.parquet", CAPTIONS),
        tomllib.loads(artifact.file("manifest.toml").read_text(encoding="utf-8")),
    )


def media_root(artifact: Artifact) -> Path | None:
    """Where the data set's own media lie: inside the artifact, else where the import found them, else nowhere."""
    if (artifact.path / "media").is_dir():
        return artifact.path / "media"
    recorded = (artifact.about.get("environment") or {}).get("media_root")
    return Path(recorded) if recorded else None


def media_path(root: Path | None, name: str | None) -> Path | None:
    """Where a medium lies; None where there is none, and for a name that leads out of the media root."""
    if root is None or not name or "\0" in name:
        return None
    path = (root / name).resolve()
    return path if path.is_relative_to(root.resolve()) else None
