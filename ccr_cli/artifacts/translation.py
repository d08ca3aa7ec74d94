"""translation: machine-translated captions of one language, with their engine and its own scores."""

from typing import Any

import pandas as pd

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table, table_schema
from ccr_cli.errors import ArtifactError

CAPTIONS = table_schema(
    "caption_id string, item_id string, split string, lang string, direction string, k int32, text string?, "
    "source_caption_id string, engine string, model string, score float64?, status string"
)
"""`direction` is forward, back or query, or a step before the last round (round1, round1-back); `score` a
length-normalised log-probability (nats a token) or null; `status` is ok or failed (then `text` is null)."""

FLAGS = ("copy", "empty", "length", "repetition", "script", "untranslated", "truncated")
"""The flags of a caption; `metrics.mtquality.FLAGS` explains them."""
QUALITY = table_schema(
    "caption_id string, length_ratio float32?, length_z float32?, sources int32, left_in int32, "
    "round_trip_chrf float32?, reference_chrf float32?, reference_set string?, "
    + ", ".join(f"{flag} bool?" for flag in FLAGS)
)
"""One row per caption, in the order of `captions.parquet`; a flag is null where it is unknown."""


def read(artifact: Artifact) -> pd.DataFrame:
    """Reads the captions of a translation artifact; ArtifactError if a back-translation belongs to no translation."""
    frame = artifact_table(artifact, "captions.parquet", CAPTIONS)
    back, forward = (frame[frame["direction"] == direction] for direction in ("back", "forward"))
    if len(stray := back[~back["source_caption_id"].isin(forward["caption_id"])]):
        source = stray["source_caption_id"].iloc[0]
        raise ArtifactError(f"{artifact.path / 'captions.parquet'}: source_caption_id {source!r} is no translation")
    return frame


def translated(captions: pd.DataFrame, direction: str = "forward") -> pd.DataFrame:
    """Returns the captions of a direction whose translation did not fail."""
    return captions[(captions["direction"] == direction) & (captions["status"] == "ok")]


def read_quality(artifact: Artifact, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads the quality of every caption, all columns or some; flags are bool, False where they are unknown."""
    frame = artifact_table(artifact, "quality.parquet", QUALITY, columns)
    return frame.assign(**{flag: frame[flag].eq(True) for flag in FLAGS})


def quality(artifact: Artifact) -> dict[str, Any]:
    """Reads the summary of the quality, by direction and split."""
    return artifact.json("quality.json")


def untranslated(captions: pd.DataFrame) -> pd.DataFrame:
    """Presents captions in the source language as their own translation, for runs without a translation."""
    names = {"split": "", "direction": "forward", "engine": "none", "model": "none", "status": "ok"}
    frame: pd.DataFrame = captions.assign(**names, source_caption_id=captions["caption_id"], score=float("nan"))
    return frame.reset_index(drop=True)


BY_HAND = "corrected by hand"
"""The engine of a caption whose translation a person typed (`ccr translate --only`)."""
HUMAN = "human"
"""Name of tables with human translations: `human-en-de.tsv` in a data set, or the user's own `human.tsv`."""


def by_people(frame: pd.DataFrame, captions: pd.DataFrame) -> bool:
    """Whether people wrote the training captions of a translation.

    They did if its table is named `HUMAN`, or if most of them equal a human caption of their item in the data set.
    """
    forward = translated(frame[frame["split"] == "train"])
    if any(str(model).partition(".")[0] == HUMAN for model in forward["model"].unique()):
        return True
    written = captions[captions["lang"].isin(forward["lang"].unique())]
    known = set(zip(written["item_id"], written["text"].str.strip(), strict=True))
    same = [pair in known for pair in zip(forward["item_id"], forward["text"], strict=True)]
    return bool(same) and sum(same) > len(same) / 2


def engines(frame: pd.DataFrame) -> str:
    """Returns the engine and model of captions, `hf:opus`; if there are several, all, the most frequent first."""
    return "&".join((frame["engine"] + ":" + frame["model"]).value_counts().index)


def language(artifact: Artifact) -> str:
    """Returns the target language, as BCP 47."""
    return str(artifact.request["lang"])
