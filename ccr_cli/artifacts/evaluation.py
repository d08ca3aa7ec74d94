"""evaluation: `metrics.json` (a list of results, each with its signature) and the rank of every query."""

from __future__ import annotations

from collections.abc import Mapping
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


def headline(result: Mapping[str, Any]) -> str:
    """What stands for a result: `SumR`, or `mAP` where whatever has the query's category is right."""
    return "mAP" if "|pos:label|" in str(result.get("signature")) else "SumR"


def mean_ap(result: Mapping[str, Any]) -> float | None:
    """The mean of both directions' mAP; None where a direction has none."""
    t2v, v2t = ((result.get(direction) or {}).get("mAP") for direction in ("t2v", "v2t"))
    return None if t2v is None or v2t is None else (t2v + v2t) / 2


def read_ranks(artifact: Artifact) -> pd.DataFrame:
    """Reads the rank of every query."""
    return read_table(artifact.file("ranks.parquet"), RANKS)
