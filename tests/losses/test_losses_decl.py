"""DECL's losses against an independent float64 computation, forward and gradient, and where they could break."""

from __future__ import annotations

from typing import Literal

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask
from scipy.special import digamma, gammaln

from ccr_cli.losses import decl
from ccr_cli.losses.evidential import evidence

TAU = 0.1
Target = Literal["weight", "zero"]
every_case = losscases.every_case

# Float32 against float64, relative and absolute: about twice the largest error measured over all cases.
VALUE_32 = (2e-7, 2e-8)
GRADIENT_32 = (1e-6, 1e-6)  # Euclidean norm


# ---- the oracles: loops over explicit candidate lists, no code shared with the package


def oracle_mse(noisy_target: str, kl_weight: float, sim: Array, mask: Mask, label: Array) -> float:
    """The sum over pairs of both directions' losses."""
    e, out = np.exp(np.tanh(sim) / TAU), 0.0
    for i in range(len(sim)):
        for row, m in ((e[i], mask), (e[:, i], mask.T)):
            keep = losscases.kept(m, i)
            if len(keep) < 2:
                continue
            y = np.array([0.0 if j != i else label[i] if noisy_target == "zero" else 1.0 for j in keep])
            alpha, k = row[keep] + 1, len(keep)
            s = alpha.sum()
            value = ((y - alpha / s) ** 2 + alpha * (s - alpha) / (s**2 * (s + 1))).sum()
            a = row[keep] * (1 - y) + 1
            kl = gammaln(a.sum()) - gammaln(k) - gammaln(a).sum() + ((a - 1) * (digamma(a) - digamma(a.sum()))).sum()
            out += (value + kl_weight * kl) * (label[i] if noisy_target == "weight" else 1.0)
    return float(out)


def oracle_hinge(count: int, sim: Array, mask: Mask, weight: Array) -> float:
    out = 0.0
    for i in range(len(sim)):
        for row, m in ((sim[i], mask), (sim[:, i], mask.T)):
            costs = sorted((max(0.0, 0.2 + row[j] - row[i]) for j in losscases.kept(m, i) if j != i), reverse=True)
            out += weight[i] * float(np.mean(costs[:count])) if costs else 0.0
    return out


# ---- against the oracles


@pytest.mark.parametrize("kl_weight", [0.0, 0.1])
@pytest.mark.parametrize("noisy_target", ["weight", "zero"])
@every_case
def test_evidential_regression_equals_the_oracle(
    size: int, kind: str, mask_kind: str, noisy_target: Target, kl_weight: float
) -> None:
    (sim,), mask, label = losscases.make(size, kind, mask_kind)

    def loss(s: torch.Tensor) -> torch.Tensor:
        e, y = evidence(s, TAU), torch.tensor(label).to(s)
        return decl.evidential_mse(e, y, torch.tensor(mask), kl_weight=kl_weight, noisy_target=noisy_target).sum()

    def oracle(s: Array) -> float:
        return oracle_mse(noisy_target, kl_weight, s, mask, label)

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim), rel=1e-6)
    losscases.check_slope(oracle, sim, gradient)
    losscases.check_float32(loss, sim, VALUE_32, GRADIENT_32)


@pytest.mark.parametrize("count", [1, 5, 127, 500])
@every_case
def test_dynamic_hinge_equals_the_oracle(size: int, kind: str, mask_kind: str, count: int) -> None:
    (sim,), mask, weight = losscases.make(size, kind, mask_kind)

    def loss(s: torch.Tensor) -> torch.Tensor:
        return (torch.tensor(weight).to(s) * decl.dynamic_hinge(s, count, torch.tensor(mask))).sum()

    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle_hinge(count, sim, mask, weight), rel=1e-6, abs=1e-12)
    if kind == "random":  # else ties: kinks
        losscases.check_slope(
            lambda s: oracle_hinge(count, s, mask, weight), sim, gradient, h=1e-8
        )  # steps over no kink
        losscases.check_float32(loss, sim, VALUE_32, GRADIENT_32)


# ---- by hand, and where it could break


def test_evidential_regression_by_hand() -> None:
    # alpha = (3, 1 | 1, 3), S = 4, p = (3/4, 1/4): 2 (1/4)^2 + 2 (3/16) / 5 in each direction
    e = torch.tensor([[2.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    each = 2 * (1 / 8 + 3 / 40)
    ones, half = torch.ones(2), torch.tensor([0.5, 1.0])
    assert decl.evidential_mse(e, ones, kl_weight=0).tolist() == pytest.approx([each, each])
    assert decl.evidential_mse(e, half, kl_weight=0).tolist() == pytest.approx([each / 2, each])
    zero = decl.evidential_mse(e, 1 - ones, kl_weight=0, noisy_target="zero")
    assert zero.tolist() == pytest.approx([2 * (10 / 16 + 3 / 40)] * 2)
    # the KL of a matching pair sees no evidence but the others'; there is none
    assert decl.evidential_mse(e, ones, kl_weight=1).tolist() == pytest.approx([each, each])


def test_hinge_by_hand() -> None:
    sim = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.6, 0.7], [0.0, 0.0, 0.9]], dtype=torch.float64)
    # row 0: 0.1, 0; row 1: 0, 0.3; row 2: none; column 0: none; column 1: 0, 0; column 2: 0, 0
    assert decl.dynamic_hinge(sim, 1).tolist() == pytest.approx([0.1, 0.3, 0])
    assert decl.dynamic_hinge(sim, 2).tolist() == pytest.approx([0.05, 0.15, 0])
    mask = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    assert decl.dynamic_hinge(sim, 2, mask).tolist() == pytest.approx([0, 0.3, 0])


def test_hard_negatives_fall_to_the_bound() -> None:
    # the published setting: 128 - 0.025 a step, at least 5, which is reached after 4,920 steps
    assert [decl.hard_negatives(step) for step in (1, 40, 41, 4920, 10**6)] == [127, 127, 126, 5, 5]
    assert decl.hard_negatives(3, first=8, least=2, rate=1) == 5


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="'drop'"):
        decl.evidential_mse(torch.ones(2, 2), torch.ones(2), noisy_target="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(3,\).* 2$"):
        decl.evidential_mse(torch.ones(2, 2), torch.ones(3))
    with pytest.raises(ValueError, match=r"^0 "):
        decl.dynamic_hinge(torch.ones(2, 2), 0)
