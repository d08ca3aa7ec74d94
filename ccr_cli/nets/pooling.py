"""Pooling of an item's rows (frames, clips, regions) in the common space, by a Transformer or by GPO.

Padding has no effect, so an item's vector is the same alone and in any batch.

Shape suffixes: V items, N rows of all items, F rows of the longest, D dimension, U distinct row counts, H hidden.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ccr_cli.nets.attention import POSITION_SCALE, TransformerBlock, placed, positions
from ccr_cli.nets.ragged import Places, pad_rows

RANK_DIM = 32
"""Dimension of the rank positions in GPO and of each direction of its GRU, as published."""
RANK_TEMPERATURE = 0.1
"""Temperature of the softmax over ranks, as in the authors' code."""


class Pooling(nn.Module, ABC):
    """Turns the concatenated rows of items into one vector per item, not normalised.

    `drop` is the largest share of an item's rows that training drops, see `thinned`.
    """

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, rows_ND: Tensor, offsets_V1: Tensor) -> Tensor:
        """Returns (V, D); item v has the rows from offsets[v] to offsets[v + 1], at least one."""
        x_VFD, mask_VF = pad_rows(rows_ND, offsets_V1)
        if self.training and self.drop:
            mask_VF = thinned(mask_VF, self.drop)
        return self.pooled(x_VFD, mask_VF)

    @abstractmethod
    def pooled(self, x_VFD: Tensor, mask_VF: Tensor) -> Tensor:
        """Pools the rows that the mask has, at least one per item, to (V, D)."""


class FrameTransformer(Pooling):
    """The mean of the rows plus a Transformer's output over them, as in CLIP4Clip (Luo et al., 2022).

    Positions are sinusoids, so videos can have any length. A lone row attends only to itself.
    """

    def __init__(self, dim: int, layers: int, heads: int, drop: float = 0.0, dropout: float = 0.1) -> None:
        super().__init__(drop)
        self.heads, self.position_scale = heads, nn.Parameter(torch.tensor(POSITION_SCALE))
        self.blocks = nn.ModuleList(TransformerBlock(dim, heads, dropout) for _ in range(layers))

    def pooled(self, x_VFD: Tensor, mask_VF: Tensor) -> Tensor:
        """Returns (V, D)."""
        places = Places.of_mask(mask_VF)
        rows_ND = places.taken(x_VFD)
        read_ND = placed(rows_ND, places, self.position_scale)
        for block in self.blocks:
            read_ND = block(read_ND, places)
        return places.mean(rows_ND + read_ND)


class GeneralizedPooling(Pooling):
    """GPO: every dimension's values in descending order, weighted by rank.

    Chen et al., "Learning the Best Pooling Strategy for Visual Semantic Embedding", CVPR 2021. The mean (equal
    weights) and, as a limit, the maximum (all weight on the first rank) are special cases. A lone row is unchanged.
    """

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__(drop)
        self.gru = nn.GRU(RANK_DIM, RANK_DIM, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(RANK_DIM, 1, bias=False)

    def pooled(self, x_VFD: Tensor, mask_VF: Tensor) -> Tensor:
        """Returns (V, D)."""
        lengths_V = mask_VF.sum(1)
        sorted_VFD = x_VFD.masked_fill(~mask_VF.unsqueeze(2), -torch.inf).sort(dim=1, descending=True, stable=True)[0]
        beyond_VF = torch.arange(mask_VF.shape[1], device=lengths_V.device) >= lengths_V.unsqueeze(1)
        sorted_VFD = sorted_VFD.masked_fill(beyond_VF.unsqueeze(2), 0)  # the -inf of padding, sorted to the end
        return (self.weights(lengths_V, mask_VF.shape[1]).unsqueeze(2) * sorted_VFD).sum(1)

    def weights(self, lengths_V: Tensor, width: int) -> Tensor:
        """Returns the weights of the ranks (V, width) for items with these numbers of rows: sum 1, and 0 beyond.

        A bidirectional GRU reads the ranks' positions; a linear map scores the mean of its states, a softmax follows.
        """
        lengths_U = torch.unique(lengths_V)
        with torch.autocast(lengths_U.device.type, enabled=False):
            rank_FH = positions(width, RANK_DIM, lengths_U.device).to(self.linear.weight.dtype)
            packed = pack_padded_sequence(
                rank_FH.expand(len(lengths_U), -1, -1), lengths_U.cpu(), batch_first=True, enforce_sorted=False
            )
            state_UFH, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=width)
            score_UF = self.linear((state_UFH[..., :RANK_DIM] + state_UFH[..., RANK_DIM:]) / 2).squeeze(2)
            there_UF = torch.arange(width, device=lengths_U.device) < lengths_U.unsqueeze(1)
            weight_UF = (score_UF / RANK_TEMPERATURE).masked_fill(~there_UF, -torch.inf).softmax(dim=1)
            # by a product, not by indexing, whose gradient is summed in arbitrary order on a GPU
            weight_VF: Tensor = (lengths_V.unsqueeze(1) == lengths_U).to(weight_UF.dtype) @ weight_UF
            return weight_VF


def thinned(mask_VF: Tensor, most: float) -> Tensor:
    """Drops a random fraction of the rows of each item, `most` at most, and never all.

    This is the size augmentation of GPO's authors, whose code applies it to four items in five.
    """
    share_V1 = most * torch.rand(len(mask_VF), 1, device=mask_VF.device)
    draw_VF = torch.rand(mask_VF.shape, device=mask_VF.device).masked_fill(~mask_VF, -1)
    return mask_VF & ((draw_VF >= share_V1) | (draw_VF == draw_VF.amax(1, keepdim=True)))
