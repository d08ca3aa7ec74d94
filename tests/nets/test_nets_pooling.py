"""Pooling of frames: GPO against loops in numpy, the Transformer against single items, padding, thinning, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import expit, softmax

from ccr_cli.nets.attention import TransformerBlock
from ccr_cli.nets.pooling import FrameTransformer, GeneralizedPooling, Pooling, thinned
from ccr_cli.nets.ragged import Places

Array = npt.NDArray[np.float64]
DIM = 8
OFFSETS = torch.tensor([0, 4, 5, 12, 14, 15])
"""Items of 4, 1, 7, 2 and 1 rows."""


def rows(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(int(OFFSETS[-1]), DIM, dtype=torch.float64, generator=generator)


def gpo() -> GeneralizedPooling:
    torch.manual_seed(1)
    made = GeneralizedPooling().double().eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return made


def transformer() -> FrameTransformer:
    torch.manual_seed(2)
    made = FrameTransformer(DIM, layers=2, heads=2).double().eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return made


every_kind = pytest.mark.parametrize("make", [gpo, transformer])


# ---- the oracle: one item, one rank, one direction at a time


def positions(length: int, dim: int) -> Array:
    rate = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    out = np.zeros((length, dim))
    out[:, 0::2], out[:, 1::2] = np.sin(np.outer(np.arange(length), rate)), np.cos(np.outer(np.arange(length), rate))
    return out


def gru(made: GeneralizedPooling, inputs: Array, name: str) -> Array:
    weight_ih, weight_hh, bias_ih, bias_hh = (
        getattr(made.gru, f"{part}_{name}").detach().numpy()
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state, states = np.zeros(32), []
    for x in inputs:
        given, kept = weight_ih @ x + bias_ih, weight_hh @ state + bias_hh
        reset, update = expit(given[:32] + kept[:32]), expit(given[32:64] + kept[32:64])
        state = (1 - update) * np.tanh(given[64:] + reset * kept[64:]) + update * state
        states.append(state)
    return np.array(states)


def oracle(made: GeneralizedPooling, x: Array) -> Array:
    rank = positions(len(x), 32)
    state = (gru(made, rank, "l0") + gru(made, rank[::-1], "l0_reverse")[::-1]) / 2
    theta = softmax(state @ made.linear.weight.detach().numpy()[0] / 0.1)
    out: Array = (np.sort(x, axis=0)[::-1] * theta[:, None]).sum(0)
    return out


def test_gpo_equals_the_oracle() -> None:
    made, x_ND = gpo(), rows()
    x_ND[5] = x_ND[6]  # ties
    found = made(x_ND, OFFSETS).detach().numpy()
    wanted = [oracle(made, x_ND[first:last].numpy()) for first, last in pairwise(OFFSETS.tolist())]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)  # positions are float32
    spread = np.array([np.ptp(x_ND[first:last].numpy(), axis=0).max() for first, last in pairwise(OFFSETS.tolist())])
    means = np.array([x_ND[first:last].numpy().mean(0) for first, last in pairwise(OFFSETS.tolist())])
    assert (np.abs(found - means).max(1)[spread > 0] > 1e-3).all(), "the weights are not those of the mean"


def test_weights_of_ranks() -> None:
    weight_UF = gpo().weights(torch.tensor([1, 3, 6]), 7)
    torch.testing.assert_close(weight_UF.sum(1), torch.ones(3, dtype=torch.float64))
    assert (weight_UF > 0).tolist() == [[rank < length for rank in range(7)] for length in (1, 3, 6)]


@pytest.mark.parametrize("weight", ["equal", "first"])
def test_gpo_can_be_the_mean_and_the_maximum(weight: str) -> None:
    made, x_ND = gpo(), rows()
    with torch.no_grad():
        for each in made.gru.parameters():
            each.zero_()
        if weight == "first":  # states that remember nothing and fall with the rank
            weights = dict(made.gru.named_parameters())
            weights["bias_ih_l0"][32:64] = -50.0
            weights["bias_ih_l0_reverse"][32:64] = -50.0
            weights["weight_ih_l0"][64:, 16] = -1.0  # sin(rank / 100)
            made.linear.weight.fill_(1e3)
    x_ND = x_ND[:4]
    wanted = x_ND.mean(0) if weight == "equal" else x_ND.max(0).values
    torch.testing.assert_close(made(x_ND, torch.tensor([0, 4]))[0], wanted)


def test_the_transformer_equals_its_blocks_item_by_item() -> None:
    made, x_ND = transformer(), rows()
    found_VD = made(x_ND, OFFSETS)
    for v, (first, last) in enumerate(pairwise(OFFSETS.tolist())):
        x_FD = x_ND[first:last]
        centred_FD = x_FD - x_FD.mean(1, keepdim=True)
        y_FD = centred_FD / (centred_FD.square().mean(1, keepdim=True) + 1e-5).sqrt()
        y_FD = y_FD + made.position_scale * torch.from_numpy(positions(len(x_FD), DIM))
        for block in made.blocks:
            assert isinstance(block, TransformerBlock)
            y_FD = block(y_FD, Places.of_mask(torch.ones(1, len(x_FD), dtype=torch.bool)))
        torch.testing.assert_close(found_VD[v], (x_FD + y_FD).mean(0), rtol=1e-6, atol=1e-6)


@every_kind
def test_an_item_is_the_same_alone_and_beside_longer_ones(make: Callable[[], Pooling]) -> None:
    made, x_ND = make(), rows()
    together_VD = made(x_ND, OFFSETS)
    for v, (first, last) in enumerate(pairwise(OFFSETS.tolist())):
        alone_VD = made(x_ND[first:last], torch.tensor([0, last - first]))
        torch.testing.assert_close(alone_VD[0], together_VD[v], rtol=1e-12, atol=1e-12)


def test_order_counts_for_the_transformer_alone() -> None:
    x_ND, whole = rows()[:4], torch.tensor([0, 4])
    torch.testing.assert_close(gpo()(x_ND, whole), gpo()(x_ND.flip(0), whole))
    assert not torch.allclose(transformer()(x_ND, whole), transformer()(x_ND.flip(0), whole))


def test_gpo_leaves_a_lone_row_as_it_is() -> None:
    x_ND = rows()[:3]
    assert torch.equal(gpo()(x_ND, torch.arange(4)), x_ND)


@every_kind
@pytest.mark.slow
def test_gradients_are_those_of_finite_differences(make: Callable[[], Pooling]) -> None:
    made = make()
    x_ND = rows().requires_grad_()
    assert torch.autograd.gradcheck(lambda x_ND: made(x_ND, OFFSETS), x_ND, atol=1e-6)
    made(x_ND, OFFSETS).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in made.parameters())


@every_kind
def test_finite_under_autocast(make: Callable[[], Pooling]) -> None:
    made, x_ND = make().float().train(), rows().float().requires_grad_()
    made.drop = 0.5
    with torch.autocast("cpu", torch.bfloat16):
        out_VD = made(torch.nn.functional.linear(x_ND, torch.eye(DIM)), OFFSETS)
        out_VD.float().square().sum().backward()
    assert out_VD.isfinite().all() and x_ND.grad is not None and x_ND.grad.isfinite().all()


def test_thinning_leaves_at_most_a_share_out_and_never_all() -> None:
    torch.manual_seed(0)
    lengths_V = torch.tensor([1, 2, 40] * 400)
    mask_VF = torch.arange(40) < lengths_V[:, None]
    kept_VF = thinned(mask_VF, 0.5)
    assert not (kept_VF & ~mask_VF).any() and (kept_VF.sum(1) >= 1).all()
    share_V = 1 - kept_VF.sum(1) / lengths_V
    assert share_V[lengths_V == 1].eq(0).all() and 0 < share_V[lengths_V == 2].mean() < 0.25
    assert math.isclose(share_V[lengths_V == 40].mean().item(), 0.25, abs_tol=0.02)
    assert share_V[lengths_V == 40].max() < 0.8
    torch.manual_seed(0)
    assert torch.equal(thinned(mask_VF, 0.5), kept_VF)


@every_kind
def test_rows_are_left_out_in_training_alone(make: Callable[[], Pooling]) -> None:
    made, x_ND = make(), rows()
    made.drop = 0.9
    for part in made.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    still_VD = made(x_ND, OFFSETS)
    assert torch.equal(made(x_ND, OFFSETS), still_VD)
    made.train()
    torch.manual_seed(0)
    drawn = [made(x_ND, OFFSETS) for _ in range(8)]
    assert any(not torch.allclose(each_VD[0], still_VD[0]) for each_VD in drawn)
    assert all(torch.allclose(each_VD[1], still_VD[1]) for each_VD in drawn), "a lone row always stays"
