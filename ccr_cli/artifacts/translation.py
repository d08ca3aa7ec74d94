"""translation: machine-translated captions of one language, with their engine and its own scores."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.tables import read_table

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
"""`direction` is forward, back or query; `score` a length-normalised log-probability (nats a token) or null;
`status` is ok or failed (then `text` is null)."""


def read(artifact: Artifact) -> pd.DataFrame:
    """Reads the captions of a translation artifact."""
    return read_table(artifact.file("captions.parquet"), CAPTIONS)


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


def language(artifact: Artifact) -> str:
    """The target language, as BCP 47."""
    return str(artifact.request["lang"])
