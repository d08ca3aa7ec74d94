"""Compare the artifacts that two versions of ccr make from the same commands, on the bundled data.

    python benchmarks/same_artifacts.py --write before.json --checkout OLD --keep OLD_WORKSPACE
    python benchmarks/same_artifacts.py --against before.json --opens OLD_WORKSPACE

Every artifact's id covers its request, its parents and the bytes of its files, so equal ids are equal datasets,
translations, noise, features, models, metrics and verdicts. ``--opens`` repeats the commands in a copy of a workspace
that the other version made: every artifact must be found complete, and none may be made again.

Prints JSON; exit code 1 if something differs. Run both on one machine: floating point differs between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
METHODS = "basic,infonce,source-only,decl,uml,nrccr,tcl,gsc,disncl,fume,trine,cream,in2r,l2rm,ncr"
SOURCES = ("datasets/noto-emoji", "features/noto-emoji/efficientnet-lite0-*")
ES = (*SOURCES, "translations/noto-emoji/es-*")
SHORT = ("--epochs", "1", "--device", "cpu")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("data", "import", "noto-emoji"),
    ("data", "import", "twemoji"),
    ("translate", "datasets/noto-emoji", "--lang", "es", "--back", "--with-queries"),
    ("translate", "datasets/noto-emoji", "--lang", "fr"),
    ("extract", "datasets/noto-emoji", "--set", "image_size=64", "--device", "cpu"),
    ("extract", "datasets/twemoji", "--set", "image_size=64", "--device", "cpu"),
    ("train", *ES, "--noise", "0.4", "--sweep", f"method={METHODS}", *SHORT),
    ("train", *ES, "runs/*-source-only-*", "--method", "distil", "--noise", "0.4", *SHORT),
    ("train", *ES, "--method", "infonce", "--noise", "0.2", "--noise-style", "image", "--noise-target", "pair", *SHORT),
    (
        "train",
        *ES,
        "--method",
        "infonce",
        "--noise",
        "0.4",
        "--sweep",
        "judge=oracle,triangle,gmm,argmax,mutual",
        *SHORT,
    ),
    ("train", *SOURCES, "translations/noto-emoji/*", "--method", "infonce", "--language-mix", "draw", *SHORT),
    ("evaluate", "runs/*", "--device", "cpu"),
    ("evaluate", "runs/noto-emoji-es-uml-*", "--zero-shot", "--device", "cpu"),
    ("diagnose", "runs/noto-emoji-es-uml-*", "--device", "cpu"),
    ("diagnose", "runs/noto-emoji-es-trine-*", "--device", "cpu"),
)
"""What is made; a pattern stands for the paths of the workspace that match it."""


def make(checkout: Path, workspace: Path) -> None:
    """Runs all commands with the code of a checkout."""
    checkout = checkout.absolute()
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "CCR_CACHE": f"{workspace}-cache"}
    for command in COMMANDS:
        arguments = [
            path for part in command for path in (sorted(map(str, workspace.glob(part))) if "/" in part else [part])
        ]
        subprocess.run(
            [sys.executable, "-m", "ccr_cli", *arguments, "--workspace", str(workspace), "--quiet"],
            env=environment,
            cwd=checkout,  # `-m` looks here first
            stdout=subprocess.DEVNULL,
            check=True,
        )
        print(" ".join(command), file=sys.stderr)


def records(workspace: Path) -> dict[str, dict[str, Any]]:
    """The id and the hashes of the files of every artifact, by its path."""
    found = {}
    for path in sorted(workspace.rglob("artifact.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        files = {file["path"]: file["sha256"] for file in record["files"]}
        found[path.parent.relative_to(workspace).as_posix()] = {"id": record["id"], "files": files}
    return found


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """One line for every artifact that is not the same, with the files that differ."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"{name}: only {'after' if old is None else 'before'}")
        elif old["id"] != new["id"]:
            paths = sorted(old["files"].keys() | new["files"].keys())
            changed = [path for path in paths if old["files"].get(path) != new["files"].get(path)]
            lines.append(f"{name}: {', '.join(changed) or 'request or parents'}")
    return lines


def made_again(workspace: Path, checkout: Path) -> list[str]:
    """The artifacts of another version's workspace that this one does not find complete; works on a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "workspace"
        shutil.copytree(workspace, copy)
        before = {path: path.read_bytes() for path in copy.rglob("artifact.json")}
        make(checkout, copy)
        after = {path: path.read_bytes() for path in copy.rglob("artifact.json")}
        return [str(path.parent.relative_to(copy)) for path in sorted(after) if before.get(path) != after[path]]


def main() -> int:
    """Reads the arguments and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose code to run (default: this checkout)")
    parser.add_argument("--write", type=Path, help="file to write the ids to")
    parser.add_argument("--against", type=Path, help="file of ids to compare with")
    parser.add_argument("--keep", type=Path, help="folder in which to leave the workspace")
    parser.add_argument("--opens", type=Path, help="workspace of the other version, which must open unchanged")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = (options.keep or Path(folder) / "workspace").absolute()
        make(options.checkout, workspace)
        after = records(workspace)
    if options.write:
        options.write.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    result: dict[str, Any] = {"artifacts": len(after)}
    if options.against:
        result["different"] = differences(json.loads(options.against.read_text(encoding="utf-8")), after)
    if options.opens:
        result["made again"] = made_again(options.opens, options.checkout)
    print(json.dumps(result, indent=1))
    return int(bool(result.get("different") or result.get("made again")))


if __name__ == "__main__":
    sys.exit(main())
