"""Train and measure one cell, and keep its row in a file."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import torch

from ccr_cli.artifacts import base, evaluation, run
from ccr_cli.artifacts.signature import is_translate_test
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.stage import train_on
from robustness import code
from robustness.collection import Collection
from robustness.grid import WHERE, Cell, language

DIRECTIONS = ("t2v", "v2t")
KS = (1, 5, 10)
WEIGHTLESS = "fused 0raw"
"""What rows call translate-test."""
JUDGED = ("auroc", "precision", "recall", "false_alarms", "share_noisy")


def read(folder: Path) -> list[dict[str, Any]]:
    """Every row that was ever kept, in the order in which they came."""
    path = folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def append(folder: Path, row: Mapping[str, Any]) -> None:
    """Keeps a row; several processes may do so at once."""
    folder.mkdir(parents=True, exist_ok=True)
    line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
    handle = os.open(folder / "runs.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line)  # one call, so that lines of two processes do not mix
    finally:
        os.close(handle)


def now() -> str:
    """The time, as rows have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def perform(cell: Cell, collection: Collection, *, device: str = "cpu", keep: bool = False) -> dict[str, Any]:
    """Trains and measures a cell.

    Args:
        cell: What to run.
        collection: From what.
        device: `cpu` or `cuda`.
        keep: Leave run and evaluation in the workspace.

    Returns:
        Its row.
    """
    started = time.monotonic()
    sources, inputs = collection.sources(cell), Inputs(collection.workspace)
    settings = dict(cell.options)
    if cell.needs_teacher and cell.config["teacher"]:
        settings["teacher"] = str(collection.sentences)
    elif cell.needs_teacher:
        inputs.named = [_teacher(cell, collection, device)]
    before = time.process_time()
    options = TrainingOptions(
        method=cell.method,
        settings=settings,
        seed=cell.seed,
        device=device,
        name=cell.name,
        force=True,  # resumes a stopped run, and replaces one of other defaults
    )
    trained = train_on(inputs, sources, options)
    cpu_seconds = time.process_time() - before
    protocols = [EvaluationOptions(split="val-report")]
    if language(cell.translations) == "fr":
        protocols.append(EvaluationOptions(split="val-report", translate_test=True))
    made = [evaluate(inputs, trained, measured, device=device, force=True) for measured in protocols]
    row = {
        "when": now(),
        "method": cell.method,
        **dict(zip(WHERE, cell.where, strict=True)),
        "config": cell.config,
        **_figures(made),
        "judge": _judge(trained),
        "epochs": [round(value, 2) for value in run.history(trained)["val.SumR"]],
        "best_epoch": trained.counts["best_epoch"],
        "steps": trained.counts["steps"],
        "parameters": trained.counts["parameters"],
        "seconds": trained.about["environment"]["seconds"],
        "cpu_seconds": round(cpu_seconds, 1),
        "code": code.version(),
        "sources": cell.sources,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {device}, {torch.get_num_threads()} threads",
        "wall": round(time.monotonic() - started, 1),
    }
    if not keep:
        for artifact in (trained, *made):
            shutil.rmtree(artifact.path)
    return row


def _teacher(cell: Cell, collection: Collection, device: str) -> base.Artifact:
    """A run on pictures and English alone, with the mismatch of the student unless that moves translations alone."""
    noise = 0.0 if cell.target == "translation" else cell.noise
    cell = replace(cell, method="source-only", options=(), noise=noise)
    sources = replace(collection.sources(cell), translated=(), second=None)
    options = TrainingOptions(method="source-only", seed=cell.seed, device=device)
    with filelock.FileLock(collection.workspace.root / "claims" / f"{cell.name}.teacher.lock"):
        return train_on(Inputs(collection.workspace), sources, options)


def _figures(made: list[base.Artifact]) -> dict[str, Any]:
    """What the tables show: queries as they are; beside them other readings, fused and translated queries."""
    results = evaluation.results(made[0])
    number, result = next((i, r) for i, r in enumerate(results) if r["role"] == "target" and _plain(r))
    others = {r["reading"] or f"fused {r['fusion']}": r for r in results if r["role"] == "target" and not _plain(r)}
    others |= {"source language": next(r for r in results if r["role"] == "source" and _plain(r))}
    for artifact in made[1:]:
        others[WEIGHTLESS] = next(r for r in evaluation.results(artifact) if is_translate_test(r["fusion"]))
    hits = per_item(evaluation.read_ranks(made[0]), number)
    total = sum_r(hits)
    assert abs(total - result["SumR"]) < 1e-6, f"SumR {result['SumR']} is {total} summed over items"
    return {
        "SumR": round(result["SumR"], 6),
        **{d: {f"R@{k}": round(result[d][f"R@{k}"], 4) for k in KS} for d in DIRECTIONS},
        "others": {name: round(r["SumR"], 4) for name, r in others.items()},
        "uncertainty": _uncertainty(result),
        "found": hits,
        "signature": str(result["signature"]),
    }


def _uncertainty(result: Mapping[str, Any]) -> dict[str, Any]:
    """What each score of a query's uncertainty is worth, by direction and name; `own` is the method's."""
    main = "softmax" if result["signature"].unc == "softmax" else "own"
    return {
        direction: {
            name: {key: round(score[key], 4) for key in ("auroc", "aurc")}
            for name, score in {main: scores, **scores["trivial"]}.items()
        }
        for direction, scores in result["calibration"].items()
    }


def _plain(result: Mapping[str, Any]) -> bool:
    return result["fusion"] == "none" and not result.get("reading")


def per_item(ranks: pd.DataFrame, number: int) -> dict[str, Any]:
    """How often each item was found: hits at 1, 5 and 10 over its queries of a direction, a hexadecimal digit an item.

    Args:
        ranks: Of an evaluation, with query ids that begin with the item's id and, for captions, `#`.
        number: Which result.

    Returns:
        `t2v` and `v2t`, digits in the order of the items' ids, and `queries`, the captions of an item.
    """
    rows = ranks[ranks["result"] == number]
    hits = sum((rows["rank"] <= k).astype(int) for k in KS)
    rows = rows.assign(hits=hits, item=rows["query_id"].str.partition("#")[0])
    out: dict[str, Any] = {}
    for direction in DIRECTIONS:
        part = rows[rows["direction"] == direction].groupby("item", sort=True)["hits"]
        out[direction] = "".join(f"{n:x}" for n in part.sum())
        if direction == "t2v":
            queries = set(part.size())
            assert len(queries) == 1, "items have different numbers of queries"
            out["queries"] = int(queries.pop())
    return out


def values(hits: Mapping[str, Any]) -> list[float]:
    """What each item adds to SumR, of which SumR is the mean."""
    pairs = zip(hits["t2v"], hits["v2t"], strict=True)
    return [100 * (int(t, 16) / hits["queries"] + int(v, 16)) for t, v in pairs]


def sum_r(hits: Mapping[str, Any]) -> float:
    """SumR from what each item adds."""
    parts = values(hits)
    return sum(parts) / len(parts)


def _judge(trained: base.Artifact) -> dict[str, float | None]:
    """What the judge said after the epoch that was kept, against the truth where it is known."""
    history = run.history(trained)
    best = history[history["epoch"] == trained.counts["best_epoch"]].iloc[0]
    names = [str(name).removeprefix("judge.") for name in history.columns if str(name).startswith("judge.wrong_")]
    kept = {name: best.get(f"judge.{name}") for name in (*JUDGED, *names)}
    return {name: None if value is None or pd.isna(value) else round(float(value), 6) for name, value in kept.items()}
