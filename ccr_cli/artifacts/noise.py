"""noise: the deliberately mismatched training triplets, one row per triplet."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table

PAIRS = pa.schema(
    [
        pa.field("slot_id", pa.string(), nullable=False),
        pa.field("given_item_id", pa.string(), nullable=False),
        pa.field("given_source_id", pa.string(), nullable=False),
        pa.field("given_translation_of", pa.string(), nullable=False),
        pa.field("vs_wrong", pa.bool_(), nullable=False),
        pa.field("vt_wrong", pa.bool_(), nullable=False),
        pa.field("st_wrong", pa.bool_(), nullable=False),
    ]
)
"""`slot_id` is the source caption whose place the triplet takes; `given_*` is what it holds instead."""


def read(artifact: Artifact) -> pd.DataFrame:
    """Reads the pairs of a noise artifact."""
    return artifact_table(artifact, "pairs.parquet", PAIRS)
