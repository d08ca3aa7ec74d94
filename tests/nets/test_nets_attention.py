"""The Transformer block: against loops in numpy, independence of padding, gradients."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import erf, softmax

from ccr_cli.nets.attention import SequenceEncoder, TransformerBlock, positions
from ccr_cli.nets.ragged import Places, pad_rows

Array = npt.NDArray[np.float64]
DIM, HEADS = 12, 3
LENGTHS = (4, 1, 6, 2)


def rows(lengths: tuple[int, ...] = LENGTHS, seed: int = 0, dim: int = DIM) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded random rows, and their mask; the padding holds something that would show."""
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    x_ND = torch.randn(int(offsets[-1]), dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return pad_rows(x_ND, offsets, fill=1e6)


def block() -> TransformerBlock:
    torch.manual_seed(1)
    made = TransformerBlock(DIM, HEADS).double().eval()
    for weight in made.parameters():  # norms too, so that none is the identity
        torch.nn.init.normal_(weight, std=0.4)
    return made


# ---- the oracle: one text at a time, one head at a time


def array(x: torch.Tensor) -> Array:
    return np.asarray(x.detach().double().numpy())


def normed(x: Array, norm: torch.nn.LayerNorm) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + norm.eps)
    out: Array = scaled * array(norm.weight) + array(norm.bias)
    return out


def oracle(made: TransformerBlock, query: Array, memory: Array, residual: str) -> Array:
    q, k = query @ array(made.query.weight).T, memory @ array(made.key.weight).T
    v = memory @ array(made.value.weight).T + array(made.value.bias)
    wide = DIM // HEADS
    read, shares = [], []
    for head in range(HEADS):
        part = slice(head * wide, (head + 1) * wide)
        shares.append(softmax(q[:, part] @ k[:, part].T / math.sqrt(wide), axis=1))
        read.append(shares[-1] @ v[:, part])
    out = np.concatenate(read, axis=1) @ array(made.out.weight).T + array(made.out.bias)
    out = out + {"query": query, "read": np.mean(shares, axis=0) @ memory, "none": 0.0}[residual]
    y = normed(out, made.attention_norm)
    first, _, second = made.feed_forward
    assert isinstance(first, torch.nn.Linear) and isinstance(second, torch.nn.Linear)
    hidden = y @ array(first.weight).T + array(first.bias)
    hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
    return normed(y + hidden @ array(second.weight).T + array(second.bias), made.norm)


def taken(x_BLD: torch.Tensor, mask_BL: torch.Tensor) -> tuple[torch.Tensor, Places]:
    places = Places.of_mask(mask_BL)
    return places.taken(x_BLD), places


def test_self_attention_equals_the_oracle() -> None:
    made, (x_BLD, mask_BL) = block(), rows()
    x_WD, places = taken(x_BLD, mask_BL)
    out_BLD = places.padded(made(x_WD, places))
    for x_LD, mask_L, out_LD in zip(x_BLD, mask_BL, out_BLD, strict=True):
        x = array(x_LD[mask_L])
        np.testing.assert_allclose(array(out_LD[mask_L]), oracle(made, x, x, "query"), rtol=1e-9, atol=1e-12)
        assert not out_LD[~mask_L].any()


@pytest.mark.parametrize("residual", ["read", "none"])
def test_cross_attention_equals_the_oracle(residual: Literal["read", "none"]) -> None:
    made, (q_BLD, q_BL), (m_BMD, m_BM) = block(), rows(), rows((2, 5, 1, 3), seed=9)
    query_WD, asking = taken(q_BLD, q_BL)
    out_BLD = asking.padded(made.cross(query_WD, asking, *taken(m_BMD, m_BM), residual))
    for b in range(len(q_BL)):
        want = oracle(made, array(q_BLD[b, q_BL[b]]), array(m_BMD[b, m_BM[b]]), residual)
        np.testing.assert_allclose(array(out_BLD[b, q_BL[b]]), want, rtol=1e-9, atol=1e-12)


