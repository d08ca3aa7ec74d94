"""Which gallery entries answer which query, as ragged arrays.

Shape legend: Q queries, G gallery entries, P positives of all queries together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Positives:
    """The right answers of every query: those of query i are `index[offsets[i]:offsets[i + 1]]`.

    Raises:
        ValueError: If the offsets do not describe `index`, or a query names an answer twice.
    """

    index: IntArray
    """(P,) positions in the gallery, ascending within a query"""
    offsets: IntArray
    """(Q + 1,) where each query's answers begin; the last is P"""

    def __post_init__(self) -> None:
        index, offsets = np.asarray(self.index, dtype=np.int64), np.asarray(self.offsets, dtype=np.int64)
        if index.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError("positives need a flat index and a flat list of offsets, one more than queries")
        if offsets[0] != 0 or offsets[-1] != len(index) or (np.diff(offsets) < 0).any():
            raise ValueError("the offsets of positives must rise from 0 to the number of positives")
        object.__setattr__(self, "offsets", offsets)
        index = index[np.lexsort((index, self.row))]
        if ((np.diff(index) == 0) & (np.diff(self.row) == 0)).any():
            raise ValueError("a query names the same positive twice")
        object.__setattr__(self, "index", index)

    @property
    def counts(self) -> IntArray:
        """(Q,) number of positives of each query."""
        return np.diff(self.offsets)

    @property
    def row(self) -> IntArray:
        """(P,) the query of each positive."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    @classmethod
    def of_pairs(cls, row: IntArray, index: IntArray, n_queries: int) -> Positives:
        """From the query and the gallery position of each positive (P,), the queries ascending."""
        return cls(index, np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_queries))]))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> Positives:
        """One list of gallery positions a query.

        >>> Positives.from_lists([[0], [2, 1], []]).offsets.tolist()
        [0, 1, 3, 3]
        """
        flat = [position for positions in lists for position in positions]
        return cls(np.array(flat, dtype=np.int64), np.cumsum([0, *map(len, lists)]))

    @classmethod
    def from_ids(cls, query_ids: Sequence[object], gallery_ids: Sequence[object]) -> Positives:
        """A gallery entry answers a query if their ids are equal (the item's id; or a class label).

        >>> Positives.from_ids(["a", "b"], ["b", "a", "b"]).index.tolist()
        [1, 0, 2]
        """
        where: dict[object, list[int]] = {}
        for position, key in enumerate(gallery_ids):
            where.setdefault(key, []).append(position)
        return cls.from_lists([where.get(key, []) for key in query_ids])

    def where(self, kept: NDArray[np.bool_]) -> Positives:
        """Some of the positives (P,) of the same queries."""
        return Positives.of_pairs(self.row[kept], self.index[kept], len(self))

    def reversed(self, n_gallery: int) -> Positives:
        """The same pairs in the other direction: for each of the `n_gallery` entries, the queries it answers."""
        self.check(n_gallery)
        order = np.argsort(self.index, kind="stable")
        return Positives.of_pairs(self.index[order], self.row[order], n_gallery)

    def check(self, n_gallery: int) -> None:
        """Raises ValueError unless every positive lies in a gallery of this size."""
        if len(self.index) and (self.index.min() < 0 or self.index.max() >= n_gallery):
            raise ValueError(f"a positive lies outside the gallery of {n_gallery} entries")
