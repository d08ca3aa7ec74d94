"""Train FUME on the Wikipedia collection: which loss terms retrieve, and whether its uncertainty can be trusted.

mAP over all results, picture to text and text to picture, with L_fml, L_cl and both (the paper's Table 2); fuzzy
against evidential learning: deletion curves (Figure 3) and classification of pictures (Figure 5); uncertainty of two
untrained categories (Figure 4, with categories for data sets): its density in and out of distribution. 15 % of the
training items choose the epoch; each run is evaluated on the 693 test items once.

    python benchmarks/fume_wikipedia.py wiki.mat --workspace FOLDER --out benchmarks/results/fume_wikipedia.json \
        --figure docs/images/fume-wikipedia.svg --density docs/images/fume-wikipedia-density.svg

The collection is not part of this project. 27 runs of 10 to 20 seconds on one core; finished ones are skipped.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import ccr_cli
from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.losses.credibility import credibility
from ccr_cli.metrics.detection import auroc
from ccr_cli.report.figures.canvas import CLEAN, FAINT, NOISY, drawing, new_figure, to_svg
from ccr_cli.stages.data.feature_files import import_mat
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.shared.embedding import encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.stage import train_on

SEEDS = (0, 1, 2)
LEFT_OUT = "3,8"
"""History and sport."""
ROWS: dict[str, dict[str, Any]] = {
    "L_fml": {"alpha": 0.0},
    "L_cl": {"fuzzy_weight": 0.0},
    "both": {},
    "both, alpha 0.05": {"alpha": 0.05},
    "both, as many dimensions as categories": {"dim": 10},
    "both, v = j left out": {"include_self": False},
    "evidential": {"credibility": "evidential"},
    "both, two categories left out": {"left_out": LEFT_OUT},
    "evidential, two categories left out": {"credibility": "evidential", "left_out": LEFT_OUT},
}
FUZZY, EVIDENTIAL = "both", "evidential"
DIRECTIONS = {"v2t": "picture to text", "t2v": "text to picture"}
SIDES = {"pictures": "pictures", "texts": "texts", "pairs": "both together, eq. (10)"}
BINS = 25
"""Of the densities, over [0, 1]."""
CPU = torch.device("cpu")


def run(inputs: Inputs, data: base.Artifact, feats: base.Artifact, label: str, seed: int) -> dict[str, Any]:
    """Trains and evaluates one row with one seed."""
    options = TrainingOptions(method="fume", settings=ROWS[label], seed=seed, device="cpu")
    trained = train_on(inputs, Sources(data, (), feats, None), options)
    (result,) = evaluation.results(evaluate(inputs, trained, device="cpu"))
    return {
        "row": label,
        "seed": seed,
        "signature": str(result["signature"]),
        "epoch": trained.counts["best_epoch"],
        "mAP": {d: round(result[d]["mAP"], 2) for d in DIRECTIONS},
        "auroc": {d: _rounded(result["calibration"][d]["auroc"]) for d in DIRECTIONS},
        "deletion": result["deletion"],
        "ood": result.get("ood"),
        "pictures": classification(inputs, trained, data, feats),
        "in_and_out": in_and_out(trained, data, feats) if "left_out" in ROWS[label] else None,
    }


@torch.no_grad()
def in_and_out(trained: base.Artifact, data: base.Artifact, feats: base.Artifact) -> dict[str, Any]:
    """Figure 4: densities of uncertainty of the test items, of categories trained on and of those left out."""
    method, tokenizer = load_method(trained, CPU)
    config: Any = method.config
    read = dataset.read(data)
    items = items_of(read.items, "test")
    text_of = dict(zip(read.captions["item_id"], read.captions["text"], strict=True))
    label_of = dict(zip(items["item_id"], items["label"], strict=True))
    visual, ids = read_visuals(feats, list(items["item_id"]), frozenset())
    texts_TD = encode_and_embed(method, tokenizer, [text_of[i] for i in ids], CPU)
    v_VD = method.embed_visual(visual)
    u_V, u_T = (method.score(x, v_VD[:1])[1].double().numpy() for x in (v_VD, texts_TD))  # type: ignore[union-attr]
    out_V = np.isin([label_of[i] for i in ids], [int(label) for label in config.left_out.split(",")])
    curves_of: dict[str, Any] = {}
    for side, unc_V in (("pictures", u_V), ("texts", u_T), ("pairs", 1 - (1 - u_V) * (1 - u_T))):
        densities = (np.histogram(unc_V[own], BINS, (0, 1), density=True)[0] for own in (~out_V, out_V))
        curves_of[side] = {
            "auroc": _rounded(auroc(unc_V, out_V)),
            **dict(zip(("in", "out"), ([round(float(x), 3) for x in density] for density in densities), strict=True)),
        }
    return curves_of


@torch.no_grad()
def classification(inputs: Inputs, trained: base.Artifact, data: base.Artifact, feats: base.Artifact) -> dict[str, Any]:
    """Figure 5 in numbers: uncertainty, and entropy of the normalised scores, of the test pictures as classified."""
    method, _ = load_method(trained, CPU)
    config: Any = method.config
    read = dataset.read(data)
    left_out = {int(label) for label in config.left_out.split(",") if label}
    items = items_of(read.items, "test")
    items = items[~items["label"].isin(left_out)]
    names = sorted(set(read.items["label"]) - left_out)
    visual, ids = read_visuals(feats, list(items["item_id"]), frozenset())
    v_VD = method.embed_visual(visual)
    m_VK = method.categories(v_VD)  # type: ignore[operator]
    share_VK = credibility(m_VK) if config.credibility == "fuzzy" else m_VK + 1
    share_VK = share_VK / share_VK.sum(dim=1, keepdim=True)
    entropy_V = torch.special.entr(share_VK).sum(dim=1).numpy()
    unc_V = method.score(v_VD, v_VD[:1])[1].numpy()  # type: ignore[union-attr]
    label_of = dict(zip(items["item_id"], items["label"], strict=True))
    true_V = np.array([names.index(label_of[i]) for i in ids])
    wrong_V = share_VK.argmax(dim=1).numpy() != true_V
    low, middle, high = np.quantile(unc_V, [0.05, 0.5, 0.95])
    return {
        "accuracy": round(100 * float(1 - wrong_V.mean()), 1),
        "uncertainty": {"5%": _rounded(low), "50%": _rounded(middle), "95%": _rounded(high)},
        "auroc_wrong": _rounded(auroc(unc_V, wrong_V)),
        "rank_correlation_with_entropy": _rounded(float(spearmanr(unc_V, entropy_V).statistic)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of what is one number a run."""
    out: dict[str, Any] = {}
    for label in ROWS:
        own = [row for row in rows if row["row"] == label]
        summary: dict[str, Any] = {}
        for direction in DIRECTIONS:
            summary[f"mAP {direction}"] = _mean([row["mAP"][direction] for row in own], 1)
            summary[f"AUROC wrong first result {direction}"] = _mean([row["auroc"][direction] for row in own], 3)
            if own[0]["ood"]:
                summary[f"AUROC left out {direction}"] = _mean([row["ood"][direction]["auroc"] for row in own], 3)
        if own[0]["in_and_out"]:
            summary["AUROC left out, pairs"] = _mean([row["in_and_out"]["pairs"]["auroc"] for row in own], 3)
        for key in ("accuracy", "auroc_wrong", "rank_correlation_with_entropy"):
            summary[f"pictures {key}"] = _mean([row["pictures"][key] for row in own], 3)
        summary["pictures uncertainty"] = {
            share: _mean([row["pictures"]["uncertainty"][share] for row in own], 3)["mean"]
            for share in ("5%", "50%", "95%")
        }
        out[label] = summary
    return out


