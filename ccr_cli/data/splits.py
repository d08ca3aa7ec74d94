"""Splits: train, val and test of the data set, and two halves of validation.

One half of the validation items (`val-select`) selects epochs and hyper-parameters; the other (`val-report`) is for
reporting. Items of one group are in one half.
"""

from __future__ import annotations

import hashlib

import pandas as pd

from ccr_cli.errors import UsageError

SPLITS = ("train", "val", "test", "val-select", "val-report")


def items_of(items: pd.DataFrame, split: str) -> pd.DataFrame:
    """Returns the items of a split, in the data set's order.

    Raises:
        UsageError: If the split is unknown.
    """
    refuse_unknown(split)
    chosen = items[items["split"] == split.split("-")[0]]
    if "-" in split:
        select = chosen["group"].map(_selects).astype(bool)
        chosen = chosen[select if split == "val-select" else ~select]
    return chosen.reset_index(drop=True)


def refuse_unknown(split: str) -> None:
    """Refuses an unknown split.

    Raises:
        UsageError: If it is not in `SPLITS`.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}", hint=f"splits: {', '.join(SPLITS)}")


def _selects(group: str) -> bool:
    return hashlib.sha256(f"val half {group}".encode()).digest()[0] % 2 == 0
