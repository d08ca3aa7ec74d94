"""Training that has come to nothing: a loss that is no number, or a model to which everything is the same.

Shape suffixes: T texts, V visual items, D dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccr_cli.methods.base import Method

SPREAD = 1e-4
"""Least standard deviation of similarities: float32 resolves cosines to 1e-7, random vectors of 256 differ by 0.06."""
EQUAL = 1e-7
"""Uncertainties that differ by less are one and the same."""
_SAMPLE = 512


class Collapsed(Exception):
    """Why there is no sense in going on."""


def refuse_collapse(method: Method, visual_VD: Tensor, text_TD: Tensor) -> None:
    """Looks at what a model makes of a sample of items and texts.

    Args:
        method: The model.
        visual_VD: Embedded items.
        text_TD: Embedded texts.

    Raises:
        Collapsed: If the vectors are no numbers, or all similarities are equal, or the uncertainty of all texts is.
    """
    some_T = torch.linspace(0, len(text_TD) - 1, min(len(text_TD), _SAMPLE), device=text_TD.device).long()
    some_V = torch.linspace(0, len(visual_VD) - 1, min(len(visual_VD), _SAMPLE), device=visual_VD.device).long()
    sim_TV, uncertainty_T = method.score(text_TD[some_T], visual_VD[some_V])
    if not sim_TV.isfinite().all():
        raise Collapsed("vectors of texts or items are not finite")
    if sim_TV.numel() > 2 and float(sim_TV.std()) < SPREAD:
        raise Collapsed(f"all similarities are equal, {float(sim_TV.mean()):.4f}: the model tells nothing apart")
    if uncertainty_T is None or len(some_T) < 3 or method.calibrated:  # sure of all may be right, if all hits are
        return
    low, high = float(uncertainty_T.min()), float(uncertainty_T.max())
    if high - low < EQUAL:
        raise Collapsed(f"the evidence is saturated: the uncertainty of every text is {low:.4f}")
