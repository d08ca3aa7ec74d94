"""The dual encoder: pictures and texts of any language in one space of unit vectors.

Shape suffixes: B rows, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from ccr_cli.nets.heads import Projection
from ccr_cli.nets.plain import Mean, Plain, Unit
from ccr_cli.nets.text import TextEncoder


class DualEncoder(nn.Module):
    """A visual head over given features and one text encoder for every language.

    Normalisation to unit length happens here and nowhere else.
    """

    def __init__(
        self,
        visual_head: Projection,
        text_encoder: TextEncoder,
        text_head: Projection | None = None,
        text_dropout: float = 0.0,
    ) -> None:
        """Put the parts together.

        Args:
            visual_head: from the features' dimension to D.
            text_encoder: shared by all languages.
            text_head: from the text encoder's dimension to D; None when the encoder's is D already.
            text_dropout: share of the text vectors' units that training switches off.
        """
        super().__init__()
        assert (text_head or text_encoder).dim == visual_head.dim, "the two sides differ in dimension"
        self.visual_head, self.text_encoder, self.text_head = visual_head, text_encoder, text_head
        self.text_dropout = nn.Dropout(text_dropout)
        self.dim = visual_head.dim

    def embed_visual(self, features_BD: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (B, D) of visual features."""
        return functional.normalize(self.visual_head(features_BD), dim=-1)

    def embed_text(self, ids_N: torch.Tensor, offsets_B1: torch.Tensor) -> torch.Tensor:
        """Return unit vectors (B, D) of texts."""
        out_BD = self.text_encoder(ids_N, offsets_B1)
        if self.text_head is not None:
            out_BD = self.text_head(out_BD)
        return functional.normalize(self.text_dropout(out_BD), dim=-1)

    def plain(self) -> Plain:
        """Return the same model, as it retrieves, as plain layers."""
        text = () if self.text_head is None else tuple(self.text_head.layers)
        return Plain(self.text_encoder, (Mean(), *text, Unit()), (Mean(), *self.visual_head.layers, Unit()))


def parameter_groups(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split trainable parameters by the kind of gradient they get.

    Returns:
        Those with dense gradients (for Adam), and those with sparse ones (for RowAdam).
    """
    sparse = {id(weight) for weight in _sparse_weights(module)}
    trainable = [weight for weight in module.parameters() if weight.requires_grad]
    return [w for w in trainable if id(w) not in sparse], [w for w in trainable if id(w) in sparse]


def _sparse_weights(module: nn.Module) -> Iterator[nn.Parameter]:
    for part in module.modules():
        if isinstance(part, nn.EmbeddingBag | nn.Embedding) and part.sparse:
            yield from part.parameters(recurse=False)
