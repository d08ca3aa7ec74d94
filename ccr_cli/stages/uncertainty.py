"""The uncertainty of queries, and what it is worth.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccr_cli.methods.base import Method
from ccr_cli.metrics import calibration
from ccr_cli.stages.scoring import Scores, Sides

QUERY_BLOCK = 1024
LARGEST = 2**26
"""Most similarities held at once: fewer queries together where the gallery is large."""
CURVE_POINTS = 50


def uncertainties(method: Method, sides: Sides) -> dict[str, np.ndarray] | None:
    """The uncertainty of every query, by direction; None as soon as the method turns out to have none."""
    first, found_TD = sides.found.first_T, sides.text_TD
    if first is not None:
        found_TD = found_TD[torch.from_numpy(first).to(found_TD.device)]
    out = {}
    for direction, query_QD, gallery_GD in (
        ("t2v", sides.text_TD, sides.visual_VD),
        ("v2t", sides.visual_VD, found_TD),
    ):
        uncertainty_Q = query_uncertainty(method, query_QD, gallery_GD)
        if uncertainty_Q is None:
            return None
        out[direction] = uncertainty_Q
    return out


def of_folds(method: Method, folds: Sequence[Sides]) -> list[dict[str, np.ndarray]] | None:
    """The uncertainty of every query in its fold; None where the method has none."""
    out = []
    for sides in folds:
        found = uncertainties(method, sides)
        if found is None:
            return None
        out.append(found)
    return out


@torch.no_grad()
def query_uncertainty(method: Method, query_QD: Tensor, gallery_GD: Tensor) -> np.ndarray | None:
    """The uncertainty of every query; None as soon as the method turns out to have none."""
    parts = []
    for block in torch.split(query_QD, max(1, min(QUERY_BLOCK, LARGEST // max(len(gallery_GD), 1)))):
        uncertainty_q = method.score(block, gallery_GD)[1]
        if uncertainty_q is None:
            return None
        parts.append(uncertainty_q)
    return torch.cat(parts).double().cpu().numpy()


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
    ranks = {"t2v": [each.ranks_t2v for each in scores], "v2t": [each.ranks_v2t for each in scores]}
    out = {}
    for direction, folds in ranks.items():
        rank_Q = np.concatenate([fold.rank(tie) for fold in folds])
        unc_Q = np.concatenate([fold[direction] for fold in unc])
        curve = calibration.risk_coverage(unc_Q, rank_Q)
        at = np.linspace(0, len(curve.coverage) - 1, min(CURVE_POINTS, len(curve.coverage))).round().astype(int)
        points = {"coverage": curve.coverage[at].tolist(), "risk": curve.risk[at].tolist()}
        out[direction] = {**calibration.calibration(unc_Q, rank_Q), "curve": points}
        if stated:
            out[direction]["ece"] = calibration.reliability(unc_Q, rank_Q).ece
    return out
