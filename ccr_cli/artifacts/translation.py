"""translation: machine-translated captions of one language, with their engine and its own scores."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, read_json
from ccr_cli.artifacts.parquet import artifact_table

CAPTIONS = pa.schema(
    [
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("lang", pa.string(), nullable=False),
        pa.field("direction", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("source_caption_id", pa.string(), nullable=False),
        pa.field("engine", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("status", pa.string(), nullable=False),
    ]
)
"""`direction` is forward, back or query, or a step before the last round (round1, round1-back); `score` a
length-normalised log-probability (nats a token) or null; `status` is ok or failed (then `text` is null)."""

FLAGS = ("copy", "empty", "length", "repetition", "script", "untranslated", "truncated")
"""What a caption may be flagged for; `metrics.mtquality.FLAGS` says what each means."""
QUALITY = pa.schema(
    [
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("length_ratio", pa.float32()),
        pa.field("length_z", pa.float32()),
        pa.field("sources", pa.int32(), nullable=False),
        pa.field("left_in", pa.int32(), nullable=False),
        pa.field("round_trip_chrf", pa.float32()),
        pa.field("reference_chrf", pa.float32()),
        pa.field("reference_set", pa.string()),
        *(pa.field(flag, pa.bool_()) for flag in FLAGS),
    ]
)
"""A row a caption, in the order of `captions.parquet`; a flag is null where it cannot be said."""


def read(artifact: Artifact) -> pd.DataFrame:
    """Reads the captions of a translation artifact."""
    return artifact_table(artifact, "captions.parquet", CAPTIONS)


def has_quality(artifact: Artifact) -> bool:
    """Whether there is evidence by caption; translations made before ccr wrote it have none."""
    return artifact.has("quality.parquet")


def read_quality(artifact: Artifact) -> pd.DataFrame:
    """Reads the evidence by caption; flags are bool, False where nothing can be said."""
    frame = artifact_table(artifact, "quality.parquet", QUALITY)
    return frame.assign(**{flag: frame[flag].eq(True) for flag in FLAGS})


def quality(artifact: Artifact) -> dict[str, Any]:
    """Reads the evidence in sum, by direction and split."""
    found: dict[str, Any] = read_json(artifact.file("quality.json"))
    return found


def untranslated(captions: pd.DataFrame) -> pd.DataFrame:
    """Captions as their own translation: what stands in for a translation artifact where nothing was translated.

    Args:
        captions: Of a data set, in its source language.
    """
    frame: pd.DataFrame = captions.assign(
        split="",
        direction="forward",
        source_caption_id=captions["caption_id"],
        engine="none",
        model="none",
        status="ok",
    )
    frame["score"] = float("nan")
    return frame.reset_index(drop=True)


HUMAN = "human"
"""What a table of people's translations is called: `human-en-de.tsv` of a data set, `human.tsv` of one's own."""


def by_people(frame: pd.DataFrame, captions: pd.DataFrame) -> bool:
    """Whether people wrote the training captions of a translation.

    Its table says so by its name; or most of them are, word for word, human captions of their item in the data set.

    Args:
        frame: The translation.
        captions: Of its data set.
    """
    forward = frame[(frame["direction"] == "forward") & (frame["split"] == "train") & (frame["status"] == "ok")]
    if any(str(model).partition(".")[0] == HUMAN for model in forward["model"].unique()):
        return True
    written = captions[captions["lang"].isin(forward["lang"].unique())]
    known = set(zip(written["item_id"], written["text"].str.strip(), strict=True))
    same = [pair in known for pair in zip(forward["item_id"], forward["text"], strict=True)]
    return bool(same) and sum(same) > len(same) / 2


def language(artifact: Artifact) -> str:
    """The target language, as BCP 47."""
    return str(artifact.request["lang"])
