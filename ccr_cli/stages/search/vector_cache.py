"""Vectors of the entries that are searched, computed once and kept in the workspace.

`.cache/search/RUN/` can be deleted at any time and belongs to no artifact. A file's name hashes all that it was made
from (run, features, split, what is found, version of ccr), so a file is never stale.

Shape suffixes: V entries that are searched, D embedding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import ccr_cli
from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace, slug
from ccr_cli.console import say

_VECTORS, _IDS = "vectors", "ids"


@dataclass(frozen=True)
class Vectors:
    """Entries to search."""

    ids: Sequence[str]
    """Items, or captions."""
    rows_VD: Tensor
    """Float32, in the order of `ids`."""


def cached(
    workspace: Workspace, trained: base.Artifact, about: Mapping[str, Any], make: Callable[[], Vectors]
) -> Vectors:
    """Reads the vectors of a run from the workspace's cache, or makes them, and caches them if it can be written.

    `about` is everything else that they depend on, as JSON values.
    """
    folder = workspace.root / ".cache" / "search" / slug(trained.name)
    key = base.canonical_json({"run": trained.id, "ccr": ccr_cli.__version__, **about})
    path = folder / f"{trained.id[:16]}-{base.sha256_text(key)[:16]}.safetensors"
    with suppress(OSError, SafetensorError, ValueError, KeyError):  # it is missing or damaged
        with safe_open(path, framework="pt") as handle:
            facts = handle.metadata() or {}
            ids, rows_VD = json.loads(facts[_IDS]), handle.get_tensor(_VECTORS)
        if facts.get("key") == key and rows_VD.dtype == torch.float32 and (rows_VD.ndim, len(rows_VD)) == (2, len(ids)):
            return Vectors(ids, rows_VD)
    vectors = make()
    data = save({_VECTORS: vectors.rows_VD.cpu().contiguous()}, {"key": key, _IDS: json.dumps(list(vectors.ids))})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with base.atomic_open(path) as handle:
            handle.write(data)
        for other in folder.glob("*.safetensors"):
            if not other.name.startswith(trained.id[:16]):  # of an earlier version of the run
                other.unlink(missing_ok=True)
    except OSError as error:
        say(f"cannot cache vectors: {error.strerror or error}", level=1)
    return vectors
