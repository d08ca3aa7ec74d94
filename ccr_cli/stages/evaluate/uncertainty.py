"""The uncertainty of queries, and what it is worth.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ccr_cli.metrics import calibration
from ccr_cli.metrics.uncertainty_comparison import gaps
from ccr_cli.stages.shared.scoring import Scores, Sides

QUERY_BLOCK = 1024
LARGEST = 2**26
"""Most similarities held at once: fewer queries together where the gallery is large."""
CURVE_POINTS = 50


class Scorer(Protocol):
    """What says how unsure it is of a query: a method, or a softmax in place of one."""

    @property
    def calibrated(self) -> bool:
        """Whether it states the probability that the first hit is wrong."""

    def score(self, query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Similarities (Q, G) and the uncertainty (Q,) of each query, or None where it has none."""

    def entropy(self, query_QD: Tensor) -> Tensor | None:
        """How evenly categories share each query (Q,); None where it knows no categories."""

    def uncertainty_scope(self) -> str:
        """What the uncertainty looks at, as the signature says it."""


def uncertainties(method: Scorer, sides: Sides) -> dict[str, np.ndarray] | None:
    """The uncertainty of every query, by direction; None as soon as the method turns out to have none."""
    out = {}
    for direction, (query_QD, gallery_GD) in _asked(sides).items():
        uncertainty_Q = query_uncertainty(method, query_QD, gallery_GD)
        if uncertainty_Q is None:
            return None
        out[direction] = uncertainty_Q
    return out


def _asked(sides: Sides) -> dict[str, tuple[Tensor, Tensor]]:
    """By direction the queries, and what they search."""
    first, found_TD = sides.found.first_T, sides.text_TD
    if first is not None:
        found_TD = found_TD[torch.from_numpy(first).to(found_TD.device)]
    return {"t2v": (sides.text_TD, sides.visual_VD), "v2t": (sides.visual_VD, found_TD)}


def of_folds(method: Scorer, folds: Sequence[Sides]) -> list[dict[str, np.ndarray]] | None:
    """The uncertainty of every query in its fold; None where the method has none."""
    out = []
    for sides in folds:
        found = uncertainties(method, sides)
        if found is None:
            return None
        out.append(found)
    return out


@torch.no_grad()
def query_uncertainty(method: Scorer, query_QD: Tensor, gallery_GD: Tensor) -> np.ndarray | None:
    """The uncertainty of every query; None as soon as the method turns out to have none."""
    parts = []
    for block in _blocks(query_QD, gallery_GD):
        uncertainty_q = method.score(block, gallery_GD)[1]
        if uncertainty_q is None:
            return None
        parts.append(uncertainty_q)
    return torch.cat(parts).double().cpu().numpy()


