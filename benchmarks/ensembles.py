"""Measure what averaging runs is worth, and which uncertainty detects a wrong first result.

Flickr8k-CN, the reported half of validation: each run, the runs of each method as one ensemble, and all runs as one,
always of one draw of the mismatch, as one user has it: runs of three draws have seen each caption right more often than
one run can. AUROC and AURC of the method's own uncertainty, a softmax, the disagreement of the runs and trivial scores.

    ccr train DATA TRANSLATIONS FEATURES --method infonce --noise 0.4 --noise-seed 0 --sweep seed=0,1,2
    python benchmarks/ensembles.py WORKSPACE --lang zh --out benchmarks/results/ensembles.json RUN [RUN ...]

The collection is not part of this project. Evaluations are made by `ccr evaluate` and `ccr evaluate --ensemble`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import ccr_cli
from ccr_cli.artifacts import base, evaluation, run
from ccr_cli.artifacts.signature import noise_value
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.shared.inputs import Inputs

SPLIT = "val-report"
DIRECTIONS = ("t2v", "v2t")
ALL = "all methods"
SCORES = ("own", "softmax", "top similarity", "margin", "disagreement")


def groups(runs: Sequence[base.Artifact]) -> Iterator[list[base.Artifact]]:
    """Each run alone; and of each draw of the mismatch those of a method together, and all."""
    together: dict[tuple[str, str], list[base.Artifact]] = {}
    for each in runs:
        config = run.config(each)
        draw = noise_value(config["noise"])
        for method in (config["method"], ALL):
            together.setdefault((draw, method), []).append(each)
        yield [each]
    made = {tuple(each.id for each in group): group for group in together.values() if len(group) > 1}
    yield from made.values()  # of one method alone, all are its own


def measure(inputs: Inputs, runs: Sequence[base.Artifact], lang: str) -> dict[str, Any]:
    """What is kept of the result in the language."""
    made = evaluate(inputs, runs, EvaluationOptions(split=SPLIT, langs=(lang,)), device="cpu")
    result = next(
        r for r in evaluation.results(made) if r["lang"] == lang and r["fusion"] == "none" and not r["reading"]
    )
    kept = {key: result[key] for key in ("run", "label", "noise", "SumR", "temperature")}
    kept["signature"] = str(result["signature"])
    kept["draws"] = len({noise_value(run.config(each)["noise"]) for each in runs})
    kept["SumR_interval"] = result["intervals"]["SumR"]
    for direction in DIRECTIONS:
        scores = result["calibration"][direction]
        main = "softmax" if result["signature"].unc == "softmax" else "own"
        kept[direction] = {
            "R@1": result[direction]["R@1"],
            "ece": scores.get("ece"),
            main: {key: scores[key] for key in ("auroc", "aurc")},
            **{
                name: {key: each.get(key) for key in ("auroc", "aurc", "gaps")}
                for name, each in scores["trivial"].items()
            },
        }
    return kept


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of docs/evaluate.md: runs alone, and as one; `*`: the main uncertainty is above it, `!`: below."""
    heads = " | ".join(f"{name}, {direction}" for direction in DIRECTIONS for name in SCORES)
    yield f"| | SumR | {heads} | ECE, t2v |\n| --- | ---: |{' ---: |' * (2 * len(SCORES) + 1)}"
    for row in rows:
        cells = []
        for direction in DIRECTIONS:
            for name in SCORES:
                each = row[direction].get(name)
                low, high = ((each or {}).get("gaps") or {}).get("auroc") or (0, 0)
                cells.append(f"{each['auroc']:.3f}{'*' if low > 0 else '!' if high < 0 else ''}" if each else "")
        low, high = row["SumR_interval"]
        ece = row["t2v"]["ece"]
        texts = [f"{row['SumR']:.1f} ± {(high - low) / 2:.1f}", *cells, "" if ece is None else f"{ece:.3f}"]
        yield f"| `{row['label']}` | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--lang", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace(options.workspace.absolute())
    runs = [base.load(workspace.root / "runs" / name, "run") for name in options.runs]
    rows = [measure(Inputs(workspace), group, options.lang) for group in groups(runs)]
    what = "runs alone and averaged, and what their uncertainty knows of a wrong first result"
    base.write_json(options.out, {"what": what, "ccr": ccr_cli.__version__, "rows": rows})
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
