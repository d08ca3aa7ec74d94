"""How often ccr reads and hashes the files of its artifacts, by command.

Every command runs in a process of its own, on the bundled data. Counted are calls of `hashlib.file_digest` (a file that
is hashed) and of `pyarrow.parquet.read_table` (a table that is read) for files of the workspace; `files` is how many
different ones. Before and after are two versions of ccr, in workspaces that each makes by itself:

    OMP_NUM_THREADS=1 python benchmarks/reads.py --against OLD_CHECKOUT --out benchmarks/results/reads.json
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--set", "image_size=64", "--device", "cpu")
SHORT = ("--set", "epochs=2", "--device", "cpu")
COMMANDS: dict[str, tuple[str, ...]] = {
    "data import": ("data", "import", "noto-emoji"),
    "translate": ("translate", "--lang", "es", "--back", "--with-queries"),
    "extract": ("extract", *SMALL),
    "train": ("train", "--method", "uml", "--noise", "0.4", *SHORT),
    "evaluate": ("evaluate", "--device", "cpu"),
    "diagnose": ("diagnose", "--device", "cpu"),
    "report": ("report",),
}
"""In the order of the pipeline; each takes what the one before made."""


def count(workspace: Path, command: str) -> dict[str, int]:
    """Runs a command in this process and counts what it reads."""
    import pyarrow.parquet as pq

    from ccr_cli.cli import main as ccr

    hashed: collections.Counter[str] = collections.Counter()
    tables: collections.Counter[str] = collections.Counter()
    sizes: dict[str, int] = {}
    digest, read = hashlib.file_digest, pq.read_table

    def note(counter: collections.Counter[str], path: str) -> None:
        if Path(path).is_relative_to(workspace) and os.path.exists(path):
            counter[path] += 1
            sizes[path] = os.path.getsize(path)

    def counted_digest(handle: Any, *arguments: Any, **options: Any) -> Any:
        note(hashed, str(handle.name))
        return digest(handle, *arguments, **options)

    def counted_read(source: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(source, io.IOBase):
            note(tables, str(source))
        return read(source, *arguments, **options)

    hashlib.file_digest, pq.read_table = counted_digest, counted_read
    sys.argv = ["ccr", *COMMANDS[command], "--workspace", str(workspace), "--quiet"]
    try:
        ccr()
    except SystemExit as ended:
        if ended.code:
            raise
    return {
        "hashes": hashed.total(),
        "files_hashed": len(hashed),
        "bytes_hashed": sum(sizes[path] * times for path, times in hashed.items()),
        "table_reads": tables.total(),
        "tables_read": len(tables),
        "bytes_of_tables": sum(sizes[path] * times for path, times in tables.items()),
    }


def measure(checkout: Path) -> dict[str, dict[str, int]]:
    """Counts for every command, run with the code of a checkout."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder).resolve() / "workspace"
        environment = {**os.environ, "PYTHONPATH": str(checkout), "CCR_CACHE": f"{workspace}-cache"}
        for command in COMMANDS:
            counts = Path(folder) / "counts.json"
            call = [sys.executable, __file__, "--count", command, "--workspace", str(workspace), "--out", str(counts)]
            subprocess.run(call, env=environment, stdout=subprocess.DEVNULL, check=True)
            results[command] = json.loads(counts.read_text(encoding="utf-8"))
            print(command, results[command], file=sys.stderr)
    return results


def main() -> None:
    """Reads the arguments and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose code to run (default: this checkout)")
    parser.add_argument("--against", type=Path, help="checkout of an older version to compare with")
    parser.add_argument("--out", type=Path, help="file to write the result to")
    parser.add_argument("--count", choices=list(COMMANDS), help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    result: dict[str, Any]
    if options.count:
        result = dict(count(options.workspace, options.count))
    else:
        result = {"before": measure(options.against)} if options.against else {}
        result["after" if options.against else "counts"] = measure(options.checkout)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
