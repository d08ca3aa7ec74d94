"""dataset: items, captions and the manifest; bundled ones also hold media and recorded translations."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts.arrays import mapped
from ccr_cli.artifacts.base import ELSEWHERE, Artifact, home
from ccr_cli.artifacts.parquet import artifact_table, table_schema
from ccr_cli.errors import ArtifactError

ITEMS = table_schema("item_id string, split string, kind string, media string?, label int32?, group string")
CAPTIONS = table_schema("caption_id string, item_id string, lang string, k int32, text string, caption_set string")
TABLE = "captions.parquet"
TEXTS = "texts.npy"
"""Features of the captions, one row each in their order. With this file, a caption's text is only a key."""


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
        """Features of the captions, (T, E) in the order of `captions`; None if the captions are texts."""
        if not (self.artifact.path / TEXTS).is_file():
            return None
        rows_TE = np.array(mapped(self.artifact.file(TEXTS)))
        if rows_TE.dtype != np.float32 or rows_TE.ndim != 2 or len(rows_TE) != len(self.captions):
            found = f"{rows_TE.dtype} of shape {rows_TE.shape}"
            expected = f"float32 with a row for each of {len(self.captions)} captions"
            raise ArtifactError(f"{self.artifact.path / TEXTS} holds {found}, expected {expected}")
        return rows_TE

    def captions_in(self, lang: str) -> pd.DataFrame:
        """The captions in a language."""
        return self.captions[self.captions["lang"] == lang]

    def languages(self) -> list[str]:
        """Languages with captions, the source language first."""
        langs = sorted(self.captions["lang"].unique())
        return sorted(langs, key=lambda lang: lang != self.source_lang)


def read(artifact: Artifact) -> Dataset:
    """Reads a dataset artifact; ArtifactError if it has no items, or a caption of an item that it lacks."""
    items, captions = artifact_table(artifact, "items.parquet", ITEMS), artifact_table(artifact, TABLE, CAPTIONS)
    unknown = captions.loc[~captions["item_id"].isin(items["item_id"]), "item_id"]
    if len(unknown):
        problem = f"{artifact.path / TABLE} has captions of the unknown item {unknown.iloc[0]!r}"
        raise ArtifactError(problem, hint=artifact.rebuild_hint())
    if items.empty:
        raise ArtifactError(f"{artifact.path} has no items", hint=artifact.rebuild_hint())
    return Dataset(artifact, items, captions, artifact.toml("manifest.toml"))


def counts(items: pd.DataFrame, captions: pd.DataFrame, failed: int) -> dict[str, int]:
    """Returns the counts of a dataset artifact: items by split, captions by language, failures."""
    numbers = {f"items.{split}": int(n) for split, n in items["split"].value_counts(sort=False).items()}
    numbers |= {f"captions.{lang}": int(n) for lang, n in captions["lang"].value_counts(sort=False).items()}
    return {**dict(sorted(numbers.items())), "failed": failed}


def has_training_items(artifact: Artifact) -> bool:
    """Whether a data set has training items."""
    return artifact.counts.get("items.train", 0) > 0


def media_root(artifact: Artifact) -> Path | None:
    """Returns the folder of a data set's media: inside the artifact, or where the import found them.

    None if that is unknown, because the import was on another machine.
    """
    if (artifact.path / "media").is_dir():
        return artifact.path / "media"
    recorded = artifact.environment.get("media_root")
    if not recorded or Path(recorded).parts[:1] == (ELSEWHERE,):
        return None
    return (home(artifact.path) or artifact.path) / str(recorded)


def media_path(root: Path | None, name: str | None) -> Path | None:
    """Returns the path of a medium; None if it has none, or if its name leads out of the media root."""
    if root is None or not name or "\0" in name:
        return None
    path = Path(os.path.realpath(root / name))  # unlike resolve(), without an error where symbolic links form a loop
    return path if path.is_relative_to(os.path.realpath(root)) else None


def image_finder(artifact: Artifact) -> Callable[[str], Path | None]:
    """Returns a function that finds an item's picture by id; it never leaves the media root."""
    items = artifact_table(artifact, "items.parquet", ITEMS, ["item_id", "media"])
    root, media = media_root(artifact), dict(zip(items["item_id"], items["media"], strict=True))

    def find(item_id: str) -> Path | None:
        path = media_path(root, media.get(item_id))
        return path if path is not None and os.path.isfile(path) else None

    return find
