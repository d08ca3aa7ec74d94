"""Splits: train, val and test as the data set says, and validation halved by item.

One half of the validation items (`val-select`) chooses epochs and hyper-parameters; the other (`val-report`)
is for reporting. Items of one group fall into one half.
"""

from __future__ import annotations

import hashlib

import pandas as pd

from ccr_cli.errors import UsageError

SPLITS = ("train", "val", "test", "val-select", "val-report")


def items_of(items: pd.DataFrame, split: str) -> pd.DataFrame:
    """Returns the items of a split, in the data set's order.

    Raises:
        UsageError: If there is no such split.
    """
    refuse_unknown(split)
    chosen = items[items["split"] == split.split("-")[0]]
    if "-" in split:
        select = chosen["group"].map(_selects).astype(bool)
        chosen = chosen[select if split == "val-select" else ~select]
    return chosen.reset_index(drop=True)


def refuse_unknown(split: str) -> None:
    """Refuses the name of a split that there is not.

    Raises:
        UsageError: If it is none of `SPLITS`.
    """
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", hint=f"splits: {', '.join(SPLITS)}")


def _selects(group: str) -> bool:
    return hashlib.sha256(f"val half {group}".encode()).digest()[0] % 2 == 0
