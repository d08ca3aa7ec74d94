"""A workspace of made-up artifacts with the structure of real ones: methods that lose to noise, and judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from ccr_cli.artifacts import base, dataset, diagnosis, evaluation
from ccr_cli.artifacts.build import Build, build_artifact
from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.tables import variants
from ccr_cli.report.tables.table import Table

LEVEL = {"basic": (150.0, 170.0), "infonce": (184.0, 140.0), "uml": (184.5, 52.0), "infonce (oracle)": (184.0, 44.0)}
"""SumR without noise, and what it falls by unit of noise."""
HOSTILE = '=cmd()|<script>alert("x")</script>&\\textbf{%}'
MANIFEST = """
name = "toy-emoji"
title = "Toy <b>emoji</b> & friends"
source_lang = "en"
licence = "CC-BY-4.0"
attribution = "Drawn for the tests <i>by</i> nobody"
source_url = "https://example.org/emoji?a=1&b=2"
[[licences]]
what = "images; media/"
licence = "CC-BY-4.0"
file = "LICENSES/CC-BY-4.0.txt"
"""
WORDS = [("grinning face", "cara sonriente"), ("dog", "perro"), ("red apple", "manzana roja"), ("bicycle", "bicicleta")]


def make(
    root: Path,
    methods: Sequence[str] = tuple(LEVEL),
    ratios: Sequence[float] = (0.0, 0.2, 0.4, 0.6),
    seeds: Sequence[int] = (0, 1, 2),
    media: Sequence[Path] = (),
    langs: Sequence[str] = ("es", "en"),
    diagnosed: bool = True,
) -> Workspace:
    """Fills a workspace with a dataset and a run, an evaluation and a diagnosis of each combination."""
    workspace = Workspace(root)
    data = make_dataset(workspace, media)
    for label in methods:
        for noise in ratios:
            for seed in seeds:
                run = make_run(workspace, data, label, noise, seed)
                make_evaluation(workspace, data, run, label, noise, seed, langs)
                if diagnosed and label != "infonce (oracle)":
                    make_diagnosis(workspace, run, label, noise, seed)
    return workspace


def make_dataset(workspace: Workspace, media: Sequence[Path] = (), name: str = "toy-emoji") -> base.Artifact:
    """A data set of forty items, half of them test items."""

    def write(site: Build) -> dict[str, int]:
        folder = site.folder / "media"
        folder.mkdir(exist_ok=True)
        items = []
        for i in range(40):
            if media:
                (folder / f"{i}.png").write_bytes(media[i % len(media)].read_bytes())
            else:
                Image.new("RGBA", (8, 8), (5 * i, 90, 200, 255)).save(folder / f"{i}.png")
            split = "test" if i % 2 else "train"
            items.append((f"i{i}", split, "image", f"{i}.png", None, f"g{i}"))
        (folder / "6.png").write_bytes(b"not an image")
        frame = pd.DataFrame(items, columns=dataset.ITEMS.names)
        frame["label"] = frame["label"].astype("Int32")
        write_table(site.folder / "items.parquet", frame, dataset.ITEMS)
        captions = [(f"i{i}#en", f"i{i}", "en", 0, WORDS[i % 4][0], "names") for i in range(40)]
        table = pd.DataFrame(captions, columns=dataset.CAPTIONS.names).astype({"k": np.int32})
        write_table(site.folder / "captions.parquet", table, dataset.CAPTIONS)
        (site.folder / "manifest.toml").write_text(MANIFEST.replace("toy-emoji", name))
        return {"items": 40}

    return build_artifact(workspace, "dataset", name, {"source": name}, write=write)


def variant_labels(
    runs: Mapping[str, tuple[str, Mapping[str, Any]]], defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, str]:
    """The labels that tell variants apart, as texts."""
    labels = variants.variant_labels(
        {run: (Label.parse(text), config) for run, (text, config) in runs.items()}, defaults
    )
    return {run: str(label) for run, label in labels.items()}


def signature(lang: str, noise: float, seed: int, fusion: str, data: str = "toy-emoji", mt: str = "apertium") -> str:
    """A signature as evaluate writes it."""
    mismatch = f"caption-translation-{noise:g}-seed{seed}" if noise else "none"
    return (
        f"data:{data}@0a1b2c3d|split:test|lang:{lang}|caption_set:names|q:690|gallery:352|dir:t2v+v2t|protocol:full|"
        f"pos:any|ties:mid|sim:cosine|fusion:{fusion}|mt:{mt}:en-es|noise:{mismatch}|unc:top128|select:mt|"
        f"leak:own-split|ccr:0.1.0"
    )


def best_cells(table: Table) -> set[tuple[int, int]]:
    """Row and column of every best figure of a table."""
    return {cell for cell, place in table.places().items() if place == 1}


def mismatch(noise: float, seed: int) -> dict[str, Any] | None:
    """The noise of a run's config."""
    if not noise:
        return None
    return {"ratio": noise, "style": "caption", "target": "translation", "seed": seed}


