"""The rivals of a query, the most similar entries of other items: among all entries, or among nearby ones.

Shape suffixes: Q queries, G gallery, C cells, D embedding, K rivals, R entries within reach, B a block.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ccr_cli.data.frames import places_of
from ccr_cli.stages.shared.embedding import taken
from ccr_cli.stages.shared.judging import sum_by_item

RIVALS = 127
"""The most rivals of a pair."""
BLOCK = 1024
LARGEST = 2**26
"""Most similarities held at once: a block has fewer queries if there are many entries."""
REACH, TOGETHER = 16_384, 256
"""Most entries that `nearby` compares with a query, and most queries at once. Their memory is allocated only once:
blocks of changing sizes would leave gigabytes of gaps in it."""
ROUNDS, SAMPLE = 4, 64
"""Rounds of k-means, and the entries per cell that it reads."""

Blocks = Iterator[tuple[Tensor, Tensor]]
Search = Callable[[Tensor, Tensor, Tensor, Tensor, Path], Blocks]
"""Takes queries (Q, D), entries (G, D), the items of both, and a folder for large files; yields blocks: rows of
queries, and the similarities (B, K) of their rivals, the most similar first."""


def exact(query_QD: Tensor, gallery_GD: Tensor, item_Q: Tensor, item_G: Tensor, folder: Path) -> Blocks:
    """Compares every query with every entry."""
    block = max(1, min(BLOCK, LARGEST // max(len(gallery_GD), 1)))
    for rows_B in torch.split(torch.arange(len(query_QD), device=query_QD.device), block):
        yield rows_B, _best(query_QD[rows_B], gallery_GD, item_Q[rows_B], item_G)


def nearby(query_QD: Tensor, gallery_GD: Tensor, item_Q: Tensor, item_G: Tensor, folder: Path) -> Blocks:
    """Compares the queries of a cell with the `REACH` entries of the cells nearest to it.

    As in FAISS's inverted file, entries and queries belong to the nearest of 4 sqrt(G) centres. Unlike there, all
    queries of a cell search the same cells, so a matrix product is enough. Both are first copied in the order of their
    cells, so that vectors in a file are read in long pieces.
    """
    centre_CD = _centres(gallery_GD)
    cell_Q, cell_G = _cells(query_QD, centre_CD), _cells(gallery_GD, centre_CD)
    (order_Q, size_QC), (order_G, size_GC) = (
        (cells.argsort(stable=True), cells.bincount(minlength=len(centre_CD))) for cells in (cell_Q, cell_G)
    )
    query_QD, gallery_GD = taken(query_QD, order_Q, folder), taken(gallery_GD, order_G, folder)
    item_Q, item_G = item_Q[order_Q], item_G[order_G]
    first_C, start, reach = size_GC.cumsum(0) - size_GC, 0, min(REACH, len(gallery_GD))
    near_RD, room = gallery_GD.new_empty(reach, gallery_GD.shape[1]), gallery_GD.new_empty(TOGETHER * reach)
    for cell, size in enumerate(size_QC.tolist()):
        if not size:
            continue
        about_C = (centre_CD @ centre_CD[cell]).argsort(descending=True, stable=True)
        about_C = about_C[: int((size_GC[about_C].cumsum(0) < reach).sum()) + 1]
        near_R = places_of(first_C[about_C], size_GC[about_C])[0][:reach]
        torch.index_select(gallery_GD, 0, near_R, out=near_RD)
        for first in range(start, start + size, TOGETHER):
            here = slice(first, min(first + TOGETHER, start + size))
            yield order_Q[here], _best(query_QD[here], near_RD, item_Q[here], item_G[near_R], room)
        start += size


SEARCHES: dict[str, Search] = {"exact": exact, "nearby": nearby}


def _best(query_BD: Tensor, gallery_GD: Tensor, item_B: Tensor, item_G: Tensor, room: Tensor | None = None) -> Tensor:
    """The greatest similarities (B, K), without those to entries of the query's own item; `room` is their buffer."""
    shape = len(query_BD), len(gallery_GD)
    sim_BG = torch.mm(query_BD, gallery_GD.T, out=None if room is None else room[: shape[0] * shape[1]].view(shape))
    sim_BG.masked_fill_(item_B[:, None] == item_G[None, :], -torch.inf)
    return sim_BG.topk(min(RIVALS, sim_BG.shape[1]), dim=1).values


def _centres(gallery_GD: Tensor) -> Tensor:
    """Centres (C, D) of cells by k-means with cosines, reproducible for the same entries."""
    count = min(len(gallery_GD), round(4 * len(gallery_GD) ** 0.5))
    order_G = torch.randperm(len(gallery_GD), generator=torch.Generator().manual_seed(0)).to(gallery_GD.device)
    some_GD = taken(gallery_GD, order_G[: SAMPLE * count])
    centre_CD = normalize(some_GD[:count], dim=1)
    for _ in range(ROUNDS):
        sum_CD = sum_by_item(some_GD, _cells(some_GD, centre_CD), count)
        centre_CD = torch.where(sum_CD.any(dim=1, keepdim=True), normalize(sum_CD, dim=1), centre_CD)
    return centre_CD


def _cells(x_ND: Tensor, centre_CD: Tensor) -> Tensor:
    """The most similar centre of each row."""
    cell_N = torch.empty(len(x_ND), dtype=torch.int64, device=x_ND.device)
    for x_BD, cell_B in zip(torch.split(x_ND, BLOCK), torch.split(cell_N, BLOCK), strict=True):
        cell_B.copy_((x_BD @ centre_CD.T).argmax(dim=1))
    return cell_N
