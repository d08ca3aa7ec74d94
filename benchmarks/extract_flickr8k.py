"""Compare the features of `ccr extract` with features that others made of the same photographs.

The 1,000 validation photographs of Flickr8k, against half-precision vectors of EfficientNet-Lite0 made elsewhere. The
collection is not part of this project: a folder with `items.csv` (item_id, split), `images_val/` and
`efficientnet_lite0_fp16.npy`, with rows in the order of `items.csv`.

    python benchmarks/extract_flickr8k.py FOLDER --out benchmarks/results/extract_flickr8k.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ccr_cli.artifacts import base, features
from ccr_cli.data.tsv import write_tsv_line


def write_photographs(source: Path, folder: Path) -> list[str]:
    """Writes the photographs as a data set in the folder format; returns their ids."""
    known = pd.read_csv(source / "items.csv", dtype=str)
    names = known.loc[known["split"] == "val", "item_id"].to_list()
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text('name = "flickr8k-val"\nsource_lang = "en"\n', encoding="utf-8")
    items = [(name, "val", "image", f"{name}.jpg", "", "") for name in names]
    captions = [(f"{name}-en", name, "en", "0", name, "main") for name in names]
    tables = {
        "items": [("item_id", "split", "kind", "media", "label", "group"), *items],
        "captions": [("caption_id", "item_id", "lang", "k", "text", "caption_set"), *captions],
    }
    for table, rows in tables.items():
        (folder / f"{table}.tsv").write_text("".join(write_tsv_line(row) for row in rows), encoding="utf-8", newline="")
    return names


def extract(source: Path, workspace: Path) -> dict[str, Any]:
    """Runs `ccr data import` and `ccr extract`, and compares what they made with the stored vectors."""
    names = write_photographs(source, workspace / "import")

    def ccr(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "ccr_cli", *map(str, arguments), "--workspace", str(workspace)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.splitlines()[-1]

    data = ccr("data", "import", workspace / "import")
    start = time.perf_counter()
    photographs = ("--media-root", source / "images_val", "--device", "cpu")
    made = base.load(Path(ccr("extract", data, "--encoder", "efficientnet-lite0", *photographs)))
    seconds = time.perf_counter() - start
    found_VD, _, kept = features.read_rows(made, names, pooled=False)
    order = {name: row for row, name in enumerate(pd.read_csv(source / "items.csv", dtype=str)["item_id"])}
    stored = np.load(source / "efficientnet_lite0_fp16.npy", mmap_mode="r", allow_pickle=False)
    stored_VD = stored[[order[name] for name in kept]].astype(np.float64)
    length_V = np.linalg.norm(found_VD.astype(np.float64), axis=1)
    cosine_V = (found_VD * stored_VD).sum(axis=1) / length_V / np.linalg.norm(stored_VD, axis=1)
    ratio_V = length_V / np.linalg.norm(stored_VD, axis=1)
    return {
        "photographs": len(names),
        "without_features": len(names) - len(kept),
        "cosine": {"min": float(cosine_V.min()), "mean": float(cosine_V.mean())},
        "length_ratio": {"min": float(ratio_V.min()), "max": float(ratio_V.max())},
        "seconds": round(seconds, 1),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s) of torch, "
        f"{len(os.sched_getaffinity(0))} processors, shared",
        "versions": {"torch": torch.__version__, "encoder": base.read_json(made.path / "encoder.json")},
    }


def main() -> None:
    """Prints the figures, and writes them with --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", type=Path, help="folder of the collection")
    parser.add_argument("--out", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as workspace:
        text = json.dumps(extract(arguments.source, Path(workspace)), indent=1) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
