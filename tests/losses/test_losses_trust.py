"""TCL's losses against an independent float64 computation, forward and gradient, and where they could break."""

from __future__ import annotations

import math
from collections.abc import Callable

import losscases
import numpy as np
import pytest
import torch
from losscases import Array, Mask
from scipy.special import digamma, gammaln, polygamma

from ccr_cli.losses import trust

TAU = 0.05
FORMS: tuple[trust.Form, ...] = ("exp", "relu", "softplus")
every_case = losscases.every_case

# Float32 against float64, relative and absolute: about twice the largest error measured over all cases.
VALUE_32 = (5e-7, 5e-8)
GRADIENT_32 = (1e-6, 1e-6)  # Euclidean norm


# ---- the oracles: loops over explicit candidate lists, no code shared with the package


def oracle_evidence(form: str, sim: Array) -> Array:
    x = sim / TAU
    return {"exp": np.exp(x), "relu": np.maximum(x, 0), "softplus": np.log1p(np.exp(x))}[form]


def oracle_kl(alpha: Array) -> float:
    """Eq. (9) as printed."""
    s, k = alpha.sum(), len(alpha)
    return float(gammaln(s) - gammaln(k) - gammaln(alpha).sum() + ((alpha - 1) * (digamma(alpha) - digamma(s))).sum())


def oracle_loss(form: str, kl_weight: float, sim: Array, mask: Mask, weight: Array) -> float:
    """Eq. (8) to (10), weighted, without pairs of weight 0."""
    cost, mass = 0.0, 0.0
    for i in np.flatnonzero(weight > 0).tolist():
        keep = losscases.kept(mask, i, weight)
        if len(keep) > 1:
            alpha = oracle_evidence(form, sim[i, keep]) + 1
            own = keep.index(i)
            value = digamma(alpha.sum()) - digamma(alpha[own])
            alpha[own] = 1
            cost += weight[i] * (value + kl_weight * oracle_kl(alpha))
            mass += weight[i]
    return cost / mass if mass else 0.0


def oracle_consistency(own: Array, other: Array, mask: Mask, weight: Array) -> float:
    """Eq. (12), (13) of one direction."""
    cost, mass = 0.0, 0.0
    for i in np.flatnonzero(weight > 0).tolist():
        keep = losscases.kept(mask, i, weight)
        if len(keep) > 1:
            e, f = (oracle_evidence("exp", x[i, keep]) for x in (own, other))
            cost += weight[i] * np.abs(e / (e + 1).sum() - f / (f + 1).sum()).mean()
            mass += weight[i]
    return cost / mass if mass else 0.0


# ---- against the oracles


def check(loss: Callable[[torch.Tensor], torch.Tensor], oracle: Callable[[Array], float], sim: Array, h: float) -> None:
    """Value and, with a step h > 0, gradient in float64; both in float32."""
    value, gradient = losscases.derivative(loss, sim)
    assert value == pytest.approx(oracle(sim), rel=1e-6, abs=1e-12)
    if h:
        losscases.check_slope(oracle, sim, gradient, h)
    losscases.check_float32(loss, sim, VALUE_32, GRADIENT_32)


@pytest.mark.parametrize("kl_weight", [0.0, 0.005, 1.0])
@pytest.mark.parametrize("form", FORMS)
@every_case
def test_uncertainty_aware_loss_equals_the_oracle(
    size: int, kind: str, mask_kind: str, form: trust.Form, kl_weight: float
) -> None:
    (sim,), mask, weight = losscases.make(size, kind, mask_kind)

    def loss(s: torch.Tensor) -> torch.Tensor:
        e = trust.evidence(s, TAU, form)
        return trust.uncertainty_aware_loss(e, torch.tensor(mask), torch.tensor(weight).to(s), kl_weight=kl_weight)

    # saturated: the printed KL has lost too many digits for a difference; the test of its gradient is below
    h = {"random": 1e-4, "equal": 1e-4, "saturated": 0.0}[kind]
    if form == "relu" and kind == "random":
        h = 1e-7  # a kink at 0
    check(loss, lambda s: oracle_loss(form, kl_weight, s, mask, weight), sim, h)


