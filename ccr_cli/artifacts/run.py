"""run: a trained model, how it was trained, and its belief in every training pair.

Files: `config.json`, `history.jsonl` (a line an epoch), `model.safetensors` (best epoch on validation),
`tokenizer/`, `last/` (all that resuming needs), `evidence/epoch-NNN.parquet`, `stopped.json` (training ended early).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import read_table, table_schema

STOPPED = "stopped.json"
"""Why training ended early and which epoch was kept; absent otherwise."""
EVIDENCE = table_schema("slot_id string, sim_vs float32, sim_vt float32, sim_st float32, p_clean float32")
"""Cosine similarities of each training triplet's sides and the judge's probability that V and T match."""
LANG = pa.field("lang", pa.string(), nullable=False)
"""Language of the translation: the second column of a table of triplets if a run has several languages."""


def by_language(schema: pa.Schema, langs: Sequence[str]) -> pa.Schema:
    """The schema of a table of triplets: with several languages, a row has a `lang`."""
    return schema.insert(1, LANG) if len(langs) > 1 else schema


def langs(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The target languages of a run, in alphabetical order, by its config.json or its request."""
    lang = config["lang"]
    return (lang,) if isinstance(lang, str) else tuple(lang)


def config(artifact: Artifact) -> dict[str, Any]:
    """Reads the effective configuration of a run."""
    return artifact.json("config.json")


def stopped(artifact: Artifact) -> str:
    """Why training ended early; empty if it did not."""
    return str(artifact.json(STOPPED)["why"]) if artifact.has(STOPPED) else ""


def history(artifact: Artifact) -> pd.DataFrame:
    """Reads the training history, a row an epoch; loss terms are columns `loss.NAME`."""
    lines = artifact.file("history.jsonl").read_text(encoding="utf-8").splitlines()
    return pd.json_normalize([json.loads(line) for line in lines])


def evidence(artifact: Artifact, lang: str | None = None) -> Iterator[tuple[int, pd.DataFrame]]:
    """Reads what a run recorded of every training pair after each epoch; nothing if its judge is `none`.

    Yields the epoch and its table: of one language, or of all with a column `lang` where the run has several.
    """
    schema = by_language(EVIDENCE, langs(artifact.request))
    for name in sorted(entry.path for entry in artifact.files if entry.path.startswith("evidence/epoch-")):
        number = int(name.removeprefix("evidence/epoch-").removesuffix(".parquet"))
        frame = read_table(artifact.file(name), schema)
        if lang is not None and "lang" in frame:
            frame = frame[frame["lang"] == lang].reset_index(drop=True)
        yield number, frame
