"""Measure evaluation at scale: against other libraries, and time and memory up to a million items.

Each measurement is a process of its own with its own peak memory (`ru_maxrss`), and starts from the same unit vectors
in float32. It ends with R@1, R@5, R@10 and mAP of both directions, which must agree.

- `rivals`, at 5,000 items with 25,000 captions: `ours`; `loop`, the full matrix and one argsort per query, as in the
  field's published code; `torchmetrics` (RetrievalHitRate at 1, 5, 10 and RetrievalMAP) and `ranx` (hit_rate@1, @5, @10
  and map, on arrays sorted by numpy, its fastest input), both with a thousand queries at a time, because all at once
  exceed the memory. They take turns in each round, and a ratio is taken within a round (theirs / ours: above 1, ours is
  faster). Both packages are optional: `pip install --target DIR torchmetrics ranx`, then `PYTHONPATH=DIR`.
- `growth`: ours with as many items as captions.
- `slice`: 2,000 of a million queries against a million items, one direction. The whole was not measured. With
  `--device cuda` it is all that is measured, with the gallery on the device.

CPU seconds hardly depend on what else runs on the machine; wall-clock seconds do.

    OMP_NUM_THREADS=1 python benchmarks/evaluate.py --out benchmarks/results/evaluate.json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rank_metrics import argsort_loop

from ccr_cli.metrics.ranks import Positives, Ranks, dot_sim, rank_both, rank_queries, summarise

KS = (1, 5, 10)
PART = 1000
"""Queries that a rival is given at once."""
PACKAGES = ("torchmetrics", "ranx")
Figures = dict[str, float]
Array = Any


def vectors(items: int, captions: int, dim: int) -> tuple[Array, Array]:
    """Unit vectors of items, and of captions that lie about them."""
    rng = np.random.default_rng(0)
    visual_VD = rng.standard_normal((items, dim), dtype=np.float32)
    text_TD = np.repeat(visual_VD, captions, axis=0)
    text_TD += 4.0 * rng.standard_normal(text_TD.shape, dtype=np.float32)
    for each in (visual_VD, text_TD):
        each /= np.linalg.norm(each, axis=1, keepdims=True)
    return visual_VD, text_TD


def ours(visual_VD: Array, text_TD: Array, captions: int) -> Figures:
    """Blocks, counted in both directions."""
    right = Positives.from_ids(np.repeat(np.arange(len(visual_VD)), captions).tolist(), range(len(visual_VD)))
    sim = dot_sim(torch.from_numpy(visual_VD), torch.from_numpy(text_TD))
    both = rank_both(sim, len(visual_VD), len(text_TD), right)
    sides = {side: summarise(ranks) for side, ranks in zip(("t2v", "v2t"), both, strict=True)}
    return {f"{side}.{k}": sides[side][k] for side in sides for k in (*(f"R@{k}" for k in KS), "mAP")}


def by_direction(visual_VD: Array, text_TD: Array, captions: int) -> dict[str, tuple[Array, Array, Array]]:
    """Queries, gallery and right answers (Q, M) of both directions."""
    right_T1 = np.repeat(np.arange(len(visual_VD)), captions)[:, None]
    right_VM = np.arange(len(text_TD)).reshape(len(visual_VD), captions)
    return {"t2v": (text_TD, visual_VD, right_T1), "v2t": (visual_VD, text_TD, right_VM)}


def loop(visual_VD: Array, text_TD: Array, captions: int) -> Figures:
    """The full matrix, and one argsort a query."""
    sim_VT = visual_VD @ text_TD.T
    out: Figures = {}
    for side, (_, _, right_QM) in by_direction(visual_VD, text_TD, captions).items():
        rank_Q, ap_Q = argsort_loop(sim_VT if side == "v2t" else sim_VT.T, right_QM)
        out |= {f"{side}.R@{k}": 100 * float((rank_Q <= k).mean()) for k in KS}
        out[f"{side}.mAP"] = 100 * float(ap_Q.mean())
    return out


def in_parts(each: Callable[[Array, Array], dict[str, Array]]) -> Callable[[Array, Array, int], Figures]:
    """A rival that takes similarities (Q, G) with the right answers (Q, M), and gives figures in 0..1."""

    def run(visual_VD: Array, text_TD: Array, captions: int) -> Figures:
        out: Figures = {}
        for side, (query_QD, gallery_GD, right_QM) in by_direction(visual_VD, text_TD, captions).items():
            figures: dict[str, list[float]] = {}
            for start in range(0, len(query_QD), PART):
                part = slice(start, start + PART)
                for name, value in each(query_QD[part] @ gallery_GD.T, right_QM[part]).items():
                    figures.setdefault(name, []).append(100 * float(value) * len(query_QD[part]) / len(query_QD))
            out |= {f"{side}.{name}": sum(parts) for name, parts in figures.items()}
        return out

    return run


def torchmetrics(sim_QG: Array, right_QM: Array) -> dict[str, Array]:
    """Its modules, each fed with all pairs."""
    theirs = importlib.import_module("torchmetrics.retrieval")
    target_QG = torch.zeros(sim_QG.shape, dtype=torch.bool)
    target_QG.scatter_(1, torch.from_numpy(right_QM), True)
    index_N = torch.arange(len(sim_QG)).repeat_interleave(sim_QG.shape[1])
    modules = {**{f"R@{k}": theirs.RetrievalHitRate(top_k=k) for k in KS}, "mAP": theirs.RetrievalMAP()}
    pairs = torch.from_numpy(sim_QG).flatten(), target_QG.flatten()
    return {name: module(*pairs, indexes=index_N) for name, module in modules.items()}


def ranx(sim_QG: Array, right_QM: Array) -> dict[str, Array]:
    """Arrays of (id, score), sorted by score."""
    evaluate = importlib.import_module("ranx").evaluate
    order_QG = np.argsort(-sim_QG, axis=1)
    run_QG2 = np.stack([order_QG, np.take_along_axis(sim_QG, order_QG, axis=1)], axis=2).astype(np.float64)
    right_QM2 = np.stack([right_QM, np.ones_like(right_QM)], axis=2).astype(np.float64)
    names = {**{f"R@{k}": f"hit_rate@{k}" for k in KS}, "mAP": "map"}
    figures = evaluate(right_QM2, run_QG2, list(names.values()), threads=1)
    return {name: figures[its] for name, its in names.items()}


RIVALS: dict[str, Callable[[Array, Array, int], Figures]] = {
    "ours": ours,
    "loop": loop,
    "torchmetrics": in_parts(torchmetrics),
    "ranx": in_parts(ranx),
}


def one_slice(items: int, dim: int, queries: int, dtype: str, device: str) -> Ranks:
    """Some of the queries of a large gallery whose vectors are held in some precision; ranked in float32."""
    generator = torch.Generator(device).manual_seed(0)
    gallery_GD = torch.empty(items, dim, dtype=getattr(torch, dtype), device=device)
    for part in torch.split(gallery_GD, 10_000):
        rows = torch.randn(len(part), dim, generator=generator, device=device)
        part.copy_(rows / rows.norm(dim=1, keepdim=True))
    query_QD = gallery_GD[:queries].float() + 0.25 * torch.randn(queries, dim, generator=generator, device=device)
    STARTED.update(clocks())
    right = Positives.from_lists([[q] for q in range(queries)])
    return rank_queries(lambda q, g: query_QD[q] @ gallery_GD[g].float().T, queries, items, right)


STARTED: dict[str, float] = {}


def clocks() -> dict[str, float]:
    """Seconds so far, and peak memory in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"wall_s": time.perf_counter(), "cpu_s": time.process_time(), "peak_mib": peak}