def test_the_answer_to_a_single_token_does_not_depend_on_who_asks() -> None:
    made, memory = block(), taken(*rows((1, 1)))
    askers = [taken(*rows((3, 3), seed=seed)) for seed in (4, 5)]
    first, second = (asker[1].mean(made.cross(*asker, *memory, "read")) for asker in askers)
    torch.testing.assert_close(first, second)


# ---- the encoder of a sequence


def encoder(dim: int = 5) -> SequenceEncoder:
    torch.manual_seed(2)
    made = SequenceEncoder(DIM, dim, HEADS).double()
    made(*rows(seed=3))  # running statistics that are not the identity
    return made.eval()


def test_a_sequence_is_the_same_alone_and_beside_longer_ones() -> None:
    made, (x_BLD, mask_BL) = encoder(), rows()
    together_BD = made(x_BLD, mask_BL)
    taught_BD = made.cross(x_BLD, mask_BL, *rows((3, 7, 2, 2), seed=6))
    m_BMD, m_BM = rows((3, 7, 2, 2), seed=6)
    for b, length in enumerate(LENGTHS):
        x, there = x_BLD[b : b + 1, :length], mask_BL[b : b + 1, :length]
        torch.testing.assert_close(made(x, there)[0], together_BD[b], rtol=1e-12, atol=1e-12)
        memory = m_BMD[b : b + 1, m_BM[b]], m_BM[b : b + 1, m_BM[b]]
        torch.testing.assert_close(made.cross(x, there, *memory)[0], taught_BD[b], rtol=1e-12, atol=1e-12)


def test_padding_gets_no_gradient() -> None:
    made, (x_BLD, mask_BL) = encoder().train(), rows()
    x_BLD.requires_grad_()
    torch.autograd.backward((made(x_BLD, mask_BL) ** 3).sum() + (made.cross(x_BLD, mask_BL, x_BLD, mask_BL) ** 3).sum())
    assert x_BLD.grad is not None and x_BLD.grad.isfinite().all()
    assert not x_BLD.grad[~mask_BL].any() and x_BLD.grad[mask_BL].all()


def test_order_matters() -> None:
    made, (x_BLD, mask_BL) = encoder(), rows((4,))
    assert not torch.allclose(made(x_BLD, mask_BL), made(x_BLD.flip(1), mask_BL))
    with torch.no_grad():
        made.position_scale.zero_()
    torch.testing.assert_close(made(x_BLD, mask_BL), made(x_BLD.flip(1), mask_BL))


def test_positions_are_sinusoids() -> None:
    table = positions(5, 4, torch.device("cpu"))
    for p in range(5):
        want = [math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)]
        assert table[p].tolist() == pytest.approx(want, abs=1e-6)
    assert positions(3, 5, torch.device("cpu")).shape == (3, 5)


def test_a_single_sequence_in_training_is_mapped_as_at_test() -> None:
    made = encoder()
    for part in made.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    x_BLD, mask_BL = rows((3,))
    want, before = made(x_BLD, mask_BL), {k: v.clone() for k, v in made.batch_norm.state_dict().items()}
    torch.testing.assert_close(made.train()(x_BLD, mask_BL), want)
    for name, value in made.batch_norm.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_every_weight_gets_gradient_and_bfloat16_is_finite() -> None:
    torch.manual_seed(0)
    made, (x_BLD, mask_BL) = SequenceEncoder(DIM, 5, HEADS), rows()
    with torch.autocast("cpu", torch.bfloat16):
        out_BD = made(x_BLD.float(), mask_BL)
    torch.autograd.backward((out_BD.float() ** 3).sum())
    for name, weight in made.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any(), name


def test_equal_seeds_give_equal_weights() -> None:
    for one, two in zip(encoder().state_dict().values(), encoder().state_dict().values(), strict=True):
        assert torch.equal(one, two)
