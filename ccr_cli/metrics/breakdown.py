"""Figures of groups of queries: by length, and by the quality of their translation.

Borders depend on the queries alone, never on their ranks: two runs with the same queries have the same groups.

Shape legend: Q queries.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccr_cli.metrics.ranks import KS, FloatArray
from ccr_cli.metrics.scripts import has_spaces

GROUPS = 5
"""Maximum number of groups of a breakdown."""


def lengths(texts: Sequence[str], lang: str) -> tuple[FloatArray, str]:
    """Length of each query and its unit: words, or characters in languages without spaces between words.

    >>> lengths(["a red dog"], "en"), lengths(["两只 狗"], "zh")
    ((array([3.]), 'words'), (array([3.]), 'characters'))
    """
    words = [text.split() for text in texts]
    if has_spaces(lang):
        return np.array([len(query) for query in words], dtype=np.float64), "words"
    return np.array([len("".join(query)) for query in words], dtype=np.float64), "characters"


def split(value_Q: FloatArray, groups: int = GROUPS) -> list[NDArray[np.bool_]]:
    """Splits queries into about equally large groups of rising value; equal values stay together, nan is left out."""
    known_Q = ~np.isnan(value_Q)
    if not known_Q.any():
        return []
    inner = np.arange(1, groups) / groups
    edges = np.unique(np.quantile(value_Q[known_Q], inner, method="lower"))
    code_Q = np.where(known_Q, np.searchsorted(edges, value_Q, side="left"), -1)
    return [code_Q == code for code in np.unique(code_Q[known_Q])]


def figures(rank_Q: FloatArray, ap_Q: FloatArray, member_Q: NDArray[np.bool_]) -> dict[str, Any]:
    """The figures of a group: number and share of its queries, R@K, MedR and mAP."""
    rank, ap = rank_Q[member_Q], ap_Q[member_Q]
    out: dict[str, Any] = {"queries": len(rank), "share": len(rank) / max(len(rank_Q), 1)}
    out |= {f"R@{k}": 100 * float((rank <= k).mean()) if len(rank) else None for k in KS}
    return out | {
        "MedR": float(np.median(rank)) if len(rank) else None,
        "mAP": 100 * float(ap.mean()) if len(rank) else None,
    }


def by_value(value_Q: FloatArray, rank_Q: FloatArray, ap_Q: FloatArray, groups: int = GROUPS) -> list[dict[str, Any]]:
    """Figures of at most `groups` groups by rising value (nan: unknown), with each one's lowest and highest value."""
    if not len(value_Q) == len(rank_Q) == len(ap_Q):
        raise ValueError(f"{len(value_Q)} values, {len(rank_Q)} ranks, {len(ap_Q)} precisions")
    return [
        {"low": float(value_Q[m].min()), "high": float(value_Q[m].max()), **figures(rank_Q, ap_Q, m)}
        for m in split(value_Q, groups)
    ]