@every_case
def test_consistency_equals_the_oracle(size: int, kind: str, mask_kind: str) -> None:
    (own, other), mask, weight = losscases.make(size, kind, mask_kind, count=2)

    def loss(s: torch.Tensor) -> torch.Tensor:
        e = trust.evidence(torch.tensor(own).to(s), TAU)
        return trust.consistency(e, trust.evidence(s, TAU), torch.tensor(mask), torch.tensor(weight).to(s))

    if kind == "random":
        check(loss, lambda s: oracle_consistency(own, s, mask, weight), other, 1e-7)
    else:  # many beliefs are equal: kinks
        value, _ = losscases.derivative(loss, other)
        assert value == pytest.approx(oracle_consistency(own, other, mask, weight), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("size", losscases.SIZES)
@pytest.mark.parametrize("kind", ["mixed", "strong", "weak", "around the change of formula"])
def test_kl_and_its_gradient_for_evidence_of_any_strength(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    alpha = {
        "mixed": 1 + np.exp(rng.uniform(-20, 20, size)),
        "strong": np.full(size, 1 + math.exp(20)),
        "weak": 1 + rng.uniform(0.1, 1, size),
        "around the change of formula": np.linspace(15.9, 16.1, size),
    }[kind]
    value, gradient = losscases.derivative(lambda a: trust.kl_to_uniform(a[None]).sum(), alpha)
    assert value == pytest.approx(oracle_kl(alpha), rel=1e-6)
    expected = (alpha - 1) * polygamma(1, alpha) - (alpha.sum() - size) * polygamma(1, alpha.sum())
    np.testing.assert_allclose(gradient * alpha, expected * alpha, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("exponent", [0, 3, 6, 9, 12])
def test_kl_loses_no_digits_where_one_entry_holds_all_evidence(exponent: int) -> None:
    # alpha = (x, 1, ..., 1): Gamma(S) / Gamma(x) is a product, psi(S) - psi(x) a sum, and nothing cancels
    x, others = 10.0**exponent, np.arange(127)
    exact = np.log(x + others).sum() - gammaln(128) - (x - 1) * (1 / (x + others)).sum()
    alpha = torch.ones(1, 128, dtype=torch.float64)
    alpha[0, 5] = x
    assert trust.kl_to_uniform(alpha).item() == pytest.approx(exact, rel=1e-12, abs=1e-12)


# ---- by hand, and where it could break


def test_by_hand() -> None:
    # psi(n) differs from psi(m) by 1/m + ... + 1/(n - 1); alpha = (3, 2): psi(5) - psi(3) = 1/3 + 1/4
    e = torch.tensor([[2.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    assert trust.risk(e).tolist() == pytest.approx([1 / 3 + 1 / 4, 1.0])
    # alpha~ = (1, 2): log 2 + psi(2) - psi(3) = log 2 - 1/2
    assert trust.uncertainty_aware_loss(e, kl_weight=1).item() == pytest.approx((7 / 12 + math.log(2) - 0.5 + 1) / 2)
    # b = (2, 1) / 5 and (0, 0), against (1, 1) / 4 and (0, 3) / 5
    other = torch.tensor([[1.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
    assert trust.consistency(e, other).item() == pytest.approx(((0.15 + 0.05) / 2 + 0.6 / 2) / 2)


def test_kl_of_the_uniform_distribution_is_0_and_masked_entries_do_not_count() -> None:
    assert trust.kl_to_uniform(torch.ones(3, 7)).abs().max() < 1e-12
    alpha = torch.tensor([[2.0, 5.0, 3.0, 100.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(trust.kl_to_uniform(alpha, mask), trust.kl_to_uniform(alpha[:, :3]))


def test_the_kl_drives_evidence_of_others_down_and_leaves_the_pair_alone() -> None:
    e = trust.evidence(torch.rand(5, 5, dtype=torch.float64)).requires_grad_()
    with_kl, without = (trust.uncertainty_aware_loss(e, kl_weight=w) for w in (1.0, 0.0))
    (grad,) = torch.autograd.grad(with_kl - without, e)
    assert ((grad * e).sum(dim=1) > 0).all() and not grad.diagonal().any()


def test_the_direction_s_own_model_gets_no_gradient_from_consistency() -> None:
    own, other = (torch.rand(4, 4, requires_grad=True) for _ in range(2))
    torch.autograd.backward(trust.consistency(trust.evidence(own), trust.evidence(other)))
    assert own.grad is None and other.grad is not None and other.grad.any()


def test_uncertainties_are_no_further_apart_than_beliefs() -> None:
    # eq. (14): the mean over K of the beliefs' distance bounds that of the uncertainties
    one, two = (trust.evidence(torch.randn(9, 9, dtype=torch.float64) / 5) for _ in range(2))
    u, v = (9 / (e + 1).sum(dim=1) for e in (one, two))
    assert trust.consistency(one, two) >= ((u - v).abs() / 9).mean()
    assert trust.consistency(one, two) <= 2 / 9


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="'linear'"):
        trust.evidence(torch.zeros(1), form="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tau 0\.0"):
        trust.evidence(torch.zeros(1), 0.0)
    with pytest.raises(ValueError, match=r"\(2, 2\).*\(3, 3\)"):
        trust.consistency(torch.ones(2, 2), torch.ones(3, 3))