def child(options: argparse.Namespace) -> None:
    """One measurement: prints its figures and what it took."""
    torch.set_num_threads(1)
    if options.child == "slice":
        ranks = one_slice(options.items, options.dim, options.queries, options.dtype, options.device)
        figures: Figures = {"R@1": summarise(ranks)["R@1"]}
    else:
        rival = RIVALS[options.child]
        rival(*vectors(40, options.captions, 8), options.captions)  # imported and compiled
        both = vectors(options.items, options.captions, options.dim)
        STARTED.update(clocks())
        figures = rival(*both, options.captions)
    end = clocks()
    spent = {key: round(end[key] - STARTED[key], 3) for key in ("wall_s", "cpu_s")}
    spent |= {"peak_mib": round(end["peak_mib"]), "peak_before_mib": round(STARTED["peak_mib"])}
    print(json.dumps({"figures": figures, **spent}))


def measure(name: str, **options: object) -> dict[str, Any]:
    """Runs a measurement in a process of its own."""
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = [sys.executable, str(Path(__file__).resolve()), "--child", name, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {options}: {done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(name, options, {k: v for k, v in figures.items() if k != "figures"}, file=sys.stderr, flush=True)
    return figures


def spread(values: list[float]) -> dict[str, float]:
    """Least, middle and greatest."""
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


def rivals(items: int, captions: int, dim: int, rounds: int, slow_rounds: int) -> dict[str, Any]:
    """All that are there, in turns; the packages of others in fewer rounds."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    runs: dict[str, list[dict[str, Any]]] = {}
    for n in range(rounds):
        for name in RIVALS:
            if name not in missing and (name not in PACKAGES or n < slow_rounds):
                runs.setdefault(name, []).append(measure(name, items=items, captions=captions, dim=dim))
    mine = runs["ours"][0]["figures"]
    for name, each in runs.items():
        apart = {k: v for k, v in each[0]["figures"].items() if abs(v - mine[k]) > 1e-3}
        if apart:
            raise SystemExit(f"{name} disagrees: {apart}, ours {mine}")
    return {
        "items": items,
        "captions": items * captions,
        "dim": dim,
        "not_installed": missing,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES if name not in missing},
        "figures": {key: round(value, 4) for key, value in mine.items()},
        "took": {
            name: {
                "rounds": len(each),
                **{key: spread([run[key] for run in each]) for key in ("wall_s", "cpu_s", "peak_mib")},
                "peak_before_mib": each[0]["peak_before_mib"],
                "times_ours": {
                    key: spread([run[key] / own[key] for run, own in zip(each, runs["ours"], strict=False)])
                    for key in ("wall_s", "cpu_s")
                },
            }
            for name, each in runs.items()
        },
    }


def growth(sizes: list[int], dim: int) -> list[dict[str, Any]]:
    """Ours at several sizes, with the seconds that a billion pairs take."""
    out = []
    for size in sizes:
        figures = measure("ours", items=size, captions=1, dim=dim)
        del figures["figures"]
        out.append({"items": size, "captions": size, "dim": dim, **figures, "cpu_s_per_1e9_pairs": 0.0})
        out[-1]["cpu_s_per_1e9_pairs"] = round(figures["cpu_s"] * 1e9 / size**2, 3)
    return out


def slices(items: int, dim: int, queries: int, device: str) -> list[dict[str, Any]]:
    """A slice of a million, with the gallery in two precisions, and what all queries would then take."""
    out = []
    for dtype, width in (("float32", 4), ("float16", 2)):
        figures = measure("slice", items=items, dim=dim, queries=queries, dtype=dtype, device=device)
        whole = round(figures["cpu_s"] * items / queries / 3600, 2)
        gallery = round(items * dim * width / 2**20)
        row = {"items": items, "queries_measured": queries, "of_queries": items, "dim": dim, "gallery_in": dtype}
        out.append({**row, "gallery_mib": gallery, **figures, "cpu_hours_of_all_queries_extrapolated": whole})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=2, help="of torchmetrics and ranx")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 30_000, 100_000])
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--captions", type=int, default=5)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    on_cpu: dict[str, Any] = {}
    if options.device == "cpu":
        on_cpu["rivals"] = rivals(options.items, options.captions, options.dim, options.rounds, options.slow_rounds)
        on_cpu["growth"] = growth(options.sizes, 256)
    result = {
        "what": "from unit vectors to R@1, R@5, R@10 and mAP of both directions; one thread; a process each",
        **on_cpu,
        "slice": slices(options.large, 256, options.queries, options.device),
        "machine": {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "cores": os.cpu_count(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
