"""Features in the making where no encoder is at work: shards of rows that are there already, written one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.console import progress
from ccr_cli.stages.shared.disk_space import require_room
from ccr_cli.stages.shared.failures import failure, write_failures

Told = tuple[npt.NDArray[np.int32], Sequence[str | None]]
"""The number of rows of each item of a shard, and what is amiss with it."""


def write_shards(
    folder: Path,
    items: Sequence[str],
    fill: Callable[[IO[bytes], int, slice], Told],
    need: Callable[[int], float],
) -> None:
    """Writes the shards that are not there yet, each with an index of its own until `features.finish_index`.

    Args:
        folder: Where to; what a stopped attempt left there is kept.
        items: All items.
        fill: Writes a shard, given its number and its items.
        need: Bytes that the items from some number on will need, as far as can be said.

    Raises:
        ResourceError: If these do not find room.
    """
    with progress(len(items), "extract", "items") as advance:
        for shard, first in enumerate(range(0, len(items), features.SHARD_ITEMS)):
            part = slice(first, first + features.SHARD_ITEMS)
            index_path = folder / f"index-{shard:05d}.parquet"
            if not index_path.is_file():
                require_room(folder.parent, need(first))
                with base.atomic_open(folder / features.shard_name(shard)) as handle:
                    n_rows, errors = fill(handle, shard, part)
                write_table(index_path, features.index_of(items[part], shard, n_rows, errors), features.INDEX)
            advance(len(items[part]))


def finish(folder: Path, index: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, int]:
    """Writes the failures and the facts about the encoder beside the shards.

    Args:
        folder: Holds all shards.
        index: Their index.
        about: The content of `encoder.json`.

    Returns:
        The artifact's counts.
    """
    failed = index[index["status"] == "failed"]
    causes = [
        (item, *str(error).split(": ", 1)) for item, error in zip(failed["item_id"], failed["error"], strict=True)
    ]
    write_failures(folder, [failure(item, "extract", kind, why) for item, kind, why in causes])
    base.write_json(folder / "encoder.json", about)
    return {"items": len(index), "rows": int(index["n_rows"].sum()), "failed": len(failed)}
