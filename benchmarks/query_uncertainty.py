"""Find the uncertainty of a query that best detects a wrong first result: AUROC, with the plain similarities.

Subjective uncertainty (UML) over a number of candidates, and the method's own. Validation items only: those that did
not choose the epoch, and all of them, for two sizes of gallery.

    python benchmarks/query_uncertainty.py WORKSPACE LANG RUN [RUN ...] --out benchmarks/results/query_uncertainty.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import roc_auc_score

import ccr_cli
from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.losses.evidential import query_uncertainty
from ccr_cli.stages.evaluate.uncertainty import query_uncertainty as own_uncertainty
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import gallery

CANDIDATES = (2, 3, 4, 8, 16, 32, 64, 128, None)
CPU = torch.device("cpu")


def measure(inputs: Inputs, trained: base.Artifact, lang: str, split: str) -> dict[str, Any]:
    """AUROC and mean of the uncertainty by number of candidates; None is the whole gallery."""
    method, tokenizer = load_method(trained, CPU)
    data = dataset.read(inputs.parent(trained, "dataset"))
    captions = data.captions[data.captions["lang"] == lang]
    items = gallery(
        data, inputs.parent(trained, "features"), split, captions, f"{lang} captions", method.config.needs()
    )
    visual = embed_visuals(method, items.visual, CPU)
    queries = encode_and_embed(method, tokenizer, items.texts, CPU)
    sim_QG = queries @ visual.T
    wrong_Q = (sim_QG.argmax(dim=1) != torch.from_numpy(items.item_T)).numpy()
    found: dict[str, Any] = {"run": trained.name, "split": split, "queries": len(sim_QG), "items": len(visual)}
    found["R@1"] = round(100 * float(1 - wrong_Q.mean()), 1)
    for count in CANDIDATES:
        if count is None or count < len(visual):
            u_Q = query_uncertainty(sim_QG, candidates=count)
            auroc = round(float(roc_auc_score(wrong_Q, u_Q.numpy())), 3)
            found[f"top{count}" if count else "gallery"] = {"auroc": auroc, "mean": round(float(u_Q.mean()), 3)}
    top_Q2 = sim_QG.topk(2, dim=1).values
    plain = {"1 - highest similarity": -top_Q2[:, 0], "1 - lead over the second": top_Q2[:, 1] - top_Q2[:, 0]}
    own_Q = own_uncertainty(method, queries, visual)
    if own_Q is not None:
        plain["the method's own"] = torch.from_numpy(own_Q)
        found["stated R@1"] = round(100 * float(1 - own_Q.mean()), 1)
    for name, u_Q in plain.items():
        found[name] = {"auroc": round(float(roc_auc_score(wrong_Q, u_Q.numpy())), 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("lang")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace(options.workspace.absolute())
    inputs = Inputs(workspace)
    runs = [base.load(workspace.root / "runs" / name, "run") for name in options.runs]
    rows = [measure(inputs, run, options.lang, split) for run in runs for split in ("val-report", "val")]
    earlier = base.read_json(options.out)["rows"] if options.out.exists() else []
    kept = [row for row in earlier if row["run"] not in options.runs]
    what = "AUROC of a query's uncertainty (UML eq. (2)) against a wrong first result, by number of candidates"
    base.write_json(options.out, {"what": what, "ccr": ccr_cli.__version__, "rows": [*kept, *rows]})
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
