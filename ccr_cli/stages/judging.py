"""What a model thinks of every training triplet, and what the judge makes of it.

Shape suffixes: N triplets, V visual items, D embedding, M shuffled pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli import registry
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import TokenTable
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.methods.base import Method
from ccr_cli.metrics.detection import detection
from ccr_cli.stages.embed import embed_texts, embed_visuals
from ccr_cli.stages.triplets import Triplets

Array = npt.NDArray[np.float64]
_SHIFTS = (1, 2, 3, 5)


@dataclass(frozen=True)
class Embedded:
    """The training triplets as a model sees them, in evaluation mode."""

    v_VD: Tensor
    s_ND: Tensor
    t_ND: Tensor
    item_N: Tensor

    def similarities(self) -> dict[str, Array]:
        """Cosine similarity of each triplet's sides, by name: VS, VT, ST."""
        v_ND = self.v_VD[self.item_N]
        pairs = {"VS": (v_ND, self.s_ND), "VT": (v_ND, self.t_ND), "ST": (self.s_ND, self.t_ND)}
        return {name: _cosine(a, b) for name, (a, b) in pairs.items()}

    def null(self, seed: int) -> dict[str, Array]:
        """The same of shuffled triplets: the sides of different items, so nothing can match."""
        order = np.random.default_rng(seed).permutation(len(self.item_N))
        left = np.concatenate([order] * len(_SHIFTS))
        right = np.concatenate([np.roll(order, shift) for shift in _SHIFTS])
        items = self.item_N.cpu().numpy()
        differ = items[left] != items[right]
        a, b = (torch.from_numpy(x[differ]).to(self.item_N.device) for x in (left, right))
        v_MD = self.v_VD[self.item_N[a]]
        return {
            "VS": _cosine(v_MD, self.s_ND[b]),
            "VT": _cosine(v_MD, self.t_ND[b]),
            "ST": _cosine(self.s_ND[a], self.t_ND[b]),
        }


@dataclass(frozen=True)
class Opinion:
    """What a judge says of every triplet."""

    similarity: dict[str, Array]
    p_vs: Array
    p_vt: Array


def embed_triplets(
    method: Method, triplets: Triplets, source: TokenTable, target: TokenTable, device: torch.device
) -> Embedded:
    """Embeds all training triplets."""
    return Embedded(
        embed_visuals(method, triplets.visual_VD, device),
        embed_texts(method, source, device),
        embed_texts(method, target, device),
        triplets.item_N.to(device),
    )


def ask(judge: str, side: str, embedded: Embedded, triplets: Triplets, *, seed: int, batch_size: int) -> Opinion:
    """Asks a judge about every triplet.

    Sides: `cross_lingual` reads S-T and believes V-S; `cross_modal` reads V-S and V-T, each for itself;
    `both` believes V-T only where S-T and the sum of V-S and V-T agree.

    Args:
        judge: A file of judges/.
        side: cross_lingual, cross_modal or both.
        embedded: The triplets' embeddings.
        triplets: The triplets, for what is known of synthetic noise.
        seed: Of the shuffles.
        batch_size: Triplets a batch, for judges that read a batch.
    """
    similarity = embedded.similarities()
    module = registry.load("judges", judge)
    ones = np.ones(len(triplets))
    if module.SCOPE == "truth":
        p_vs, p_vt = truth(triplets)
        return Opinion(similarity, p_vs, p_vt)
    if module.SCOPE == "batch":
        p = _by_batch(module, embedded, seed, batch_size)
        p["both"] = p["VT"]
    else:
        null = embedded.null(seed)
        p = {k: np.asarray(module.clean_probability(similarity[k], null[k]), dtype=float) for k in ("VS", "VT", "ST")}
        if side == "both":
            together, shuffled = (x["VS"] + x["VT"] for x in (similarity, null))
            p["both"] = np.asarray(module.clean_probability(together, shuffled), dtype=float)
    if side == "cross_lingual":
        return Opinion(similarity, ones, p["ST"])
    if side == "cross_modal":
        return Opinion(similarity, p["VS"], p["VT"])
    return Opinion(similarity, p["VS"], p["ST"] * p["both"])


def truth(triplets: Triplets) -> tuple[Array, Array]:
    """What synthetic noise says: 1 for intact, 0 for switched, of V-S and of V-T; all 1 without noise."""
    if triplets.wrong is None:
        return np.ones(len(triplets)), np.ones(len(triplets))
    return 1.0 - triplets.wrong["vs_wrong"].to_numpy(float), 1.0 - triplets.wrong["vt_wrong"].to_numpy(float)


def quality(opinion: Opinion, triplets: Triplets) -> dict[str, Any]:
    """The judge against synthetic truth (None where there is none), and how many pairs it calls noisy."""
    said = {"share_noisy": float((opinion.p_vt < 0.5).mean()), "mean_p_clean": float(opinion.p_vt.mean())}
    if triplets.wrong is None:
        return said
    return said | detection(opinion.p_vt, triplets.wrong["vt_wrong"].to_numpy(bool))


def _cosine(a_ND: Tensor, b_ND: Tensor) -> Array:
    value: Array = (a_ND * b_ND).sum(dim=1).double().cpu().numpy()
    return value


def _by_batch(module: Any, embedded: Embedded, seed: int, batch_size: int) -> dict[str, Array]:
    n = len(embedded.item_N)
    order = torch.from_numpy(np.random.default_rng(derive(seed, "judge")).permutation(n)).to(embedded.item_N.device)
    out = {name: np.ones(n) for name in ("VS", "VT", "ST")}
    for rows in torch.split(order, batch_size):
        items = embedded.item_N[rows]
        v, s, t = embedded.v_VD[items], embedded.s_ND[rows], embedded.t_ND[rows]
        mask = negatives_BB(items, items)
        for name, (a, b) in {"VS": (v, s), "VT": (v, t), "ST": (s, t)}.items():
            out[name][rows.cpu().numpy()] = module.clean_probability(a @ b.T, mask).double().cpu().numpy()
    return out
