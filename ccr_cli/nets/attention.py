"""A Transformer block over tokens or frames, and the cross-attention that shares its weights.

Everything but the attention itself runs on the rows that exist, so padding costs nothing there, and nowhere reaches
an embedding.

Shape suffixes: B texts or items, L and M longest of them, W rows that exist in all of them, H heads, D dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm, scaled_dot_product_attention

from ccr_cli.nets.ragged import masked_mean

Residual = Literal["read", "none"]
POSITION_SCALE = 0.1
"""Initial scale of positions, for rows of variance 1: position matters less than content."""


@dataclass(frozen=True)
class Ragged:
    """The existing rows of a padded block, with their places."""

    x_WD: Tensor
    mask_BL: Tensor
    at_W: Tensor
    """Place of each row in the flattened block, B * L."""

    @classmethod
    def of(cls, x_BLD: Tensor, mask_BL: Tensor) -> Ragged:
        """Takes the existing rows of a block."""
        at_W = mask_BL.flatten().nonzero().squeeze(1)
        return cls(x_BLD.flatten(0, 1).index_select(0, at_W), mask_BL, at_W)

    def taken(self, block_BLD: Tensor) -> Tensor:
        """Rows (W, D) of another block in the same places."""
        return block_BLD.flatten(0, 1).index_select(0, self.at_W)

    def having(self, x_WD: Tensor) -> Ragged:
        """Other rows in the same places."""
        return Ragged(x_WD, self.mask_BL, self.at_W)

    def padded(self) -> Tensor:
        """The block (B, L, D), padded with zeros."""
        batch, width = self.mask_BL.shape
        flat_ND = self.x_WD.new_zeros(batch * width, self.x_WD.shape[1])
        return flat_ND.index_copy(0, self.at_W, self.x_WD).view(batch, width, -1)

    def mean(self) -> Tensor:
        """Mean row of each text or item, (B, D)."""
        return masked_mean(self.padded(), self.mask_BL)


class TransformerBlock(nn.Module):
    """One layer of Vaswani et al. (2017): attention and a feed-forward network, both with post-normalisation."""

    def __init__(self, dim: int, heads: int = 8, dropout: float = 0.1) -> None:
        """Makes the layers; the feed-forward network is as wide as its input.

        Args:
            dim: Length of a row.
            heads: Heads of the attention; they divide `dim`.
            dropout: Of what either part adds to a row.
        """
        super().__init__()
        assert dim % heads == 0, f"{heads} heads do not divide {dim}"
        self.heads = heads
        self.query, self.key = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.value, self.out = (nn.Linear(dim, dim) for _ in range(2))
        self.attention_norm, self.norm = (nn.LayerNorm(dim) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Ragged) -> Ragged:
        """Self-attention among the rows of a text."""
        q_BHLD, k_BHLD, v_BHLD = (self._heads(x, part) for part in (self.query, self.key, self.value))
        read_BHLD = scaled_dot_product_attention(q_BHLD, k_BHLD, v_BHLD, attn_mask=x.mask_BL[:, None, None, :])
        return self._finish(x, x.x_WD + self.dropout(self._merge(x, read_BHLD)))

    def cross(self, query: Ragged, memory: Ragged, residual: Residual = "read") -> Ragged:
        """Cross-attention with the weights of this block, NRCCR eq. (6): one row per row of `query`.

        Args:
            query: Rows that ask: English tokens.
            memory: Rows that answer: translated tokens.
            residual: What the answer is added to before it is normalised. The rest of the block has learned to read
                sums. `read`: the rows of `memory` themselves, by the same attention, averaged over heads. `none`:
                nothing, as eq. (6) is printed.
        """
        share_BHLM = self.shares(query, memory)
        out_WD = self._merge(query, share_BHLM @ self._heads(memory, self.value))
        if residual == "read":
            out_WD = out_WD + query.taken(share_BHLM.mean(1) @ memory.padded())
        return self._finish(query, out_WD)

    def shares(self, query: Ragged, memory: Ragged) -> Tensor:
        """Attention of each row of `query` to each row of `memory`, in each head (B, H, L, M); sums to 1."""
        q_BHLD, k_BHMD = self._heads(query, self.query), self._heads(memory, self.key)
        logit_BHLM = q_BHLD @ k_BHMD.transpose(2, 3) / math.sqrt(q_BHLD.shape[3])
        return logit_BHLM.masked_fill(~memory.mask_BL[:, None, None, :], -torch.inf).softmax(dim=3)

    def _heads(self, x: Ragged, part: nn.Linear) -> Tensor:
        """Projected rows, padded and split: (B, H, L, D / H)."""
        batch, width = x.mask_BL.shape
        return x.having(part(x.x_WD)).padded().view(batch, width, self.heads, -1).transpose(1, 2)

    def _merge(self, x: Ragged, read_BHLD: Tensor) -> Tensor:
        out_WD: Tensor = self.out(x.taken(read_BHLD.transpose(1, 2).flatten(2)))
        return out_WD

    def _finish(self, x: Ragged, sum_WD: Tensor) -> Ragged:
        """What follows the attention: its norm, the feed-forward network, the last norm."""
        y_WD = self.attention_norm(sum_WD)
        return x.having(self.norm(y_WD + self.dropout(self.feed_forward(y_WD))))


class SequenceEncoder(nn.Module):
    """From a text's tokens or a video's frames into the common space: positions, block, mean row, map."""

    def __init__(self, in_dim: int, dim: int, heads: int = 8, block_dropout: float = 0.1, dropout: float = 0.0) -> None:
        """Makes the block and the map.

        The map is linear and followed by batch normalisation, as in NRCCR's code: without it the hinge with the
        hardest negative draws what comes out of the block into one point.

        Args:
            in_dim: Length of a row.
            dim: Of the common space.
            heads: Heads of the attention; they divide `in_dim`.
            block_dropout: Dropout in the block.
            dropout: Share of the mean row's units that training switches off.
        """
        super().__init__()
        self.position_scale = nn.Parameter(torch.tensor(POSITION_SCALE))
        self.block = TransformerBlock(in_dim, heads, block_dropout)
        self.dropout = nn.Dropout(dropout)
        self.linear, self.batch_norm = nn.Linear(in_dim, dim, bias=False), nn.BatchNorm1d(dim)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Returns (B, D), not normalised; padding plays no part."""
        rows: Ragged = self.block(self._placed(x_BLD, mask_BL))
        return self._map(rows.mean())

    def cross(
        self,
        query_BLD: Tensor,
        query_mask_BL: Tensor,
        memory_BMD: Tensor,
        memory_mask_BM: Tensor,
        residual: Residual = "read",
    ) -> Tensor:
        """Returns (B, D): the rows of `query` attend to those of `memory`, with the block's weights."""
        query, memory = self._placed(query_BLD, query_mask_BL), self._placed(memory_BMD, memory_mask_BM)
        return self._map(self.block.cross(query, memory, residual).mean())

    def attention(self, query_BLD: Tensor, query_mask_BL: Tensor, memory_BMD: Tensor, memory_mask_BM: Tensor) -> Tensor:
        """What `cross` reads by, the mean over heads: shares (B, L, M)."""
        query, memory = self._placed(query_BLD, query_mask_BL), self._placed(memory_BMD, memory_mask_BM)
        return self.block.shares(query, memory).mean(1)

    def _placed(self, x_BLD: Tensor, mask_BL: Tensor) -> Ragged:
        return placed(Ragged.of(x_BLD, mask_BL), self.position_scale)

    def _map(self, pooled_BD: Tensor) -> Tensor:
        """NRCCR's g, eq. (4); a single vector has no batch statistics and is mapped as in evaluation mode."""
        norm, x_BD = self.batch_norm, self.linear(self.dropout(pooled_BD))
        if self.training and len(x_BD) == 1:
            return batch_norm(x_BD, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        out_BD: Tensor = norm(x_BD)
        return out_BD


def placed(rows: Ragged, scale: Tensor) -> Ragged:
    """Rows of mean 0 and variance 1, plus their positions: those of n-grams or frames have no order otherwise."""
    x_WD, length = layer_norm(rows.x_WD, rows.x_WD.shape[1:]), rows.mask_BL.shape[1]
    position_LD = positions(length, x_WD.shape[1], x_WD.device)
    return rows.having(x_WD + scale * position_LD[rows.at_W % length])


def positions(length: int, dim: int, device: torch.device) -> Tensor:
    """Sinusoids (L, D) of Vaswani et al. (2017), section 3.5: no table, so no longest text."""
    step_L1 = torch.arange(length, device=device, dtype=torch.float32).unsqueeze(1)
    rate_E = torch.exp(torch.arange(0, dim, 2, device=device) * (-math.log(10000.0) / dim))
    angle_LE = step_L1 * rate_E
    return torch.stack([angle_LE.sin(), angle_LE.cos()], dim=2).flatten(1)[:, :dim]
