"""Agreement of both sides on a pair's neighbours, averaged over epochs (GSC).

GSC (CVPR 2024, arXiv 2405.16996), as in its code. A = sigmoid(cosine / 0.07) holds the similarities among the first
sides of a batch, A' those among the second sides. Pair i has two readings: c, the cosine of row i of A and row i of A',
both with each column k weighted by y_k; and o, the pair's own share of the softmax over the batch's similarities, the
mean of both directions. h is the posterior of the upper of two Gaussians fitted to all c. h and o are each averaged
over the epochs (0.7 new, 0.3 old, starting from 1), and y is the smaller of the two.

The code collects c and o in training mode, step by step; here they are read after the epoch, in evaluation mode, in
random batches. A diagnosis has no epochs; it makes several passes over the same batches instead.

Shapes: N training pairs, B pairs in a batch, D embedding.
"""

import numpy as np
import torch
from torch import Tensor

from ccr_cli.judges.base import FloatArray, Judge, Opinion, Readings, believe
from ccr_cli.judges.gmm import clean_probability

TEMPERATURE, MOMENTUM = 0.07, 0.7
PASSES = 5
"""Passes without a memory (in a diagnosis); they leave the initial belief a weight of 0.3^5."""


def agreement(one_BB: Tensor, two_BB: Tensor, weight_B: Tensor) -> Tensor:
    """Reading c (B,): the cosine of row i of one matrix and row i of the other, with each column weighted."""
    return torch.cosine_similarity(one_BB * weight_B, two_BB * weight_B, dim=1, eps=1e-12)


def own_share(sim_BB: Tensor, mask_BB: Tensor) -> Tensor:
    """Reading o (B,): the pair's own share of the softmax over its row and over its column, the mean of both."""
    logits_BB = (sim_BB / TEMPERATURE).masked_fill(~mask_BB, -torch.inf)
    return (logits_BB.softmax(dim=1).diagonal() + logits_BB.softmax(dim=0).diagonal()) / 2


def closeness(x_BD: Tensor) -> Tensor:
    """Matrix A (B, B): how near the unit vectors of one side are to each other, 0 to 1."""
    return torch.sigmoid(x_BD @ x_BD.T / TEMPERATURE)


def averaged(new_N: FloatArray, old_N: FloatArray) -> FloatArray:
    """The moving average after an epoch."""
    return MOMENTUM * new_N + (1 - MOMENTUM) * old_N


class StructureJudge(Judge):
    """Judges pairs within batches, and keeps a moving average of each pair's readings."""

    takes_side = True

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges all pairs once more; V-S and V-T together (for `both`) by V-T alone."""
        known = {} if readings.memory is None else readings.memory
        size = len(readings)

        def probability(name: str) -> FloatArray:
            name = "VT" if name == "both" else name
            y_2N = known[name].numpy() if name in known else np.ones((2, size))
            for _ in range(PASSES if readings.memory is None else 1):
                weight_N, read_2N = torch.from_numpy(y_2N.min(axis=0)), np.ones((2, size))
                for rows, one_BD, two_BD, mask_BB in readings.ends(name):
                    one_BD, two_BD = one_BD.double(), two_BD.double()
                    weight_B = weight_N[rows].to(one_BD.device)
                    c_B = agreement(closeness(one_BD), closeness(two_BD), weight_B)
                    read_2N[:, rows] = torch.stack([c_B, own_share(one_BD @ two_BD.T, mask_BB)]).cpu().numpy()
                y_2N = averaged(np.stack([clean_probability(read_2N[0]), read_2N[1]]), y_2N)
            known[name] = torch.from_numpy(y_2N)
            return np.asarray(y_2N.min(axis=0), dtype=np.float64)

        return Opinion(believe(side, probability, np.ones(size)))


JUDGE = StructureJudge()
