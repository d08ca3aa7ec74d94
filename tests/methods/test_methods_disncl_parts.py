"""Parts are unit vectors, discriminators stay in float32 and can be fooled through a reversed gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from ccr_cli.losses.disncl import jensen_shannon, strangers
from ccr_cli.methods.disncl import Discriminator, Head
from ccr_cli.nets.heads import reverse_gradient


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_parts_are_unit_vectors_of_the_asked_length(layers: int) -> None:
    part_BD = Head(8, 5, 16, layers)(torch.randn(3, 8))
    assert part_BD.shape == (3, 5)
    torch.testing.assert_close(part_BD.norm(dim=1), torch.ones(3))


def test_three_layers_each() -> None:
    shapes = [tuple(w.shape) for w in Head(8, 5, 16).parameters() if w.ndim == 2]
    assert shapes == [(16, 8), (16, 16), (5, 16)]
    shapes = [tuple(w.shape) for w in Discriminator(5, 8, 16).parameters() if w.ndim == 2]
    assert shapes == [(16, 5), (16, 8), (16, 16), (1, 16)]


def test_the_length_of_an_embedding_does_not_matter() -> None:
    head, x_BD = Head(64, 5, 16), torch.randn(4, 64)
    torch.testing.assert_close(head(x_BD), head(3 * x_BD), rtol=1e-4, atol=1e-5)


def test_untrained_parts_of_different_embeddings_differ() -> None:
    torch.manual_seed(0)
    part_BD = Head(256, 128, 256)(normalize(torch.randn(64, 256), dim=1))
    cosine_BB = part_BD @ part_BD.T
    assert cosine_BB[~torch.eye(64, dtype=torch.bool)].mean() < 0.5, "biases drown the input"


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_discriminator_scores_both_kinds_of_pairs(size: int) -> None:
    score = Discriminator(5, 8, 16)
    left_BD, right_BD, stranger_B = torch.randn(size, 5), torch.randn(size, 8), torch.arange(size).flip(0)
    joint_B, marginal_B = score(left_BD, right_BD, stranger_B)
    assert joint_B.shape == marginal_B.shape == (size,)
    torch.testing.assert_close(score(left_BD, right_BD[stranger_B], stranger_B)[0], marginal_B)


def test_a_discriminator_computes_in_float32_under_autocast() -> None:
    score, left_BD, right_BD = Discriminator(5, 8, 16), torch.randn(4, 5), torch.randn(4, 8)
    plain_B, _ = score(left_BD, right_BD, torch.arange(4))
    with torch.autocast("cpu", torch.bfloat16):
        cast_B, _ = score(left_BD, right_BD, torch.arange(4))
    assert cast_B.dtype == torch.float32 and torch.equal(cast_B, plain_B)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_reversed_gradient_hides_what_the_plain_one_keeps(reverse: bool) -> None:
    """A linear map of x, half of which is y, is trained with a discriminator that looks for y in it, or against it.

    The two go round each other, so that a single step says little and differs between processors: the mean over the
    second half of training counts. Over eight seeds it is at most 0.20 against, and at least 0.82 with.
    """
    torch.manual_seed(0)
    y_BD = torch.randn(256, 4)
    x_BD = torch.cat([y_BD[:, :2], torch.randn(256, 2)], dim=1)  # half of it is about y
    part, score = torch.nn.Linear(4, 2), Discriminator(2, 4, 32)
    optimizer = torch.optim.Adam([*part.parameters(), *score.parameters()], lr=5e-3)
    stranger_B, _ = strangers(torch.arange(256))
    about = []
    for _ in range(400):
        out_BD = part(x_BD)
        joint_B, marginal_B = score(reverse_gradient(out_BD) if reverse else out_BD, y_BD, stranger_B)
        loss = -jensen_shannon(joint_B, marginal_B)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        about.append(normalize(part.weight.detach(), dim=1)[:, :2].square().sum(dim=1).mean().item())
    about_y = sum(about[200:]) / 200
    assert about_y < 0.35 if reverse else about_y > 0.65, about_y
