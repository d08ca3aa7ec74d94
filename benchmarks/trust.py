"""Measure whether uncertainty rises when queries are corrupted, and whether it detects queries without a match.

Flickr8k-CN, the reported half of validation. For every run: figures under corruption (words dropped, replaced,
shuffled; features masked) and how well intact and corrupted queries are separated; queries of items taken out of the
gallery, and captions of another data set; the spread of ten draws of the corruption; and retrieval of sentences by
their translations (NRCCR, Table 5). The trivial scores are listed with the method's own uncertainty.

    python benchmarks/trust.py WORKSPACE --lang zh --other noto-emoji --out benchmarks/results/trust.json RUN [RUN ...]

The collection is not part of this project. Evaluations are made by `ccr evaluate --corrupt`, `--ood` and `--task text`
and not repeated. Prints the tables of docs/evaluate.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ccr_cli
from ccr_cli.artifacts import base, dataset, evaluation, run
from ccr_cli.artifacts.evaluation import CORRUPTIONS
from ccr_cli.artifacts.signature import Signature
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.metrics.corruption import corrupt_texts
from ccr_cli.stages.evaluate.options import HALF, EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.evaluate.uncertainty import uncertainties
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.scoring import EmbeddedGallery, score_gallery
from ccr_cli.stages.shared.triplets import gallery

SPLIT = "val-report"
SHARES = (0.3, 0.6)
DRAWS = 10
CPU = torch.device("cpu")
DIRECTIONS = ("t2v", "v2t")


def evaluations(lang: str, other: str) -> Iterator[tuple[str, EvaluationOptions]]:
    """What is measured, under a name."""
    usual = EvaluationOptions(split=SPLIT, langs=(lang,))
    for how in CORRUPTIONS:
        for share in SHARES:
            yield f"{how} {share:g}", replace(usual, corrupt=share, corruption=how)
    yield "half", replace(usual, ood=HALF)
    yield other, replace(usual, ood=other)
    yield "text", replace(usual, task="text")


def measure(inputs: Inputs, trained: base.Artifact, lang: str, other: str) -> Iterator[dict[str, Any]]:
    """The results of a run in the language, a row each."""
    settings = run.config(trained)
    about = {"run": trained.name, "method": settings["method"], "noise": (settings["noise"] or {}).get("ratio", 0.0)}
    for name, options in evaluations(lang, other):
        for result in evaluation.results(evaluate(inputs, trained, options, device="cpu")):
            plain = result["lang"] == lang and result["fusion"] == "none" and not result["reading"]
            if plain and ("corrupt" in result) == bool(options.corrupt):
                yield about | {"asked": name} | figures_of(result)


def figures_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a result."""
    figures = {key: result[key] for key in ("corrupt", "uncertainty", "told_apart", "ood") if key in result}
    figures["signature"] = str(result["signature"])
    for direction in DIRECTIONS:
        figures[direction] = {each: result[direction][each] for each in ("R@1", "R@5", "R@10", "MedR", "mAP")}
        figures[direction]["mAP_interval"] = result["intervals"][direction]["mAP"]
    kept: dict[str, Any] = rounded(figures | {"SumR": result["SumR"], "SumR_interval": result["intervals"]["SumR"]})
    return kept


