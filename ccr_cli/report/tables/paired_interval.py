"""Whether two methods differ on the same queries: the paired interval over items that `ccr compare` gives too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from ccr_cli.errors import ArtifactError
from ccr_cli.metrics import paired
from ccr_cli.metrics.bootstrap import DIRECTIONS, Asked, Gallery

Rankings = Mapping[tuple[str, str], Callable[[], pd.DataFrame]]
"""By run and signature, the rank of every query of a result."""
NEEDED = ("direction", "query_id", "item_id", "fold", "rank", "average_precision")
"""What must be known of every query."""
SAME = 0.01
"""Up to so much a difference of ranks is the one that was said."""


def galleries(ranks: pd.DataFrame) -> tuple[list[Gallery], list[list[str]]]:
    """The queries of each fold of a result, in the order of their ids, which come with them.

    Args:
        ranks: Of one result, columns `NEEDED`.
    """
    found, ids = [], []
    for _, fold in ranks.sort_values(["fold", "direction", "query_id"]).groupby("fold", sort=True):
        _, code = np.unique(fold["item_id"].to_numpy(dtype=str), return_inverse=True)
        sides = [_asked(fold[at_Q], code[at_Q]) for at_Q in ((fold["direction"] == d).to_numpy() for d in DIRECTIONS)]
        found.append(Gallery(*sides))
        ids.append([f"{d}:{q}" for d, q in zip(fold["direction"], fold["query_id"], strict=True)])
    return found, ids


def _asked(rows: pd.DataFrame, code_Q: np.ndarray) -> Asked:
    return Asked(code_Q, rows["rank"].to_numpy(), rows["average_precision"].to_numpy())


def overlap(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> bool:
    """Whether two sides' own intervals, each the mean of its rows, meet: what is left where queries cannot be paired.

    Args:
        first: Rows of a results frame.
        second: The others.
        figure: `SumR` or `mAP`.

    Returns:
        False, too, where a row has no interval of that figure.
    """
    if not all({"low", "high", "figure"} <= set(side) for side in (first, second)):
        return False
    ends = [side.loc[side["figure"] == figure, ["low", "high"]].mean(skipna=False) for side in (first, second)]
    return bool(ends[0]["low"] <= ends[1]["high"] and ends[1]["low"] <= ends[0]["high"])


class Answers:
    """What runs answered, query by query; each result is read once."""

    def __init__(self, rankings: Rankings | None = None) -> None:
        """Args: where the ranks are; without any nothing can be paired."""
        self._rankings = rankings or {}
        self._known: dict[tuple[str, str], tuple[list[Gallery], list[list[str]]] | None] = {}

    def interval(
        self, first: pd.DataFrame, second: pd.DataFrame, figure: str, difference: float
    ) -> tuple[float, float] | None:
        """The 95% interval of a difference, both weighted by the same resamples of the items.

        Several runs of a side count as their mean.

        Args:
            first: Rows of a results frame, what the others are held against.
            second: Rows of the others.
            figure: `SumR` or `mAP`.
            difference: What is said of the second minus the first.

        Returns:
            None where ranks are not known, queries are not the same, or ranks do not give that difference.
        """
        keys = [sorted(set(zip(side["run_id"], side["signature"], strict=True))) for side in (first, second)]
        read = [[self._of(key) for key in side] for side in keys]
        systems = [[each[0] for each in side if each] for side in read]
        asked = [each[1] for side in read for each in side if each]
        if not all(systems) or len(asked) < sum(map(len, read)) or any(ids != asked[0] for ids in asked):
            return None
        found = paired.interval(systems[0], systems[1], figure)
        return (found.low, found.high) if abs(found.estimate - difference) < SAME else None

    def _of(self, key: tuple[str, str]) -> tuple[list[Gallery], list[list[str]]] | None:
        if key not in self._known:
            self._known[key] = self._read(key)
        return self._known[key]

    def _read(self, key: tuple[str, str]) -> tuple[list[Gallery], list[list[str]]] | None:
        if key not in self._rankings:
            return None
        try:
            ranks = self._rankings[key]()
        except ArtifactError:  # of an earlier ccr
            return None
        return galleries(ranks) if set(NEEDED) <= set(ranks) and len(ranks) else None
