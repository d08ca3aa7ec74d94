"""Measure the judge `lexical`: its time, the mismatches that it finds, and human translations that it calls wrong.

    python benchmarks/lexical.py --flickr8kcn FOLDER --multi30k FOLDER [--pairs 30000 600000]

Training captions of Flickr8k-CN with machine translations, and of Multi30K with human ones. A share of the translations
is exchanged among each other. No model and no picture takes part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.judges.lexical import clean_probability
from ccr_cli.metrics.detection import detection
from ccr_cli.metrics.lexical import Lexicon

RESULTS = Path(__file__).resolve().parent / "results" / "lexical.json"
SHUFFLED = 4000


def measure(source: list[str], target: list[str], share: float, seed: int) -> dict[str, Any]:
    """Exchanges a share of the translations and judges all pairs."""
    rng, number = np.random.default_rng(seed), len(source)
    moved = rng.permutation(number)[: int(share * number)]
    giver = np.arange(number)
    giver[moved] = np.roll(moved, 1)
    given = [target[i] for i in giver]
    wrong = np.array([one != other for one, other in zip(given, target, strict=True)])
    left = rng.permutation(number)[: min(SHUFFLED, number // 5)]
    started = time.process_time()
    both = source + [source[i] for i in left], given + [given[i] for i in np.roll(left, 1)]
    score = Lexicon(*both).scores(*both)
    p = clean_probability(score[:number], score[number:])
    figures: dict[str, Any] = {"pairs": number, "exchanged": share, "seed": seed}
    figures |= {"cpu_seconds": round(time.process_time() - started, 1), "called_noisy": float((p < 0.5).mean())}
    if share:
        found = detection(p, wrong, 0.5)
        figures |= {key: round(float(found[key]), 4) for key in ("auroc", "precision", "recall")}
    return figures


def flickr8k_cn(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Training captions and their translations, by engine."""
    table = pd.read_parquet(folder / "captions.parquet")
    table = table[table["split"] == "train"].set_index(["item_id", "k"])
    english = table.loc[table["lang"] == "en", "text"]
    engines = [name for name in sorted(table["source"].unique()) if name.startswith("mt:") and name.endswith("-2016")]
    return {
        f"Flickr8k-CN, {name.removeprefix('mt:')}": (
            list(english), list(table.loc[table["source"] == name, "text"].reindex(english.index))
        )
        for name in engines
    }  # fmt: skip


def multi30k(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Training captions and human translations, by language."""

    def lines(lang: str) -> list[str]:
        with gzip.open(folder / "task1" / "raw" / f"train.{lang}.gz", "rt", encoding="utf-8") as file:
            return file.read().splitlines()

    return {f"Multi30K, {lang} (human)": (lines("en"), lines(lang)) for lang in ("de", "fr", "cs")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flickr8kcn", type=Path, required=True)
    parser.add_argument("--multi30k", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="*", default=[30_000, 600_000], help="sizes to time")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    sets = {**flickr8k_cn(args.flickr8kcn), **multi30k(args.multi30k)}
    rows = []
    for name, (source, target) in sets.items():
        for share in (0.0, 0.2, 0.4, 0.6):
            for seed in range(args.seeds):
                rows.append({"data": name} | measure(source, target, share, seed))
                print(rows[-1], flush=True)
    timed = []
    source, target = next(iter(sets.values()))
    for number in args.pairs:
        times = -(-number // len(source))
        row = measure((source * times)[:number], (target * times)[:number], 0.0, 0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        timed.append({"pairs": number, "cpu_seconds": row["cpu_seconds"], "peak_gb_of_process": round(memory, 2)})
        print(timed[-1], flush=True)
    RESULTS.write_text(json.dumps({"rows": rows, "timed": timed}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
