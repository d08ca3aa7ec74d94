"""evaluation: `metrics.json` (a list of results, each with its signature) and the rank of every query."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, read_json
from ccr_cli.artifacts.tables import read_table

RANKS = pa.schema(
    [
        pa.field("result", pa.int32(), nullable=False),
        pa.field("direction", pa.string(), nullable=False),
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("rank", pa.float64(), nullable=False),
        pa.field("ties", pa.int64(), nullable=False),
        pa.field("average_precision", pa.float64(), nullable=False),
        pa.field("uncertainty", pa.float64()),
    ]
)
"""`result` counts the entries of `metrics.json`; `direction` is t2v or v2t; `rank` is 1-based, ties in the middle."""


def results(artifact: Artifact) -> list[dict[str, Any]]:
    """Reads the results of an evaluation."""
    value: list[dict[str, Any]] = read_json(artifact.file("metrics.json"))["results"]
    return value


def read_ranks(artifact: Artifact) -> pd.DataFrame:
    """Reads the rank of every query."""
    return read_table(artifact.file("ranks.parquet"), RANKS)
