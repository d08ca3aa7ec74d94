"""Similarities block by block, so that the full matrix is never built.

A `SimBlock` is called with two slices, of queries and of gallery entries, and returns that part of the
similarity matrix, higher meaning more alike. Everything in `ranks` reads similarities through it.

Shape legend: Q queries, G gallery entries, D embedding, V visual items, T texts; lower case: a block of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SimBlock = Callable[[slice, slice], Tensor]


def matrix_sim(sim_QG: Tensor) -> SimBlock:
    """Blocks of a matrix (Q, G) that already exists."""
    return lambda queries, gallery: sim_QG[queries, gallery]


def dot_sim(query_QD: Tensor, gallery_GD: Tensor) -> SimBlock:
    """Blocks of the dot product of two sets of embeddings (the cosine if their rows have unit length)."""
    return lambda queries, gallery: query_QD[queries] @ gallery_GD[gallery].T


def columns(sim: SimBlock, at_G: NDArray[np.int64]) -> SimBlock:
    """The similarities to some of the gallery entries alone, at ascending positions (G,)."""

    def part(queries: slice, gallery: slice) -> Tensor:
        at_g = at_G[gallery]
        sim_qg = sim(queries, slice(int(at_g[0]), int(at_g[-1]) + 1))
        return sim_qg[:, torch.from_numpy(at_g - at_g[0]).to(sim_qg.device)]

    return part


def blocks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover 0..n."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def extrema(sim: SimBlock, n_queries: int, n_gallery: int, *, block: int = 1024) -> tuple[float, float]:
    """Smallest and largest entry of the whole matrix, streamed; ValueError if one is not finite, or there is none."""
    grid = itertools.product(blocks(n_queries, block), blocks(n_gallery, block))
    ends = [value.item() for part in grid for value in torch.aminmax(sim(*part))]
    if not ends or not np.isfinite(ends).all():
        raise ValueError(
            f"cannot normalise {n_queries} x {n_gallery} similarities: there are none, or one is not finite"
        )
    return min(ends), max(ends)


def minmax(sim: SimBlock, n_queries: int, n_gallery: int, *, block: int = 1024) -> SimBlock:
    """Similarities moved to [0, 1] by the extrema of the *whole* matrix (NRCCR's code, not its eq. (13)).

    A constant matrix becomes all zeros. The ranks of one matrix do not change by this (but for rounding);
    those of a sum of two do.
    """
    low, high = extrema(sim, n_queries, n_gallery, block=block)
    scale = 1.0 / (high - low) if high > low else 0.0
    return lambda queries, gallery: (sim(queries, gallery) - low) * scale


def fused(target: SimBlock, translated: SimBlock, beta: float) -> SimBlock:
    """Fuses similarities, NRCCR eq. (13): beta * target + (1 - beta) * translated; beta = 1 is `target` bit for bit."""
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta is {beta}, not in [0, 1]")
    if beta == 1.0:
        return target
    if beta == 0.0:
        return translated
    return lambda queries, gallery: beta * target(queries, gallery) + (1.0 - beta) * translated(queries, gallery)
