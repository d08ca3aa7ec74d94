"""Whether uncertainty can be trusted on data with categories: deletion curves.

Shape suffixes: V visual items, T texts, D embedding, Q queries, G gallery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccr_cli.losses.credibility import pair_uncertainty
from ccr_cli.metrics.deletion import delete, deletion_curve
from ccr_cli.metrics.positives import Positives

LARGEST = 2**26
"""Most pairs of which deletion curves are made: they need whole matrices."""
THRESHOLD = 0.5
"""Uncertainty of a pair at which FUME's Table 1 deletes."""


def deletions(
    visual_VD: Tensor, text_TD: Tensor, unc: Mapping[str, np.ndarray], visual_of_text: Positives, tie: str
) -> dict[str, Any] | None:
    """Deletion curves of both directions, by the uncertainty of pairs and by similarity.

    Args:
        visual_VD: Unit vectors of the items.
        text_TD: Unit vectors of the texts.
        unc: Uncertainty of every text (`t2v`) and every item (`v2t`).
        visual_of_text: For each text the right items.
        tie: mid, optimistic or pessimistic.

    Returns:
        By direction: `uncertainty`, `similarity`: a list of points each; `threshold`: the point at an uncertainty of
        0.5. None where there are too many pairs.
    """
    if len(visual_VD) * len(text_TD) > LARGEST:
        return None
    u_T, u_V = (torch.from_numpy(unc[direction]) for direction in ("t2v", "v2t"))
    sim_VT = (visual_VD @ text_TD.T).cpu()
    doubt_VT = pair_uncertainty(u_V, u_T)
    sides = {
        "t2v": (sim_VT.T.contiguous(), doubt_VT.T.contiguous(), visual_of_text),
        "v2t": (sim_VT, doubt_VT, visual_of_text.reversed(len(visual_VD))),
    }
    return {
        direction: {
            "uncertainty": [asdict(point) for point in deletion_curve(sim_QG, doubt_QG, right, tie=tie)],
            "similarity": [asdict(point) for point in deletion_curve(sim_QG, -sim_QG, right, tie=tie)],
            "threshold": asdict(delete(sim_QG, doubt_QG, right, THRESHOLD, tie=tie)),
        }
        for direction, (sim_QG, doubt_QG, right) in sides.items()
    }
