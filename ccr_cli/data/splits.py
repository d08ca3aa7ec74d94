"""Splits: train, val and test of the data set, and two halves of validation.

One half of the validation items (`val-select`) selects epochs and hyper-parameters; the other (`val-report`) is for
reporting. Items of one group are in one half.
"""

import hashlib

import pandas as pd

from ccr_cli.errors import ArtifactError, UsageError

SPLITS = ("train", "val", "test", "val-select", "val-report")
ALL = "all"
"""In place of a split: every item."""


def items_of(items: pd.DataFrame, split: str) -> pd.DataFrame:
    """Returns the items of a split or of `ALL`, in the data set's order; UsageError if the split is unknown."""
    if split == ALL:
        return items.reset_index(drop=True)
    refuse_unknown(split)
    chosen = items[items["split"] == split.split("-")[0]]
    if "-" in split:
        first_byte = chosen["group"].map(lambda group: hashlib.sha256(f"val half {group}".encode()).digest()[0])
        select = first_byte.astype(int) % 2 == 0
        chosen = chosen[select if split == "val-select" else ~select]
    return chosen.reset_index(drop=True)


def refuse_unknown(split: str, *others: str) -> None:
    """Refuses a split that is neither in `SPLITS` nor in `others`."""
    if split not in (*others, *SPLITS):
        raise UsageError(f"unknown split {split!r}", hint=f"splits: {', '.join((*others, *SPLITS))}")


def refuse_empty(items: pd.DataFrame, split: str, data: str, hint: str | None = None) -> None:
    """Refuses a split without items; `hint` says what to type instead."""
    if items.empty:
        raise ArtifactError(f"{data} has no {split} items", hint)
