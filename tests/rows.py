"""Features with several rows an item, and what lies of them in an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from toy import Chain

from ccr_cli.artifacts import base, dataset, features

Rows = Mapping[str, npt.NDArray[Any]]


def item_ids(chain: Chain) -> list[str]:
    """The items, in the order of the data set."""
    return list(dataset.read(chain.find("dataset", "toy")).items["item_id"])


def frames_of(ids: Sequence[str], dim: int, most: int = 5) -> dict[str, npt.NDArray[np.float32]]:
    """One to `most` rows an item: what is on the picture, and noise; others for every `dim`."""
    rng = np.random.default_rng(dim)
    made = {}
    for number, name in enumerate(ids):
        own = np.random.default_rng([dim, *name.encode()]).standard_normal(dim)
        made[name] = (own + 0.1 * rng.standard_normal((1 + number % most, dim))).astype(np.float32)
    return made


def in_npz(path: Path, rows: Rows) -> Path:
    """An array an item."""
    path = path.with_suffix(".npz")
    np.savez(path, **rows)  # type: ignore[arg-type]
    return path


def stored(made: base.Artifact) -> dict[str, npt.NDArray[np.float16]]:
    """The rows of every item that has some, as they are on disk."""
    index = features.read_index(made)
    blocks = {s: np.load(made.file(features.shard_name(s)), allow_pickle=False) for s in set(index["shard"])}
    columns = zip(index["item_id"], index["shard"], index["first_row"], index["n_rows"], strict=True)
    return {item: blocks[shard][first : first + count] for item, shard, first, count in columns if count}


def assert_stored(made: base.Artifact, rows: Rows) -> None:
    """Exactly these rows, rounded to half precision."""
    found = stored(made)
    assert found.keys() == rows.keys()
    for name, value in rows.items():
        assert found[name].dtype == np.float16
        np.testing.assert_array_equal(found[name], value.astype(np.float16))
