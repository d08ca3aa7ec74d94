"""Margin of a pair: its similarity against those of the nearest other texts (Artetxe & Schwenk, ACL 2019).

m = cos(s, t) / mean of the two mean cosines of s and of t with their k nearest texts of the other language. So a text
that is near to everything, or a language in which everything is near, is no evidence of a translation.

Shapes: N pairs, D dimension, B a block.
"""

import numpy as np
import torch
from torch import Tensor

from ccr_cli.metrics.ranks import FloatArray

NEAREST = 4
MOST = 100_000
"""Maximum number of texts to search for the nearest; of more, evenly spaced ones are used."""
LEAST = 0.05
"""Denominator below which it is subtracted instead of divided by."""
_BLOCK = 1024


@torch.no_grad()
def crowding(a_ND: Tensor, b_ND: Tensor, item_N: Tensor, text_N: Tensor, k: int = NEAREST) -> FloatArray:
    """The mean cosine (N,) of each unit vector of `a` with its k nearest of `b`, its own partner among the candidates.

    Other texts of the same item, and copies of the same text (`text_N` numbers those of `b`), are left out. LASER also
    has own pairs among the neighbours, but leaves out only copies.
    """
    own_N, parts = (a_ND * b_ND).sum(dim=1), []
    some = torch.arange(0, len(b_ND), max(1, -(-len(b_ND) // MOST)), device=b_ND.device)
    for rows in torch.split(torch.arange(len(a_ND), device=a_ND.device), _BLOCK):
        sim_BR = a_ND[rows] @ b_ND[some].T
        kin_BR = (item_N[rows, None] == item_N[some]) | (text_N[rows, None] == text_N[some])
        sim_BR = torch.cat([sim_BR.masked_fill_(kin_BR, -torch.inf), own_N[rows, None]], dim=1)
        near_BK = sim_BR.topk(min(k, sim_BR.shape[1]), dim=1).values
        known_BK = near_BK > -torch.inf
        parts.append(near_BK.where(known_BK, 0).sum(dim=1) / known_BK.sum(dim=1))
    return np.asarray(torch.cat(parts).double().cpu().numpy())


def margins(cosine_N: FloatArray, of_source_N: FloatArray, of_target_N: FloatArray) -> FloatArray:
    """The margin of pairs from their cosine and the crowding of both texts."""
    usual_N = (of_source_N + of_target_N) / 2
    near_N = usual_N < LEAST
    return np.where(near_N, cosine_N - usual_N, cosine_N / np.where(near_N, 1, usual_N))
