"""run: a trained model, how it was trained, and what it thinks of every training pair.

Files: `config.json`, `history.jsonl` (a line an epoch), `model.safetensors` (best epoch on validation),
`tokenizer/`, `last/` (all that resuming needs), `evidence/epoch-NNN.parquet`, `stopped.json` (training ended early).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, read_json
from ccr_cli.artifacts.tables import read_table

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


def evidence(artifact: Artifact) -> Iterator[tuple[int, pd.DataFrame]]:
    """Reads what a run wrote of every training pair, epoch by epoch; nothing where its judge is `none`."""
    for name in sorted(entry.path for entry in artifact.files if entry.path.startswith("evidence/epoch-")):
        number = int(name.removeprefix("evidence/epoch-").removesuffix(".parquet"))
        yield number, read_table(artifact.file(name), EVIDENCE)
