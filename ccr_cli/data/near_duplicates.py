"""Near-duplicate pictures: 64-bit difference hashes, and the groups of those that differ in few bits.

Shape suffixes: N pictures, U different hashes, B bits of a hash, E edges.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ccr_cli.artifacts.dataset import media_path
from ccr_cli.console import progress
from ccr_cli.data.pictures import upright_rgb
from ccr_cli.data.video import MAX_PIXELS

Labels = npt.NDArray[np.int64]
NEAR = 4
"""Most bits in which the hashes of near-duplicates differ."""
_PAIRS = 2**22
"""Number of pairs compared at a time."""


def difference_hash(picture: Image.Image) -> int:
    """Returns the 64-bit dHash: whether each of 8 x 8 cells of the grey picture is darker than its right neighbour."""
    grey = upright_rgb(picture).convert("L").resize((9, 8), Image.Resampling.BILINEAR)
    level = np.asarray(grey, dtype=np.int16)
    return int.from_bytes(np.packbits(level[:, 1:] > level[:, :-1]).tobytes(), "big")


def read_hashes(root: Path, media: Sequence[str | None]) -> list[int | None]:
    """Hashes pictures below a folder; None for one that is missing or unreadable. Shows progress."""

    def read(name: str | None) -> int | None:
        try:
            path = media_path(root, name)
            if path is None or not path.is_file():
                return None
            with Image.open(path) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return None
                picture.draft("RGB", (128, 128))
                return difference_hash(picture)
        except Exception:  # a damaged file can make a decoder raise anything; extract reports it
            return None

    hashes = []
    with progress(len(media), "compare pictures", "pictures") as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
        for value in pool.map(read, media):
            hashes.append(value)
            advance()
    return hashes


def near_groups(hash_N: npt.NDArray[np.uint64]) -> Labels:
    """Returns the group of each hash, (N,): hashes that differ in at most `NEAR` bits share one.

    If the bits are cut into `NEAR` + 1 parts, two such hashes agree in at least one, so only hashes that agree in a
    part are compared (Manku et al., "Detecting Near-Duplicates for Web Crawling", WWW 2007). Every part gets some of
    the bits that vary most, so that no part is equal in most pictures.
    """
    hash_U, place_N = np.unique(hash_N, return_inverse=True)
    bit_UB = np.unpackbits(hash_U.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    telling_B = np.argsort(np.abs(bit_UB.mean(axis=0) - 0.5), kind="stable")
    links, number = [(np.arange(0), np.arange(0))], 0
    for part in range(NEAR + 1):
        chosen = telling_B[part :: NEAR + 1]
        key_U = bit_UB[:, chosen].astype(np.int64) @ (1 << np.arange(len(chosen)))
        order_U = np.argsort(key_U, kind="stable")
        for alike in np.split(order_U, np.flatnonzero(np.diff(key_U[order_U])) + 1):
            step = max(1, _PAIRS // len(alike))
            for start in range(0, len(alike) - 1, step):
                some, others = alike[start : start + step], alike[start:]
                differing = np.bitwise_count(hash_U[some, None] ^ hash_U[None, others])
                row_E, column_E = np.nonzero(differing <= NEAR)
                links.append((some[row_E], others[column_E]))
                number += len(row_E)
                if number > _PAIRS:  # one link per hash gives the same groups
                    number = len(hash_U)
                    links = [(np.arange(number), first_of_group(linked(number, links)))]
    return linked(len(hash_U), links)[place_N]


def linked(nodes: int, links: Sequence[tuple[Labels, Labels]]) -> Labels:
    """Returns the connected component of each node, given both ends (E,) of links between nodes."""
    one_E, other_E = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = coo_array((np.ones(len(one_E), dtype=bool), (one_E, other_E)), shape=(nodes, nodes))
    _, group = connected_components(graph, directed=False)
    return np.asarray(group, dtype=np.int64)


def first_of_group(group_N: Labels) -> Labels:
    """Returns the first member of the group of each item."""
    _, first, place_N = np.unique(group_N, return_index=True, return_inverse=True)
    return np.asarray(first[place_N])
