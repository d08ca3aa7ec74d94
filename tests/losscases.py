"""Batches for losses on similarity matrices, and their derivatives: what the tests of losses/ share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SIZES = (pytest.param(2, marks=pytest.mark.slow), 3, 24, pytest.param(128, marks=pytest.mark.soak))
KINDS = ("random", "saturated", "equal")
MASKS = ("full", "duplicates", "one-sided")


def every_case(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test for every size, kind and mask."""
    for name, values in (("mask_kind", MASKS), ("kind", KINDS), ("size", SIZES)):
        test = pytest.mark.parametrize(name, values)(test)
    return test


def make(size: int, kind: str, mask_kind: str, count: int = 1) -> tuple[list[Array], Mask, Array]:
    """Similarity matrices, a mask, and weights with a zero among them; all exact in float32."""
    rng = np.random.default_rng(size * 100 + KINDS.index(kind) * 10 + MASKS.index(mask_kind))
    sims = [rng.normal(0.05, 0.15, (size, size)) + 0.4 * np.eye(size) for _ in range(count)]
    if kind == "saturated":
        sims = [np.sign(x + 0.05) for x in sims]
    if kind == "equal":
        sims = [np.full((size, size), 0.3) for _ in range(count)]
    item = np.arange(size)
    if mask_kind != "full":
        item[-1] = item[0]  # two captions of one item
    mask = (item[:, None] != item[None, :]) | np.eye(size, dtype=bool)
    if mask_kind == "one-sided" and size > 2:
        mask[1, 2:] = False  # row 1 is left with its diagonal; its column is not
        mask[1, 0] = False
    weight = rng.uniform(0.1, 1.0, size)
    if size > 2:
        weight[1 if kind == "random" else 2] = 0.0
    return [exact(x) for x in sims], mask, exact(weight)


def exact(x: Array) -> Array:
    """Rounded to float32, so that float32 and float64 are given the same."""
    return x.astype(np.float32).astype(np.float64)


def kept(mask: Mask, i: int, weight: Array | None = None) -> list[int]:
    """The candidates of row i: itself, and what the mask and the weights leave of the others."""
    return [j for j in range(len(mask)) if j == i or (mask[i, j] and (weight is None or weight[j] > 0))]


def derivative(
    loss: Callable[[torch.Tensor], torch.Tensor], x: Array, dtype: torch.dtype = torch.float64
) -> tuple[float, Array]:
    """Value and gradient at `x`, in one dtype from end to end."""
    at = torch.tensor(x, dtype=dtype, requires_grad=True)
    value = loss(at)
    assert value.dtype == dtype and value.shape == ()
    torch.autograd.backward(value)
    assert at.grad is not None
    return value.item(), at.grad.double().numpy()


def check_slope(oracle: Callable[[Array], float], x: Array, gradient: Array, h: float = 1e-4) -> None:
    """Compares a gradient, along random directions, with central differences of fourth order."""
    rng = np.random.default_rng(0)
    tolerance = 1e-6 * float(np.linalg.norm(gradient)) + 1e-9 + 1e-15 * abs(oracle(x)) / h
    for _ in range(6 if len(x) < 10 else 2):
        d = rng.normal(size=x.shape)
        near, far = (oracle(x + step * d) - oracle(x - step * d) for step in (h, 2 * h))
        assert (gradient * d).sum() == pytest.approx((8 * near - far) / (12 * h), rel=1e-6, abs=tolerance)


def check_float32(
    loss: Callable[[torch.Tensor], torch.Tensor],
    x: Array,
    value_32: tuple[float, float],
    gradient_32: tuple[float, float],
) -> None:
    """Compares float32 with float64; tolerances are relative and absolute, the gradient's by Euclidean norm."""
    value, gradient = derivative(loss, x)
    value32, gradient32 = derivative(loss, x, torch.float32)
    assert value32 == pytest.approx(value, rel=value_32[0], abs=value_32[1])
    assert np.linalg.norm(gradient32 - gradient) <= gradient_32[0] * np.linalg.norm(gradient) + gradient_32[1]
