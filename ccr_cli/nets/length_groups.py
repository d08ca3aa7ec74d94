"""Groups of texts of similar length, to be padded together: as little computation as possible is wasted on padding.

Shape suffixes: B texts, K distinct lengths.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

OVERHEAD_CPU = 24
"""Cost of another group, in tokens: 17 in three layers of 768 with 30,000 pieces, more with a larger table."""
OVERHEAD_CUDA = 4096
"""The cost on a GPU, estimated: twelve layers are a thousand kernels, forward and back, 10 ms in which such a device
computes some thousand tokens. So it makes few groups."""

Ints = npt.NDArray[np.int64]


def groups(lengths_B: Ints, overhead: int) -> list[Ints]:
    """Splits texts by length at the least cost: padded tokens, and `overhead` per group.

    The best groups end where a length ends; a dynamic programme over the distinct lengths finds them.

    Args:
        lengths_B: Tokens of each text.
        overhead: Cost of a group, in tokens.

    Returns:
        Numbers of the texts of each group, by length; texts of equal length keep their order.
    """
    if not len(lengths_B):
        return []
    order_B = np.argsort(lengths_B, kind="stable")
    length_K, count_K = np.unique(lengths_B, return_counts=True)
    before = np.concatenate([[0], np.cumsum(count_K)])
    least = np.zeros(len(length_K) + 1)
    cut = np.zeros(len(length_K) + 1, dtype=np.int64)
    for end in range(1, len(least)):
        cost = least[:end] + (before[end] - before[:end]) * length_K[end - 1] + overhead
        cut[end] = np.argmin(cost)
        least[end] = cost[cut[end]]
    parts, end = [], len(length_K)
    while end:
        parts.append(order_B[before[cut[end]] : before[end]])
        end = int(cut[end])
    return parts[::-1]