def _mean(values: Sequence[float], digits: int) -> dict[str, float]:
    return {"mean": round(statistics.fmean(values), digits), "sd": round(statistics.stdev(values), digits)}


def curves(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Deletion curves, means over seeds, of fuzzy learning (by uncertainty and by similarity) and evidential."""
    out: dict[str, Any] = {}
    for name, label, kind in (
        ("uncertainty", FUZZY, "uncertainty"),
        ("similarity", FUZZY, "similarity"),
        ("evidential", EVIDENTIAL, "uncertainty"),
    ):
        own = [row["deletion"] for row in rows if row["row"] == label]
        out[name] = {
            direction: [
                {
                    key: round(statistics.fmean(deletion[direction][kind][at][key] for deletion in own), 3)
                    for key in ("rate", "pairs", "positives", "queries", "map_kept", "map_all")
                }
                for at in range(len(own[0][direction][kind]))
            ]
            for direction in DIRECTIONS
        }
    own = [row["deletion"] for row in rows if row["row"] == FUZZY]
    keys = ("rate", "queries", "map_kept", "map_all")
    out["uncertainty 0.5"] = {
        d: {key: round(statistics.fmean(deletion[d]["threshold"][key] for deletion in own), 3) for key in keys}
        for d in DIRECTIONS
    }
    return out


def densities(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Densities of uncertainty in and out of distribution, means over seeds."""
    out: dict[str, Any] = {}
    for name, label in (("fuzzy", FUZZY), ("evidential", EVIDENTIAL)):
        own = [row["in_and_out"] for row in rows if row["row"] == f"{label}, two categories left out"]
        out[name] = {
            side: {
                which: [round(statistics.fmean(x), 3) for x in zip(*(each[side][which] for each in own), strict=True)]
                for which in ("in", "out")
            }
            for side in SIDES
        }
    return out


def draw_densities(curves_of: dict[str, Any]) -> str:
    """A panel for each side of either way to learn."""
    edges = np.linspace(0, 1, BINS + 1)
    with drawing():
        figure = new_figure(11.5, 5.6)
        for line, (name, sides) in zip(figure.subplots(2, 3, sharex=True), curves_of.items(), strict=True):
            for panel, (side, title) in zip(line, SIDES.items(), strict=True):
                for which, color, what in (("in", CLEAN, "trained on"), ("out", NOISY, "left out")):
                    density = sides[side][which]
                    panel.stairs(density, edges, fill=True, alpha=0.25, color=color)
                    panel.stairs(density, edges, color=color, linewidth=1.8, label=what)
                panel.set_title(f"{name}: {title}")
                panel.set_xlim(0, 1)
            line[0].set_ylabel("density")
        figure.axes[0].legend(loc="upper left", title="categories", alignment="left", fontsize=9)
        for panel in figure.axes[-3:]:
            panel.set_xlabel("uncertainty")
        return to_svg(figure)


LOOKS = {"uncertainty": (CLEAN, "o"), "evidential": (NOISY, "^"), "similarity": (FAINT, "s")}
NAMES = {
    "uncertainty": "fuzzy: uncertainty",
    "evidential": "evidential: uncertainty",
    "similarity": "fuzzy: similarity",
}


def draw(curves_of: dict[str, Any], queries: int) -> str:
    """Two panels of mAP and one of the queries that keep an answer, against the share deleted."""
    with drawing():
        figure = new_figure(11.5, 4.3)
        axes = figure.subplots(1, 3)
        for panel, direction in zip(axes, DIRECTIONS, strict=False):
            for name, (color, marker) in LOOKS.items():
                points = curves_of[name][direction]
                rate = [100 * p["rate"] for p in points]
                look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 5}
                panel.plot(rate, [p["map_kept"] for p in points], **look, label=NAMES[name])
                panel.plot(rate, [p["map_all"] for p in points], **look, linestyle=(0, (4, 2)), markerfacecolor="white")
            panel.set_title(DIRECTIONS[direction])
            panel.set_ylim(0, 90)
        axes[0].set_ylabel("mAP of what is kept, %")
        axes[0].plot([], [], color=FAINT, label="over queries that keep an answer")
        axes[0].plot([], [], color=FAINT, linestyle=(0, (4, 2)), label="over all queries")
        axes[0].legend(loc="upper left", fontsize=8.5)
        for name, (color, marker) in LOOKS.items():
            points = curves_of[name]["v2t"]
            shares = [100 * p["queries"] / queries for p in points]
            axes[2].plot([100 * p["rate"] for p in points], shares, color=color, marker=marker, markersize=5)
        axes[2].set_title("picture queries that keep an answer")
        axes[2].set_ylabel("share, %")
        axes[2].set_ylim(0, 104)
        for panel in axes:
            panel.set_xlabel("pairs deleted, the most doubtful first, %")
            panel.set_xticks(range(0, 100, 20))
        return to_svg(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mat", type=Path)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--density", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    inputs = Inputs(Workspace(options.workspace.absolute()))
    data, feats = import_mat(inputs.workspace, options.mat)
    rows = [run(inputs, data, feats, label, seed) for label in ROWS for seed in SEEDS]
    deletion, shapes = curves(rows), densities(rows)
    base.write_json(
        options.out,
        {
            "what": "mAP@all in percent on the 693 test items of Wikipedia (SVCL); mean and sd of three seeds",
            "ccr": ccr_cli.__version__,
            "summary": summary(rows),
            "deletion": deletion,
            "density": shapes | {"bins": BINS},
            "runs": [{key: row[key] for key in row if key not in ("deletion", "in_and_out")} for row in rows],
        },
    )
    if options.figure:
        options.figure.write_text(draw(deletion, int(deletion["uncertainty"]["v2t"][0]["queries"])), encoding="utf-8")
    if options.density:
        options.density.write_text(draw_densities(shapes), encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
