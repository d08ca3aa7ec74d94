"""diagnosis: a model's belief in every training pair, and its precision and recall where the truth is known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, read_json
from ccr_cli.artifacts.parquet import artifact_table

PAIRS = pa.schema(
    [
        pa.field("slot_id", pa.string(), nullable=False),
        pa.field("source_caption_id", pa.string(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("lang", pa.string(), nullable=False),
        pa.field("source_text", pa.string(), nullable=False),
        pa.field("translation", pa.string(), nullable=False),
        pa.field("back", pa.string()),
        pa.field("sim_vs", pa.float32(), nullable=False),
        pa.field("sim_vt", pa.float32(), nullable=False),
        pa.field("sim_st", pa.float32(), nullable=False),
        pa.field("evidence_v2t", pa.float32(), nullable=False),
        pa.field("evidence_t2v", pa.float32(), nullable=False),
        pa.field("belief", pa.float32(), nullable=False),
        pa.field("uncertainty", pa.float32(), nullable=False),
        pa.field("p_vs", pa.float32(), nullable=False),
        pa.field("p_clean", pa.float32(), nullable=False),
        pa.field("p_st", pa.float32(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
        pa.field("support", pa.int32(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("truth", pa.string()),
        pa.field("p_first", pa.float32()),
        pa.field("p_last", pa.float32()),
        pa.field("p_mean", pa.float32()),
        pa.field("sim_first", pa.float32()),
        pa.field("sim_last", pa.float32()),
        pa.field("sim_mean", pa.float32()),
        pa.field("epochs_noisy", pa.int32()),
        pa.field("forgotten", pa.int32()),
    ]
)
"""`slot_id` is the caption whose place the pair takes in training, `source_caption_id` the caption used there: the same
unless synthetic noise switched it. `place` 1 is the most suspicious pair. `support` is the number of other items that
share the most common word of each text, the lesser of the two: below `RARE` there is little evidence either way.
`verdict` and `truth` are clean or noisy; `truth` is null without synthetic noise, `back` without a back-translation."""
TRAJECTORY = PAIRS.names[-8:]
"""Summary of the pair's values after each epoch of training; null if the run recorded none."""

THRESHOLD = 0.5
"""A pair is noisy if its P(clean) is below: its score is then more probable under the mixture's wrong component."""
WITHOUT_SIDE = ("oracle", "translation", "triangle")
"""Judges that choose what they read."""
RARE = 3


def summary(artifact: Artifact) -> dict[str, Any]:
    """Reads the summary of a diagnosis; early versions name a side for judges that take none."""
    value: dict[str, Any] = read_json(artifact.file("summary.json"))
    return value | {"judge_side": ""} if value.get("judge") in WITHOUT_SIDE else value


def read_pairs(artifact: Artifact) -> pd.DataFrame:
    """Reads the judged pairs."""
    return artifact_table(artifact, "pairs.parquet", PAIRS)
