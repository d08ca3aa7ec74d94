"""Measure what each stage costs as data grow: seconds, CPU seconds and peak memory, from import to index.

Synthetic items with five captions each, features of 512 dimensions and one recorded translation. An item has some of
20,000 words (by Zipf's law); its captions name some of them, its features are the sum of their random vectors, and a
caption's translation replaces each word by another one. Validation and test have 500 items each, at every size, so
only what grows with the training set grows. `train` is one epoch of `infonce` with 40 % of the translations switched,
`report` has the run's evaluation and diagnosis. Each stage is a process of its own with one thread; `peak_mib` is its
largest resident memory, including files that it maps.

CPU seconds hardly depend on what else runs on the machine; wall-clock seconds do.

    python benchmarks/scale.py FOLDER --sizes 10000 100000      # measures what is not in the results yet
    python benchmarks/scale.py FOLDER --list                    # the table of docs/scale.md
    python benchmarks/scale.py FOLDER --figure docs/images/scale.svg
    python benchmarks/scale.py FOLDER --error WORKSPACE RUN     # nearby rivals against exact ones, of any run

`--variant NAME` keeps the rows of another version beside those of this one, `--stages` repeats some stages.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CAPTIONS, DIM, HELD_OUT = 5, 512, 500
RESULTS = Path(__file__).resolve().parent / "results" / "scale"
STAGES = {
    "generate": "",
    "import": "data import {file} --name synthetic",
    "translate": "translate datasets/synthetic --lang zh --engine recorded",
    "extract": "extract datasets/synthetic --from {features} --encoder-name synthetic",
    "train": "train --method infonce --noise 0.4 --epochs 1 --batch-size 512 --device cpu --name run",
    "evaluate": "evaluate runs/run --device cpu",
    "diagnose": "diagnose runs/run --device cpu --name pairs",
    "report": "report --name report",
    "index": "index runs/run --split all --device cpu",
}


def generate(folder: Path, items: int) -> None:
    """Writes captions.parquet, features.npy and features.txt."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    parts = ["ba", "co", "di", "fu", "ga", "ho", "ki", "lu", "me", "no", "pa", "ri", "so", "ta", "ve", "wi", "xo", "zu"]
    words = np.array(["".join(parts[n // 18**k % 18] for k in range(4)) for n in range(20_000)])
    signs = np.array(["".join(chr(0x4E00 + n // 150**k % 150) for k in range(2)) for n in range(20_000)])
    rank = 1.0 / np.arange(10, 20_010)
    vectors_WD = rng.standard_normal((len(words), DIM), dtype=np.float32)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (items, DIM))
    schema = pa.schema([(name, pa.string()) for name in ("item_id", "split", "text_en", "text_zh", "mt_zh")])
    with pq.ParquetWriter(folder / "captions.parquet", schema) as writer:
        for first in range(0, items, 10_000):
            size = min(10_000, items - first)
            has = rng.choice(len(words), (size, 8), p=rank / rank.sum())
            noise = rng.standard_normal((size, DIM), dtype=np.float32)
            features[first : first + size] = vectors_WD[has].sum(axis=1) / 8**0.5 + noise
            columns: dict[str, list[str | None]] = {name: [] for name in schema.names}
            for number, own in enumerate(has, first):
                for _ in range(CAPTIONS):
                    at = own[rng.permutation(8)[:6]]
                    held = number < 2 * HELD_OUT
                    text = "".join(signs[at])
                    split = ("val", "test")[number % 2] if held else "train"
                    row = (f"item{number:08d}", split, " ".join(words[at]), text if held else None, text)
                    for name, value in zip(schema.names, row, strict=True):
                        columns[name].append(value)
            writer.write_table(pa.table(columns, schema=schema))
    (folder / "features.txt").write_text("".join(f"item{n:08d}\n" for n in range(items)))


def spent(command: list[str], log: Path, **variables: str) -> dict[str, float]:
    """Runs a process of its own; returns what it took."""
    start = time.perf_counter()
    with log.open("w") as handle:
        child = subprocess.Popen(command, stdout=handle, stderr=handle, env=os.environ | variables)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {child.returncode}: see {log}\n{log.read_text()[-2000:]}")
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    return {k: round(v, 2) for k, v in took.items()} | {"peak_mib": round(usage.ru_maxrss / 1024)}


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(folder: Path, items: int, stages: list[str], variant: str, path: Path) -> None:
    """Runs the stages of a size that have no row yet, in a workspace that is kept."""
    done = {(row["items"], row["stage"], row["variant"]) for row in rows(path)}
    workspace = folder / str(items)
    workspace.mkdir(parents=True, exist_ok=True)
    code = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True, cwd=RESULTS.parent).strip()
    for stage in stages:
        if (items, stage, variant) in done:
            continue
        words = STAGES[stage].format(file=workspace / "captions.parquet", features=workspace / "features.npy")
        program = "import sys; from ccr_cli.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, *words.split(), "--workspace", str(workspace), "--force"]
        if stage == "generate":
            command = [sys.executable, __file__, str(workspace), "--generate", str(items)]
        took = spent(command, workspace / f"{stage}.log", OMP_NUM_THREADS="1")
        row = {"items": items, "captions": items * CAPTIONS, "stage": stage, "variant": variant, **took, "code": code}
        print(json.dumps(row), flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as handle:
            handle.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--variant", default="")
    parser.add_argument("--out", type=Path, default=RESULTS / "stages.jsonl")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--generate", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        generate(options.folder, options.generate)
    for size in [] if options.generate or options.list or options.figure else options.sizes:
        measure(options.folder, size, options.stages, options.variant, options.out)


if __name__ == "__main__":
    main()
