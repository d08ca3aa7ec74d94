"""run: a trained model, how it was trained, and what it thinks of every training pair.

Files: `config.json`, `history.jsonl` (a line an epoch), `model.safetensors` (best epoch on validation),
`tokenizer/`, `last/` (all that resuming needs), `evidence/epoch-NNN.parquet`, `stopped.json` (training ended early).
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, read_json

STOPPED = "stopped.json"
"""Why training ended early and which epoch was kept, where it did."""
EVIDENCE = pa.schema(
    [
        pa.field("slot_id", pa.string(), nullable=False),
        pa.field("sim_vs", pa.float32(), nullable=False),
        pa.field("sim_vt", pa.float32(), nullable=False),
        pa.field("sim_st", pa.float32(), nullable=False),
        pa.field("p_clean", pa.float32(), nullable=False),
    ]
)
"""Cosine similarities of each training triplet's sides and the judge's probability that V and T match."""


def config(artifact: Artifact) -> dict[str, Any]:
    """Reads the effective configuration of a run."""
    value: dict[str, Any] = read_json(artifact.file("config.json"))
    return value


def stopped(artifact: Artifact) -> str:
    """Why training ended early; empty if it did not."""
    return str(read_json(artifact.file(STOPPED))["why"]) if artifact.has(STOPPED) else ""


def history(artifact: Artifact) -> pd.DataFrame:
    """Reads the training history, a row an epoch; loss terms are columns `loss.NAME`."""
    lines = artifact.file("history.jsonl").read_text(encoding="utf-8").splitlines()
    return pd.json_normalize([json.loads(line) for line in lines])
