"""Heads and the dual encoder: unit vectors, one optimiser a kind of gradient."""

from __future__ import annotations

import pytest
import torch

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import Tokens
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.heads import Projection
from ccr_cli.nets.text import NgramTextEncoder


@pytest.mark.parametrize("hidden", [None, 12])
def test_projection_maps_to_the_common_space(hidden: int | None) -> None:
    head = Projection(7, 5, hidden, dropout=0.5)
    x_BD = torch.randn(3, 7)
    assert head(x_BD).shape == (3, 5)
    head.eval()
    torch.testing.assert_close(head(x_BD), head(x_BD))


def test_normed_input_makes_the_features_scale_irrelevant() -> None:
    head = Projection(64, 5, norm_input=True)
    x_BD = torch.randn(3, 64)
    torch.testing.assert_close(head(x_BD * 100 + 3), head(x_BD), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("with_head", [True, False])
def test_both_sides_are_unit_vectors(with_head: bool) -> None:
    text_head = Projection(6, 5, hidden=4) if with_head else None
    model = DualEncoder(Projection(7, 5), NgramTextEncoder(32, 6 if with_head else 5), text_head)
    text_BD = model.embed_text(Tokens.from_lists([[[1], [2]], [[3]]]).select(torch.tensor([0, 1, 0])))
    visual_BD = model.embed_visual(Frames(torch.randn(9, 7), torch.tensor([0, 1, 4, 8, 9])))
    torch.testing.assert_close(text_BD.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(visual_BD.norm(dim=1), torch.ones(4))


def test_zero_features_give_a_finite_vector() -> None:
    head = Projection(7, 5, norm_input=True)
    for weight in head.parameters():
        torch.nn.init.zeros_(weight)
    model = DualEncoder(head, NgramTextEncoder(8, 5))
    assert model.embed_visual(Frames(torch.zeros(1, 7), torch.tensor([0, 1]))).isfinite().all()