def make_run(
    workspace: Workspace,
    data: base.Artifact,
    label: str,
    noise: float,
    seed: int,
    name: str = "",
    select: str = "mt",
    criterion: str = "SumR",
    triplets: int = 40,
    **options: Any,
) -> base.Artifact:
    """A run with a history that climbs; `triplets` makes one that differs in nothing that a report reads."""
    rng = np.random.default_rng([seed, int(100 * noise), len(label)])
    method = label.split(" ")[0]
    judge = "oracle" if "oracle" in label else "triangle" if method == "uml" else "none"
    name = name or f"toy-emoji-es-{label.replace(' (', '-').rstrip(')')}-noise{noise:g}-seed{seed}"
    top, fall = LEVEL.get(label, (160.0, 80.0))
    request = {"method": method, "seed": seed, "noise": mismatch(noise, seed), "judge": judge, **options}
    request |= {"select_on": select, "triplets": triplets, "lang": "es"}

    def write(site: Build) -> dict[str, int]:
        config = {
            "method": method,
            "lang": "es",
            "seed": seed,
            "noise": mismatch(noise, seed),
            "preset": None,
            "options": {"epochs": 12, "judge": judge, "judge_side": "cross_lingual", **options},
            "select": select,
            "criterion": criterion,
            "triplets": triplets,
            "data": data.name,
            "features": "efficientnet-lite0",
            "text_encoder": {"kind": "ngram", "buckets": 512},
        }
        base.write_json(site.folder / "config.json", config)
        lines = []
        for epoch in range(1, 13):
            value = (top - fall * noise) * 1.9 * (1 - np.exp(-epoch / 3)) + rng.normal(0, 2)
            told = {"auroc": 1 - 0.4 * np.exp(-epoch / 2), "recall": 0.9} if noise else None
            quality = None if judge != "triangle" else told or {"share_noisy": 0.01}
            val = {"SumR": float(value), "mAP": float(value) / 10}
            entry = {"epoch": epoch, "lr": 1e-3, "loss": {"total": 3 / epoch}, "val": val}
            lines.append(json.dumps({**entry, "judge": quality, "best": epoch == 11}) + "\n")
        (site.folder / "history.jsonl").write_text("".join(lines))
        return {"epochs": 12}

    place = workspace.place("translation", "es", data.name)
    translation = replace(data, kind="translation", id="7" * 64, path=place)  # in the lineage alone
    return build_artifact(workspace, "run", name, request, [data, translation], write=write)


def make_evaluation(
    workspace: Workspace,
    data: base.Artifact,
    run: base.Artifact,
    label: str,
    noise: float,
    seed: int,
    langs: Sequence[str] = ("es", "en"),
    **signed: str,
) -> base.Artifact:
    """An evaluation in the given languages, and fused in those that are not English."""
    rng = np.random.default_rng([seed, int(1000 * noise), len(label)])
    top, fall = LEVEL.get(label, (160.0, 80.0))
    results = []
    for lang in langs:
        for fusion in ("none", "0.8raw") if lang != "en" else ("none",):
            total = top - fall * noise + rng.normal(0, 2.5) + (9 if fusion != "none" else 0)
            total = top + 25 - 12 * noise + rng.normal(0, 2.5) if lang == "en" else total
            share = np.array([0.08, 0.18, 0.24]) * total
            figures = dict(zip(("R@1", "R@5", "R@10"), share.tolist(), strict=True))
            figures |= {"MedR": round(4000 / total), "MeanR": 60.0, "mAP": total / 8, "MRR": total / 8, "dropped": 0}
            coverage = np.linspace(0.02, 1, 50)
            failing = float(1 - figures["R@1"] / 100)
            curve = {"coverage": coverage.tolist(), "risk": (failing * coverage**0.35).tolist()}
            calibration = {"auroc": 0.7, "aurc": 0.5, "aurc_random": failing, "aurc_best": 0.3, "queries": 690}
            results.append(
                {
                    "run": run.name,
                    "data": data.name,
                    "split": "test",
                    "lang": lang,
                    "caption_set": "names",
                    "role": "source" if lang == "en" else "target",
                    "fusion": fusion,
                    "method": label.split(" ")[0],
                    "label": label,
                    "noise": noise,
                    "seed": seed,
                    "zero_shot": False,
                    "signature": signature(lang, noise, seed, fusion, **signed),
                    "t2v": {**figures, "queries": 690},
                    "v2t": {**figures, "queries": 352},
                    "SumR": float(total),
                    "SumR_interval": [float(total - 12), float(total + 12)],
                    "calibration": {d: {**calibration, "curve": curve} for d in ("t2v", "v2t")}
                    if label == "uml" and fusion == "none"
                    else None,
                }
            )

    def write(site: Build) -> dict[str, int]:
        base.write_json(site.folder / "metrics.json", {"results": results})
        ranks = pd.DataFrame({name: [] for name in evaluation.RANKS.names})
        ranks = ranks.astype({"result": np.int32, "ties": np.int64, "direction": object, "query_id": object})
        write_table(site.folder / "ranks.parquet", ranks, evaluation.RANKS)
        return {"results": len(results)}

    return build_artifact(workspace, "evaluation", f"{run.name}-test", {"split": "test"}, [run, data], write=write)


