"""Measure what each stage costs as data grow: seconds, CPU seconds and peak memory, from import to index.

Synthetic items with five captions each, features of 512 dimensions and one recorded translation. An item has some of
20,000 words (by Zipf's law); its captions name some of them, its features are the sum of their random vectors, and a
caption's translation replaces each word by another one. Validation and test have 500 items each, at every size, so
only what grows with the training set grows. `train` is one epoch of `infonce` with 40 % of the translations switched,
`train uml` one of `uml`, whose judge `triangle` then reads all triplets, `report` has the first run's evaluation and
diagnosis. Each stage is a process of its own with one thread; `peak_mib` is its largest resident memory, including
files that it maps, `own_mib` (Linux), in table and figure, without these.

The results in `results/scale/stages.jsonl` were measured in a control group with a limit:

    mkdir /sys/fs/cgroup/memory/ccr && echo 8000000000 > /sys/fs/cgroup/memory/ccr/memory.limit_in_bytes
    echo $$ > /sys/fs/cgroup/memory/ccr/cgroup.procs

CPU seconds hardly depend on what else runs on the machine; wall-clock seconds do.

    python benchmarks/scale.py FOLDER --sizes 10000 100000      # measures what is not in the results yet
    python benchmarks/scale.py FOLDER --table                   # writes the table into docs/scale.md
    python benchmarks/scale.py FOLDER --figure docs/images/scale.svg
    python benchmarks/scale.py WORKSPACE --error RUN --reach 1024 16384     # nearby rivals against exact ones
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAPTIONS, DIM, HELD_OUT = 5, 512, 500
PROGRAM = "import sys; from ccr_cli.cli import main; sys.exit(main())"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
RESULTS = Path(__file__).resolve().parent / "results" / "scale"
GB = 1e9 / 2**20
"""MiB in 10^9 bytes."""
TRAINED = "--noise 0.4 --epochs 1 --batch-size 512 --device cpu"
STAGES = {
    "generate": "",
    "import": "data import {file} --name synthetic",
    "translate": "translate datasets/synthetic --lang zh --engine recorded",
    "extract": "extract datasets/synthetic --from {features} --encoder-name synthetic",
    "train": f"train --method infonce {TRAINED} --name run",
    "train uml": f"train --method uml {TRAINED} --name uml",
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
        ended, own = 0, 0
        while not ended:
            own = max(own, anonymous(child.pid))
            time.sleep(0.05)
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {child.returncode}: see {log}\n{log.read_text()[-2000:]}")
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    memory = {"peak_mib": usage.ru_maxrss, "own_mib": own}
    return {k: round(v, 2) for k, v in took.items()} | {k: round(v / 1024) for k, v in memory.items()}


def anonymous(pid: int) -> int:
    """The memory of a process in KiB without what it maps from files, which the system can take back at any time."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(folder: Path, items: int, stages: list[str], path: Path) -> None:
    """Runs the stages of a size that have no row yet, in a workspace that is kept."""
    done = {(row["items"], row["stage"]) for row in rows(path)}
    workspace = folder / str(items)
    workspace.mkdir(parents=True, exist_ok=True)
    code = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True, cwd=RESULTS.parent).strip()
    for stage in stages:
        if (items, stage) in done:
            continue
        words = STAGES[stage].format(file=workspace / "captions.parquet", features=workspace / "features.npy")
        command = [sys.executable, "-c", PROGRAM, *words.split(), "--workspace", str(workspace), "--force"]
        if stage == "generate":
            command = [sys.executable, __file__, str(workspace), "--generate", str(items)]
        took = spent(command, workspace / f"{stage}.log", OMP_NUM_THREADS="1")
        row = {"items": items, "captions": items * CAPTIONS, "stage": stage, **took, "code": code}
        print(json.dumps(row), flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as handle:
            handle.write(json.dumps(row) + "\n")


def block(measured: list[dict[str, Any]]) -> str:
    """The table of the page: CPU ms per item; own memory in GB, which a line extrapolates to ten times the items."""
    found = {(row["stage"], row["items"]): row for row in measured}
    sizes = sorted({items for _, items in found})
    titles = [*(f"{size:,} items" for size in sizes), f"{10 * sizes[-1]:,}: memory"]
    lines = [f"|stage|{'|'.join(titles)}|", "|---" * (len(titles) + 1) + "|"]
    for stage in list(STAGES)[1:]:
        of_stage = [found[stage, size] for size in sizes]
        cells = [f"{ms_per_item(row):.2f}; {row['own_mib'] / GB:.1f}" for row in of_stage]
        (x, y), (last_x, last_y) = ((row["items"], row["own_mib"] / GB) for row in of_stage[-2:])
        cells.append(f"{last_y + 9 * last_x * (last_y - y) / (last_x - x):.0f}")
        lines.append(f"|`{stage}`|{'|'.join(cells)}|")
    return "\n".join(lines)


def ms_per_item(row: dict[str, Any]) -> float:
    """CPU milliseconds per item."""
    return float(row["cpu_seconds"] / row["items"] * 1000)


def figure(measured: list[dict[str, Any]]) -> str:
    """CPU time per item and memory of each stage by the number of items, all axes logarithmic; as SVG."""
    from ccr_cli.report.figures.canvas import drawing, new_figure, to_svg

    colors = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f3b08", "#000000")
    sizes = sorted({row["items"] for row in measured})
    with drawing():
        drawn = new_figure(11, 4.4)
        axes = drawn.subplots(1, 2)
        panels: tuple[tuple[Callable[[dict[str, Any]], float], str, tuple[float, ...]], ...] = (
            (ms_per_item, "CPU milliseconds per item", (0.05, 0.1, 0.2, 0.5, 1, 2, 5)),
            (lambda row: row["own_mib"] / GB, "memory of its own (GB)", (0.25, 0.5, 1, 2, 4, 8, 16)),
        )
        for ax, (value, what, ticks) in zip(axes, panels, strict=True):
            for stage, color, marker in zip(list(STAGES)[1:], colors, "os^*DvPXh", strict=True):
                line = sorted((row["items"], value(row)) for row in measured if row["stage"] == stage)
                ax.plot(*zip(*line, strict=True), color=color, marker=marker, label=stage)
            ax.set(xscale="log", yscale="log", xlabel="items, five captions each", title=what)
            ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
            ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        return to_svg(drawn)


def error(workspace: Path, run: str, reaches: list[int]) -> list[dict[str, Any]]:
    """How far belief and uncertainty among nearby rivals are from exact ones, for several `rivals.REACH`."""
    import numpy as np
    import pandas as pd
    from scipy.stats import spearmanr
    from sklearn.metrics import roc_auc_score

    def diagnosed(reach: int) -> tuple[Any, float]:
        name = f"scale-{reach or 'exact'}"
        program = f"from ccr_cli.stages.diagnose import rivals; rivals.REACH = {reach}; {PROGRAM}"
        search = ["--rivals", "nearby" if reach else "exact", "--name", name, "--device", "cpu", "--force"]
        command = [sys.executable, "-c", program, "diagnose", run, *search, "--workspace", str(workspace)]
        took = spent(command, workspace / f"{name}.log", OMP_NUM_THREADS="1")
        return pd.read_parquet(workspace / "diagnoses" / name / "pairs.parquet"), took["cpu_seconds"]

    exact, seconds = diagnosed(0)
    wrong, size = exact["truth"].eq("noisy"), {"pairs": len(exact), "items": exact["item_id"].nunique()}
    out: list[dict[str, Any]] = []
    for reach in [0, *reaches]:
        pairs, took = diagnosed(reach) if reach else (exact, seconds)
        row = {"run": run, **size, "reach": reach or "exact", "cpu_seconds": took}
        row["same place"] = bool((pairs["place"] == exact["place"]).all())
        for name in ("belief", "uncertainty"):
            sign = 1 if name == "belief" else -1
            last, best = (set((sign * each[name]).nsmallest(100).index) for each in (pairs, exact))
            row[name] = {
                "rank correlation": float(spearmanr(pairs[name], exact[name])[0]),
                "median relative error": float(np.median(np.abs(pairs[name] / exact[name] - 1))),
                "worst 100 in common": len(last & best),
            }
            if 0 < wrong.sum() < len(wrong):
                row[name]["auroc"] = float(roc_auc_score(wrong, -sign * pairs[name]))
        out.append(row)
        print(json.dumps(row), flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--out", type=Path, default=RESULTS / "stages.jsonl")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--error", metavar="RUN", help="a run of the workspace FOLDER")
    parser.add_argument("--reach", type=int, nargs="+", default=[16_384])
    parser.add_argument("--generate", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        generate(options.folder, options.generate)
    elif options.error:
        kept = rows(RESULTS / "rivals.jsonl") + error(options.folder, options.error, options.reach)
        (RESULTS / "rivals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    elif options.table:
        from robustness.tables import fill

        PAGE.write_text(fill(PAGE.read_text("utf-8"), {"scale": block(rows(options.out))}), encoding="utf-8")
    elif options.figure:
        options.figure.write_text(figure(rows(options.out)), encoding="utf-8")
    else:
        for size in options.sizes:
            measure(options.folder, size, options.stages, options.out)


if __name__ == "__main__":
    main()
