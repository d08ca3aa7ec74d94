"""Every loss against an independent float64 computation with numpy and scipy, forward and gradient."""

from __future__ import annotations

from collections.abc import Callable

import losscases
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import polygamma, rel_entr

from ccr_cli.losses import contrastive, evidential, mutual, triplet

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Oracle = Callable[[list[Array], Mask, Array], float]
Loss = Callable[[list[torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]
TAU = 0.1

# Float32 against float64, relative and absolute: two to four times the largest error measured over all cases.
# Absolute errors count where differences of nearly equal numbers are taken (divergences of nearly equal
# distributions, the slope of a saturated tanh).
VALUE_32 = (1e-6, 1e-7)
GRADIENT_32 = (1e-5, 1e-6)  # Euclidean norm


# ---- the oracles: loops over explicit candidate lists, no code shared with the package


def candidates(mask: Mask, i: int) -> list[int]:
    """Candidates of row i; the row's own pair always is one."""
    return [j for j in range(len(mask)) if mask[i, j] or j == i]


def oracle_triplet(reduction: str) -> Oracle:
    def total(sims: list[Array], mask: Mask, weight: Array) -> float:
        out = 0.0
        for s, m in ((sims[0], mask), (sims[0].T, mask.T)):
            cost, mass = 0.0, 0.0
            for i in np.flatnonzero(weight > 0).tolist():
                rivals = [s[i, j] for j in candidates(m, i) if j != i and weight[j] > 0]
                if rivals:
                    cost += weight[i] * max(0.0, 0.2 + max(rivals) - s[i, i])
                    mass += weight[i]
            out += cost if reduction == "sum" else cost / mass if mass else 0.0
        return out

    return total


def oracle_infonce(sims: list[Array], mask: Mask, weight: Array) -> float:
    out = 0.0
    for s, m in ((sims[0], mask), (sims[0].T, mask.T)):
        cost, mass = 0.0, 0.0
        for i in np.flatnonzero(weight > 0).tolist():
            logits = np.array([s[i, j] for j in candidates(m, i) if j == i or weight[j] > 0]) / 0.07
            if len(logits) > 1:
                top = logits.max()
                cost += weight[i] * (top + np.log(np.exp(logits - top).sum()) - s[i, i] / 0.07)
                mass += weight[i]
        out += cost / mass / 2 if mass else 0.0
    return out


def oracle_fisher(alpha: Array, target: Array, phi: float) -> float:
    """L_e of one row, eq. (6) to (8) as printed."""
    d = alpha.sum()
    psi1 = polygamma(1, alpha)
    mse = (((target - alpha / d) ** 2 + alpha * (d - alpha) / (d**2 * (d + 1))) * psi1).sum()
    log_det = np.log(psi1).sum() + np.log(1 - (polygamma(1, d) / psi1).sum())
    return float(mse - phi * log_det)


def oracle_dual(form: str, noisy_target: str, phi: float) -> Oracle:
    def total(sims: list[Array], mask: Mask, weight: Array) -> float:
        s = sims[0]
        e = np.exp(np.tanh(s) / TAU) if form == "scaled" else np.exp(np.tanh(s / TAU))
        out = 0.0
        for i in range(len(s)):
            for row, m in ((e[i], mask[i]), (e[:, i], mask[:, i])):
                keep = m.copy()
                keep[i] = True
                if keep.sum() < 2:
                    continue
                target = np.zeros(len(s))
                target[i] = weight[i] if noisy_target == "zero" else 1.0
                cost = oracle_fisher(row[keep] + 1, target[keep], phi)
                out += cost * (weight[i] if noisy_target == "weight" else 1.0)
        return out

    return total


def softmax(x: Array) -> Array:
    y = np.exp(x - x.max())
    return np.asarray(y / y.sum())


def oracle_consistency(sims: list[Array], mask: Mask, weight: Array) -> float:
    out = 0.0
    for i in range(len(mask)):
        for a, b, m in ((sims[0], sims[1], mask), (sims[0].T, sims[1].T, mask.T)):
            keep = candidates(m, i)
            p, q = softmax(a[i, keep] / TAU), softmax(b[i, keep] / TAU)
            middle = (p + q) / 2
            out += weight[i] * (rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 4
    return out


def oracle_disentanglement(sims: list[Array], mask: Mask, weight: Array) -> float:
    out = 0.0
    for i in range(len(mask)):
        for a, b, m in ((sims[0], sims[1], mask), (sims[0].T, sims[1].T, mask.T)):
            keep = candidates(m, i)
            out += weight[i] * rel_entr(softmax(a[i, keep] / TAU), softmax(b[i, keep] / TAU)).sum() / 2
    return out


def dual(form: evidential.EvidenceForm, noisy_target: str, phi: float) -> Loss:
    def total(sims: list[torch.Tensor], mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        e = evidential.evidence(sims[0], TAU, form)
        if noisy_target == "zero":
            return evidential.dual_direction_loss(e, weight, mask, phi=phi, noisy_target="zero").sum()
        return evidential.dual_direction_loss(e, weight, mask, phi=phi, noisy_target="weight").sum()

    return total


# ---- name: (number of matrices, loss, oracle)

LOSSES: dict[str, tuple[int, Loss, Oracle]] = {
    "triplet-sum": (1, lambda s, m, w: triplet.triplet(s[0], m, weight_B=w), oracle_triplet("sum")),
    "triplet-mean": (
        1,
        lambda s, m, w: triplet.triplet(s[0], m, reduction="mean", weight_B=w),
        oracle_triplet("mean"),
    ),
    "infonce": (1, lambda s, m, w: contrastive.infonce(s[0], 0.07, m, w), oracle_infonce),
    "dual": (1, dual("scaled", "weight", 0.01), oracle_dual("scaled", "weight", 0.01)),
    "dual-zero": (1, dual("scaled", "zero", 0.01), oracle_dual("scaled", "zero", 0.01)),
    "dual-phi-0": (1, dual("scaled", "weight", 0.0), oracle_dual("scaled", "weight", 0.0)),
    "dual-paper": (1, dual("paper", "zero", 0.01), oracle_dual("paper", "zero", 0.01)),
    "consistency": (
        2,
        lambda s, m, w: (w * mutual.consistency(s[0], s[1], m)).sum(),
        oracle_consistency,
    ),
    "disentanglement": (
        2,
        lambda s, m, w: (w * mutual.disentanglement(s[0], s[1], m, detach_observation=False)).sum(),
        oracle_disentanglement,
    ),
}
SIMS = ("random", "saturated", "equal")
MASKS = ("full", "duplicates", "one-sided")


def make_case(size: int, kind: str, mask_kind: str) -> tuple[list[Array], Mask, Array]:
    """Two similarity matrices, a mask and weights (a zero among them) of one batch."""
    rng = np.random.default_rng(size * 100 + SIMS.index(kind) * 10 + MASKS.index(mask_kind))
    sims = [rng.normal(0.05, 0.15, (size, size)) + 0.4 * np.eye(size) for _ in range(2)]
    if kind == "saturated":
        sims = [np.sign(x + 0.05) for x in sims]
    if kind == "equal":
        sims = [np.full((size, size), 0.3) for _ in range(2)]
    item = np.arange(size)
    if mask_kind != "full":
        item[-1] = item[0]  # two captions of one item
    mask = (item[:, None] != item[None, :]) | np.eye(size, dtype=bool)
    if mask_kind == "one-sided" and size > 2:
        mask[1, 2:] = False  # rows and columns with different candidates
        mask[1, 0] = False  # row 1 is left with its diagonal; its column is not
    weight = rng.uniform(0.1, 1.0, size)
    if size > 2:
        weight[1 if kind == "random" else 2] = 0.0
    return sims, mask, weight


def slope(oracle: Oracle, sims: list[Array], mask: Mask, weight: Array, steps: list[Array], h: float = 1e-4) -> float:
    """Directional derivative by the central difference of fourth order."""

    def at(t: float) -> float:
        return oracle([x + t * d for x, d in zip(sims, steps, strict=True)], mask, weight)

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def gradient(loss: Loss, sims: list[Array], mask: Mask, weight: Array, dtype: torch.dtype) -> tuple[float, list[Array]]:
    tensors = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in sims]
    value = loss(tensors, torch.tensor(mask), torch.tensor(weight, dtype=dtype))
    assert value.dtype == dtype
    torch.autograd.backward(value)
    grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in tensors]
    return float(value.detach().double()), [g.double().numpy() for g in grads]


@pytest.mark.parametrize("mask_kind", MASKS)
@pytest.mark.parametrize("kind", SIMS)
@pytest.mark.parametrize("size", losscases.SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_equals_the_oracle(name: str, size: int, kind: str, mask_kind: str) -> None:
    count, loss, oracle = LOSSES[name]
    sims, mask, weight = make_case(size, kind, mask_kind)
    sims = sims[:count]
    value, grads = gradient(loss, sims, mask, weight, torch.float64)
    assert value == pytest.approx(oracle(sims, mask, weight), rel=1e-6, abs=1e-12)
    if name.startswith("triplet") and kind != "random":
        return  # a tie is a kink: no derivative to compare with
    h = 1e-7 if name.startswith("triplet") else 1e-4  # piecewise linear: step over as few kinks as possible
    rng = np.random.default_rng(0)
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    for _ in range(6 if size < 10 else 2):
        steps = [rng.normal(size=x.shape) for x in sims]
        along = sum(float((g * d).sum()) for g, d in zip(grads, steps, strict=True))
        rounding = 1e-9 + 1e-15 * abs(value) / h
        expected = slope(oracle, sims, mask, weight, steps, h)
        assert along == pytest.approx(expected, rel=1e-6, abs=1e-6 * norm + rounding)


@pytest.mark.parametrize("size", losscases.SIZES)
@pytest.mark.parametrize("name", LOSSES)
def test_float32_is_as_close_as_stated(name: str, size: int) -> None:
    count, loss, _ = LOSSES[name]
    for kind in SIMS:
        for mask_kind in MASKS:
            sims, mask, weight = make_case(size, kind, mask_kind)
            # the inputs rounded to float32, so that only the computation differs
            sims = [x.astype(np.float32).astype(np.float64) for x in sims[:count]]
            weight = weight.astype(np.float32).astype(np.float64)
            value, grads = gradient(loss, sims, mask, weight, torch.float64)
            value32, grads32 = gradient(loss, sims, mask, weight, torch.float32)
            assert value32 == pytest.approx(value, rel=VALUE_32[0], abs=VALUE_32[1])
            for g, g32 in zip(grads, grads32, strict=True):
                assert np.linalg.norm(g32 - g) <= GRADIENT_32[0] * np.linalg.norm(g) + GRADIENT_32[1]
