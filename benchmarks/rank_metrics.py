"""Compare streaming and counting ranks with a full argsort at COCO 5K's size: 5,000 items, 25,000 captions.

Measured: the rank of the best positive and the average precision of every query, in both directions.

- `given`: the similarity matrix exists. Ours reads it through `matrix_sim`.
- `embeddings`: only the embeddings exist. Ours streams `dot_sim`; the others build the matrix first.

Compared with `argsort_loop` (one argsort per query, as in the field's published code), `argsort_matrix` (one call for
the whole matrix, the obvious numpy code), and `count` (numpy counting on the full matrix, ranks only, no average
precision and no tie rule: the strongest short rival). All get the same float32 numbers, and their ranks are checked
against ours. Variants take turns in each run, and a ratio is taken within a run (theirs / ours: above 1, ours is
faster), of wall-clock and of CPU seconds; the latter hardly depend on other load.

One thread by default, because numpy sorts with one. With several threads on busy cores torch waits at every barrier and
ours is far slower than with one: set OMP_NUM_THREADS=1 there.

    OMP_NUM_THREADS=1 python benchmarks/rank_metrics.py --output benchmarks/results/rank_metrics.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ccr_cli.metrics.ranks import Positives, Ranks, SimBlock, dot_sim, matrix_sim, rank_both

Array = NDArray[np.float32]
Index = NDArray[np.int64]
T = TypeVar("T")
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def argsort_loop(sim_QG: Array, positives_QM: Index) -> Pair:
    """One argsort a query; the place of each positive in it."""
    rank_Q, ap_Q = np.empty(len(sim_QG)), np.empty(len(sim_QG))
    k_M = np.arange(1, positives_QM.shape[1] + 1)
    for q, (sim_G, right_M) in enumerate(zip(sim_QG, positives_QM, strict=True)):
        order_G = np.argsort(sim_G)[::-1]
        place_M = np.flatnonzero(np.isin(order_G, right_M)) + 1
        rank_Q[q], ap_Q[q] = place_M[0], (k_M / place_M).mean()
    return rank_Q, ap_Q


def argsort_matrix(sim_QG: Array, positives_QM: Index) -> Pair:
    """One argsort for all; the inverse permutation tells every positive's place."""
    order_QG = np.argsort(-sim_QG, axis=1)
    place_QG = np.empty(order_QG.shape, dtype=np.int32)
    np.put_along_axis(place_QG, order_QG, np.arange(1, sim_QG.shape[1] + 1, dtype=np.int32)[None], axis=1)
    place_QM = np.sort(np.take_along_axis(place_QG, positives_QM, axis=1), axis=1)
    return place_QM[:, 0].astype(np.float64), (np.arange(1, place_QM.shape[1] + 1) / place_QM).mean(axis=1)


def count(sim_QG: Array, positives_QM: Index) -> Pair:
    """Number of entries above the best positive, plus one."""
    best_Q1 = np.take_along_axis(sim_QG, positives_QM, axis=1).max(axis=1, keepdims=True)
    return 1.0 + np.count_nonzero(sim_QG > best_Q1, axis=1), np.full(len(sim_QG), np.nan)


RIVALS: dict[str, Callable[[Array, Index], Pair]] = {
    "argsort_loop": argsort_loop,
    "argsort_matrix": argsort_matrix,
    "count": count,
}


def both_ways(rival: Callable[[Array, Index], Pair], sim_VT: Array, text_VM: Index, visual_T1: Index) -> list[Pair]:
    """Text to visual and visual to text by one of the rivals."""
    return [rival(np.ascontiguousarray(sim_VT.T), visual_T1), rival(sim_VT, text_VM)]


def check(ours: tuple[Ranks, Ranks], theirs: list[Pair]) -> None:
    """Their ranks lie within our bounds (they break ties by memory order); average precision likewise."""
    for mine, (rank_Q, ap_Q) in zip(ours, theirs, strict=True):
        if not ((mine.rank("optimistic") <= rank_Q) & (rank_Q <= mine.rank("pessimistic"))).all():
            raise SystemExit("the ranks disagree")
        low, high = mine.ap("pessimistic") - 1e-9, mine.ap("optimistic") + 1e-9
        if not (np.isnan(ap_Q) | ((low <= ap_Q) & (ap_Q <= high))).all():
            raise SystemExit("the average precisions disagree")


def spread(values: list[float]) -> dict[str, float]:
    """Least, middle and greatest of several runs."""
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--captions", type=int, default=5)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of torch; for numpy set OMP_NUM_THREADS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    rng = np.random.default_rng(args.seed)
    n_texts = args.items * args.captions
    visual_VD = rng.normal(size=(args.items, args.dim)).astype(np.float32)
    text_TD = np.repeat(visual_VD, args.captions, axis=0) + 4.0 * rng.normal(size=(n_texts, args.dim))
    text_TD = text_TD.astype(np.float32)
    for embedding in (visual_VD, text_TD):
        embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    visual_T1 = np.repeat(np.arange(args.items), args.captions)[:, None]
    text_VM = np.arange(n_texts).reshape(args.items, args.captions)
    visual_of_text = Positives.from_lists(visual_T1.tolist())
    sim_VT = np.asarray(visual_VD @ text_TD.T, dtype=np.float32)

    def ours(sim: SimBlock) -> tuple[Ranks, Ranks]:
        return rank_both(sim, args.items, n_texts, visual_of_text)

    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    seconds: dict[str, dict[str, dict[str, list[float]]]] = {clock: {"given": {}, "embeddings": {}} for clock in clocks}

    def timed(case: str, name: str, function: Callable[[], T]) -> T:
        start = {clock: now() for clock, now in clocks.items()}
        result = function()
        for clock, now in clocks.items():
            seconds[clock][case].setdefault(name, []).append(now() - start[clock])
        return result

    given_sim = matrix_sim(torch.from_numpy(sim_VT))
    streamed_sim = dot_sim(torch.from_numpy(visual_VD), torch.from_numpy(text_TD))
    ours(given_sim)  # threads and allocator warmed up
    for _ in range(args.runs):
        mine = timed("given", "ours", lambda: ours(given_sim))
        timed("embeddings", "ours", lambda: ours(streamed_sim))
        for name, rival in RIVALS.items():
            check(mine, timed("given", name, lambda: both_ways(rival, sim_VT, text_VM, visual_T1)))  # noqa: B023
        build = timed("embeddings", "matrix alone", lambda: visual_VD @ text_TD.T)
        del build
        for spent in seconds.values():
            for name in RIVALS:  # theirs = building the matrix, then the same as above
                total = spent["embeddings"]["matrix alone"][-1] + spent["given"][name][-1]
                spent["embeddings"].setdefault(name, []).append(total)

    def ratios(by_name: dict[str, list[float]]) -> dict[str, dict[str, float]]:
        return {
            name: spread([theirs / mine for theirs, mine in zip(runs, by_name["ours"], strict=True)])
            for name, runs in by_name.items()
            if name not in ("ours", "matrix alone")
        }

    result = {
        "what": "rank of the best positive and AP, both directions; ratio = theirs / ours within a run",
        "items": args.items,
        "captions": n_texts,
        "dim": args.dim,
        "runs": args.runs,
        "seed": args.seed,
        "ratios": {
            clock: {case: ratios(by_name) for case, by_name in spent.items()} for clock, spent in seconds.items()
        },
        "seconds": {
            clock: {case: {name: spread(runs) for name, runs in by_name.items()} for case, by_name in spent.items()}
            for clock, spent in seconds.items()
        },
        "machine": {
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
