"""Measure what training on the translations of two engines gives over those of one.

Each caption of Flickr8k-CN has Baidu's and Google's Chinese of 2016. A run is trained on one of them, or on both: each
epoch has one of the two for every caption, drawn anew, or chosen with the probabilities of the judge `lexical`, which
then also weight the loss. Queries are human captions of the reported half of validation; machine translations of the
other half (Baidu's for both) choose the epoch.

    python benchmarks/several_translations.py --data FOLDER/flickr8kcn --workspace W --seeds 0 1 2

Rows in the results are skipped; `--table` writes the table of docs/train.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from robustness import code, grid, runs, tables
from robustness.collection import Collection
from robustness.recovery import difference

from ccr_cli.artifacts import base, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.stage import train_on

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results" / "several_translations.json"
PAGE = CHECKOUT / "docs" / "train.md"
BAIDU, GOOGLE = grid.CHINESE[:2]
ARMS: dict[str, tuple[str, ...]] = {
    "Baidu": (BAIDU,),
    "Google": (GOOGLE,),
    "both, draw": (BAIDU, GOOGLE),
    "Baidu, lexical": (BAIDU,),
    "both, draw, lexical": (BAIDU, GOOGLE),
    "both, weighted, lexical": (BAIDU, GOOGLE),
    "both, trusted, lexical": (BAIDU, GOOGLE),
}
"""The engines of each arm; its name has the value of `--translation-mix`, and the judge if there is one."""
BASE = "Baidu"


def row(collection: Collection, method: str, arm: str, seed: int) -> dict[str, Any]:
    """Trains and measures an arm."""
    words, inputs = arm.split(", "), Inputs(collection.workspace)
    found = [collection.sources(grid.Cell(method, method, translations=engine)) for engine in ARMS[arm]]
    sources = replace(found[0], translated=tuple(each.translated[0] for each in found))
    mix = next((word for word in words if word in ("draw", "weighted", "trusted")), "draw")
    trained = train_on(
        inputs,
        sources,
        TrainingOptions(
            method=method,
            settings={"judge": "lexical"} if "lexical" in words else {},
            seed=seed,
            device="cpu",
            translation_mix=mix,
            name=f"several-{method}-{arm.replace(', ', '-')}-{seed}",
        ),
    )
    made = evaluate(inputs, trained, EvaluationOptions(split="val-report"), device="cpu", force=True)
    results = evaluation.results(made)
    number, asked = next((i, r) for i, r in enumerate(results) if r["role"] == "target" and r["fusion"] == "none")
    told = {
        "method": method,
        "arm": arm,
        "seed": seed,
        "SumR": round(asked["SumR"], 4),
        "found": runs.per_item(evaluation.read_ranks(made), number),
        "triplets": trained.counts["triplets"],
        "steps": trained.counts["steps"],
        "best_epoch": trained.counts["best_epoch"],
        "config": {k: v for k, v in trained.request.items() if k not in ("alternatives", "noise")},
        "signature": str(asked["signature"]),
        "seconds": trained.about["environment"]["seconds"],
        "code": code.version(),
        "torch": torch.__version__,
    }
    for artifact in (made, trained):
        shutil.rmtree(artifact.path)
    return told


def block(rows: Sequence[dict[str, Any]]) -> str:
    """The table of the page: each method and arm, and what it gains over one engine on the same seeds."""
    lines, earlier = [], runs.read(CHECKOUT / "benchmarks" / "results" / "noise_robustness")
    for method, arm in dict.fromkeys((r["method"], r["arm"]) for r in rows):
        own, base_ = ({r["seed"]: r for r in rows if (r["method"], r["arm"]) == (method, a)} for a in (arm, BASE))
        for seed in {r["seed"] for r in rows if r["method"] == method} - base_.keys():  # made for another table
            if made := grid.find(earlier, grid.Cell(method, method, translations=BAIDU, seed=seed)):
                base_[seed] = dict(made)
        own = base_ if arm == BASE else own
        seeds = sorted(own.keys() & base_.keys())
        values = [own[seed]["SumR"] for seed in seeds]
        gain = ""
        if arm != BASE and seeds:
            paired = [np.array([runs.values(each[seed]["found"]) for seed in seeds]) for each in (own, base_)]
            found = difference(*paired)
            gain = f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
        lines.append([f"`{method}`", arm, str(len(seeds)), tables.spread(values), gain])
    return tables.markdown(["method", "translations", "seeds", "SumR", f"against {BASE}"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the collection, which is not part of this project")
    parser.add_argument("--workspace", type=Path, help="where artifacts go; not into the checkout")
    parser.add_argument("--methods", nargs="+", default=["infonce"])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS, metavar="ARM")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="write the table of the page and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(options.out.read_text("utf-8"))["rows"] if options.out.exists() else []
    if options.table:
        PAGE.write_text(tables.fill(PAGE.read_text("utf-8"), {"several": block(rows)}), encoding="utf-8")
        return
    if options.data is None or options.workspace is None:
        parser.error("--data and --workspace are needed")
    collection = Collection(Workspace(options.workspace.absolute()), options.data)
    done = {(r["method"], r["arm"], r["seed"]) for r in rows}
    for method in options.methods:
        for seed in options.seeds:
            for arm in options.arms:
                if (method, arm, seed) in done:
                    continue
                rows.append(row(collection, method, arm, seed))
                what = "SumR on the reported half of Flickr8k-CN validation, human Chinese queries"
                base.write_json(options.out, {"what": what, "rows": rows})
                print(json.dumps({k: v for k, v in rows[-1].items() if k not in ("found", "config")}), flush=True)


if __name__ == "__main__":
    main()
