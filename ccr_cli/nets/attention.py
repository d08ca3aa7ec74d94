"""A Transformer block over tokens or frames, and the cross-attention that shares its weights.

Everything but the attention itself runs on existing rows only, so padding costs nothing there and never affects an
embedding.

Shape suffixes: B texts or items, L and M rows of the longest, W existing rows of all of them, H heads, D dimension.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm, scaled_dot_product_attention

from ccr_cli.nets.ragged import Places

Residual = Literal["read", "none"]
POSITION_SCALE = 0.1
"""Initial scale of positions, for rows of variance 1: position matters less than content."""


class TransformerBlock(nn.Module):
    """One layer of Vaswani et al. (2017): attention and a feed-forward network, both with post-normalisation.

    The feed-forward network is as wide as its input, `dim`, a multiple of `heads`. `dropout` applies to the output of
    each part before it is added to its input.
    """

    def __init__(self, dim: int, heads: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        assert dim % heads == 0, f"{heads} heads do not divide {dim}"
        self.heads = heads
        self.query, self.key = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.value, self.out = (nn.Linear(dim, dim) for _ in range(2))
        self.attention_norm, self.norm = (nn.LayerNorm(dim) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_WD: Tensor, places: Places) -> Tensor:
        """Self-attention among the rows of each text or item."""
        q_BHLD, k_BHLD, v_BHLD = (self._heads(part(x_WD), places) for part in (self.query, self.key, self.value))
        read_BHLD = scaled_dot_product_attention(q_BHLD, k_BHLD, v_BHLD, attn_mask=places.mask_BL[:, None, None, :])
        return self._finish(x_WD + self.dropout(self._merge(read_BHLD, places)))

    def cross(
        self, query_WD: Tensor, asking: Places, memory_WD: Tensor, answering: Places, residual: Residual = "read"
    ) -> Tensor:
        """Cross-attention with the weights of this block, NRCCR eq. (6): one row per row of `query`.

        Query rows (English tokens, at the places `asking`) attend to memory rows (translated tokens, at `answering`).
        The output is added to the `residual` before it is normalised, since the rest of the block has learned to read
        sums. `read` is the memory rows themselves, weighted by the same attention averaged over heads; `none` is
        nothing, as eq. (6) is printed.
        """
        share_BHLM = self.shares(query_WD, asking, memory_WD, answering)
        out_WD = self._merge(share_BHLM @ self._heads(self.value(memory_WD), answering), asking)
        if residual == "read":
            out_WD = out_WD + asking.taken(share_BHLM.mean(1) @ answering.padded(memory_WD))
        return self._finish(out_WD)

    def shares(self, query_WD: Tensor, asking: Places, memory_WD: Tensor, answering: Places) -> Tensor:
        """Attention of each row of `query` to each row of `memory`, in each head (B, H, L, M); sums to 1."""
        q_BHLD, k_BHMD = self._heads(self.query(query_WD), asking), self._heads(self.key(memory_WD), answering)
        logit_BHLM = q_BHLD @ k_BHMD.transpose(2, 3) / math.sqrt(q_BHLD.shape[3])
        return logit_BHLM.masked_fill(~answering.mask_BL[:, None, None, :], -torch.inf).softmax(dim=3)

    def _heads(self, rows_WD: Tensor, places: Places) -> Tensor:
        """Projected rows, padded and split: (B, H, L, D / H)."""
        return places.padded(rows_WD).view(*places.mask_BL.shape, self.heads, -1).transpose(1, 2)

    def _merge(self, read_BHLD: Tensor, places: Places) -> Tensor:
        out_WD: Tensor = self.out(places.taken(read_BHLD.transpose(1, 2).flatten(2)))
        return out_WD

    def _finish(self, sum_WD: Tensor) -> Tensor:
        y_WD = self.attention_norm(sum_WD)
        out_WD: Tensor = self.norm(y_WD + self.dropout(self.feed_forward(y_WD)))
        return out_WD


class SequenceEncoder(nn.Module):
    """Encodes a text's tokens or a video's frames into the common space: positions, block, mean row, map.

    The map is linear and followed by batch normalisation, as in NRCCR's code: without the latter, the hardest-negative
    hinge loss collapses the block's outputs to one point. `dropout` applies to the mean row.
    """

    def __init__(self, in_dim: int, dim: int, heads: int = 8, block_dropout: float = 0.1, dropout: float = 0.0) -> None:
        super().__init__()
        self.position_scale = nn.Parameter(torch.tensor(POSITION_SCALE))
        self.block = TransformerBlock(in_dim, heads, block_dropout)
        self.dropout = nn.Dropout(dropout)
        self.linear, self.batch_norm = nn.Linear(in_dim, dim, bias=False), nn.BatchNorm1d(dim)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Returns (B, D), not normalised; padding has no effect."""
        x_WD, places = self._placed(x_BLD, mask_BL)
        return self._map(places.mean(self.block(x_WD, places)))

    def cross(
        self, query_BLD: Tensor, query_BL: Tensor, memory_BMD: Tensor, memory_BM: Tensor, residual: Residual = "read"
    ) -> Tensor:
        """Returns (B, D): rows of a query attend to those of a memory (with their masks), with the block's weights."""
        query_WD, asking = self._placed(query_BLD, query_BL)
        answer_WD = self.block.cross(query_WD, asking, *self._placed(memory_BMD, memory_BM), residual)
        return self._map(asking.mean(answer_WD))

    def attention(self, query_BLD: Tensor, query_BL: Tensor, memory_BMD: Tensor, memory_BM: Tensor) -> Tensor:
        """Attention weights (B, L, M) that `cross` uses, averaged over heads."""
        return self.block.shares(*self._placed(query_BLD, query_BL), *self._placed(memory_BMD, memory_BM)).mean(1)

    def _placed(self, x_BLD: Tensor, mask_BL: Tensor) -> tuple[Tensor, Places]:
        places = Places.of_mask(mask_BL)
        return placed(places.taken(x_BLD), places, self.position_scale), places

    def _map(self, pooled_BD: Tensor) -> Tensor:
        """NRCCR's g, eq. (4); a single vector has no batch statistics and is mapped as in evaluation mode."""
        norm, x_BD = self.batch_norm, self.linear(self.dropout(pooled_BD))
        if self.training and len(x_BD) == 1:
            return batch_norm(x_BD, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        out_BD: Tensor = norm(x_BD)
        return out_BD


def placed(x_WD: Tensor, places: Places, scale: Tensor) -> Tensor:
    """Standardises rows (mean 0, variance 1) and adds positions, without which n-grams and frames have no order."""
    x_WD = layer_norm(x_WD, x_WD.shape[1:])
    return x_WD + scale * positions(places.mask_BL.shape[1], x_WD.shape[1], x_WD.device)[places.place_N]


def positions(length: int, dim: int, device: torch.device) -> Tensor:
    """Sinusoids (L, D) of Vaswani et al. (2017), section 3.5: no table, so any length is possible."""
    step_L1 = torch.arange(length, device=device, dtype=torch.float32).unsqueeze(1)
    rate_E = torch.exp(torch.arange(0, dim, 2, device=device) * (-math.log(10000.0) / dim))
    angle_LE = step_L1 * rate_E
    return torch.stack([angle_LE.sin(), angle_LE.cos()], dim=2).flatten(1)[:, :dim]