def _blocks(query_QD: Tensor, gallery_GD: Tensor) -> tuple[Tensor, ...]:
    """Queries that are asked together."""
    return torch.split(query_QD, max(1, min(QUERY_BLOCK, LARGEST // max(len(gallery_GD), 1))))


@torch.no_grad()
def trivial_uncertainties(query_QD: Tensor, gallery_GD: Tensor) -> dict[str, np.ndarray]:
    """What anybody can read off the similarities: minus the greatest, and minus its lead over the second, each (Q,).

    In a gallery of one no lead is known, and all queries are equally uncertain.
    """
    top_Q2 = torch.cat([(q @ gallery_GD.T).topk(min(2, len(gallery_GD))).values for q in _blocks(query_QD, gallery_GD)])
    top_Q2 = top_Q2.double().cpu()
    return {"top similarity": -top_Q2[:, 0].numpy(), "margin": (top_Q2[:, -1] - top_Q2[:, 0]).numpy()}


def calibrations(
    scores: Sequence[Scores], unc: Sequence[Mapping[str, np.ndarray]] | None, tie: str, stated: bool = False
) -> dict[str, Any] | None:
    """What the uncertainty is worth, and where it states a probability, how far that is from what happens.

    Args:
        scores: Of each fold. The queries of all folds are taken together, each with its rank in its own fold.
        unc: The uncertainty of each query of each fold, by direction.
        tie: mid, optimistic or pessimistic.
        stated: Whether the uncertainty is the probability of failing.
    """
    if unc is None:
        return None
    out = {}
    for direction, rank_Q in _ranks(scores, tie).items():
        unc_Q = np.concatenate([fold[direction] for fold in unc])
        out[direction] = {**calibration.calibration(unc_Q, rank_Q), "curve": _points(unc_Q, rank_Q)}
        if stated:
            out[direction]["ece"] = calibration.reliability(unc_Q, rank_Q).ece
    return out


def with_trivial(
    known: dict[str, Any] | None,
    folds: Sequence[Sides],
    scores: Sequence[Scores],
    unc: Sequence[Mapping[str, np.ndarray]] | None,
    tie: str,
    more: Callable[[Tensor, Tensor], dict[str, np.ndarray]] | None = None,
) -> dict[str, Any]:
    """Sets the trivial uncertainties beside the method's, or alone where it has none.

    Args:
        known: What `calibrations` gives.
        folds: The galleries, as vectors.
        scores: Of each fold.
        unc: The method's uncertainty of each query of each fold.
        tie: mid, optimistic or pessimistic.
        more: Further ones of queries and what they search, by name.

    Returns:
        By direction what is known (without it, what needs no uncertainty), and `trivial`: by name `auroc`, `aurc`,
        `curve`; and where the method has an uncertainty, `gaps`: its figures minus these, low and high end, by a
        paired bootstrap over items.
    """
    out: dict[str, Any] = {}
    asked = [_asked(fold) for fold in folds]
    for direction, rank_Q in _ranks(scores, tie).items():
        parts = [trivial_uncertainties(*pair) | (more(*pair) if more else {}) for pair in (a[direction] for a in asked)]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        valid_Q = ~np.isnan(rank_Q)
        trivial: dict[str, Any] = {}
        for name, unc_Q in found.items():
            told = calibration.calibration(unc_Q, rank_Q)
            trivial[name] = {key: told[key] for key in ("auroc", "aurc")} | {"curve": _points(unc_Q, rank_Q)}
        if unc is not None and valid_Q.any():
            own_Q = np.concatenate([fold[direction] for fold in unc])[valid_Q]
            others = {name: unc_Q[valid_Q] for name, unc_Q in found.items()}
            apart = gaps(own_Q, others, rank_Q[valid_Q], _items(folds, direction)[valid_Q])
            for name, gap in apart.items():
                trivial[name]["gaps"] = gap
        alone = {key: told[key] for key in ("aurc_random", "aurc_best", "queries")}
        out[direction] = {**(known[direction] if known else alone), "trivial": trivial}
    return out


def _items(folds: Sequence[Sides], direction: str) -> np.ndarray:
    """A number for the item of each query, another one in each fold."""
    before = np.cumsum([0, *(len(fold.found.item_ids) for fold in folds)])
    own = [fold.found.item_T if direction == "t2v" else np.arange(len(fold.found.item_ids)) for fold in folds]
    return np.concatenate([items + start for items, start in zip(own, before, strict=False)])


def _ranks(scores: Sequence[Scores], tie: str) -> dict[str, np.ndarray]:
    """The rank of every query of all folds, by direction."""
    both = {"t2v": [each.ranks_t2v for each in scores], "v2t": [each.ranks_v2t for each in scores]}
    return {direction: np.concatenate([fold.rank(tie) for fold in ranks]) for direction, ranks in both.items()}


def _points(unc_Q: np.ndarray, rank_Q: np.ndarray) -> dict[str, list[float]]:
    """At most fifty points of the risk-coverage curve."""
    curve = calibration.risk_coverage(unc_Q, rank_Q)
    at = np.linspace(0, len(curve.coverage) - 1, min(CURVE_POINTS, len(curve.coverage))).round().astype(int)
    return {"coverage": curve.coverage[at].tolist(), "risk": curve.risk[at].tolist()}
