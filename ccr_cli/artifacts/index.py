"""index: a FAISS index of what a run searches, and its recall against exact search.

Files: `index.faiss`, `entries.parquet` (the ids, in the order of the index), `index.json`.
"""

from __future__ import annotations

from typing import Any

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import read_table, table_schema

ENTRIES = table_schema("id string")
"""The ids of items or captions."""


def entries(artifact: Artifact) -> list[str]:
    """Reads the ids, in the order of the index."""
    return list(read_table(artifact.file("entries.parquet"), ENTRIES)["id"])


def about(artifact: Artifact) -> dict[str, Any]:
    """Reads how an index was built, and its recall."""
    return artifact.json("index.json")