def draws(inputs: Inputs, trained: base.Artifact, lang: str) -> dict[str, Any]:
    """Deviation, over draws of the words that are dropped, of SumR and of the mean of every score."""
    method, tokenizer = load_method(trained, CPU)
    data = dataset.read(inputs.parent(trained, "dataset"))
    captions = data.captions[data.captions["lang"] == lang]
    feats = inputs.parent(trained, "features")
    searched = gallery(data, feats, SPLIT, captions, f"{lang} captions", method.config.needs())
    visual_VD = embed_visuals(method, searched.visual, CPU)
    values: dict[str, list[float]] = {}
    for seed in range(DRAWS):
        texts = corrupt_texts(searched.texts, SHARES[0], "drop", lang, seed)
        text_TD = encode_and_embed(method, tokenizer, texts, CPU)
        sides = EmbeddedGallery(replace(searched, texts=texts), visual_VD, text_TD)
        values.setdefault("SumR", []).append(score_gallery(sides).sum_r)
        for direction, queries in sides.queries().items():
            for name, score_Q in uncertainties(method, queries).items():
                values.setdefault(f"{direction} {name}", []).append(float(score_Q.mean()))
    spread = {name: [float(np.mean(each)), float(np.std(each, ddof=1))] for name, each in values.items()}
    return {"run": trained.name, "draws": DRAWS, "corrupt": f"drop{SHARES[0]:g}", "mean_sd": rounded(spread)}


def rounded(value: Any) -> Any:
    """The same with numbers of five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def tables(rows: Sequence[Mapping[str, Any]], other: str) -> Iterator[str]:
    """The tables of docs/evaluate.md."""
    scores = "uncertainty | top similarity | margin"
    for name in dict.fromkeys(row["run"] for row in rows):
        own = [row for row in rows if row["run"] == name and "told_apart" in row]
        yield f"\n**{_named(own[0])}: intact or corrupted?**\n"
        yield f"| corrupted | SumR | AUROC, captions: {scores} | pictures: {scores} |\n| --- |{' ---: |' * 7}"
        for row in own:
            yield f"| {row['asked']} | {row['SumR']:.0f} | {_cells(row['told_apart'])}"
    yield "\n**Does the query belong to the gallery?**\n"
    yield f"| | | captions: {scores} | pictures: {scores} |\n| --- | --- |{' ---: |' * 6}"
    for row in rows:
        if row["asked"] in (HALF, other):
            yield f"| {_named(row)} | {row['asked']} | {_cells(row['ood'])}"
    yield "\n**Sentences find their translations**\n"
    yield f"| | right | mAP | R@1 | R@5 | R@10 | mAP, the other way |\n| --- | --- |{' ---: |' * 5}"
    for row in rows:
        if row["asked"] == "text":
            own, (low, high) = row["t2v"], row["t2v"]["mAP_interval"]
            right = "its own" if Signature.parse(row["signature"]).pos == "caption" else "any of the picture's"
            recalls = " | ".join(f"{own[figure]:.1f}" for figure in ("R@1", "R@5", "R@10"))
            figures = f"{own['mAP']:.1f} ± {(high - low) / 2:.1f} | {recalls} | {row['v2t']['mAP']:.1f}"
            yield f"| {_named(row)} | {right} | {figures} |"


def _named(row: Mapping[str, Any]) -> str:
    return f"`{row['method']}`, {row['noise']:.0%}"


def _cells(scores: Mapping[str, Any]) -> str:
    """AUROC of every score, both ways; * the method's own is above it, ! below it."""
    cells = []
    for direction in DIRECTIONS:
        score = scores.get(direction)
        cells.append(f"{score['auroc']:.3f}" if score and "auroc" in score else "")
        for each in score["trivial"].values() if score else ({}, {}):
            low, high = each.get("gap") or (0, 0)
            cells.append(f"{each['auroc']:.3f}{'*' if low > 0 else '!' if high < 0 else ''}" if each else "")
    return " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--lang", required=True)
    parser.add_argument("--other", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace(options.workspace.absolute())
    inputs = Inputs(workspace)
    runs = [base.load(workspace.root / "runs" / name, "run") for name in options.runs]
    rows = [row for trained in runs for row in measure(inputs, trained, options.lang, options.other)]
    spread = [draws(inputs, trained, options.lang) for trained in runs]
    what = "uncertainty of corrupted queries and of queries that do not belong to the gallery; text to text"
    base.write_json(options.out, {"what": what, "ccr": ccr_cli.__version__, "rows": rows, "draws": spread})
    print("\n".join(tables(rows, options.other)))
    for each in spread:
        print(each)


if __name__ == "__main__":
    main()
