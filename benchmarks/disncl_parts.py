"""Measure whether the parts of trained `disncl` models are separate: information, retrieval and a map.

    python benchmarks/disncl_parts.py WORKSPACE LANG RUN [RUN ...] --out FILE.json --figure FILE.png

- I(S; X), the information between the shared and the exclusive part of a picture (or text), by MINE (Belghazi et al.,
  ICML 2018). The statistic is clamped to [-5, 5], which bounds it at 10 nats; without a clamp, a few strangers dominate
  the mean of its exponential, and values reach hundreds. It is fitted on the training items; its best step is chosen on
  the validation items that chose the run's epoch, and the bound is read on the others. The value on the fitted items,
  as usually reported, grows with the fit and is listed too. So are I(X; whole) and I(S; whole), the same estimator on
  an embedding and its part, which show what it can detect.
- SumR of queries in LANG with either part, and of random vectors.
- t-SNE of S, V_X and T_X, with the silhouette of these three groups.
- All of it for an untrained model too: three linear maps with their own biases separate three groups anyway.

Texts are the source captions, which every split has.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from torch import Tensor
from torch.nn.functional import normalize

import ccr_cli
from ccr_cli.artifacts import base, dataset, run
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokenizer, Tokens
from ccr_cli.losses.disncl import strangers
from ccr_cli.methods.base import Embedder, Method
from ccr_cli.methods.disncl import Discriminator
from ccr_cli.nets.text import text_encoder_from_config
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.scoring import EmbeddedGallery, score_gallery
from ccr_cli.stages.shared.triplets import Gallery, gallery

matplotlib.use("Agg")
from matplotlib import pyplot as plt

CPU = torch.device("cpu")
FIT, CHOOSE, READ = "train", "val-select", "val-report"
STEPS, EVERY, BATCH, HIDDEN, RATE = 600, 20, 256, 128, 5e-4
HIGHEST = 5.0  # of the statistic
MOST, DRAWN = 4000, 200  # rows of a split for the information, and of each kind in the figure
COLOURS = {"V_S": "#0072b2", "T_S": "#56b4e9", "V_X": "#d55e00", "T_X": "#009e73"}
Maps = dict[str, tuple[Tensor, list[str]]]
TERMS = {"L_align": "align_weight", "L_soft": "soft_weight", "L_Dis": "dis_weight", "L_reg": "reg_weight"}
PAIRS = (("S", "X"), ("X", "whole"), ("S", "whole"))


class Whole:
    """The embeddings before they are split."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def embed_visual(self, visual: Frames) -> Tensor:
        """Unit vectors of pictures."""
        return Method.embed_visual(self.method, visual)

    def embed_text(self, tokens: Tokens) -> Tensor:
        """Unit vectors of texts."""
        return Method.embed_text(self.method, tokens)


@dataclass(frozen=True)
class Side:
    """The pictures, or the texts, of one split: their vectors by part, and the item of each row."""

    item_N: Tensor
    part: dict[str, Tensor]


