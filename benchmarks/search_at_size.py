"""Measure approximate search: recall, latency, bytes, build time and memory, beside exact search of the same vectors.

The vectors are synthetic, unit length, of 512 dimensions, and clustered like CLIP's: a common direction (two pictures
have a cosine of about 0.5), 10,000 centres, and both centres and the spread around them with a spectrum that falls as
1 / n. Queries are further draws with twice the spread. Exact search is `ccr search` without an index: a product with
all vectors. An index is built, tuned to a recall@10 of `--recall` on half of the queries, written, read again (mapped
into memory) and measured on the other half, exact comparison of its candidates included. Each kind has a process of
its own, with one thread.

Latency is the wall time of single queries, and the CPU time beside it, because other processes share the machine; all
are given as ratios to exact search too, measured in the same process just before. Exact search reads every vector for
each query: `floor_ms` is the time in which one thread sums them once, which only reads memory.

    OMP_NUM_THREADS=1 python benchmarks/search_at_size.py --folder SCRATCH --out benchmarks/results/search_at_size
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccr_cli.stages.search.faiss_index import Index, estimated_bytes, exact, factory, recall, untrained

DIM, CENTRES, QUERIES, SINGLE, EXACT_SINGLE, BATCH, K = 512, 10_000, 400, 100, 20, 64, 10
KINDS = ("SQ8", "IVF4000,PQ256x4fs", "ivf", "IVF4000,SQ8", "IVF4000,PQ128")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "search.md"
FOLDER = Path(__file__).resolve().parent / "results" / "search_at_size"


def vectors(count: int, path: Path) -> None:
    """Writes the vectors (V, D), then the queries, into a folder; the draws of fewer are the first of more."""
    spectrum = np.arange(1, DIM + 1, dtype=np.float32) ** -0.5
    rng = np.random.default_rng(0)
    common = rng.standard_normal(DIM, dtype=np.float32)
    common /= np.linalg.norm(common)
    size = float(np.sqrt((spectrum**2).sum()))
    centre_CD = rng.standard_normal((CENTRES, DIM), dtype=np.float32) * spectrum / size

    def draw(rows: int, spread: float) -> Any:
        around_VD = rng.standard_normal((rows, DIM), dtype=np.float32) * (spread * spectrum / size)
        values_VD = 1.2 * common + centre_CD[rng.integers(0, CENTRES, rows)] + around_VD
        return values_VD / np.linalg.norm(values_VD, axis=1, keepdims=True)

    path.mkdir(parents=True, exist_ok=True)
    np.save(path / "queries.npy", draw(QUERIES, 1.0))
    rows_VD = np.lib.format.open_memmap(path / "rows.npy", "w+", np.float32, (count, DIM))
    for first in range(0, count, 50_000):
        rows_VD[first : first + 50_000] = draw(min(50_000, count - first), 0.5)
    rows_VD.flush()


class Anonymous:
    """The most memory of this process that is mapped from no file, in MB, while it is open."""

    def __enter__(self) -> Anonymous:
        self.peak, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, anonymous())


def anonymous() -> float:
    """Memory of this process that is mapped from no file, in MB."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def latencies(search: Callable[[Tensor], object], query_QD: Tensor) -> dict[str, float]:
    """Milliseconds of single queries."""
    wall, cpu = [], []
    search(query_QD[:1])
    for query_1D in torch.split(query_QD, 1):
        start, used = time.perf_counter(), time.thread_time()
        search(query_1D)
        wall.append((time.perf_counter() - start) * 1e3)
        cpu.append((time.thread_time() - used) * 1e3)
    p50, p95 = np.percentile(wall, [50, 95])
    return {"p50_ms": round(p50, 3), "p95_ms": round(p95, 3), "cpu_p50_ms": round(float(np.median(cpu)), 3)}


def throughput(search: Callable[[Tensor], object], query_QD: Tensor) -> float:
    """Queries per second of CPU time, in batches."""
    start = time.thread_time()
    for query_qD in torch.split(query_QD, BATCH):
        search(query_qD)
    return round(len(query_QD) / (time.thread_time() - start), 1)


