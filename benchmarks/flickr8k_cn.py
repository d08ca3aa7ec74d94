"""Methods under noisy translation on Flickr8k-CN: en -> zh, human-written Chinese queries.

6,000 photographs with five English captions each, Baidu's translations of 2016, features of EfficientNet-Lite0.
Noise: a share of the translations is switched between captions, one draw a seed, shared by all methods. The
machine-translated queries of one half of the validation items choose the epoch; the human queries of the other half
(a gallery of 500) are reported. The collection is not part of this project.

    python benchmarks/flickr8k_cn.py --data FOLDER/flickr8kcn --workspace W --out benchmarks/results/flickr8k_cn.json
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import ccr_cli
from ccr_cli.artifacts import base, evaluation, features, run
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.tables import write_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.stages.data import import_data
from ccr_cli.stages.evaluate import evaluate
from ccr_cli.stages.measure import Options
from ccr_cli.stages.select import Inputs
from ccr_cli.stages.sources import find_sources, with_noise
from ccr_cli.stages.train import train
from ccr_cli.stages.translate import translate

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "basic": ("basic", {}),
    "infonce": ("infonce", {}),
    "infonce (oracle)": ("infonce", {"judge": "oracle"}),
    "infonce (two-group)": ("infonce", {"judge": "two-group"}),
    "infonce (gmm)": ("infonce", {"judge": "gmm"}),
    "infonce + S-T": ("infonce", {"cross_lingual_weight": "0.5"}),
    "infonce + S-T (oracle)": ("infonce", {"cross_lingual_weight": "0.5", "judge": "oracle"}),
    "infonce + S-T (two-group)": ("infonce", {"cross_lingual_weight": "0.5", "judge": "two-group"}),
    "uml": ("uml", {}),
    "uml, judge gmm": ("uml", {"judge": "gmm"}),
    "uml, judge argmax on V-T": ("uml", {"judge": "argmax", "judge_side": "cross_modal"}),
    "uml, no anchor, no S-T": ("uml", {"anchor_weight": "0", "cross_lingual_weight": "0"}),
    "uml, no S-T": ("uml", {"cross_lingual_weight": "0"}),
    "uml, no L_n": ("uml", {"disentangle_weight": "0"}),
    "uml, no L_c": ("uml", {"consistency_weight": "0"}),
    "uml, no mutual learning": ("uml", {"beta": "0"}),
    "uml, phi 0.01": ("uml", {"phi": "0.01"}),
    "uml, zero target": ("uml", {"noisy_target": "zero"}),
    "uml, no judge": ("uml", {"judge": "none"}),
    "uml as printed": (
        "uml",
        {
            "evidence": "paper",
            "phi": "0.01",
            "beta": "0.6",
            "anchor_weight": "0",
            "cross_lingual_weight": "0",
            "candidates": "0",
            "noisy_target": "zero",
            "judge": "argmax",
            "judge_side": "cross_modal",
            "warmup_epochs": "0",
        },
    ),
}


def prepare(workspace: Workspace, source: Path, engine: str) -> Inputs:
    """Brings the collection into the workspace: dataset, recorded translations, features."""
    folder = workspace.root / "flickr8k-cn"
    folder.mkdir(parents=True, exist_ok=True)
    items = pd.read_csv(source / "items.csv", dtype=str)
    captions = pd.read_parquet(source / "captions.parquet")
    human = captions[(captions["source"] == "human") & captions["lang"].isin(["en", "zh"])]
    translated = captions[captions["source"] == f"mt:{engine}"]
    english = human[human["lang"] == "en"]
    pairs = english.merge(translated, on=["item_id", "k"], suffixes=("", "_mt"))
    _write(folder / "items.tsv", ("item_id", "split", "kind", "media", "label", "group"), _items(items))
    columns = ("caption_id", "item_id", "lang", "k", "text", "caption_set")
    _write(folder / "captions.tsv", columns, _captions(human))
    (folder / "translations").mkdir(exist_ok=True)
    table = dict(zip(pairs["text"], pairs["text_mt"], strict=True))
    _write(folder / "translations" / f"{engine}-en-zh.tsv", ("source", "target"), table.items())
    (folder / "manifest.toml").write_text('name = "flickr8k-cn"\nsource_lang = "en"\nquery_langs = ["zh"]\n')
    data = import_data(workspace, str(folder))
    vectors = np.load(source / "efficientnet_lite0_fp16.npy", allow_pickle=False)
    with building(workspace, "features", "efficientnet-lite0", {"from": "given"}, [data], data=data.name) as build:
        if build.done is None:
            _features(build.folder, list(items["item_id"]), vectors)
            build.finish({"items": len(items), "failed": 0})
    inputs = Inputs(workspace)
    translate(inputs, "zh", engine="recorded")
    return inputs


def _write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(write_tsv_line(row) for row in (header, *rows))


def _items(items: pd.DataFrame) -> Iterable[tuple[str, ...]]:
    for item, split in zip(items["item_id"], items["split"], strict=True):
        yield item, split, "features", "", "", item


def _captions(human: pd.DataFrame) -> Iterable[tuple[str, ...]]:
    for row in human.to_dict("records"):
        yield (
            f"{row['item_id']}#{row['lang']}#{row['k']}",
            row["item_id"],
            row["lang"],
            str(row["k"]),
            row["text"],
            "human",
        )


def _features(folder: Path, item_ids: list[str], vectors: np.ndarray) -> None:
    size = features.SHARD_ITEMS
    for shard in range(0, -(-len(item_ids) // size)):
        np.save(folder / features.shard_name(shard), vectors[shard * size : (shard + 1) * size])
    rows = np.arange(len(item_ids))
    index = pd.DataFrame({"item_id": item_ids, "shard": (rows // size).astype(np.int32), "first_row": rows % size})
    index = index.assign(n_rows=np.int32(1), status="ok", error=pd.array([None] * len(rows), dtype=object))
    write_table(folder / "index.parquet", index, features.INDEX)
    base.write_json(folder / "encoder.json", {"model": "efficientnet-lite0", "image_size": 224})


def one(inputs: Inputs, label: str, noise: float, seed: int, extra: dict[str, str], target: str) -> dict[str, Any]:
    """Trains and evaluates one method under one mismatch."""
    method, options = METHODS[label]
    sources = find_sources(inputs, "zh")
    sources = with_noise(inputs, sources, noise, style="caption", target=target, seed=seed)
    trained = train(inputs, sources, method, options={**extra, **options}, seed=seed)
    made = evaluate(inputs, trained, Options(split="val-report"))
    results = evaluation.results(made)
    zh = next(r for r in results if r["lang"] == "zh")
    english = next(r for r in results if r["lang"] == "en")
    history = run.history(trained)
    best = history[history["epoch"] == trained.counts["best_epoch"]].iloc[0]
    judge = {k: best.get(f"judge.{k}") for k in ("auroc", "precision", "recall", "false_alarms", "share_noisy")}
    return {
        "method": label,
        "noise": noise,
        "noise_target": target,
        "seed": seed,
        "SumR": zh["SumR"],
        "SumR_en": english["SumR"],
        "t2v": zh["t2v"],
        "v2t": zh["v2t"],
        "calibration": {d: {k: v for k, v in c.items() if k != "curve"} for d, c in zh["calibration"].items()}
        if zh["calibration"]
        else None,
        "judge": {k: None if v is None or pd.isna(v) else float(v) for k, v in judge.items()},
        "best_epoch": trained.counts["best_epoch"],
        "steps": trained.counts["steps"],
        "seconds": trained.about["environment"]["seconds"],
        "signature": zh["signature"],
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds."""
    frame = pd.DataFrame([{**r, **{f"judge_{k}": v for k, v in r["judge"].items()}} for r in rows])
    found = []
    for (method, target, noise), part in frame.groupby(["method", "noise_target", "noise"], sort=False):
        sd = float(part["SumR"].std(ddof=1)) if len(part) > 1 else None
        auroc = part["judge_auroc"].dropna()
        found.append(
            {
                "method": method,
                "noise_target": target,
                "noise": noise,
                "seeds": len(part),
                "SumR": round(float(part["SumR"].mean()), 2),
                "SumR_sd": None if sd is None else round(sd, 2),
                "judge_auroc": round(float(auroc.mean()), 4) if len(auroc) else None,
                "seconds": round(float(part["seconds"].median()), 1),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--methods", nargs="+", default=["basic", "infonce", "infonce (oracle)", "uml"], choices=METHODS
    )
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.4])
    parser.add_argument("--noise-target", default="translation")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--engine", default="baidu-2016")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="options of every method")
    given = parser.parse_args()
    extra = dict(pair.split("=", 1) for pair in given.set)
    inputs = prepare(Workspace(given.workspace.absolute()), given.data, given.engine)
    rows = []
    for seed in given.seeds:
        for noise in given.noise:
            for label in given.methods:
                if not noise and "(oracle)" in label:
                    continue  # the method itself
                rows.append(one(inputs, label, noise, seed, extra, given.noise_target))
                print(json.dumps({k: rows[-1][k] for k in ("method", "noise", "seed", "SumR", "seconds")}), flush=True)
                record = {
                    "what": "SumR of human Chinese queries, validation items not used for selection",
                    "ccr": ccr_cli.__version__,
                    "torch": torch.__version__,
                    "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
                    "engine": given.engine,
                    "options": extra,
                    "summary": summary(rows),
                    "runs": rows,
                }
                base.write_json(given.out, record)


if __name__ == "__main__":
    main()