def sides(method: Method, tokenizer: Tokenizer, items: Gallery) -> dict[str, Side]:
    """Both sides of a split, thinned evenly to MOST rows."""
    rows_V, rows_T = (torch.arange(n)[:: -(-n // MOST)] for n in (len(items.visual), len(items.texts)))
    visual, texts = items.visual.select(rows_V), [items.texts[row] for row in rows_T.tolist()]
    models: dict[str, Embedder] = {"S": method, "X": method.readings()["exclusive"], "whole": Whole(method)}
    return {
        "V": Side(rows_V, {part: embed_visuals(model, visual, CPU) for part, model in models.items()}),
        "T": Side(
            torch.from_numpy(items.item_T)[rows_T],
            {part: encode_and_embed(model, tokenizer, texts, CPU) for part, model in models.items()},
        ),
    }


def scores(statistic: Discriminator, left_ND: Tensor, right_ND: Tensor, stranger_N: Tensor) -> tuple[Tensor, Tensor]:
    """The statistic, between -HIGHEST and HIGHEST, of rows that belong together and of strangers."""
    one_N, two_N = statistic(left_ND, right_ND, stranger_N)
    return HIGHEST * torch.tanh(one_N / HIGHEST), HIGHEST * torch.tanh(two_N / HIGHEST)


def donsker_varadhan(joint_N: torch.Tensor, marginal_N: torch.Tensor) -> torch.Tensor:
    """Lower bound of the mutual information, E_joint[T] - log E_marginal[exp T], in nats, in float64: MINE's value.

    Measured on rows that the statistic T was not fitted on, else it grows with the fit.
    """
    joint_N, marginal_N = joint_N.double(), marginal_N.double()
    return joint_N.mean() - (torch.logsumexp(marginal_N, dim=0) - math.log(max(len(marginal_N), 1)))


def bound(statistic: Discriminator, side: Side, left: str, right: str, draws: int = 16) -> float:
    """The Donsker-Varadhan value over all rows, with several strangers each."""
    generator = torch.Generator().manual_seed(0)
    joint, marginal = [], []
    with torch.no_grad():
        for _ in range(draws):
            order_N = torch.randperm(len(side.item_N), generator=generator)
            stranger_N, found_N = strangers(side.item_N[order_N])
            one_N, two_N = scores(statistic, side.part[left][order_N], side.part[right][order_N], stranger_N)
            joint.append(one_N)
            marginal.append(two_N[found_N])
    return float(donsker_varadhan(torch.cat(joint), torch.cat(marginal)))


def information(fit: Side, choose: Side, read: Side, left: str, right: str) -> dict[str, float]:
    """MINE: the bound on held-out rows at the best step, and that of the rows it was fitted on, at the last."""
    torch.manual_seed(0)
    statistic = Discriminator(fit.part[left].shape[1], fit.part[right].shape[1], HIDDEN)
    optimizer = torch.optim.Adam(statistic.parameters(), lr=RATE)
    best, held_out = -np.inf, 0.0
    for step in range(1, STEPS + 1):
        rows_B = torch.randperm(len(fit.item_N))[:BATCH]
        stranger_B, _ = strangers(fit.item_N[rows_B])
        loss = -donsker_varadhan(*scores(statistic, fit.part[left][rows_B], fit.part[right][rows_B], stranger_B))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % EVERY == 0 and (chosen := bound(statistic, choose, left, right)) > best:
            best, held_out = chosen, bound(statistic, read, left, right)
    return {"held out": round(held_out, 3), "fitted": round(bound(statistic, fit, left, right), 3)}


def clusters(side: dict[str, Side]) -> tuple[Tensor, list[str]]:
    """The parts of at most DRAWN pictures and texts, one under the other, and the name of each row."""
    parts = {f"{s}_{part}": side[s].part[part][:DRAWN] for s in "VT" for part in "SX"}
    return torch.cat(list(parts.values())), [name for name, rows in parts.items() for _ in rows]


def measure(method: Method, tokenizer: Tokenizer, split: dict[str, Gallery], queries: Gallery) -> dict[str, Any]:
    """All figures of one model."""
    fit, choose, read = (sides(method, tokenizer, split[name]) for name in (FIT, CHOOSE, READ))
    found: dict[str, Any] = {}
    for side in "VT":
        for left, right in PAIRS:
            name = f"I({side}_{left}; {side}{'' if right == 'whole' else '_' + right})"
            found[name] = information(fit[side], choose[side], read[side], left, right)
    for part, model in (("S", method), ("X", method.readings()["exclusive"])):
        visual_VD = embed_visuals(model, queries.visual, CPU)
        text_TD = encode_and_embed(model, tokenizer, queries.texts, CPU)
        found[f"SumR of {part}"] = round(score_gallery(EmbeddedGallery(queries, visual_VD, text_TD)).sum_r, 1)
    rows_ND, names = clusters(read)
    groups = ["S" if name.endswith("_S") else name for name in names]
    found["silhouette"] = round(float(silhouette_score(rows_ND.numpy(), groups, metric="cosine")), 3)
    return found


def chance(queries: Gallery) -> dict[str, float]:
    """SumR of random vectors."""
    draws = torch.Generator().manual_seed(0)
    sizes = (len(queries.visual), len(queries.texts))
    vectors = ([normalize(torch.randn(n, 64, generator=draws), dim=1) for n in sizes] for _ in range(50))
    values = [score_gallery(EmbeddedGallery(queries, visual_VD, text_TD)).sum_r for visual_VD, text_TD in vectors]
    return {"mean": round(float(np.mean(values)), 1), "sd": round(float(np.std(values)), 1)}


def draw(figure: Path, maps: Maps) -> None:
    """One t-SNE map a model, side by side."""
    _, axes = plt.subplots(1, len(maps), figsize=(4 * len(maps), 4), squeeze=False, layout="constrained")
    for axis, (title, (rows_ND, names)) in zip(axes[0], maps.items(), strict=True):
        at_N2 = TSNE(random_state=0, init="pca", metric="cosine").fit_transform(rows_ND.numpy())
        for name, colour in COLOURS.items():
            here_N = np.array([each == name for each in names])
            axis.scatter(*at_N2[here_N].T, s=8, c=colour, label=f"${name}$")
        axis.set(title=title, xticks=[], yticks=[])
    axes[0][0].legend(markerscale=2)
    plt.savefig(figure, dpi=120, metadata={"Software": None})


def title(method: Method) -> str:
    """What the run was trained with."""
    off = [name for name, weight in TERMS.items() if not getattr(method.config, weight)]
    return f"without {', '.join(off)}" if off else "all terms"


def examine(inputs: Inputs, trained: base.Artifact, lang: str, *, untrained: bool) -> tuple[list[dict[str, Any]], Maps]:
    """Figures and vectors of one run, and of the same model before training if asked for."""
    data, feats = dataset.read(inputs.parent(trained, "dataset")), inputs.parent(trained, "features")
    settings, (method, tokenizer) = run.config(trained), load_method(trained, CPU)
    if "exclusive" not in method.readings():
        raise SystemExit(f"{trained.name} has no exclusive parts: dis_weight and reg_weight are both off")

    def read(name: str, of: str) -> Gallery:
        return gallery(data, feats, name, data.captions[data.captions["lang"] == of], f"{of} captions", frozenset())

    split, queries = {each: read(each, data.source_lang) for each in (FIT, CHOOSE, READ)}, read(READ, lang)
    models = {title(method): method}
    if untrained:
        torch.manual_seed(0)
        text = text_encoder_from_config(settings["text_encoder"])
        models["untrained"] = type(method)(method.config, settings["visual_dim"], text).eval()
    rows, maps = [], {}
    for label, model in models.items():
        rows.append({"run": label, **measure(model, tokenizer, split, queries), "SumR by chance": chance(queries)})
        maps[label] = clusters(sides(model, tokenizer, split[READ]))
    return rows, maps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("lang")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workspace = Workspace(options.workspace.absolute())
    inputs, rows = Inputs(workspace), []
    maps: Maps = {}
    for number, name in enumerate(options.runs):
        trained = base.load(workspace.root / "runs" / name, "run")
        found, places = examine(inputs, trained, options.lang, untrained=number == 0)
        rows += found
        maps |= places
        what = f"MINE in nats, SumR of {options.lang} queries on {READ}, silhouette of S, V_X, T_X"
        base.write_json(options.out, {"what": what, "ccr": ccr_cli.__version__, "rows": rows})  # each takes minutes
    draw(options.figure, maps)
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