def measure(kind: str, least: float, folder: Path) -> dict[str, Any]:
    """The figures of one kind, and of exact search (`exact`)."""
    torch.set_num_threads(1)
    rows_VD = torch.from_numpy(np.load(folder / "rows.npy", mmap_mode="c"))
    query_QD = torch.from_numpy(np.load(folder / "queries.npy"))
    choosing_QD, measuring_QD = query_QD[::2], query_QD[1::2]
    floor = min(_seconds(lambda: rows_VD.sum()) for _ in range(3))
    found: dict[str, Any] = {"kind": kind, "entries": len(rows_VD), "floor_ms": round(floor * 1e3, 1)}
    found["load"] = round(os.getloadavg()[0], 1)
    plain = latencies(lambda q: exact(q, rows_VD, K), measuring_QD[:EXACT_SINGLE])
    found["exact"] = {**plain, "batch_per_cpu_second": throughput(lambda q: exact(q, rows_VD, K), query_QD[:BATCH])}
    start, used, before = time.perf_counter(), time.process_time(), anonymous()
    with Anonymous() as memory:
        index = Index.build(rows_VD, kind)
    found |= {"build_s": round(time.perf_counter() - start, 1), "build_cpu_s": round(time.process_time() - used, 1)}
    found["build_peak_mb"] = round(memory.peak - before, 1)
    found["reached"] = round(index.tune(choosing_QD, rows_VD, exact(choosing_QD, rows_VD, K), least), 4)
    shape, effort, depth = (len(rows_VD), DIM), index.effort, index.depth
    found |= {"factory": factory(kind, len(rows_VD)), "effort": effort, "depth": depth}
    with tempfile.TemporaryDirectory(dir=folder) as written:
        path = Path(written)
        index.write(path)
        del index
        found["bytes"] = (path / "index.faiss").stat().st_size
        found["estimated_bytes"] = estimated_bytes(untrained(kind, *shape), len(rows_VD))
        before = anonymous()
        rounded = path / "vectors.npy"
        index = Index.read(path / "index.faiss", kind, effort, shape, rounded if rounded.exists() else None)
        index.depth = depth
        found["search_mb"] = round(anonymous() - before, 1)

        def search(query_qD: Tensor) -> None:
            for query_D, at_K in zip(query_qD, index.nearest(query_qD, K), strict=True):
                (index.vectors(at_K[at_K >= 0]) @ query_D).topk(K)

        found["recall"] = round(recall(index, measuring_QD, rows_VD, exact(measuring_QD, rows_VD, K)), 4)
        found |= latencies(search, measuring_QD[:SINGLE])
        found["batch_per_cpu_second"] = throughput(search, query_QD[: 4 * BATCH])
    return found


def _seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def block() -> str:
    """The table of the page: figures, and ratios to exact search in brackets."""
    rows = [json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    lines = [
        "|entries|index|recall@10|ms, alone|ms, in batches of 64|MB|building: s, MB|",
        "|---|---|---|---|---|---|---|",
    ]
    for size in sorted({row["entries"] for row in rows}, reverse=True):
        of_size = sorted((row for row in rows if row["entries"] == size), key=lambda row: -row["bytes"])
        one, many = (
            np.median([row["exact"][key] for row in of_size]) for key in ("cpu_p50_ms", "batch_per_cpu_second")
        )
        whole = size * DIM * 4 / 1e6
        lines.append(f"|{size:,}|none: exact|1|{one:.3g}|{1000 / many:.3g}|{whole:,.0f}||")
        for row in of_size:
            plain, single, batch = row["exact"], row["cpu_p50_ms"], row["batch_per_cpu_second"]
            megabytes = row["bytes"] / 1e6
            cells = (
                f"`{row['factory']}`",
                f"{row['recall']:.3f}",
                f"{single:.3g} (1/{plain['cpu_p50_ms'] / single:.3g})",
                f"{1000 / batch:.3g} (1/{batch / plain['batch_per_cpu_second']:.2g})",
                f"{megabytes:,.0f} ({megabytes / whole:.2g})",
                f"{row['build_cpu_s']:,.0f}, {row['build_peak_mb']:,.0f}",
            )
            lines.append(f"||{'|'.join(cells)}|")
    return "\n".join(lines)


def fill() -> None:
    """Writes the table into the page."""
    before, begin, rest = PAGE.read_text("utf-8").partition("<!-- begin size -->\n")
    text = f"{before}{begin}{block()}\n<!-- end size -->{rest.partition('<!-- end size -->')[2]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--folder", type=Path, help="for vectors and indexes: two to five GB")
    parser.add_argument("--table", action="store_true", help="write the table of the results into the page, no more")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        fill()
        return
    if not args.folder:
        parser.error("--folder is missing")
    folder = args.folder / str(args.entries)
    if args.one:
        print(json.dumps(measure(args.one, args.recall, folder)))
        return
    if not (folder / "rows.npy").exists():
        vectors(args.entries, folder)
    args.out.mkdir(parents=True, exist_ok=True)
    for kind in args.kinds:
        command = [sys.executable, __file__, "--one", kind, "--folder", str(args.folder)]
        command += ["--entries", str(args.entries), "--recall", str(args.recall)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise SystemExit(f"{kind} failed")
        found = {**json.loads(done.stdout), "machine": machine()}
        text = json.dumps(found, indent=2)
        print(text, flush=True)
        name = f"{args.entries}-{kind.replace(',', '-')}.json"
        (args.out / name).write_text(text + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    import faiss

    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = {"faiss": faiss.__version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"cpu": model, "cores": os.cpu_count(), "threads": 1, **versions}


if __name__ == "__main__":
    main()
