"""evaluation: `metrics.json` (a list of results, each with its signature) and the rank of every query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table, table_schema
from ccr_cli.artifacts.signature import signature_of

RANKS = table_schema(
    "result int32, direction string, query_id string, item_id string, fold int32, rank float64, ties int64, "
    "average_precision float64, uncertainty float64?"
)
"""`result` counts the entries of `metrics.json`; `direction` is t2v or v2t; `item_id` is the query's
own; `rank` is 1-based, ties by the rule of the signature."""
OUTSIDE = table_schema(
    "result int32, direction string, query_id string, left_out bool, uncertainty float64, entropy float64?"
)
"""Queries that have no match in the gallery (`left_out`), and those that do; `result` and `direction` as in `RANKS`."""
TEXT_CORRUPTIONS = ("drop", "replace", "shuffle")
CORRUPTIONS = (*TEXT_CORRUPTIONS, "features", "both")
"""Kinds of corruption: of words; `features` masked; `both`: the same share of words dropped and features masked."""


@dataclass(frozen=True)
class Corruption:
    """How queries or features are corrupted, and which share of words or values: `drop0.3-seed0` in `metrics.json`."""

    kind: str
    share: float
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> "Corruption | None":
        """Parses a text such as `drop0.3-seed0`; None if it is empty or unknown."""
        match = re.fullmatch(r"([a-z]+)([0-9.e-]+)-seed(\d+)", text)
        return cls(match[1], float(match[2]), int(match[3])) if match and match[1] in CORRUPTIONS else None

    def __str__(self) -> str:
        return f"{self.kind}{self.share:g}-seed{self.seed}"


def results(artifact: Artifact) -> list[dict[str, Any]]:
    """Reads `metrics.json`, with a `Signature` for each `signature` (its text where it cannot be read)."""
    entries = artifact.json("metrics.json")["results"]
    return [entry | {"signature": signature_of(entry) or entry.get("signature")} for entry in entries]


def run_id(artifact: Artifact) -> str:
    """Returns the id of the run of an evaluation or a diagnosis; the artifact's own id if it has no run or several."""
    ids = [parent.id for parent in artifact.parents if parent.kind == "run"]
    return ids[0] if len(ids) == 1 else artifact.id


def headline(result: Mapping[str, Any]) -> str:
    """Returns the headline figure of a result: `SumR`, or `mAP` if all items of the query's category are positives."""
    signed = signature_of(result)
    return "mAP" if signed and signed.pos == "label" else "SumR"


def mean_ap(result: Mapping[str, Any]) -> float | None:
    """Returns the mean of both directions' mAP; None if a direction has none."""
    t2v, v2t = ((result.get(direction) or {}).get("mAP") for direction in ("t2v", "v2t"))
    return None if t2v is None or v2t is None else (t2v + v2t) / 2


LEAST_QUERIES = 20
"""Fewest queries for which an interval is given."""


def few_queries(result: Mapping[str, Any]) -> int | None:
    """Returns the number of queries of a result if it is below `LEAST_QUERIES`."""
    queries = (result.get("t2v") or {}).get("queries") or LEAST_QUERIES
    return queries if queries < LEAST_QUERIES else None


def interval(result: Mapping[str, Any], figure: str, direction: str | None = None) -> tuple[float, float] | None:
    """Returns the bootstrap interval of `SumR` or `mAP`, or of a figure of a direction; None if there is none.

    Fewer than `LEAST_QUERIES` queries have none, because resamples of equal ranks are all equal.
    """
    if few_queries(result):
        return None
    early = {"SumR": result.get("SumR_interval"), "mAP": result.get("mAP_interval")}  # 0.1.dev
    intervals = result.get("intervals") or early
    ends = (intervals.get(direction) or {} if direction else intervals).get(figure)
    return None if ends is None else (ends[0], ends[1])


def read_ranks(artifact: Artifact) -> pd.DataFrame:
    """Reads the rank of every query."""
    return artifact_table(artifact, "ranks.parquet", RANKS)


def read_outside(artifact: Artifact) -> pd.DataFrame | None:
    """Reads the queries with and without a match in the gallery; None if only the former were measured."""
    name = "outside.parquet"
    return artifact_table(artifact, name, OUTSIDE) if artifact.has(name) else None