def make_diagnosis(
    workspace: Workspace,
    run: base.Artifact,
    label: str,
    noise: float,
    seed: int,
    judge: str = "",
    share: float | None = None,
) -> base.Artifact:
    """A diagnosis of three hundred pairs; the first translation is hostile. The judge `none` believes all."""
    usual = "triangle" if label.startswith("uml") else "two-group"
    judge = judge or usual
    name = run.name + (f"-{judge}" if judge != usual else "") + (f"-share{share:g}" if share else "")
    rng = np.random.default_rng([seed, int(1000 * noise), 7])
    n = 300
    wrong = rng.random(n) < noise
    sharp = 0.18 if label == "uml" else 0.3
    sim_st = np.clip(np.where(wrong, 0.05, 0.72) + rng.normal(0, sharp, n), -1, 1)
    p = np.ones(n) if judge == "none" else 1 / (1 + np.exp(-(sim_st - 0.35) * 14))
    texts = [WORDS[i % 4] for i in range(n)]
    frame = pd.DataFrame(
        {
            "slot_id": [f"i{2 * (i % 20)}#en{i // 20 or ''}" for i in range(n)],
            "source_caption_id": [f"i{2 * (i % 20)}#en" for i in range(n)],
            "lang": "es",
            "back": [a.lower() for a, _ in texts],
            "item_id": [f"i{2 * (i % 20)}" for i in range(n)],
            "source_text": [a for a, _ in texts],
            "translation": [b for _, b in texts],
            "sim_vs": rng.normal(0.5, 0.1, n),
            "sim_vt": np.where(wrong, 0.02, 0.5) + rng.normal(0, 0.15, n),
            "sim_st": sim_st,
            "evidence_v2t": 1.0,
            "evidence_t2v": 1.0,
            "belief": 0.5,
            "uncertainty": np.where(p < 0.5, 0.4, 0.2) + rng.normal(0, 0.02, n),
            "p_vs": 1.0,
            "p_clean": p,
            "p_st": p,
            "place": np.argsort(np.argsort(p)) + 1,
            "support": np.full(n, 9, dtype=np.int32),
            "verdict": np.where(p < 0.5, "noisy", "clean"),
            "truth": np.where(wrong, "noisy", "clean") if noise else np.full(n, None, dtype=object),
        }
    )
    frame.loc[frame["p_clean"].idxmin(), ["translation", "source_text"]] = HOSTILE
    frame = frame.assign(**dict.fromkeys(diagnosis.TRAJECTORY))
    if share:
        frame["verdict"] = np.where(frame["place"] <= round(share * n), "noisy", "clean")
    called = frame["verdict"] == "noisy"
    found: dict[str, Any] | None = None
    if noise:
        true = frame["truth"] == "noisy"
        found = {
            "auroc": 0.97,
            "average_precision": 0.95,
            "precision": float((called & true).sum() / max(called.sum(), 1)),
            "recall": float((called & true).sum() / true.sum()),
            "f1": 0.9,
            "false_alarms": float((called & ~true).sum() / (~true).sum()),
            "accuracy": 0.9,
        }
    worst = frame.sort_values("p_clean").head(20)
    shown = ["slot_id", "item_id", "source_text", "translation", "back", "p_clean", "uncertainty", "truth"]
    summary = {
        "run": run.name,
        "method": label.split(" ")[0],
        "label": label,
        "noise": noise,
        "seed": seed,
        "lang": "es",
        "judge": judge,
        "judge_side": "" if judge in ("triangle", "none") else "cross_lingual",
        "split": {"by": "share", "share": share} if share else {"by": "mixture"},
        "pairs": n,
        "called_noisy": int(called.sum()),
        "called_noisy_rare": 0,
        "share_noisy": float(called.mean()),
        "detection": found,
        "calibration": {"ece": 0.02} if noise else None,
        "uncertainty": {"clean": 0.2, "noisy": 0.4},
        "most_suspicious": worst[shown].astype(object).where(worst[shown].notna(), None).to_dict("records"),
    }

    def write(site: Build) -> dict[str, int]:
        floats = {f.name: np.float32 for f in diagnosis.PAIRS if str(f.type) == "float"}
        write_table(site.folder / "pairs.parquet", frame.astype(floats), diagnosis.PAIRS)
        base.write_json(site.folder / "summary.json", summary)
        return {"pairs": n}

    return build_artifact(workspace, "diagnosis", name, {"judge": judge, "share": share}, [run], write=write)
