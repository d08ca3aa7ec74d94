"""One vector of an item's rows (frames, clips, regions) in the common space: a Transformer over them, or GPO.

Padding plays no part, so an item's vector is the same alone and in any batch.

Shape suffixes: V items, N rows of all of them, F rows of the longest, D dimension, U numbers of rows, H hidden.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ccr_cli.nets.attention import POSITION_SCALE, TransformerBlock, placed, positions
from ccr_cli.nets.ragged import Places, pad_rows

RANK_DIM = 32
"""Of the ranks' positions in GPO, and of either direction of its GRU: the published ones."""
RANK_TEMPERATURE = 0.1
"""Of the softmax over ranks, as in the authors' code."""


class Pooling(nn.Module, ABC):
    """Turns the concatenated rows of items into one vector per item, not normalised.

    `drop` is the greatest share of an item's rows that training leaves out, see `thinned`.
    """

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, rows_ND: Tensor, offsets_V1: Tensor) -> Tensor:
        """Returns (V, D); item v has the rows from offsets[v] to offsets[v + 1], one at least."""
        x_VFD, mask_VF = pad_rows(rows_ND, offsets_V1)
        if self.training and self.drop:
            mask_VF = thinned(mask_VF, self.drop)
        return self.pooled(x_VFD, mask_VF)

    @abstractmethod
    def pooled(self, x_VFD: Tensor, mask_VF: Tensor) -> Tensor:
        """Returns (V, D) of padded rows; of those that the mask has, one at least an item."""


class FrameTransformer(Pooling):
    """The mean of the rows plus a Transformer's output over them, as in CLIP4Clip (Luo et al., 2022).

    Positions are sinusoids, so that there is no longest video. A row that has no other to read is read alone.
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
    weights) and the maximum (all weight on the first) are in its reach. A lone row is left as it is.
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
        sorted_VFD = sorted_VFD.masked_fill(beyond_VF.unsqueeze(2), 0)  # where -inf has gathered
        return (self.weights(lengths_V, mask_VF.shape[1]).unsqueeze(2) * sorted_VFD).sum(1)

    def weights(self, lengths_V: Tensor, width: int) -> Tensor:
        """Returns the weight of each rank for items of these numbers of rows, (V, width): 0 beyond, in sum 1.

        A GRU reads the positions of the ranks in both directions; the mean of its states is scored, a softmax follows.
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
            # by a product, and not by indices, whose gradient is added up in any order on a GPU
            weight_VF: Tensor = (lengths_V.unsqueeze(1) == lengths_U).to(weight_UF.dtype) @ weight_UF
            return weight_VF


def thinned(mask_VF: Tensor, most: float) -> Tensor:
    """Drops a random fraction of the rows of each item, `most` at most, and never all.

    The size augmentation of GPO's authors, whose code draws such a share for four items of five.
    """
    share_V1 = most * torch.rand(len(mask_VF), 1, device=mask_VF.device)
    draw_VF = torch.rand(mask_VF.shape, device=mask_VF.device).masked_fill(~mask_VF, -1)
    return mask_VF & ((draw_VF >= share_V1) | (draw_VF == draw_VF.amax(1, keepdim=True)))
